"""Kriged control variates of sampled bounds: unbiased, of less variance, and brought up to date."""

import numpy as np
import pytest
from support.sampled_problems import FIRST, SECOND, assert_unbiased, fields, pairs, problem
from support.weight_problems import BASES

import fastsvgp as fs
from fastsvgp import kernels


@pytest.mark.parametrize("scheme", ["with", "stratified"])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_kriged_estimates_are_unbiased(rng, name, k, scheme):
    model, X, Y = problem(rng, name, k, fs.Gaussian(variance=0.2))
    control = fs.qsgp.kriging_control_variate(model, rng.standard_normal((4, 2)), jitter=1e-2)
    samples, wrt = pairs(scheme), fields(model)
    found = [
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt, control=control)
        for sample in samples
    ]
    plain = [
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt)
        for sample in samples
    ]
    assert max(abs(a[0] - b[0]) for a, b in zip(found, plain, strict=True)) > 1e-3
    assert_unbiased(found, model, X, Y, wrt)
    np.testing.assert_allclose(
        np.mean([info.mean for *_, info in found], axis=0),
        model.basis.features(X) @ model.posterior.mean,
        atol=1e-9,
    )


@pytest.mark.parametrize("likelihood, k, wrt, control, sweeps", [
    (fs.Gaussian(variance=0.2), 0, "posterior", False, 3),
    (fs.Gaussian(variance=0.2), 2, None, False, 3),
    (fs.Gaussian(variance=0.2), 2, None, True, 5),
    (fs.Gaussian(variance=0.2), 0, "likelihood", False, 2),
    (fs.likelihoods.BernoulliLogit(), 0, None, False, 4),
])  # fmt: skip
def test_how_often_features_are_made(rng, likelihood, k, wrt, control, sweeps, monkeypatch):
    """A control adds two, at its points, without a backward pass."""
    model, X, Y = problem(rng, "fourier", k, likelihood)
    control, count = fs.qsgp.kriging_control_variate(model, X[:4]) if control else None, []
    once = kernels.fourier_sweep
    monkeypatch.setattr(
        kernels, "fourier_sweep", lambda *a, **kw: count.append(len(a[0])) or once(*a, **kw)
    )
    fs.qsgp.sampled_bound_and_grad(
        model, X, Y, fs.qsgp.BasisSample(FIRST, SECOND), wrt=wrt, control=control
    )
    assert len(count) == sweeps


def test_kriging_shrinks_the_variance_of_smooth_functions(rng):
    """Of value and gradient, by a large factor, at a mean near its optimum."""
    m, X = 2000, rng.uniform(-2, 2, (60, 1))
    Y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    start = fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
    model = fs.QSGP(
        fs.qsgp.RandomFourier(fs.RBF(1.0, 0.7), num_features=m, seed=2),
        start,
        fs.Gaussian(variance=0.01),
    )
    model, _ = fs.qsgp.optimal_weights(model, X, Y)
    control, found = fs.qsgp.kriging_control_variate(model, np.linspace(-2, 2, 20)[:, None]), {}
    for name, one in (("kriged", control), ("plain", None)):
        draws = []
        for seed in range(40):
            sample = fs.qsgp.draw_basis_sample(model.basis, 50, rng=seed)
            value, grad, _ = fs.qsgp.sampled_bound_and_grad(
                model, X, Y, sample, control=one, wrt="posterior.mean"
            )
            draws.append((value, grad.posterior.mean.dense(m)))
        found[name] = np.var([v for v, _ in draws]), np.var([g for _, g in draws], axis=0).sum()
    assert (
        found["kriged"][0] < 0.05 * found["plain"][0]
        and found["kriged"][1] < 0.2 * found["plain"][1]
    )


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_an_advanced_control_equals_a_new_one(rng, name, k):
    model, X, Y = problem(rng, name, k, fs.Gaussian(variance=0.2))
    m, points = len(model.posterior.mean), rng.standard_normal((4, 2))
    control = fs.qsgp.kriging_control_variate(model, points)
    rows = np.unique([0, 2, m - 1])
    in_mean = fs.qsgp.SparseRows(rows, rng.standard_normal(len(rows)))
    in_columns = fs.qsgp.SparseRows(rows[1:], rng.standard_normal((len(rows) - 1, k)))
    change = fs.qsgp.ChevronWeights(in_mean, in_columns, None)
    q = model.posterior
    columns = np.nan_to_num(q.columns) + change.columns.dense(m)
    moved = fs.replace(
        model, posterior=fs.replace(q, mean=q.mean + change.mean.dense(m), columns=columns)
    )
    advanced, fresh = (
        fs.qsgp.update_control_variate(moved, control, change),
        fs.qsgp.kriging_control_variate(moved, points),
    )
    np.testing.assert_allclose(advanced.values, fresh.values, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(advanced.factor, control.factor)
    still = fs.qsgp.update_control_variate(moved, control, fs.qsgp.ChevronWeights(None, None, None))
    np.testing.assert_array_equal(still.values, control.values)
    with pytest.raises(ValueError, match="`change.mean` must have rows that increase"):
        fs.qsgp.update_control_variate(
            moved,
            control,
            fs.qsgp.ChevronWeights(fs.qsgp.SparseRows(np.array([2, 1]), np.ones(2)), None, None),
        )
    with pytest.raises(ValueError, match="names functions beyond"):
        fs.qsgp.update_control_variate(
            moved,
            control,
            fs.qsgp.ChevronWeights(fs.qsgp.SparseRows(np.array([m]), np.ones(1)), None, None),
        )
    with pytest.raises(TypeError, match="`change.mean` must be a fastsvgp.qsgp.SparseRows or None"):
        fs.qsgp.update_control_variate(
            moved, control, fs.qsgp.ChevronWeights(np.ones(m), None, None)
        )


def test_bad_controls(rng):
    model, X, Y = problem(rng, "fourier", 2, fs.Gaussian(variance=0.2))
    control, sample = (
        fs.qsgp.kriging_control_variate(model, X[:3]),
        fs.qsgp.BasisSample(FIRST, SECOND),
    )
    other = fs.records.replace_at(model, "basis.seed", 5)
    with pytest.raises(
        ValueError,
        match=(
            "`control` is one of RandomFourier of 6 functions, seed 3, and the model has .* seed 5"
        ),
    ):
        fs.qsgp.sampled_bound_and_grad(other, X, Y, sample, control=control)
    fewer, *_ = problem(rng, "fourier", 0, fs.Gaussian(variance=0.2))
    with pytest.raises(
        ValueError, match="`control` was made with 2 dense columns, and the posterior has 0"
    ):
        fs.qsgp.sampled_bound_and_grad(fewer, X, Y, sample, control=control)
    with pytest.raises(TypeError, match="`control` must be made by"):
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, control=X)
    with pytest.raises(TypeError, match="`control` must be made by"):
        fs.qsgp.update_control_variate(model, X, model.posterior)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    with pytest.raises(
        TypeError, match="`control.points` is float64, and the model and data are float32"
    ):
        fs.qsgp.sampled_bound_and_grad(
            single, X.astype(np.float32), Y.astype(np.float32), sample, control=control
        )
    with pytest.raises(ValueError, match="`points`"):
        fs.qsgp.kriging_control_variate(model, X[:, 0])
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"`points\[1\]` and `points\[0\]` are the same inputs"
    ):
        fs.qsgp.kriging_control_variate(model, np.repeat(X[:2], 3, axis=0), jitter=0.0)
    single_control = fs.qsgp.kriging_control_variate(single, X[:3].astype(np.float32))
    value, _, info = fs.qsgp.sampled_bound_and_grad(
        single, X.astype(np.float32), Y.astype(np.float32), sample, control=single_control
    )
    np.testing.assert_allclose(
        value, fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, control=control)[0], rtol=1e-2
    )
    assert info.mean.dtype == np.float32
