"""Options of public functions: a misspelt one is refused with the nearest name, and the stub has those that there are."""

import ast
import inspect
import pathlib

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import models
from fastsvgp.records import typed

EVERY = [getattr(fs, name) for name in fs.__all__]  # imports all that registers a kind of model
FUNCTIONS = {
    name: thing for name, thing in zip(fs.__all__, EVERY, strict=True) if inspect.isfunction(thing)
}
KINDS = [kind for kind in models._SERVES if kind.__module__.startswith("fastsvgp.")]
BY_KIND = [(name, kind) for kind in KINDS for name in models._SERVES[kind]]
FREE = {"save", "replace"}  # their ``**`` names are the caller's, or fields
ROWS = np.zeros((2, 1))
STUB = ast.parse(pathlib.Path(fs.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))


def required(function):
    """How many arguments have to be given by their place."""
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


def options(function):
    """Names of the arguments that have a default."""
    return [
        p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty
    ]


@pytest.mark.parametrize(
    ("name", "kind"), BY_KIND, ids=lambda value: getattr(value, "__name__", value)
)
def test_each_kind_of_model_refuses_a_misspelt_option(name, kind):
    model, call = object.__new__(kind), FUNCTIONS[name]  # its fields are not looked at
    serves = call if name == "fit" else models.serving(name, model)[0]
    data = [ROWS] * (required(serves) - 1)
    for option in options(serves):
        with pytest.raises(
            TypeError, match=rf"^{name} has no option `{option}z`; did you mean `{option}`\?$"
        ):
            call(model, *data, **{option + "z": None})
    with pytest.raises(
        TypeError, match=f"^{name} has no option `qqq` for {kind.__name__}; it takes (`|no options)"
    ):
        call(model, *data, qqq=None)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - set(models.OFFERED) - FREE))
def test_no_function_accepts_an_option_that_it_does_not_have(name):
    function = FUNCTIONS[name]
    with pytest.raises(TypeError, match="qqq"):
        function(*[ROWS] * required(function), qqq=None)
    if hasattr(function, "__wrapped__"):  # others are answered by Python
        for option in options(function):
            with pytest.raises(
                TypeError, match=rf"^{name} has no option `{option}z`; did you mean `{option}`\?$"
            ):
                function(*[ROWS] * required(function), **{option + "z": None})


def test_what_is_near_is_named_and_else_all():
    model = fs.SVGP(fs.RBF(), ROWS, fs.Whitened(np.zeros(2), np.eye(2)), fs.Gaussian(0.1))
    data = model, ROWS, ROWS
    for call, said in (
        (
            lambda: fs.elbo_and_grad(*data, nmu_data=3),
            "elbo_and_grad has no option `nmu_data`; did you mean `num_data`?",
        ),
        (
            lambda: fs.elbo(model=model, X=ROWS, Y=ROWS, jiter=3),
            "elbo has no option `jiter`; did you mean `jitter`?",
        ),
        (lambda: fs.elbo(*data, probs=3), "elbo has no option `probs`; did you mean `probes`?"),
        (lambda: fs.fit(*data, stepz=3), "fit has no option `stepz`; did you mean `steps`?"),
        (
            lambda: fs.predict_y(*data[:2], rows=1),
            "predict_y has no option `rows` for SVGP; it takes `chunk_size`, `jitter`",
        ),
        (
            lambda: fs.inverse_factor(np.eye(2), max_step=3),
            "inverse_factor has no option `max_step`; did you mean `max_steps`?",
        ),
        (
            lambda: fs.recipes.regression(*data[1:], solvr=3),
            "regression has no option `solvr`; did you mean `solver`?",
        ),
        (
            lambda: fs.recipes.classification(*data[1:], men=3),
            "classification has no option `men`; did you mean `mean`?",
        ),
        (
            lambda: fs.replace(model, likelihod=3),
            "replace has no option `likelihod`; did you mean `likelihood`?",
        ),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == said


def test_other_errors_of_type_stay_as_they_are():
    pair = fs.InducingPair(ROWS, ROWS + 1)
    model = fs.SVGP(fs.RBF(), pair, fs.at_prior(fs.Orthogonal, fs.RBF(), pair), fs.Gaussian(0.1))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        fs.to_joint(jitter=1e-6)
    with pytest.raises(TypeError, match="`jitter` must be a"):
        fs.to_joint(model, jitter="small")
    with pytest.raises(TypeError, match="dataclass"):
        fs.replace(3, likelihood=fs.Gaussian(0.1))


def declared():
    """Functions of the stub: the names of their arguments, those in a ``**`` of a TypedDict included."""
    grouped = {"Random": set(typed.Random.__annotations__)}
    found = {}
    for node in STUB.body:
        if isinstance(node, ast.ClassDef):
            own = {line.target.id for line in node.body if isinstance(line, ast.AnnAssign)}
            grouped[node.name] = own.union(*(grouped.get(base.id, ()) for base in node.bases))
        elif isinstance(node, ast.FunctionDef):
            names = {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
            if node.args.kwarg:
                names |= grouped[node.args.kwarg.annotation.slice.id]
            assert names == found.setdefault(node.name, names), f"overloads of {node.name} differ"
    return found


def names_of(function):
    return {
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    }


@pytest.mark.parametrize("name", sorted(set(models.OFFERED) - {"fit"}))
def test_type_checkers_know_the_options_of_all_kinds(name):
    taken = set().union(
        *(names_of(models._SERVES[kind][name][0]) for kind in KINDS if name in models._SERVES[kind])
    )
    if any(
        models._SERVES[kind][name][2] == "random" for kind in KINDS if name in models._SERVES[kind]
    ):
        taken |= set(typed.Random.__annotations__)
    known = declared().get(
        name, names_of(FUNCTIONS[name]) | taken & set(typed.Random.__annotations__)
    )
    assert known == taken


def test_the_stub_declares_other_functions_as_they_are():
    others = {name: names for name, names in declared().items() if name not in models.OFFERED}
    assert others
    for name, names in others.items():
        assert names == names_of(FUNCTIONS[name]), name


def test_random_quantities_have_types():
    ours = [getattr(fs, name) for name in fs.__all__ if isinstance(getattr(fs, name), type)]
    known = set().union(*(getattr(kind, "random_quantities", ()) for kind in ours))
    assert known == set(typed.Random.__annotations__) == set(typed.RandomCounts.__annotations__)
