"""Every public name is on a page of docs/api, with parameters, results and an example."""

import doctest
import functools
import inspect
import operator
import re

import numpy as np
import pytest
from support.looped import looped
from support.public import BY_NAME, OBJECTS
from support.readme import ROOT, snippets

import fastsvgp as fs
from fastsvgp import extending
from fastsvgp.records import decorator

API = ROOT / "docs" / "api"
# groups of ranks have what runs on a page of their own, docs/distributed.md
NAMES = [name for name in OBJECTS if not name.startswith("distributed.")]
IN_MODULES = [
    *(f"optim.schedules.{name}" for name in ("log_linear", "cosine", "exponential")),
    "optim.schedules.plateau",
    *(f"extending.models.{name}" for name in ("register", "serving", "offers", "options")),
    *(
        f"extending.{name}"
        for name in sorted({*extending.__all__} - {*BY_NAME, *dir(fs.kernels)})
        if callable(getattr(extending, name))
    ),
]
# these need a device, or a folder written by the command line
NO_EXAMPLE_RUNS = {"to_device", "load_fitted", "Fitted"}


@functools.cache
def setup():
    """Return the names of the block on the first page of the reference, which examples use."""
    names = {"__name__": "reference"}
    exec(*snippets(API / "index.md"), names)
    return names


def examples(name):
    """Examples start with those names; in ``fastsvgp.extending`` also with its names."""
    known = (vars(extending) if name.startswith("extending.") else {}) | setup()
    return doctest.DocTestParser().get_doctest(
        inspect.getdoc(operator.attrgetter(name)(fs)), known, name, None, 0
    )


@pytest.mark.parametrize("name", NAMES + IN_MODULES)
def test_examples_run(name, monkeypatch):
    """Its records are forgotten again; those of other tests may bear the same names."""
    ours = {name: cls for name, cls in decorator.REGISTRY.items() if decorator.is_ours(cls)}
    monkeypatch.setattr(decorator, "REGISTRY", ours)
    test, said = examples(name), []
    assert test.examples, f"{name} has no example"
    skipped = [doctest.SKIP in example.options for example in test.examples]
    assert all(skipped) if name in NO_EXAMPLE_RUNS else not any(skipped)
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def listed(page):
    """Return the dotted names of a page of the reference."""
    module, found = "fastsvgp", []
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(
        r"^(?:\.\. currentmodule:: (\S+)|(?:   |\.\. autofunction:: )([\w.]+))$", text, re.M
    ):
        module = match[1] or module
        if match[2]:
            found.append(f"{module}.{match[2]}".removeprefix("fastsvgp."))
    found = [f"extending.{name}" if name.startswith("models.") else name for name in found]
    return found


def test_every_public_name_is_on_one_page():
    kernels = {
        n
        for n, f in vars(fs.kernels).items()
        if inspect.isfunction(f) and f.__module__.startswith(f"{fs.kernels.__name__}.")
    }
    own = {"kernels", "estimators", "interop"}  # pages of other names
    pages = [
        name for page in sorted(API.glob("*.rst")) if page.stem not in own for name in listed(page)
    ]
    assert sorted(pages) == sorted([*OBJECTS, *IN_MODULES]), "a name is on no page, or on two"
    assert set(listed(API / "kernels.rst")) == {
        f"kernels.{name}" for name in kernels if not name.startswith("_")
    }


def test_each_module_has_a_page():
    """Its first paragraph says when to come there."""
    for module in fs.public_names.MODULES:
        page = API / ("fastsvgp" if module == "fastsvgp" else module)
        text = page.with_suffix(".rst").read_text(encoding="utf-8")
        assert "Come here" in text.partition("currentmodule")[0] or module == "testing"


@looped("name", NAMES + IN_MODULES)
def test_parameters_and_results_are_described(name):
    validate = pytest.importorskip("numpydoc.validate")
    wanted = {"PR01", "PR02", "RT01", "SS03", "GL07", "EX01"}
    assert not [
        error for error in validate.validate(f"fastsvgp.{name}")["errors"] if error[0] in wanted
    ]


def test_elbo_and_grad_describes_each_argument_itself():
    """It is the most read function: no argument refers to another page."""
    text = inspect.getdoc(fs.elbo_and_grad)
    arguments = text.partition("Parameters")[2].partition("Returns")[0]
    for name in inspect.signature(fs.elbo_and_grad).parameters.values():
        assert re.search(
            rf"^{re.escape(str(name).partition('=')[0].partition(':')[0])}(?: : .+)?\n    \S",
            arguments,
            re.M,
        ), name
    assert "As in" not in text


def test_the_first_page_of_the_reference_runs():
    assert np.isfinite(fs.elbo(setup()["model"], setup()["X"], setup()["Y"]))
