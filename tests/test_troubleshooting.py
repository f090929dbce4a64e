"""docs/troubleshooting.md has an entry for each error, warning and logged warning in the source."""

import ast
import re

import pytest
from support.readme import ROOT
from support.source import FILES, name_of, parse

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
# caught inside the package, so users never see them
WITHIN = {"CheckFailed", "StopTraining", "Fault", "Stopped"}
HEADINGS = set(re.findall(r"^#{2,3} (.+)$", PAGE, re.M))
QUOTED = re.findall(r"(?<!`)`([^`\n]{11,})`(?!`)", PAGE)


@pytest.fixture(scope="module")
def trees():
    return {name_of(path): parse(path) for path in FILES}


def errors(trees):
    """Yield the names of public errors and warnings."""
    for tree in trees.values():
        for node in tree.body:
            named = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if named and re.search(
                "(Error|Exception|Warning)$", " ".join(map(ast.unparse, node.bases))
            ):
                yield node.name


def warnings(trees):
    """Yield (place, text of the message) of each call, with formatted parts replaced by a space."""
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and node.args
                and ast.unparse(node.func) in ("warn", "warnings.warn", "log.warning")
            ):
                text = node.args[0]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                said = "".join(
                    part.value if isinstance(part, ast.Constant) else " " for part in parts
                )
                if said.strip():  # ``warn`` itself passes on a message
                    yield f"{name}:{node.lineno}", said


def test_every_error_has_an_entry(trees):
    found = {*errors(trees)}
    assert {"NotPositiveDefinite", "DataFileError", "UsageError"} <= found
    missing = found - WITHIN - HEADINGS
    assert not missing


def test_every_warning_has_an_entry(trees):
    found = list(warnings(trees))
    assert len(found) > 12
    assert not [
        f"{where}: {said}"
        for where, said in found
        if not any(words in re.sub(r"%[sdgr]", " ", said) for words in QUOTED)
    ]
