"""The bounds in float32: in value and in every gradient as accurate as the plain formulas evaluated by NumPy in float32.

The truth is those formulas in float64, from inputs that are float32 numbers.
"""

from functools import partial

import numpy as np
import pytest
from numerics import assert_typically_as_accurate_as
from oracles import covariances, gp_gradients, likelihood_gradients
from test_elbo import COVARIANCES, LIKELIHOODS, problem

import fastsvgp as fs
from fastsvgp import kernels

PROBLEMS = 25
JITTER = 1e-3
POSTERIORS = {"whitened": fs.Whitened, "marginal": fs.Marginal}


def cast(problem, dtype):
    """Model and data in another dtype; labels stay what they are."""
    model, X, Y = problem
    model = fs.tree_map(lambda v: np.asarray(v, dtype)[()], model)
    return model, X.astype(dtype), Y.astype(dtype) if Y.dtype.kind == "f" else Y


def plain_blocks(model, X):
    k, Z = model.covariance, model.inducing
    Kuu = covariances.matrix(k, Z, Z) + np.asarray(JITTER, Z.dtype) * np.eye(len(Z), dtype=Z.dtype)
    return Kuu, covariances.matrix(k, Z, X), np.diag(covariances.matrix(k, X, X)).copy()


def plain_inputs_bar(model, X, Kuu_bar, Kuf_bar, kff_bar):
    """From cotangents of the blocks to the fields of the covariance and the inducing inputs, by path."""
    k, Z = model.covariance, model.inducing
    uu, Z_bar, Z_bar_too = covariances.matrix_vjp(Kuu_bar, k, Z, Z)
    uf, Z_bar_uf, _ = covariances.matrix_vjp(Kuf_bar, k, Z, X)
    ff, _, _ = covariances.matrix_vjp(np.diag(kff_bar), k, X, X)
    grad = {f"covariance.{path}": uu[path] + uf[path] + ff[path] for path in uu}
    return grad | {"inducing": Z_bar + Z_bar_too + Z_bar_uf}


def plain_elbo(posterior, model, X, Y, scale):
    likelihood, q = model.likelihood, model.posterior
    settings = {name: getattr(likelihood, name) for name, _ in likelihood._record_fields}
    if isinstance(likelihood, fs.Softmax):
        settings["points"] = kernels.normal_points(likelihood.num_classes, likelihood.num_samples)
    Y = Y[None] if Y.ndim == 1 and likelihood.num_latent is None else Y
    term = partial(getattr(likelihood_gradients, type(likelihood).__name__.lower()), Y, **settings)
    M = len(model.inducing)
    bars = getattr(gp_gradients, posterior + "_bars")
    value, *blocks_bar, mean_bar, tril_bar, own = bars(
        *plain_blocks(model, X), q.mean.reshape(-1, M), q.scale_tril.reshape(-1, M, M), term, X.dtype.type(scale)
    )
    grad = plain_inputs_bar(model, X, *blocks_bar) | {f"likelihood.{name}": bar for name, bar in own.items()}
    grad["posterior.mean"], grad["posterior.scale_tril"] = mean_bar.reshape(q.mean.shape), tril_bar.reshape(q.scale_tril.shape)
    return value, grad


def plain_collapsed(model, X, Y):
    *value_and_blocks_bar, noise_bar = gp_gradients.collapsed_bars(*plain_blocks(model, X), Y, model.noise_variance)
    value, *blocks_bar = value_and_blocks_bar
    return value, plain_inputs_bar(model, X, *blocks_bar) | {"noise_variance": noise_bar}


def assert_within_budget(make, ours, plain):
    """``make()`` is a problem (model, X, Y); the two functions give its value and gradients."""
    fast, rough, truth = {}, {}, {}
    for _ in range(PROBLEMS):
        narrow = cast(make(), np.float32)
        wide = cast(narrow, np.float64)
        for results, (value, grad) in ((fast, ours(*narrow)), (rough, plain(*narrow)), (truth, plain(*wide))):
            grad = grad if isinstance(grad, dict) else {path: bar for path, _, bar in fs.leaves(grad)}
            assert {bar.dtype for bar in grad.values()} == {np.dtype(np.float64 if results is truth else np.float32)}
            for path, bar in [("value", value), *grad.items()]:
                results.setdefault(path, []).append(bar)
        value, grad = ours(*wide)  # the plain formulas are right
        for path, bar in [("value", value), *((path, bar) for path, _, bar in fs.leaves(grad))]:
            np.testing.assert_allclose(bar, truth[path][-1], rtol=0, atol=1e-9 * max(1, np.abs(bar).max()), err_msg=path)
    assert fast.keys() == rough.keys() == truth.keys()
    for path in fast:
        assert_typically_as_accurate_as(fast[path], rough[path], truth[path])


def check(posterior, rng, **options):
    scale = 2.5

    def ours(model, X, Y):
        return fs.elbo_and_grad(model, X, Y, num_data=scale * len(X), jitter=JITTER)

    assert_within_budget(
        lambda: problem(rng, POSTERIORS[posterior], **options), ours, partial(plain_elbo, posterior, scale=scale)
    )


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_every_likelihood(rng, posterior, likelihood):
    check(posterior, rng, covariance="matern52", likelihood=likelihood, M=17, B=65)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_every_covariance(rng, posterior, covariance):
    check(posterior, rng, covariance=covariance, likelihood="gaussian", M=17, B=20)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_collapsed_bound(rng, covariance):
    def make():
        model, X, Y = problem(rng, fs.Whitened, covariance, "gaussian", M=10, B=60)
        return fs.SGPR(model.covariance, model.inducing, 0.3), X, Y

    def ours(model, X, Y):
        return fs.collapsed_bound_and_grad(model, X, Y, jitter=JITTER)

    assert_within_budget(make, ours, plain_collapsed)
