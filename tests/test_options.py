"""Options of public functions: misspelt ones get the nearest name, and all have types."""

import dataclasses
import inspect
import re
import typing

import numpy as np
import pytest
from support.looped import looped
from support.public import BY_NAME

import fastsvgp as fs
from fastsvgp import models
from fastsvgp.records import typed

# importing all of them registers each kind of model
FUNCTIONS = {name: thing for name, thing in BY_NAME.items() if inspect.isfunction(thing)}
KINDS = [kind for kind in models._IMPLEMENTATIONS if kind.__module__.startswith("fastsvgp.")]
BY_KIND = [(name, kind) for kind in KINDS for name in models._IMPLEMENTATIONS[kind]]
FREE = {"save", "replace"}  # their ``**`` names are the caller's, or fields
ROWS = np.zeros((2, 1))


def required(function):
    """Number of required positional arguments."""
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


def options(function):
    """Names of arguments with a default."""
    return [
        p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty
    ]


@looped("name, kind", BY_KIND)
def test_each_kind_of_model_refuses_a_misspelt_option(name, kind):
    model, call = object.__new__(kind), FUNCTIONS[name]  # its fields are not looked at
    serves = call if name == "fit" else models.serving(name, model)[0]
    data = [ROWS] * (required(serves) - 1)
    known = {*options(serves), *(own.name for own in models.options(kind, name))}
    for option in known - {"X", "Y"}:  # one letter is too little to guess from
        with pytest.raises(
            TypeError, match=rf"^{name} has no option `{option}z`; did you mean `{option}`\?$"
        ):
            call(model, *data, **{option + "z": None})
    with pytest.raises(
        TypeError, match=f"^{name} has no option `qqq` for {kind.__name__}; it takes (`|no options)"
    ):
        call(model, *data, qqq=None)


@looped("name", sorted(FUNCTIONS.keys() - set(models.OFFERED) - FREE))
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


def test_error_suggests_the_nearest_option_or_lists_all():
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
            lambda: fs.fit(*data, lr=0.1),
            "fit has no option `lr`; write optimiser=fastsvgp.adam(lr)",
        ),
        (lambda: fs.fit(*data, max_iter=9), "fit has no option `max_iter`; did you mean `steps`?"),
        (
            lambda: fs.layers.multi_gp(ROWS, ROWS, latents=2),
            "multi_gp has no option `latents`; did you mean `num_latents`?",
        ),
        (
            lambda: fs.predict_y(*data[:2], rows=1),
            "predict_y has no option `rows` for SVGP; it takes `chunk_size`, `jitter`",
        ),
        (
            lambda: fs.optim.inverse_factor(np.eye(2), max_step=3),
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
    pair = fs.posteriors.InducingPair(ROWS, ROWS + 1)
    model = fs.SVGP(
        fs.RBF(),
        pair,
        fs.posteriors.at_prior(fs.posteriors.Orthogonal, fs.RBF(), pair),
        fs.Gaussian(0.1),
    )
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        fs.posteriors.joint_posterior(jitter=1e-6)
    with pytest.raises(TypeError, match="`jitter` must be a"):
        fs.posteriors.joint_posterior(model, jitter="small")
    with pytest.raises(TypeError, match="dataclass"):
        fs.replace(3, likelihood=fs.Gaussian(0.1))


def names_of(function):
    """Names of the arguments, those in a ``**`` of a TypedDict included."""
    names = set()
    for p in inspect.signature(function).parameters.values():
        if p.kind is not p.VAR_KEYWORD:
            names.add(p.name)
        elif typing.get_origin(p.annotation) is typing.Unpack:
            names |= set(typing.get_args(p.annotation)[0].__annotations__)
    return names


def declared(name):
    """The names that type checkers know: those of each overload."""
    function = FUNCTIONS[name]
    each = [names_of(one) for one in typing.get_overloads(function) or [function]]
    assert all(names == each[0] for names in each), f"overloads of {name} differ"
    return each[0]


@looped("name", sorted(set(models.OFFERED) - {"fit"}))
def test_type_checkers_know_the_options_of_all_kinds(name):
    serving = [
        models._IMPLEMENTATIONS[kind][name]
        for kind in KINDS
        if name in models._IMPLEMENTATIONS[kind]
    ]
    assert serving
    taken = set().union(*(named for _, named, _ in serving))
    if any(rest == "random" for _, _, rest in serving):
        taken |= set(typed.Random.__annotations__)
    assert declared(name) == taken


OVERLOADED = sorted(name for name in FUNCTIONS if typing.get_overloads(FUNCTIONS[name]))


def test_functions_that_depend_on_an_argument_have_overloads():
    assert OVERLOADED == [
        "data_term_and_grad",
        "elbo_and_grad",
        "greedy_variance",
        "kmeans",
        "median_lengthscales",
        "patches",
        "predict_f",
    ]


@looped("name", sorted(set(OVERLOADED) - set(models.OFFERED)))
def test_overloads_have_the_arguments_of_the_function(name):
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    assert declared(name) == set(parameters)
    for one in typing.get_overloads(FUNCTIONS[name]):
        for p in inspect.signature(one).parameters.values():
            assert p.default is p.empty or parameters[p.name].default is not p.empty, p


def test_an_option_of_other_kinds_of_model_is_refused():
    model = fs.SVGP(fs.RBF(), ROWS, fs.Whitened(np.zeros(2), np.eye(2)), fs.Gaussian(0.1))
    for call, option, message in (
        (fs.predict_f, "num_samples", "`num_samples` is an option of DeepGP, not of SVGP"),
        (fs.predict_y, "median", "predict_y has no option `median` for SVGP"),
    ):
        with pytest.raises(TypeError, match=message):
            call(model, ROWS, **{option: 1})
        assert not models.takes(call.__name__, model, option)
    # None and the default of the other kind say nothing
    plain, given = fs.predict_f(model, ROWS), fs.predict_f(model, ROWS, num_samples=32, rng=None)
    np.testing.assert_array_equal(plain, given)


def test_random_quantities_have_types():
    ours = [thing for thing in BY_NAME.values() if isinstance(thing, type)]
    known = set().union(*(getattr(kind, "random_quantities", ()) for kind in ours))
    assert known == set(typed.Random.__annotations__) == set(typed.RandomCounts.__annotations__)


# --- options of one kind of model ---------------------------------------------------------------

STEPS = ["natural_step_size", "inverse_updates", "e_steps", "m_steps", "graph", "collapsed"]
OWNERS = {
    "fit": {
        fs.SVGP: STEPS,
        fs.MultiGP: STEPS,
        fs.VIF: STEPS,
        fs.DeepGP: ["natural_step_size", "inverse_updates", "e_steps", "m_steps", "num_samples"],
        fs.QSGP: ["basis_size", "control", "closed_form_every"],
        fs.SGPR: ["within"],
        fs.bounds.OrthogonalSGPR: [],
        fs.BasisGP: [],
        fs.bounds.BasisSVGP: STEPS,
    },
}
OWN = [(name, kind) for name, kinds in OWNERS.items() for kind in kinds]


@looped("name, kind", OWN)
def test_each_kind_lists_its_own_options_with_a_line_on_each(name, kind):
    listed = models.options(kind, name)
    assert [option.name for option in listed] == OWNERS[name][kind]
    for option in listed:
        assert option.default == {"graph": "auto", "collapsed": False}.get(option.name)
        assert re.fullmatch(r"[A-Z].{10,}\.", option.summary), option
    assert (
        not {option.name for option in listed}
        & inspect.signature(FUNCTIONS[name]).parameters.keys()
    )


@looped("name, kind", OWN)
def test_an_option_of_another_kind_is_named_with_its_owners(name, kind):
    model = object.__new__(kind)  # its fields are not looked at
    for option in {own for names in OWNERS[name].values() for own in names}:
        owners = sorted(other.__name__ for other, own in OWNERS[name].items() if option in own)
        if kind.__name__ not in owners:
            listed = " and ".join(filter(None, (", ".join(owners[:-1]), owners[-1])))
            said = (
                f"{name}: `{option}` is an option of {listed}, not of {kind.__name__}; leave it out"
            )
            with pytest.raises(TypeError) as caught:
                FUNCTIONS[name](model, ROWS, ROWS, **{option: 3})
            assert str(caught.value) == said and len(said) <= 160


def test_an_option_of_another_kind_may_have_its_default(rng):
    X = rng.standard_normal((8, 1))
    model = fs.SVGP(fs.RBF(), X[:2].copy(), fs.Whitened(np.zeros(2), np.eye(2)), fs.Gaussian(0.1))
    none = dict.fromkeys(("basis_size", "control", "closed_form_every", "num_samples"))
    assert fs.fit(model, X, X[:, 0], steps=1, **none)[1].steps == 1
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    assert fs.fit(sgpr, X, X[:, 0], steps=1, graph="auto", e_steps=None)[1].steps == 1
    with pytest.raises(TypeError, match="em: `batch_size` is for a SiteSVGP or VGP, whose sites"):
        fs.em(model, X, X[:, 0], rounds=1, batch_size=4)


def test_options_of_kinds_that_have_no_such_function():
    for kind in (fs.sites.SiteSVGP, fs.RBF, 3):
        with pytest.raises(TypeError, match="is not a kind of model that has `fit`"):
            models.options(kind)


def test_options_of_a_kind_of_your_own_come_from_its_record(rng):
    got = []

    @dataclasses.dataclass(frozen=True)
    class Heated:
        """Options.

        Parameters
        ----------
        heat : float
            Temperature of a step.
        """

        heat: float = 2.0

    @dataclasses.dataclass(frozen=True)
    class Named:
        posterior: object = None

    @dataclasses.dataclass(frozen=True)
    class Plain:
        posterior: object = None

    def training(request):
        got.append((request.options, request.epochs))
        raise KeyError

    models.register(Named, fit=models.with_options(Heated)(lambda request: training(request)))
    models.register(Plain, fit=training)
    try:
        assert models.options(Named) == [("heat", 2.0, "Temperature of a step.")]
        assert models.options(Plain) == []
        for kind, options in ((Named, {"heat": 3.0}), (Plain, {"e_steps": None, "epochs": 2.0})):
            with pytest.raises(KeyError):
                fs.fit(kind(), ROWS, ROWS, graph="auto", **options)
        assert got == [(Heated(3.0), None), (models.NoOptions(), 2.0)]
        with pytest.raises(TypeError, match="`basis_size` is an option of QSGP, not of Named"):
            fs.fit(Named(), ROWS, ROWS, basis_size=3)
        with pytest.raises(TypeError, match="fit has no option `heat` for Plain; it takes"):
            fs.fit(Plain(), ROWS, ROWS, heat=3.0)
    finally:
        del models._IMPLEMENTATIONS[Named], models._IMPLEMENTATIONS[Plain]


def test_type_checkers_know_the_options_of_all_kinds_of_fit():
    """A call with an option of another kind is refused at run time only."""
    owned = {own for names in OWNERS["fit"].values() for own in names}
    shared = inspect.signature(fs.fit).parameters.keys() - {"options"}
    assert declared("fit") == owned | typed.RandomCounts.__annotations__.keys() | shared
