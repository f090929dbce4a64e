"""A group gives what one process gives, bitwise equal on all ranks: function x model x group."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.deep_problems import CHAINS
from support.looped import looped
from support.posterior_problems import EVERY, JITTER, PAIRS
from support.rank_models import (
    LIKELIHOODS,
    MEANS,
    ROWS,
    TRAINING_ROWS,
    M,
    bound_problem,
    class_problem,
    inverse_problem,
    latents_problem,
    latents_to_train,
    layers_on_patches,
    layers_problem,
    layers_to_train,
    training_problem,
)
from support.rank_problems import (
    assert_group_equals_one,
    assert_trajectory_of_one,
    same_leaves,
    same_model,
)

import fastsvgp as fs

SIZES = 1, 2, 3, 5
GROUPS = {f"{size}-{rows}": (size, rows) for size in SIZES for rows in ("all", "own")}
STEPPING = "whitened", "marginal", "absorbed-sites", "dual-sites"  # posteriors with natural steps
COLLAPSED = fs.collapsed_bound, fs.collapsed_bound_and_grad, fs.optimal_svgp


class Case(NamedTuple):
    """``call(*data, **group)``; ``data`` are arrays by row."""

    call: Any
    data: tuple
    close: Any = same_leaves(1e-12)


# --- bounds and natural steps ---------------------------------------------------------------------


def elbo_and_grad(
    posterior="whitened",
    likelihood="gaussian",
    mean="constant",
    num_data=2.5 * ROWS,
    weighted=False,
):
    def case(rng):
        model, X, Y, options = bound_problem(rng, posterior, likelihood, mean)
        options["num_data"] = num_data

        def call(X, Y, weights=None, **g):
            return fs.elbo_and_grad(model, X, Y, weights=weights, **options, **g)

        return Case(call, (X, Y, rng.uniform(0.5, 2, ROWS)) if weighted else (X, Y))

    return case


def natural_step(posterior):
    def case(rng):
        model, X, Y, options = bound_problem(rng, posterior)
        return Case(
            lambda X, Y, **g: fs.natural_step(model, X, Y, step_size=0.4, **options, **g),
            (X, Y),
            same_leaves(1e-11),
        )

    return case


def natural_step_and_grad(likelihood, monotone):
    def case(rng):
        model, X, Y, options = bound_problem(rng, "whitened", likelihood)
        options |= {"step_size": 0.5, "monotone": monotone, "num_data": 40}
        return Case(
            lambda X, Y, **g: fs.optim.natural_step_and_grad(model, X, Y, **options, **g),
            (X, Y),
            same_leaves(1e-11),
        )

    return case


def lsvgp_direction(near):
    """Far from the inverse the direction is the gradient; the factor gets none in a group."""

    def case(rng):
        model, X, Y = inverse_problem(rng)
        A = model.covariance.Kuu(model.inducing) + JITTER * np.eye(M)
        q = EVERY["relaxed"].make(rng, A, ())
        factor = q.inverse_tril if near else 0.01 * np.eye(M)
        model = fs.replace(model, posterior=fs.replace(q, inverse_tril=factor))

        def call(X, Y, **g):
            value, direction = fs.bounds.lsvgp_direction(
                model, X, Y, num_data=80, jitter=JITTER, **g
            )
            assert (direction.posterior.inverse_tril is None) == (near or bool(g))
            return value, fs.records.replace_at(direction, "posterior.inverse_tril", None)

        return Case(call, (X, Y))

    return case


def latents(function, name, close=None, weighted=False, **options):
    """Joint natural steps, or in turn for sites; missing outputs have the weight 0."""

    def case(rng):
        model, X, Y, own = latents_problem(rng, name)
        weights = rng.uniform(0.5, 2, Y.shape) * (rng.uniform(size=Y.shape) < 0.8)

        def call(X, Y, weights=None, **g):
            return function(model, X, Y, weights=weights, **own, **options, **g)

        data = (X, np.where(weights > 0, Y, np.nan), weights) if weighted else (X, Y)
        return Case(call, data, close or same_leaves(1e-11))

    return case


def layers(function, name, close=None, **options):
    """The second layer multiplies rounding by the condition of its Kuu: hence the tolerance."""

    def case(rng):
        model, X, Y = layers_problem(rng, name)
        return Case(
            lambda X, Y, **g: function(model, X, Y, jitter=JITTER, **options, **g),
            (X, Y),
            close or same_leaves(1e-11),
        )

    return case


def patches(function, close):
    def case(rng):
        model, X, Y = layers_on_patches(rng)
        return Case(lambda X, Y, **g: function(model, X, Y, rng=1, **g), (X, Y), close)

    return case


# --- collapsed bounds -----------------------------------------------------------------------------

GIVEN = {"optimal": (), "mean": ("mean_v",), "mean-and-factor": ("mean_v", "scale_tril_v")}


def collapsed(outputs, given, weighted):
    """``given`` : the given parameters of q(v), for two sets of inducing inputs, or None."""

    def case(rng):
        posterior = "whitened" if given is None else "WhitenedOrthogonal"
        model, X, _, _ = bound_problem(rng, posterior)
        data = X, rng.standard_normal((ROWS, *outputs))
        if weighted:
            data = *data, rng.uniform(0.5, 2, ROWS)
        mean = fs.means.ConstantMean(0.3)
        if given is None:
            sgpr = fs.SGPR(model.covariance, model.inducing, 0.2, mean)
        else:
            q = {
                "mean_v": rng.standard_normal((*outputs, 2)),
                "scale_tril_v": np.tril(rng.uniform(0.5, 1, (*outputs, 2, 2))),
            }
            q = {name: q[name] for name in GIVEN[given]}
            sgpr = fs.bounds.OrthogonalSGPR(model.covariance, model.inducing, 0.2, mean=mean, **q)

        def calls(X, Y, weights=None, **g):
            return [call(sgpr, X, Y, weights=weights, **g) for call in COLLAPSED]

        return Case(calls, data, same_leaves(1e-10))

    return case


# --- rows of weight 0, and float32 ----------------------------------------------------------------


def kinds_of_bound(rng, dtype=np.float64):
    """Return the bound and gradient of each kind of model, as functions of data, and ``(X, Y)``."""
    model, X, Y, options = bound_problem(rng)
    pair = fs.posteriors.InducingPair(model.inducing[:4].copy(), model.inducing[4:].copy())
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.2)
    two = fs.bounds.OrthogonalSGPR(model.covariance, pair, 0.2, np.full((2, 2), 0.3))
    deep, _, _ = layers_problem(rng)
    models = {"svgp": model, "sgpr": sgpr, "two sets": two, "deep": deep}
    models = {name: fs.records.tree_map(dtype, one) for name, one in models.items()}
    functions = {
        "svgp": lambda *data, **g: fs.elbo_and_grad(models["svgp"], *data, **options, **g),
        "sgpr": lambda *data, **g: fs.collapsed_bound_and_grad(models["sgpr"], *data, **g),
        "two sets": lambda *data, **g: fs.collapsed_bound_and_grad(models["two sets"], *data, **g),
        "deep": lambda *data, **g: fs.elbo_and_grad(
            models["deep"], *data, rng=4, jitter=JITTER, **g
        ),
    }
    return functions, X.astype(dtype), (Y if dtype is np.float64 else Y.astype(dtype))


def some_weights_zero(kind):
    """All rows of one rank have the weight 0, and NaN for targets."""

    def case(rng):
        functions, X, Y = kinds_of_bound(rng)
        Y = Y[:, 0] if kind == "deep" else Y
        Y[:9] = np.nan
        weights = np.r_[np.zeros(9), np.ones(ROWS - 9)]
        more = {"num_data": 40} if kind == "svgp" else {}

        def call(X, Y, weights, **g):
            return functions[kind](X, Y, weights=weights, **more, **g)

        return Case(call, (X, Y, weights), same_leaves(1e-11))

    return case


def single_precision(kind):
    def case(rng):
        functions, X, Y = kinds_of_bound(rng, np.float32)
        Y = Y[:, 0] if kind == "deep" else Y
        return Case(functions[kind], (X, Y), same_leaves(1e-3 if kind == "sgpr" else 1e-4))

    return case


LATENTS = "lmc", "icm", "separate", "noise", "pairs", "classes"
TURNS = "lmc", "icm", "separate", "noise", "sites"  # the last one layer by layer
KINDS = "svgp", "sgpr", "two sets", "deep"
MEANINGS = [f"{likelihood}-{mean}" for likelihood in LIKELIHOODS for mean in MEANS]
LAYERS = {"rng": 4, "num_data": 2.5 * ROWS}
STEP = {"step_size": 0.5, "rng": 2, "num_samples": 4}
TABLE = (
    {f"elbo_and_grad-{q}": elbo_and_grad(q) for q in EVERY}
    | {
        f"elbo_and_grad-{likelihood}-{mean}": elbo_and_grad("whitened", likelihood, mean, 70)
        for likelihood in LIKELIHOODS
        for mean in MEANS
    }
    | {
        f"elbo_and_grad-weights-{likelihood}-{mean}": elbo_and_grad(
            "whitened", likelihood, mean, 70, weighted=True
        )
        for likelihood in LIKELIHOODS
        for mean in MEANS
    }
    | {f"natural_step-{q}": natural_step(q) for q in EVERY if q in STEPPING or q in PAIRS}
    | {
        f"natural_step_and_grad-{likelihood}-{monotone}": natural_step_and_grad(
            likelihood, monotone
        )
        for likelihood in ("gaussian", "student_t")
        for monotone in (False, True)
    }
    | {f"lsvgp_direction-{near}": lsvgp_direction(near) for near in (True, False)}
    | {
        f"collapsed-{len(outputs)}-{given}-{weighted}": collapsed(outputs, given, weighted)
        for outputs in ((), (2,))
        for given in (None, *GIVEN)
        for weighted in (False, True)
    }
    | {f"layers-elbo-{name}": layers(fs.elbo, name, num_samples=2, **LAYERS) for name in CHAINS}
    | {
        f"layers-elbo_and_grad-{name}-{draws}": layers(
            fs.elbo_and_grad, name, num_samples=draws, **LAYERS
        )
        for name in CHAINS
        for draws in (2, 3)
    }
    | {
        f"layers-natural_step-{name}-{monotone}": layers(
            fs.natural_step, name, same_model(1e-10), monotone=monotone, **STEP
        )
        for name, (rows, _) in CHAINS.items()
        if rows[-1][0] in STEPPING
        for monotone in (False, True)
    }
    | {
        f"latents-{call.__name__}-{name}": latents(call, name, num_data=2.5 * ROWS)
        for name in LATENTS
        for call in (fs.elbo, fs.elbo_and_grad)
    }
    | {
        f"latents-weights-{name}": latents(fs.elbo_and_grad, name, weighted=True)
        for name in ("lmc", "noise")
    }
    | {
        f"latents-natural_step-{name}-{monotone}": latents(
            fs.natural_step, name, same_model(1e-10), monotone=monotone, step_size=0.5
        )
        for name in TURNS
        for monotone in (False, True)
    }
    | {
        f"latents-natural_step_and_grad-{name}": latents(
            fs.optim.natural_step_and_grad, name, same_leaves(1e-9), step_size=0.5
        )
        for name in TURNS
    }
    | {"patches-elbo_and_grad": patches(fs.elbo_and_grad, same_leaves(1e-12))}
    | {"patches-natural_step": patches(fs.natural_step, same_model(1e-11))}
    | {f"weights-zero-{kind}": some_weights_zero(kind) for kind in KINDS}
    | {f"float32-{kind}": single_precision(kind) for kind in KINDS}
)


# these in fewer groups
IN_THREE = (
    "latents",
    "elbo_and_grad-weights",
    "natural_step_and_grad",
    "layers-natural_step",
    "float32",
)


def groups_of(name):
    if name.startswith("weights-zero"):
        return ["2-all", "3-all"]  # a shard needs a row of positive weight
    if name.startswith(IN_THREE) or name.removeprefix("elbo_and_grad-") in MEANINGS:
        return ["3-all", "3-own"]
    return GROUPS


@pytest.mark.parametrize("name", TABLE)
def test_group_equals_one_process(rng, name):
    case = TABLE[name](rng)

    @looped("group", groups_of(name))
    def in_group(group):
        assert_group_equals_one(case.call, case.data, *GROUPS[group], case.close)

    in_group()


# --- trajectories ---------------------------------------------------------------------------------

WAYS = {
    "adam": {},
    "natural": {"natural_step_size": 0.1},
    "rounds": {"natural_step_size": 0.1, "e_steps": 2, "m_steps": 2},
}
UPDATES = {
    "nats": dict(nats=0.01),
    "direction": dict(direction="likelihood"),
    "nats and direction": dict(nats=0.01, direction="likelihood"),
    "a schedule": dict(nats=0.01, step_size=fs.optim.schedules.log_linear(1e-2, 1.0, 5)),
}


def relaxed_layers(rng):
    return layers_to_train(rng, fs.posteriors.Relaxed(np.zeros((2, 5)), np.ones(5), np.eye(5)))


# a model, options of ``fit``, and the number of steps for each number of ranks
TRAININGS = (
    {
        f"{name}-{way}": (make, {"batch_size": 17, **options}, {1: 40, 2: 40, 3: long})
        for name, make in (("svgp", training_problem), ("classes", class_problem))
        for way, options in WAYS.items()
        for long in (40 if way == "rounds" else 200,)
    }
    | {
        f"svgp-weights-{size}": (
            training_problem,
            {"batch_size": size, "weights": np.arange(TRAINING_ROWS) % 3},
            {3: 12},
        )
        for size in (17, TRAINING_ROWS)
    }
    | {
        f"inverse-{way}": (
            inverse_problem,
            {"batch_size": 17, "inverse_updates": fs.optim.inverse_updates(**options)},
            {1: 40, 2: 40, 3: 200},
        )
        for way, options in UPDATES.items()
    }
    | {
        f"layers-{way}": (layers_to_train, {"batch_size": 11, **options}, {1: 40, 3: 40})
        for way, options in WAYS.items()
    }
    | {
        f"latents-{name}-{way}": (
            partial(latents_to_train, name=name),
            {"batch_size": 17, **WAYS[way]},
            {3: 20},
        )
        for name, way in (
            ("lmc", "adam"),
            ("icm", "natural"),
            ("noise", "rounds"),
            ("sites", "adam"),
        )
    }
    | {
        "latents-inverse": (
            partial(latents_to_train, name="inverse-free"),
            {"batch_size": 17},
            {3: 10},
        )
    }
    | {"layers-inverse": (relaxed_layers, {"batch_size": 11}, {2: 10})}
)


@pytest.mark.parametrize(
    "name, size", [(name, size) for name, (_, _, sizes) in TRAININGS.items() for size in sizes]
)
def test_trajectory_is_that_of_one_process(rng, name, size):
    make, options, steps = TRAININGS[name]
    model, *data = make(rng)
    assert_trajectory_of_one(model, data, size, steps=steps[size], rng=5, **options)


# whole batches of shards; a factor of an inverse multiplies rounding by the condition of Kuu
SHARDS = {
    "svgp": (training_problem, {"rng": 3}, 1e-12),
    "layers": (layers_to_train, {"rng": 3, "natural_step_size": 0.1}, 1e-11),
    "inverse": (
        lambda rng: inverse_problem(rng, fs.posteriors.InverseFreeWhitened),
        {"rng": 5, "inverse_updates": fs.optim.inverse_updates(nats=0.01)},
        1e-9,
    ),
}


@pytest.mark.parametrize("name", SHARDS)
def test_whole_batches_of_shards_train_as_one_process(rng, name):
    make, options, tolerance = SHARDS[name]
    model, *data = make(rng)
    assert_trajectory_of_one(
        model, data, 3, "own", tolerance, steps=20, batch_size=len(data[0]), **options
    )
