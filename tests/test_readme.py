"""Run the Python of the README and docs/, which must use only public names."""

import ast
import re

import numpy as np
import pytest
from support.readme import BLOCK, PAGES, README, ROOT, needs, run, snippets

import fastsvgp as fs
from fastsvgp import public_names


def test_the_python_block_runs():
    assert len(snippets()) == 1
    names = run(README)
    np.testing.assert_allclose(names["mean"], np.sin(1.0), atol=0.1)
    np.testing.assert_allclose(names["var"], 0.2**2, rtol=0.5)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_order(page):
    assert snippets(page)
    run(page)


@pytest.mark.parametrize(
    "page, needed",
    [(page, name) for page in (README, *PAGES) for name in needs(page)],
    ids=lambda x: getattr(x, "stem", x),
)
def test_blocks_that_need_more_run_where_it_is(page, needed):
    pytest.importorskip(needed)
    run(page, having=(needed,))


def test_pages_are_there_and_are_linked_to():
    assert {page.stem for page in PAGES} >= {
        "covariance",
        "likelihood",
        "posterior",
        "model",
        "getting_started",
    }
    howto = ROOT / "docs" / "howto"
    assert set(PAGES) >= set(howto.glob("*.md")) - {howto / "index.md"}
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8"))
    # the table of contents of the site lists the others
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= set(links)
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_two_commands_are_there():
    text = README.read_text(encoding="utf-8")
    assert 'python -m pip install ".[cli]" && fastsvgp demo\n' in text
    tests = "python -m pytest -n 2 --dist worksteal"
    assert f'python -m pip install ".[test]" && {tests}\n' in text
    assert f"\n  {tests} </dev/null\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_step_times_in_sentences_are_those_of_the_table():
    table = (ROOT / "bench" / "results" / "peers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| 512, 1024 \| (\w+)\S* .*?\| (\S+) \|", table, re.MULTILINE)
    best = {name: min(float(m) for n, m in rows if n == name) for name, _ in rows if name != "gemm"}
    ms = [f"{best[name]:.0f} ms" for name in ("fastsvgp", "JAX", "GPyTorch")]
    for page in (README, ROOT / "docs" / "index.md"):
        text = " ".join(page.read_text(encoding="utf-8").split())
        assert f"{ms[0]} on two cores, where JAX takes {ms[1]} and GPyTorch {ms[2]}" in text


OFFERED = {"fastsvgp": fs.__all__, "fastsvgp.extending": fs.extending.__all__} | {
    f"fastsvgp.{module}": getattr(fs, module).__all__ for module in public_names.MODULES
}
PUBLIC = {*OFFERED, "fastsvgp.sklearn", "fastsvgp.interop.torch", "fastsvgp.interop.jax"}


def not_public(source):
    """Yield the names of the package that a piece of Python uses and that are not public.

    These are modules, names imported from modules, and ``fs.name``.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (
                alias.name
                for alias in node.names
                if alias.name.startswith("fastsvgp") and alias.name not in PUBLIC
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastsvgp"):
            if node.module not in PUBLIC:
                yield node.module
            elif node.module in OFFERED:
                offered = OFFERED[node.module]
                yield from (
                    f"{node.module}.{alias.name}"
                    for alias in node.names
                    if alias.name not in offered
                )
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "fs"
        ):
            if node.attr not in fs.__all__:
                yield f"fs.{node.attr}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("fs."):
            module = ast.unparse(node.value).replace("fs", "fastsvgp", 1)
            if node.attr not in OFFERED.get(module, [node.attr]):
                yield f"{module}.{node.attr}"


def python_of_pages():
    """Yield (page, its Python) of all pages, the gallery, and the examples of extensions."""
    for page in (README, *PAGES):
        yield from ((page, source) for _, source in BLOCK.findall(page.read_text(encoding="utf-8")))
    scripts = (
        *(ROOT / "docs" / "gallery").glob("*.py"),
        *(ROOT / "tests" / "extending").glob("*.py"),
    )
    yield from ((script, script.read_text(encoding="utf-8")) for script in scripts)


def test_pages_import_what_is_public():
    found = [(page.name, name) for page, source in python_of_pages() for name in not_public(source)]
    assert not found, "give it a place in fastsvgp.extending, or leave it out"


@pytest.mark.parametrize(
    "source, found",
    [
        ("from fastsvgp.covariances.base import ALL", ["fastsvgp.covariances.base"]),
        ("import fastsvgp.train.steps", ["fastsvgp.train.steps"]),
        ("from fastsvgp import runtime", ["fastsvgp.runtime"]),
        ("from fastsvgp.extending import svgp", ["fastsvgp.extending.svgp"]),
        ("from fastsvgp.testing import check", ["fastsvgp.testing.check"]),
        ("import fastsvgp as fs\nfs.runtime.leaves", ["fs.runtime"]),
        (
            "import fastsvgp as fs\nfrom fastsvgp import kernels\n"
            "from fastsvgp.extending import ALL, check\nfs.extending.models.register",
            [],
        ),
    ],
)
def test_what_is_not_public_is_found(source, found):
    assert list(not_public(source)) == found


def test_pages_name_what_is_public():
    """Dotted paths in prose also start with names of the reference."""
    known = {*fs.__all__, "sklearn", "interop", "__all__", "NAME", "MODULE"}
    for page in (README, *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for name, more in re.findall(r"`(?:fastsvgp|fs)\.(\w+)(?:\.(\w+))?", text):
            assert name in known, f"{page.name}: fastsvgp.{name}"
            offered = OFFERED.get(f"fastsvgp.{name}", [more])
            assert not more or more in offered, f"{page.name}: fastsvgp.{name}.{more}"
