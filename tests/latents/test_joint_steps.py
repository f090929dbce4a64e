"""Natural steps that move all latent functions at once."""

from functools import partial

import numpy as np
import pytest
from support.gp_problems import assert_records_close
from support.latent_problems import (
    JITTER,
    STEPPING,
    D,
    N,
    P,
    layer,
    mixing,
    plain_step,
    problem,
    with_posteriors,
)

import fastsvgp as fs
from fastsvgp.latents.model import layers_of
from fastsvgp.optim.natural.backtracking import NaturalStepInfo
from fastsvgp.posteriors.whitening import common_cotangents

GAUSSIAN = "lmc", "separate", "icm", "pairs"
rising = pytest.mark.parametrize("name", [*STEPPING, "pairs", "sites", "dispersed", "images"])


def gradient_of_q(model, X, Y, **options):
    """Return the largest entry of the gradients of the posteriors, relative to their size."""
    paths = model.posterior_paths
    _, grad = fs.elbo_and_grad(model, X, Y, wrt=paths, **options)
    return max(
        np.abs(np.tril(bar) if kind == "tril" else bar).max()
        for _, kind, bar in fs.records.leaves(grad)
        if bar is not None
    )


def conditioned(rng, J, L, condition):
    """Return a mixing whose singular values are from 1 to the inverse of the condition."""
    U, V = (np.linalg.qr(rng.standard_normal((n, L)))[0] for n in (J, L))
    return (U * np.geomspace(1, 1 / condition, L)) @ V.T


def nearly_equal(rng, J, L):
    return rng.standard_normal((J, 1)) + 1e-3 * rng.standard_normal((J, L))


MIXINGS = {
    "random": mixing,
    "condition 1e4": partial(conditioned, condition=1e4),
    "nearly equal": nearly_equal,
    "equal": lambda rng, J, L: np.ones((J, L)),
    "more latents than outputs": lambda rng, J, L: mixing(rng, J, L),
}
LAYERS = {  # kinds of the posteriors, and their outputs and sizes
    "lmc": [("whitened", None, 4)] * 2,
    "three": [("marginal", None, 4)] * 3,
    "icm": [("whitened", (2,), 4)],
    "sizes": [("whitened", None, 3), ("marginal", None, 6)],
    "many": [("whitened", (2,), 5), ("whitened", None, 3), ("marginal", (1,), 4)],
}


def gaussian_problem(rng, layers, of_mixing, N=40):
    latents = tuple(layer(rng, name, outputs, M=M) for name, outputs, M in LAYERS[layers])
    L = sum(1 if outputs is None else outputs[0] for _, outputs, _ in LAYERS[layers])
    J = L - 1 if of_mixing == "more latents than outputs" else max(P, L)
    W = MIXINGS[of_mixing](rng, J, L)
    model = fs.MultiGP(latents, fs.Gaussian(0.2), W)
    Y = rng.standard_normal((N, J))
    return model, rng.uniform(-2, 2, (N, D)), Y[:, 0] if J == 1 else Y


@pytest.mark.parametrize("of_mixing", MIXINGS)
@pytest.mark.parametrize("layers", LAYERS)
def test_a_step_of_one_with_gaussian_noise_is_the_optimum(rng, layers, of_mixing):
    model, X, Y = gaussian_problem(rng, layers, of_mixing)
    before = gradient_of_q(model, X, Y, jitter=JITTER)
    stepped, info = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    assert info == (fs.elbo(model, X, Y, jitter=JITTER), 1.0, False, 0, False)
    assert gradient_of_q(stepped, X, Y, jitter=JITTER) < 1e-9 * max(1, before)
    again, info = fs.natural_step(stepped, X, Y, step_size=1.0, jitter=JITTER, monotone=True)
    assert fs.elbo(again, X, Y, jitter=JITTER) == pytest.approx(info.value, rel=1e-12)


@pytest.mark.parametrize("least", [0, 4 * 4 * 13])
def test_functions_with_common_cotangents(rng, monkeypatch, tune, least):
    """Three functions of a layer; chunks of 14, 14 and 12 rows: all common, or the first two."""
    latents = (layer(rng, "whitened", (3,), M=4),)
    model = fs.MultiGP(latents, fs.Gaussian(0.2), mixing(rng, 4, 3))
    X, Y = rng.uniform(-2, 2, (40, D)), rng.standard_normal((40, 4))
    due, _ = fs.natural_step(model, X, Y, step_size=0.6, jitter=JITTER)
    taken, plain = [], common_cotangents.CommonSums.add_gram
    monkeypatch.setattr(common_cotangents, "LEAST", least)
    monkeypatch.setattr(
        common_cotangents.CommonSums,
        "add_gram",
        lambda sums, *args: (taken.append(0), plain(sums, *args)),
    )
    tune(bound_chunk_numbers=14 * 4, bound_chunk_columns=14)
    stepped, info = fs.natural_step(model, X, Y, step_size=0.6, jitter=JITTER)
    assert len(taken) == (2 if least else 3)
    assert info.value == pytest.approx(fs.elbo(model, X, Y, jitter=JITTER), rel=1e-12)
    assert_records_close(stepped, due)


@pytest.mark.parametrize("name", ["lmc", "icm", "separate", "pairs"])
def test_weights_and_other_fields(rng, name):
    """Weights, missing outputs, and a scale: the optimum too. Other fields stay as they are."""
    model, X, Y, options = problem(rng, name, N=23)
    weights = rng.uniform(0.5, 2, Y.shape) * (rng.uniform(size=Y.shape) < 0.7)
    options |= {"weights": weights}
    Y = np.where(weights > 0, Y, np.nan)
    stepped, info = fs.natural_step(model, X, Y, step_size=1.0, **options)
    assert info.value == pytest.approx(fs.elbo(model, X, Y, **options), rel=1e-13)
    if name != "pairs":
        assert gradient_of_q(stepped, X, Y, **options) < 1e-9
    before, after = (
        {path: leaf for path, _, leaf in fs.records.leaves(one)} for one in (model, stepped)
    )
    for path, leaf in before.items():
        same = np.array_equal(leaf, after[path]) if leaf is not None else after[path] is None
        assert same is (".posterior." not in path), path


@rising
def test_monotone_steps_never_fall(rng, name):
    model, X, Y, options = problem(rng, name)
    values = []
    for _ in range(6):
        model, info = fs.natural_step(model, X, Y, step_size=1.0, monotone=True, **options)
        values.append(info.value)
    values.append(fs.elbo(model, X, Y, **options))
    assert (np.diff(values) >= -1e-12 * np.abs(values[1:])).all()
    assert values[-1] > values[0]


def steps_apart(model, X, Y, size):
    """Return the model after steps of all layers, each by its own gradient, at once."""
    _, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    moved = [
        fs.replace(own, posterior=plain_step(own.posterior, bar.posterior, size))
        for own, bar in zip(model.latents, grad.latents, strict=True)
    ]
    return fs.replace(model, latents=tuple(moved))


@pytest.mark.parametrize("size", [0.3, 1.0])
def test_without_a_mixing_each_layer_takes_its_own_step(rng, size):
    model, X, Y, options = problem(rng, "separate")
    stepped, info = fs.natural_step(model, X, Y, step_size=size, **options)
    layers = layers_of(model)
    shift = model.mean(X)
    for p, (one, found) in enumerate(zip(layers, stepped.latents, strict=True)):
        alone = fs.SVGP(one.covariance, one.inducing, one.posterior, model.likelihood)
        due, _ = fs.natural_step(alone, X, Y[:, p] - shift[p], step_size=size, **options)
        assert_records_close(found.posterior, due.posterior, 1e-12)
    assert not info.in_turn


def test_covariances_move_as_in_steps_apart_and_means_jointly(rng):
    model, X, Y, _ = problem(rng, "lmc")
    apart = steps_apart(model, X, Y, 0.4)
    stepped, _ = fs.natural_step(model, X, Y, step_size=0.4, jitter=JITTER)
    for one, other in zip(stepped.latents, apart.latents, strict=True):
        a, b = one.posterior.scale_tril, other.posterior.scale_tril
        np.testing.assert_allclose(np.tril(a), np.tril(b), rtol=1e-9, atol=1e-10)
        assert np.abs(one.posterior.mean - other.posterior.mean).max() > 1e-3
    # with orthogonal columns and one noise for all outputs both are the same
    W = np.linalg.qr(model.mixing)[0]
    model = fs.replace(model, mixing=W)
    stepped, _ = fs.natural_step(model, X, Y, step_size=0.4, jitter=JITTER)
    apart = steps_apart(model, X, Y, 0.4)
    for one, other in zip(stepped.latents, apart.latents, strict=True):
        assert_records_close(one.posterior, other.posterior, 1e-9)


def test_steps_apart_diverge_where_the_joint_step_does_not(rng):
    model, X, Y = gaussian_problem(rng, "three", "nearly equal")
    values = []
    for _ in range(4):
        model = steps_apart(model, X, Y, 1.0)
        values.append(fs.elbo(model, X, Y, jitter=JITTER))
    assert np.isfinite(values).all() and values[-1] < values[0] - 100


def test_chunks_of_rows_and_single_precision(rng, tune):
    model, X, Y, options = problem(rng, "wide", N=23)
    options |= {"step_size": 0.5}
    expected, info = fs.natural_step(model, X, Y, **options)
    tune(bound_chunk_numbers=1, bound_chunk_columns=5)
    found, other = fs.natural_step(model, X, Y, **options)
    assert_records_close(found, expected, 1e-10)
    assert other.value == pytest.approx(info.value, rel=1e-13)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    found, _ = fs.natural_step(single, X.astype(np.float32), Y.astype(np.float32), **options)
    assert found.latents[0].posterior.mean.dtype == np.float32
    assert_records_close(found, expected, 2e-4)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("name", ["lmc", "noise", "sites", "separate"])
def test_a_step_and_its_gradient_are_the_two_calls(rng, name, monotone):
    model, X, Y, options = problem(rng, name)
    more = {"step_size": 0.5, "monotone": monotone}
    stepped, info = fs.natural_step(model, X, Y, **options, **more)
    found, other, value, grad = fs.optim.natural_step_and_grad(model, X, Y, **options, **more)
    assert info == other
    assert_records_close(found, stepped, 0)
    bars = {path: bar for path, _, bar in fs.records.leaves(grad) if bar is not None}
    assert any(path.startswith("mixing") for path in bars) is (model.mixing is not None)
    assert not any(".posterior" in path for path in bars)
    due, due_grad = fs.elbo_and_grad(stepped, X, Y, wrt=tuple(bars), **options)
    assert value == pytest.approx(due, rel=1e-13)
    for path, _, bar in fs.records.leaves(due_grad):
        if bar is not None:
            np.testing.assert_allclose(bars.pop(path), bar, rtol=1e-10, atol=1e-11)
    assert not bars
    wrt = ("latents.1.covariance",)
    *_, some = fs.optim.natural_step_and_grad(model, X, Y, wrt=wrt, **options, **more)
    assert_records_close(some.latents[1].covariance, grad.latents[1].covariance, 1e-12)
    assert some.likelihood is None


def test_outliers_back_off(rng):
    """Sites of negative precision of a Student-t likelihood: the step is halved, and counted."""
    model, X, Y, options = problem(rng, "wide")
    Y[:4] += 40
    model = with_posteriors(model, *[fs.Whitened] * 3)
    _, info = fs.natural_step(model, X, Y, step_size=1.0, **options)
    assert isinstance(info, NaturalStepInfo) and info.negative >= 4
    assert info.step_size <= 1 and N == len(X)
