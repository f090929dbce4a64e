"""The plain gradient formulas that other tests and the benchmarks lean on, against differences of the definitions."""

import numpy as np
import pytest
from numerics import five_point
from oracles import gp, gp_gradients

JITTER = 1e-6
M, N, D = 5, 9, 2


def problem(rng, name):
    p = dict(variance=1.3, lengthscales=np.array([0.8, 1.4]), noise=0.2)
    if name != "collapsed":
        W = np.tril(0.3 * rng.standard_normal((M, M)), -1) + np.diag(rng.uniform(0.4, 1.2, M))
        p |= dict(mean=rng.standard_normal(M), scale_tril=W)
    return rng.standard_normal((M, D)), rng.standard_normal((N, D)), rng.standard_normal(N), p


def by_definition(name, Z, X, y, p, scale):
    k = gp.rbf(p["variance"], p["lengthscales"])
    Kuu, Kuf, kff = k(Z, Z) + JITTER * np.eye(M), k(Z, X), gp.diagonal(k, X)
    if name == "collapsed":
        return gp.titsias_bound(Kuu, Kuf, kff, y, p["noise"])
    W = p["scale_tril"]
    m, S = (p["mean"], W @ W.T) if name == "marginal" else gp.unwhitened(Kuu, p["mean"], W)
    return gp.elbo(Kuu, Kuf, kff, m, S, lambda mean, var: gp.gaussian_expectation(y, p["noise"], mean, var), scale)


@pytest.mark.parametrize("name", ["whitened", "marginal", "collapsed"])
def test_gradient_oracle_follows_the_definition(name, rng):
    Z, X, y, p = problem(rng, name)
    scale = {} if name == "collapsed" else {"scale": 2.5}
    value, grad = getattr(gp_gradients, name)(Z, X, y, jitter=JITTER, **scale, **p)
    assert value == pytest.approx(by_definition(name, Z, X, y, p, 2.5), rel=1e-12)
    field = {"inducing": "Z", "likelihood.variance": "noise", "noise_variance": "noise"}
    for path, bar in grad.items():
        key = field.get(path, path.rsplit(".")[-1])
        direction = rng.standard_normal(np.shape(bar))
        if key == "scale_tril":
            direction = np.tril(direction)

        def moved(s, key=key, direction=direction):
            if key == "Z":
                return by_definition(name, Z + s * direction, X, y, p, 2.5)
            return by_definition(name, Z, X, y, p | {key: p[key] + s * direction}, 2.5)

        assert np.vdot(bar, direction) == pytest.approx(five_point(moved), rel=1e-8, abs=1e-8), path
