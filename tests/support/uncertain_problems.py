"""Models at uncertain inputs, and a dense rule for the moments over them.

Given x, f is normal with the moments that ``predict_f`` returns, so a rule over x and the law of
total variance give the moments to compare with. The trapezoid rule has no error but rounding for
smooth functions under a normal density.
"""

import itertools

import numpy as np

import fastsvgp as fs

M, D, N = 7, 2, 3
T = np.linspace(-9, 9, 121)
WEIGHTS = np.exp(-0.5 * T**2) / np.exp(-0.5 * T**2).sum()
GRID = np.array(list(itertools.product(T, T)))
GRID_WEIGHTS = np.multiply.outer(WEIGHTS, WEIGHTS).ravel()
PERIODIC = fs.Periodic(fs.RBF(1.2, np.array([0.9, 1.1])), np.array([2.5, 1.7]))
WAVE, SHORT = fs.Periodic(fs.RBF(1.2, 0.9), 2.5), fs.RBF(0.3, np.array([0.3, 1.0]))
LONG = fs.RBF(1.3, np.array([0.9, 1.6]))
COVARIANCES = {
    "rbf": LONG,
    "linear": fs.Linear(np.array([0.5, 0.2])),
    "periodic": PERIODIC,
    "two lengthscales": LONG + SHORT,
    "rbf and linear": LONG + fs.Linear(0.3) + 0.4,
    "rbf and periodic": LONG + PERIODIC,
    "linear and periodic": fs.Linear(0.3) + PERIODIC + fs.Periodic(fs.RBF(0.4, 1.5), 3.1),
    "single columns": fs.RBF(0.7, 0.8).on(0) + fs.RBF(0.5, 1.3).on(1),
    "product": WAVE.on(0) * fs.RBF(0.7, 1.2).on(1) + SHORT,
    "product of lines": fs.Linear(0.5).on(0) * fs.Linear(0.6).on(1) + fs.Linear(0.2),
    "product of sums": (fs.RBF(0.5, 0.8).on(0) + fs.Linear(0.3).on(0)) * (WAVE.on(1) + 0.3),
    "product of bumps": fs.RBF(1.0, 1.5) * fs.RBF(0.4, 2.0).on(1) + fs.RBF(0.2, 0.9).on(1),
}


def whitened(rng, *axes):
    tril = np.tril(0.2 * rng.standard_normal((*axes, M, M)), -1) + 0.5 * np.eye(M)
    return fs.Whitened(rng.standard_normal((*axes, M)), tril)


def problem(rng, covariance=LONG, axes=(), mean=None):
    Z = rng.uniform(-2, 2, (M, D))
    model = fs.SVGP(covariance, Z, whitened(rng, *axes), fs.Gaussian(0.1), mean)
    return model, rng.uniform(-2, 2, (N, D)), rng.uniform(0.02, 0.4, (N, D))


def by_rule(model, mean, roots, jitter=None):
    """Return the moments by the trapezoid rule, for x = mean + root t; roots (N, D, D)."""
    found = []
    for mu, root in zip(mean, roots, strict=True):
        m, v = fs.predict_f(model, mu + (root * GRID[:, None]).sum(-1), jitter=jitter)
        centre = GRID_WEIGHTS @ m
        found.append((centre, GRID_WEIGHTS @ (v + (m - centre) ** 2)))
    return tuple(map(np.array, zip(*found, strict=True)))


def with_inputs_by_rule(model, mean, roots):
    """Return Cov(x, f), (N, D) or (N, D, P)."""
    found = []
    for mu, root in zip(mean, roots, strict=True):
        apart = (root * GRID[:, None]).sum(-1)
        m = fs.predict_f(model, mu + apart, var=False)
        found.append((apart * GRID_WEIGHTS[:, None]).T @ m)
    return np.array(found)


def diagonal(var):
    return np.sqrt(var)[:, None] * np.eye(var.shape[-1])


def assert_same(ours, theirs, tolerance=1e-11):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())
