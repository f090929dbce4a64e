"""The bounds in float32 are as accurate as the plain formulas evaluated by NumPy in float32.

Values and gradients are compared with those formulas in float64 at the same float32 inputs.
"""

from functools import partial

import numpy as np
import pytest
from oracles import covariances, gp_gradients
from support.budgets import assert_within_budget
from support.definitions import blocks, data_term
from support.posterior_problems import ROWS

import fastsvgp as fs
from tests.bounds.test_elbo import COVARIANCES, LIKELIHOODS, full_problem, problem

JITTER = 1e-3
POSTERIORS = ("whitened", "marginal")


def cast(problem, dtype):
    """Model and data in another dtype; labels stay what they are."""
    model, X, Y = problem
    model = fs.records.tree_map(lambda v: np.asarray(v, dtype)[()], model)
    return model, X.astype(dtype), Y.astype(dtype) if Y.dtype.kind == "f" else Y


def plain_blocks(model, X):
    b = blocks(model.covariance, model.inducing, X, JITTER)
    return b.Kuu, b.Kuf, b.kff


def plain_inputs_bar(model, X, Kuu_bar, Kuf_bar, kff_bar):
    """Pull cotangents of the blocks back to covariance and inducing inputs, by path."""
    k, Z = model.covariance, model.inducing
    uu, Z_bar, Z_bar_too = covariances.matrix_vjp(Kuu_bar, k, Z, Z)
    uf, Z_bar_uf, _ = covariances.matrix_vjp(Kuf_bar, k, Z, X)
    ff, _, _ = covariances.matrix_vjp(np.diag(kff_bar), k, X, X)
    grad = {f"covariance.{path}": uu[path] + uf[path] + ff[path] for path in uu}
    return grad | {"inducing": Z_bar + Z_bar_too + Z_bar_uf}


def plain_elbo(posterior, model, X, Y, scale):
    q, term = model.posterior, data_term(model.likelihood, Y)
    M = len(model.inducing)
    bars = getattr(gp_gradients, posterior + "_bars")
    value, *blocks_bar, mean_bar, tril_bar, own = bars(
        *plain_blocks(model, X),
        q.mean.reshape(-1, M),
        np.tril(q.scale_tril).reshape(-1, M, M),
        term,
        X.dtype.type(scale),
    )
    grad = plain_inputs_bar(model, X, *blocks_bar) | {
        f"likelihood.{name}": bar for name, bar in own.items()
    }
    grad["posterior.mean"], grad["posterior.scale_tril"] = (
        mean_bar.reshape(q.mean.shape),
        tril_bar.reshape(q.scale_tril.shape),
    )
    return value, grad


def plain_collapsed(model, X, Y):
    *value_and_blocks_bar, noise_bar = gp_gradients.collapsed_bars(
        *plain_blocks(model, X), Y, model.noise_variance
    )
    value, *blocks_bar = value_and_blocks_bar
    return value, plain_inputs_bar(model, X, *blocks_bar) | {"noise_variance": noise_bar}


def judge(make, ours, plain):
    """``make()`` is a problem (model, X, Y); the two functions give its value and gradients."""

    def draw():
        narrow = cast(make(), np.float32)
        (value, grad), (rough, rough_grad), (truth, truth_grad) = (
            ours(*narrow),
            plain(*narrow),
            plain(*cast(narrow, np.float64)),
        )
        fast = {path: bar for path, _, bar in fs.records.leaves(grad)}
        assert (
            {a.dtype for a in fast.values()}
            == {a.dtype for a in rough_grad.values()}
            == {np.dtype(np.float32)}
        )
        assert fast.keys() == rough_grad.keys() == truth_grad.keys()
        return {"value": (value, rough, truth)} | {
            path: (fast[path], rough_grad[path], truth_grad[path]) for path in fast
        }

    assert_within_budget(draw)


def check(posterior, rng, **options):
    scale = 2.5

    def ours(model, X, Y):
        return fs.elbo_and_grad(model, X, Y, num_data=scale * len(X), jitter=JITTER)

    judge(
        lambda: full_problem(rng, posterior, **options)[:3],
        ours,
        partial(plain_elbo, posterior, scale=scale),
    )


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_every_likelihood(rng, posterior, likelihood):
    check(posterior, rng, covariance="matern52", likelihood=likelihood, M=17, B=65)


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_every_covariance(rng, posterior, covariance):
    check(posterior, rng, covariance=covariance, likelihood="gaussian", M=17, B=20)


@pytest.mark.parametrize("posterior", POSTERIORS)
def test_more_inducing_inputs(rng, posterior):
    check(posterior, rng, covariance="rbf", likelihood="gaussian", M=33, B=130)


INPUTS = [
    *(("whitened", covariance) for covariance in COVARIANCES),
    *((posterior, "matern32") for posterior in ROWS),
]


@pytest.mark.parametrize("posterior, covariance", INPUTS)
def test_the_gradient_in_the_inputs(rng, posterior, covariance):
    scale, jitter = 2.5, 1e-2

    def plain(model, X, Y):
        b = blocks(model.covariance, model.inducing, X, jitter)
        q = fs.records.tree_map(np.nan_to_num, model.posterior)
        nothing = fs.records.Marginals(np.zeros_like(Y), np.zeros_like(Y))
        f = ROWS[posterior].plain(b.Kuu, b.Kuf, b.kff, q, nothing)
        _, a, c, _ = data_term(model.likelihood, Y)(f["mean"][None], f["var"][None])
        f_bar = fs.records.Marginals(*(X.dtype.type(scale) * bar[0] for bar in (a, c)))
        Kuf_bar = ROWS[posterior].plain(b.Kuu, b.Kuf, b.kff, q, f_bar)["bar.Kuf"]
        X_bar = covariances.matrix_vjp(Kuf_bar, model.covariance, model.inducing, X)[2]
        _, left, right = covariances.matrix_vjp(np.diag(f_bar.var), model.covariance, X, X)
        return X_bar + left + right + np.outer(f_bar.mean, model.mean.weights)

    def draw():
        model, X, Y, random = full_problem(
            rng, posterior, covariance=covariance, mean="linear", M=17, B=20
        )
        model, X, Y = cast((model, X, Y - 0.1 - X.sum(axis=1)), np.float32)
        # the residuals that the plain recipe sees are those of the bound
        shifted = Y + model.mean(X)
        ours = fs.elbo_and_grad(
            model, X, shifted, num_data=scale * len(X), jitter=jitter, wrt=(), inputs=True, **random
        )[2]
        assert ours.dtype == np.float32
        return {"inputs": (ours, plain(model, X, Y), plain(*cast((model, X, Y), np.float64)))}

    assert_within_budget(draw)


@pytest.mark.parametrize(
    "covariance, M, N", [*((name, 10, 60) for name in COVARIANCES), ("rbf", 33, 130)]
)
def test_collapsed_bound(rng, covariance, M, N):
    def make():
        model, X, Y, _ = problem(rng, covariance, M=M, B=N)
        return fs.SGPR(model.covariance, model.inducing, 0.3), X, Y

    def ours(model, X, Y):
        return fs.collapsed_bound_and_grad(model, X, Y, jitter=JITTER)

    judge(make, ours, plain_collapsed)
