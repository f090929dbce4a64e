"""Every public name is on a page of docs/api, with parameters, results and an example."""

import doctest
import functools
import inspect
import operator
import re

import numpy as np
import pytest
from support.looped import looped
from support.readme import ROOT, snippets

import fastsvgp as fs
from fastsvgp import extending
from fastsvgp.records import decorator

API = ROOT / "docs" / "api"
NAMES = [name for name in fs.__all__ if callable(getattr(fs, name))]
OF_MODULES = {  # beside them, of modules that are public as a whole
    "recipes": {"classification", "regression", "search"},
    "schedules": {"constant", "log_linear", "cosine", "exponential", "plateau"},
    "distributed": {"mpi", "nccl", "tell_at_exit", "threads"},
    "models": {"register", "serving", "offers", "options"},
    "testing": {"assert_gradient"},
    "extending": (
        {name for name in extending.__all__ if callable(getattr(extending, name))}
        - {*dir(fs), *dir(fs.kernels)}
    ),
}
IN_MODULES = [  # groups of ranks have what runs on a page of their own, docs/distributed.md
    f"{module}.{name}"
    for module, names in OF_MODULES.items()
    if module != "distributed"
    for name in sorted(names)
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
    return re.findall(
        r"^(?:   |\.\. autofunction:: )(\w+)$", page.read_text(encoding="utf-8"), re.M
    )


def test_every_public_name_is_on_one_page():
    kernels = {
        n
        for n, f in vars(fs.kernels).items()
        if inspect.isfunction(f) and f.__module__.startswith(f"{fs.kernels.__name__}.")
    }
    pages = [
        name
        for page in sorted(API.glob("*.rst"))
        if page.stem != "kernels"
        for name in listed(page)
    ]
    assert set(OF_MODULES) | {"kernels", "__version__"} == set(fs.__all__) - set(NAMES)
    assert sorted(pages) == sorted({*NAMES}.union(*OF_MODULES.values())), (
        "a name is on no page, or on two"
    )
    assert set(listed(API / "kernels.rst")) == {
        name for name in kernels if not name.startswith("_")
    }


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
