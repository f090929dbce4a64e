"""L-SVGP and R-SVGP in float32 are as accurate as direct formulas in NumPy's float32."""

import numpy as np
import pytest
from oracles import gp_gradients, inverse_free
from support.budgets import assert_within_budget, by_name

import fastsvgp as fs

JITTER = 1e-4
FIELDS = ("Kuu", "Kuf", "kff", "mean", "variance", "noise")


def problem(rng, M, N, factor, K):
    """Arguments of ``gaussian_bars`` in float32; an RBF Kuu with a condition of a few thousand."""
    Z, X = rng.uniform(-2, 2, (M, 2)), rng.uniform(-2, 2, (N, 2))
    _, Kuu, Kuf, kff = gp_gradients.blocks(Z, X, 1.2, np.array([0.9, 1.1]), JITTER)
    variance = rng.uniform(0.05, 0.3, M)
    arrays = dict(
        Kuu=Kuu,
        Kuf=Kuf,
        kff=kff,
        y=rng.standard_normal(N),
        mean=rng.standard_normal(M),
        variance=variance,
    )
    if factor:
        L = np.linalg.cholesky(np.linalg.inv(Kuu + np.diag(variance)))
        arrays["inverse_tril"] = L @ (np.eye(M) + 0.1 / M * np.tril(rng.standard_normal((M, M))))
        if K:
            arrays["probes"] = rng.choice([-1.0, 1.0], (M, K))
    return {name: a.astype(np.float32) for name, a in arrays.items()}


def plain(p):
    value, bars = inverse_free.gaussian_bars(
        **p, noise=p["y"].dtype.type(0.2), scale=p["y"].dtype.type(3.0)
    )
    return [np.asarray(value), *(np.asarray(bars[name]) for name in FIELDS)]


def ours(p):
    q = (p["mean"], p["variance"])
    posterior = (
        fs.posteriors.Relaxed(*q, p["inverse_tril"])
        if "inverse_tril" in p
        else fs.posteriors.LikelihoodForm(*q)
    )
    blocks = fs.records.Blocks(p["Kuu"], p["Kuf"], p["kff"])
    likelihood = fs.Gaussian(p["y"].dtype.type(0.2))
    value, (blocks_bar, posterior_bar, likelihood_bar) = fs.bounds.elbo_and_grad_from_blocks(
        blocks,
        posterior,
        likelihood,
        p["y"],
        num_data=3.0 * len(p["y"]),
        jitter=0.0,
        probes=p.get("probes"),
    )
    bars = (
        blocks_bar.Kuu,
        blocks_bar.Kuf,
        blocks_bar.kff,
        posterior_bar.mean,
        posterior_bar.variance,
        likelihood_bar.variance,
    )
    return [np.asarray(value, p["y"].dtype), *map(np.asarray, bars)]


@pytest.mark.parametrize("M, N", [(40, 30), (20, 200)])
@pytest.mark.parametrize(
    "factor, K", [(False, 0), (True, 0), (True, 8)], ids=["likelihood", "relaxed", "probes"]
)
def test_value_and_gradients_are_within_the_budget(rng, M, N, factor, K):
    def draw():
        narrow = problem(rng, M, N, factor, K)
        fast, truth = ours(narrow), plain({name: a.astype(float) for name, a in narrow.items()})
        assert {a.dtype for a in fast} == {np.dtype(np.float32)}
        return by_name(("value", *FIELDS), fast, plain(narrow), truth)

    assert_within_budget(draw, problems=9)
