"""Weights of data on device arrays: the results of the CPU, and no additional copy to the host."""

import numpy as np
import pytest
from support.device_models import (
    LIKELIHOODS,
    TARGETS,
    B,
    Copies,
    D,
    assert_same,
    f8,
    moved,
    small_model,
)
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.kernels.cuda.common import loader


def weights_for(rng, shape):
    return (rng.permutation(np.arange(np.prod(shape))) % 3).reshape(shape).astype(float)


def missing(Y, w):
    """Return NaN, or 99 if the dtype has none, for data of weight zero."""
    Y = Y.copy()
    Y[w == 0] = np.nan if Y.dtype.kind == "f" else 99
    return Y


@pytest.mark.parametrize("likelihood, kind, outputs", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_likelihoods(gpu, rng, likelihood, kind, outputs):
    Y = TARGETS[kind](rng, (B, *outputs))
    shapes = {(B,), Y.shape}
    for w in (weights_for(rng, shape) for shape in sorted(shapes)):
        here = (
            small_model(rng, outputs, likelihood=likelihood),
            rng.standard_normal((B, D)),
            missing(Y, w),
        )
        there = moved(gpu, *here)
        value, grad, X_bar = fs.elbo_and_grad(*here, weights=w, num_data=1000, inputs=True)
        with Copies(gpu, 1):
            found, *bars = fs.elbo_and_grad(
                *there, weights=gpu.there(w), num_data=1000, inputs=True
            )
        assert found == pytest.approx(value, rel=1e-10)
        assert_same(tuple(bars), (grad, X_bar))
        with Copies(gpu, 1):
            alone = fs.elbo(*there, weights=gpu.there(w), num_data=1000)
        assert alone == pytest.approx(value, rel=1e-10)


def test_single_precision(gpu, rng):
    model = fs.records.tree_map(lambda a: np.asarray(a, np.float32), small_model(rng, (2,)))
    w = weights_for(rng, (B, 2))
    here = (
        model,
        rng.standard_normal((B, D)).astype(np.float32),
        missing(rng.standard_normal((B, 2)).astype(np.float32), w),
    )
    value, grad = fs.elbo_and_grad(*here, weights=w)
    found, bars = fs.elbo_and_grad(*moved(gpu, *here), weights=gpu.there(w))
    assert found == pytest.approx(value, rel=1e-5)
    assert_same(bars, grad, 1e-3)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_steps_blocks_and_layers(gpu, rng, outputs):
    w = weights_for(rng, (B, *outputs))
    model = small_model(rng, outputs)
    here = model, rng.standard_normal((B, D)), missing(rng.standard_normal((B, *outputs)), w)
    there, there_w = moved(gpu, *here), gpu.there(w)
    due, other = fs.natural_step(*here, weights=w, step_size=0.4)
    with Copies(gpu, 2):
        ours, info = fs.natural_step(*there, weights=there_w, step_size=0.4)
    assert info.value == pytest.approx(other.value, rel=1e-10)
    assert_same(ours.posterior, due.posterior, 1e-9)
    due, ours = (
        fs.optim.natural_step_and_grad(*side, weights=x, step_size=0.4)
        for side, x in ((here, w), (there, there_w))
    )
    assert_same(ours[3], due[3], 1e-9)
    blocks = model.covariance.blocks(model.inducing, here[1])
    value, bars = fs.bounds.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, here[2], weights=w
    )
    parts = there[0].posterior, there[0].likelihood, there[2]
    with Copies(gpu, 1):
        found, found_bars = fs.bounds.elbo_and_grad_from_blocks(
            fs.records.tree_map(gpu.there, blocks), *parts, weights=there_w
        )
    assert found == pytest.approx(value, rel=1e-10)
    assert_same(found_bars, bars)
    deep, on_device = (
        fs.DeepGP((fs.layers.Layer(m.covariance, m.inducing, m.posterior),), m.likelihood)
        for m in (model, there[0])
    )
    value, grad = fs.elbo_and_grad(deep, *here[1:], weights=w)
    with Copies(gpu, 1):
        found, found_grad = fs.elbo_and_grad(on_device, *there[1:], weights=there_w)
    assert found == pytest.approx(value, rel=1e-10)
    for one, other in zip(found_grad.layers, grad.layers, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("sets", [1, 2])
def test_collapsed(gpu, rng, sets, outputs):
    model, w = small_model(rng), weights_for(rng, B)
    sgpr = fs.SGPR(model.covariance, model.inducing, f8(0.3), fs.means.ConstantMean(f8(0.1)))
    if sets == 2:
        pair = fs.posteriors.InducingPair(rng.uniform(-2, 2, (9, D)), rng.uniform(-2, 2, (4, D)))
        q = {
            "mean_v": rng.standard_normal((*outputs, 4)),
            "scale_tril_v": 0.3 * lower_factor(rng, *outputs, 4),
        }
        sgpr = fs.bounds.OrthogonalSGPR(model.covariance, pair, f8(0.3), **q)
    here = sgpr, rng.standard_normal((B, D)), missing(rng.standard_normal((B, *outputs)), w)
    there, there_w = moved(gpu, *here), gpu.there(w)
    for bound in (fs.collapsed_bound_and_grad, fs.bounds.tighter_bound_and_grad)[: 3 - sets]:
        value, grad = bound(*here, weights=w)
        with Copies(gpu, 1):
            found, bars = bound(*there, weights=there_w)
        assert found == pytest.approx(value, rel=1e-10)
        assert_same(bars, grad)
    with Copies(gpu, 1):
        best = fs.optimal_svgp(*there, weights=there_w)
    assert_same(best, fs.optimal_svgp(*here, weights=w), 1e-9)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_rows_of_weight_zero_are_not_checked(gpu, rng, outputs):
    """A row with weight is checked, as on the CPU; no copy to the host is made for either."""
    w = weights_for(rng, B)
    here = (
        small_model(rng, outputs),
        missing(rng.standard_normal((B, D)), w),
        missing(rng.standard_normal((B, *outputs)), w),
    )
    there, there_w = moved(gpu, *here), gpu.there(w)
    value, grad, X_bar = fs.elbo_and_grad(*here, weights=w, inputs=True)
    with Copies(gpu, 1):
        found, *bars = fs.elbo_and_grad(*there, weights=there_w, inputs=True)
    assert found == pytest.approx(value, rel=1e-10)
    assert_same(tuple(bars), (grad, X_bar))
    with Copies(gpu, 2):
        ours, _ = fs.natural_step(*there, weights=there_w, step_size=0.4)
    assert_same(ours.posterior, fs.natural_step(*here, weights=w, step_size=0.4)[0].posterior, 1e-9)
    sgpr = fs.SGPR(here[0].covariance, here[0].inducing, f8(0.3))
    value, grad = fs.collapsed_bound_and_grad(sgpr, *here[1:], weights=w)
    with Copies(gpu, 1):
        found, bars = fs.collapsed_bound_and_grad(fs.to_device(sgpr), *there[1:], weights=there_w)
    assert found == pytest.approx(value, rel=1e-10)
    assert_same(bars, grad)
    trained, info = fs.fit(sgpr, *here[1:], weights=w, steps=3)
    _, other = fs.fit(fs.to_device(sgpr), *there[1:], weights=there_w, steps=3)
    np.testing.assert_allclose(other.values, info.values, rtol=1e-8)
    X = here[1].copy()
    X[np.flatnonzero(w)[0], 1] = np.inf
    left, right = (
        errors_of(here[0], X, here[2], w),
        errors_of(*moved(gpu, here[0], X, here[2]), there_w),
    )
    assert left == right and "`X` contains inf" in left


def test_launches_without_weights_do_not_change(gpu, rng, monkeypatch):
    """Weighted kernels run only if there are weights, and only in place of the unweighted ones."""
    here = small_model(rng), rng.standard_normal((B, D)), rng.standard_normal(B)
    there, launched, launch = moved(gpu, *here), [], loader.launch

    def noted(stem, kernel, *call, **options):
        launched.append((stem, kernel))
        return launch(stem, kernel, *call, **options)

    monkeypatch.setattr(loader, "launch", noted)
    fs.elbo_and_grad(*there)
    plain, launched[:] = [kernel for _, kernel in launched], []
    assert [name for name in plain if "gaussian" in name] == ["gaussian_rows", "gaussian_total"]
    fs.elbo_and_grad(*there, weights=gpu.there(np.ones(B)))
    weighed = [kernel.removeprefix("weighted_") for _, kernel in launched]
    assert weighed == plain and "weighted_gaussian_rows" in [kernel for _, kernel in launched]


@pytest.mark.parametrize("graph", [False, True], ids=["steps", "captured"])
def test_fit(gpu, rng, graph):
    w = weights_for(rng, (B, 2))
    here = (
        small_model(rng, (2,)),
        rng.standard_normal((B, D)),
        missing(rng.standard_normal((B, 2)), w),
    )
    options = {"steps": 6, "rng": 0, "optimiser": fs.adam(0.02)}
    for size in (20, B):
        trained, info = fs.fit(*here, weights=w, batch_size=size, **options)
        # on the device, and read from the host
        for data, weights in ((moved(gpu, *here)[1:], gpu.there(w)), (here[1:], w)):
            found, other = fs.fit(
                fs.to_device(here[0]),
                *data,
                weights=weights,
                batch_size=size,
                graph=graph,
                **options,
            )
            np.testing.assert_allclose(other.values, info.values, rtol=1e-9)
            assert_same(found, trained, 1e-8)


def test_bad_weights_and_targets(gpu, rng):
    """The messages of the CPU, even if only the second run finds the error."""
    here = small_model(rng, (2,)), rng.standard_normal((B, D)), rng.standard_normal((B, 2))
    cases = []
    for at, value in (((3, 1), -1.0), ((0, 0), np.nan), ((5, 0), np.inf)):
        w = np.ones((B, 2))
        w[at] = value
        cases.append((here[2], w))
    bad, w = here[2].copy(), np.ones((B, 2))
    w[0], bad[0], bad[4, 1] = 0, np.nan, np.nan
    cases += [
        (here[2], np.zeros(B)),
        (bad, w),
        (np.full_like(bad, np.nan), np.zeros(B)),
        (bad, np.ones(B + 1)),
    ]
    for Y, w in cases:
        left, right = (
            errors_of(*side, weights)
            for side, weights in (((*here[:2], Y), w), (moved(gpu, *here[:2], Y), gpu.there(w)))
        )
        assert left == right and "`" in left
    with pytest.raises(TypeError, match="`weights`"):
        fs.elbo(*moved(gpu, *here), weights=np.ones(B))
    model, X, Y = moved(gpu, *here)
    with pytest.raises(
        TypeError,
        match="arrays live on different devices: `Y`, `weights` on the GPU, `X` on the CPU",
    ):
        fs.elbo(model, np.full((B, D), np.nan), Y, weights=gpu.there(np.arange(B) % 2.0))
    with pytest.raises(ValueError, match="`X` is an empty batch"):
        fs.elbo(model, X[:0], Y[:0], weights=gpu.there(np.empty(0)))


def errors_of(model, X, Y, w):
    with pytest.raises(ValueError) as caught:
        fs.elbo_and_grad(model, X, Y, weights=w)
    return str(caught.value)


@pytest.mark.parametrize(
    "likelihood", [fs.Gaussian(0.3), fs.Poisson()], ids=lambda x: type(x).__name__
)
def test_columns_of_targets_and_of_weights(gpu, rng, likelihood):
    """(N, 1) with a posterior without a leading axis is (N,), without a further copy."""
    model, X = small_model(rng, (), likelihood=likelihood), rng.standard_normal((B, D))
    Y, w = rng.integers(0, 4, B), weights_for(rng, B)
    here = model, X, missing(Y.astype(float), w)
    value, grad = fs.elbo_and_grad(*here, weights=w)
    for column in (w, w[:, None]):
        there, there_w = moved(gpu, model, X, here[2][:, None]), gpu.there(column)
        with Copies(gpu, 1):
            found, bars = fs.elbo_and_grad(*there, weights=there_w)
        assert found == pytest.approx(value, rel=1e-10)
        assert_same(bars, grad)
    there, Ys = moved(gpu, model, X), Y.astype(float)
    np.testing.assert_allclose(
        fs.predict_log_density(*there, gpu.there(Ys[:, None])).get(),
        fs.predict_log_density(model, X, Ys),
    )
