"""Data weights in natural steps, collapsed bounds and deep GPs: integers repeat rows."""

import functools

import numpy as np
import pytest
from support.data_weights import B, D, M, assert_close, counts, each, problem, without
from support.deep_problems import draws_for, problem as deep_problem
from support.gp_problems import lower_factor, spread
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp.testing import assert_gradient


@each
def test_natural_steps(rng, name):
    model, X, Y = problem(rng, name)
    w, rows = counts(rng)
    Y = without(Y, w, name)
    for monotone in (False, True):
        (ours, info), (due, other) = (
            fs.natural_step(model, *data, step_size=0.4, monotone=monotone, **options)
            for data, options in (((X, Y), {"weights": w}), ((X[rows], Y[rows]), {}))
        )
        assert_close(ours.posterior, due.posterior)
        assert (
            info.value == pytest.approx(other.value, rel=1e-12)
            and info.step_size == other.step_size
        )
    ours = fs.optim.natural_step_and_grad(model, X, Y, step_size=0.4, weights=w)
    due = fs.optim.natural_step_and_grad(model, X[rows], Y[rows], step_size=0.4)
    assert ours[2] == pytest.approx(due[2], rel=1e-11)
    assert_close((ours[0].posterior, ours[3]), (due[0].posterior, due[3]))


@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize("sets", [1, 2])
def test_collapsed_bounds(rng, sets, P):
    Z, X = spread(rng, M, D), rng.uniform(-2, 2, (B, D))
    Y, (w, rows) = rng.standard_normal((B,) if P is None else (B, P)), counts(rng)
    Y[w == 0] = np.nan
    fields = {
        "covariance": fs.Matern52(1.2, np.ones(D)),
        "noise_variance": 0.3,
        "mean": fs.means.LinearMean(np.ones(D), 0.3),
    }
    models = [fs.SGPR(inducing=Z, **fields)]
    if sets == 2:
        pair, batch = (
            fs.posteriors.InducingPair(Z[:4].copy(), Z[4:].copy()),
            () if P is None else (P,),
        )
        given = {
            "mean_v": rng.standard_normal((*batch, 2)),
            "scale_tril_v": lower_factor(rng, *batch, 2),
        }
        names = ((), ("mean_v",), ("mean_v", "scale_tril_v"))
        models = [
            fs.bounds.OrthogonalSGPR(
                inducing=pair, **fields, **{name: given[name] for name in some}
            )
            for some in names
        ]
    for sgpr in models:
        value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, weights=w, jitter=JITTER)
        expected, bars = fs.collapsed_bound_and_grad(sgpr, X[rows], Y[rows], jitter=JITTER)
        assert value == pytest.approx(expected, rel=1e-12)
        assert fs.collapsed_bound(sgpr, X, Y, weights=w, jitter=JITTER) == pytest.approx(
            value, rel=1e-13
        )
        assert_close(grad, bars)
        best = fs.optimal_svgp(sgpr, X, Y, weights=w, jitter=JITTER)
        assert_close(best, fs.optimal_svgp(sgpr, X[rows], Y[rows], jitter=JITTER))
        assert fs.elbo(best, X, Y, weights=w, jitter=JITTER) == pytest.approx(value, rel=1e-11)
        options = {"weights": np.where(w == 0, 0, rng.gamma(1.0, 1.0, B)), "jitter": JITTER}
        _, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, **options)
        bound = functools.partial(fs.collapsed_bound, X=X, Y=Y, **options)
        assert_gradient(bound, sgpr, grad, rng=rng, rtol=1e-9)


def test_a_natural_step_of_one_lands_on_the_weighted_optimum(rng):
    sgpr = fs.SGPR(fs.RBF(1.2, np.ones(D)), spread(rng, M, D), 0.3)
    X, Y, w = rng.uniform(-2, 2, (B, D)), rng.standard_normal(B), rng.gamma(1.0, 1.0, B)
    best = fs.optimal_svgp(sgpr, X, Y, weights=w)
    start = fs.replace(best, posterior=fs.Whitened(np.zeros(M), np.eye(M)))
    there, _ = fs.natural_step(start, X, Y, step_size=1.0, weights=w)
    assert_close(there.posterior.mean, best.posterior.mean, 1e-9)
    assert fs.elbo(there, X, Y, weights=w) == pytest.approx(
        fs.collapsed_bound(sgpr, X, Y, weights=w), rel=1e-11
    )


@pytest.mark.parametrize("name", ["two", "classes", "narrow", "outputs"])
def test_deep_gps(rng, name):
    model, X, Y = deep_problem(rng, name)
    draws, w = draws_for(rng, model, 2), np.array([2, 0, 1, 3, 0])
    rows = np.repeat(np.arange(5), w)
    repeated = tuple(eps[:, rows] for eps in draws)
    missing = Y.astype(float)
    missing[w == 0] = np.nan
    for bound in (fs.elbo_and_grad, fs.bounds.data_term_and_grad):
        value, grad = bound(model, X, missing, weights=w, draws=draws, jitter=JITTER)
        expected, bars = bound(model, X[rows], Y[rows], draws=repeated, jitter=JITTER)
        assert value == pytest.approx(expected, rel=1e-12)
        assert_close(grad, bars)
    assert fs.elbo(model, X, missing, weights=w, draws=draws, jitter=JITTER) == pytest.approx(
        fs.elbo(model, X[rows], Y[rows], draws=repeated, jitter=JITTER), rel=1e-12
    )
    for monotone in (False, True) if model.layers[-1].posterior.natural_fields else ():
        stepped, info = fs.natural_step(
            model, X, missing, weights=w, draws=draws, jitter=JITTER, monotone=monotone
        )
        due, other = fs.natural_step(
            model, X[rows], Y[rows], draws=repeated, jitter=JITTER, monotone=monotone
        )
        assert info.value == pytest.approx(other.value, rel=1e-12)
        assert_close(stepped, due)


def test_a_deep_gp_with_a_weight_for_each_target(rng):
    """With one layer the results are those of the SVGP, the natural step too."""
    model, X, Y = problem(rng)
    model, W = fs.replace(model, mean=None), rng.gamma(1.0, 1.0, Y.shape)
    W[::3, 0] = W[1::3, 1] = 0
    Y = without(Y, W, "gaussian")
    deep = fs.DeepGP(
        (fs.layers.Layer(model.covariance, model.inducing, model.posterior),), model.likelihood
    )
    (value, grad), (expected, bars) = (
        fs.elbo_and_grad(one, X, Y, weights=W, jitter=JITTER) for one in (deep, model)
    )
    assert value == pytest.approx(expected, rel=1e-12)
    for name in ("covariance", "inducing", "posterior"):
        assert_close(getattr(grad.layers[0], name), getattr(bars, name))
    (ours, _), (due, _) = (
        fs.natural_step(one, X, Y, weights=W, jitter=JITTER, step_size=0.4) for one in (deep, model)
    )
    assert_close(ours.layers[0].posterior, due.posterior)
