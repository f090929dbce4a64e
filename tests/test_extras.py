"""Messages that say what to install come from one function, with the form for a checkout."""

import ast
import pathlib
import re
import tomllib

from support.source import FILES, parse

from fastsvgp.runtime.extras import install_hint, install_package

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = [path for path in FILES if path.name != "extras.py"]
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


def complaints(tree):
    """Yield what is wrong with the advice in a file."""
    for text, documentation in texts(tree):
        if documentation:
            extras = re.findall(r"fastsvgp\[(\w+)\]", text)
            if not all(f'".[{extra}]"' in text for extra in extras):
                yield f"name the form of a checkout as well: {extras}"
        elif advises(text):
            yield f"{text!r} is for fastsvgp.runtime.extras to say"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "install_hint":
            named = {argument.value for argument in node.args}
            if not named or named - EXTRAS.keys():
                yield f"line {node.lineno}: no such extras: {named}"


def test_messages_take_their_advice_from_one_place_and_name_extras_that_there_are():
    wrong = [f"{path}: {complaint}" for path in SOURCES for complaint in complaints(parse(path))]
    assert not wrong


def test_install_hints_name_extras_and_packages():
    assert install_hint("mpi") == 'python -m pip install "fastsvgp[mpi]" (in a checkout: ".[mpi]")'
    assert (
        install_hint("cuda13", "cuda12")
        == 'python -m pip install "fastsvgp[cuda13]" (in a checkout: ".[cuda13]", or cuda12'
        " instead)"
    )
    assert install_package("mpich") == "python -m pip install mpich"


def test_pages_name_the_form_of_a_checkout():
    """Pages are read in a checkout, and the package need not be on an index."""
    wrong = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"fastsvgp\[(\w+)\]", text)
        forms = re.findall(r"\"\.\[([\w,-]+)\]\"", text)
        wrong += [f"{path}: {name}" for name in names if f'".[{name}]"' not in text]
        wrong += [f"{path}: {form}" for form in {*forms} - {*EXTRAS, "cuda13,test,bench"}]
    assert not wrong
