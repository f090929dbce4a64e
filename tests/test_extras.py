"""Messages that say what to install come from one function, with the form for a checkout."""

import ast
import pathlib
import re
import tomllib

import pytest

from fastsvgp.runtime.extras import install_hint, install_package

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = sorted(path for path in (ROOT / "fastsvgp").rglob("*.py") if path.name != "extras.py")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "api").glob("*.rst")]
)


def docstrings(tree):
    """Yield the nodes of docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, owners) and ast.get_docstring(node) is not None:
            yield node.body[0].value


def texts(tree):
    """Yield ``(text, whether it is a docstring)`` of all strings; f-strings part by part."""
    known = {id(node) for node in docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, id(node) in known


def advises(text):
    """Whether a text itself says how to install something."""
    return re.search(r"pip3? install|fastsvgp\[", text) is not None


def test_advice_is_found_wherever_it_stands():
    message = (
        'def f():\n    "pip install x"\n    raise ImportError(f"{f}; pip install {f}")\nG ='
        ' "fastsvgp[mpi]"'
    )
    assert [(text, known) for text, known in texts(ast.parse(message)) if advises(text)] == [
        ("fastsvgp[mpi]", False), ("pip install x", True), ("; pip install ", False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: path.relative_to(ROOT / "fastsvgp").as_posix()
)
def test_messages_take_their_advice_from_one_place(path):
    for text, documentation in texts(ast.parse(path.read_text(encoding="utf-8"))):
        if documentation:
            extras = re.findall(r"fastsvgp\[(\w+)\]", text)
            assert all(f'".[{extra}]"' in text for extra in extras), (
                f"{path}: name the form of a checkout as well: {extras}"
            )
        else:
            assert not advises(text), f"{path}: {text!r} is for fastsvgp.runtime.extras to say"


@pytest.mark.parametrize(
    "path", SOURCES, ids=lambda path: path.relative_to(ROOT / "fastsvgp").as_posix()
)
def test_messages_advise_extras_that_there_are(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "install_hint":
            assert node.args and {argument.value for argument in node.args} <= EXTRAS.keys(), (
                f"{path}:{node.lineno}"
            )


def test_install_hints_name_extras_and_packages():
    assert install_hint("mpi") == 'python -m pip install "fastsvgp[mpi]" (in a checkout: ".[mpi]")'
    assert (
        install_hint("cuda13", "cuda12")
        == 'python -m pip install "fastsvgp[cuda13]" (in a checkout: ".[cuda13]", or cuda12'
        " instead)"
    )
    assert install_package("mpich") == "python -m pip install mpich"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_name_the_form_of_a_checkout(path):
    """Pages are read in a checkout, and the package need not be on an index."""
    text = path.read_text(encoding="utf-8")
    assert all(f'".[{extra}]"' in text for extra in re.findall(r"fastsvgp\[(\w+)\]", text))
    assert set(re.findall(r"\"\.\[([\w,-]+)\]\"", text)) <= {*EXTRAS, "cuda13,test,bench"}
