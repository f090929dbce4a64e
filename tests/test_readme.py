"""What the README and docs/ show runs, and the README says what comes out."""

import re

import numpy as np
import pytest
from readme import PAGES, README, ROOT, needs, run, snippets


def test_the_python_block_runs():
    assert len(snippets()) == 1
    names = run(README)
    np.testing.assert_allclose(names["mean"], np.sin(1.0), atol=0.1)
    np.testing.assert_allclose(names["var"], 0.2**2, rtol=0.5)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page):
    assert snippets(page)
    run(page)


@pytest.mark.parametrize("page, needed", [(page, name) for page in (README, *PAGES) for name in needs(page)],
                         ids=lambda x: getattr(x, "stem", x))  # fmt: skip
def test_blocks_that_need_more_run_where_it_is(page, needed):
    pytest.importorskip(needed)
    run(page, having=(needed,))


def test_pages_are_there_and_are_linked_to():
    assert {page.stem for page in PAGES} >= {"covariance", "likelihood", "posterior", "model", "getting_started"}
    howto = ROOT / "docs" / "howto"
    assert set(PAGES) >= set(howto.glob("*.md")) - {howto / "index.md"}
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8"))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= set(links)  # the site's own contents list the others
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_two_commands_are_there():
    text = README.read_text(encoding="utf-8")
    assert 'python -m pip install ".[cli]" && fastsvgp demo\n' in text
    tests = "python -m pytest -n 2 --dist worksteal"
    assert f'python -m pip install ".[test]" && {tests}\n' in text
    assert f"\n{tests} </dev/null\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
