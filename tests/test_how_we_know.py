"""The page that says how results are known follows the tests, and refuses what they do not bear."""

import importlib.util

import pytest
from support.readme import ROOT

SPEC = importlib.util.spec_from_file_location("how_we_know", ROOT / "tools" / "how_we_know.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
TEST = "test_equivalences.py::test_collapsed_bound_is_its_definition"
ROW = f"a formula | svgp | bounds/svgp.py | gp | {TEST}"


def test_the_page_is_current():
    text = tool.PAGE.read_text(encoding="utf-8")
    assert text == tool.rendered(text), "python tools/how_we_know.py"


def test_every_oracle_has_a_row():
    """Helpers of other oracles, and wide arithmetic, are no formulas."""
    oracles = {path.stem for path in (ROOT / "tests" / "oracles").glob("*.py")}
    named = {line.split("|")[3].strip() for line in tool.FORMULAS.strip().splitlines()}
    helpers = {"linear_algebra", "wide", "likelihood_gradients", "chevron", "dual_blocks"}
    assert oracles - named == helpers


def test_tolerances_are_those_of_the_comparison(monkeypatch):
    monkeypatch.setattr(tool, "FORMULAS", ROW)
    assert [row[-1] for row in tool.rows()] == ["rtol 1e-09"]


@pytest.mark.parametrize("old, new, message", [
    ("svgp.py", "nothing.py", "does not exist"),
    ("| gp |", "| nothing |", "does not exist"),
    ("| gp |", "| chevron |", "does not reach"),
    ("is_its_definition", "", "no test"),
    ("::test_", "::no_", "no test"),
])  # fmt: skip
def test_a_row_that_the_sources_do_not_bear_out_is_refused(monkeypatch, old, new, message):
    monkeypatch.setattr(tool, "FORMULAS", ROW.replace(old, new))
    with pytest.raises(SystemExit, match=message):
        list(tool.rows())
