"""docs/troubleshooting.md has an entry for each error, warning and logged warning in the source."""

import ast
import re

import pytest
from support.readme import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
FILES = sorted((ROOT / "fastsvgp").rglob("*.py"))
# caught inside the package, so users never see them; a ``NewerFile`` is a ``DataFileError``
WITHIN = {"CheckFailed", "StopTraining", "Fault", "NewerFile", "Stopped"}
HEADINGS = set(re.findall(r"^#{2,3} (.+)$", PAGE, re.M))
QUOTED = re.findall(r"(?<!`)`([^`\n]{11,})`(?!`)", PAGE)


def classes():
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            named = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if named and re.search(
                "(Error|Exception|Warning)$", " ".join(map(ast.unparse, node.bases))
            ):
                yield node.name


def warnings():
    """Yield (place, text of the message) of each call, with formatted parts replaced by a space."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("warn", "warnings.warn", "log.warning")
                and node.args
            ):
                text = node.args[0]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                said = "".join(
                    part.value if isinstance(part, ast.Constant) else " " for part in parts
                )
                if said.strip():  # ``warn`` itself passes on a message
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", said


def test_the_search_finds_some():
    assert {"NotPositiveDefinite", "DataFileError", "UsageError"} <= set(classes()) and len(
        list(warnings())
    ) > 12


@pytest.mark.parametrize("name", sorted(set(classes()) - WITHIN))
def test_an_error_has_an_entry(name):
    assert name in HEADINGS


@pytest.mark.parametrize("where, said", list(warnings()), ids=lambda text: text.split(":")[0])
def test_a_warning_has_an_entry(where, said):
    assert any(words in re.sub(r"%[sdgr]", " ", said) for words in QUOTED), f"{where}: {said}"
