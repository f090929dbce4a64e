"""Random regression problems: covariances, and plain functions that define them."""

from typing import NamedTuple

import numpy as np
from oracles import gp

import fastsvgp as fs
from fastsvgp.records import leaves

# the tests compare formulas, so Kuu is well-conditioned: below a few thousand for every seed
JITTER = 1e-2


def _rbf(D):
    variance, lengthscales = 1.3, np.linspace(0.7, 1.5, D)
    return fs.RBF(variance=variance, lengthscales=lengthscales), gp.rbf(variance, lengthscales)


def _shared(D):
    return fs.RBF(variance=0.9, lengthscales=1.1), gp.rbf(0.9, 1.1)


def _matern12(D):
    variance, lengthscales = 1.1, np.linspace(1.5, 0.6, D)
    return fs.Matern12(variance=variance, lengthscales=lengthscales), gp.matern12(
        variance, lengthscales
    )


def _matern32(D):
    variance, lengthscales = 0.8, np.linspace(0.8, 1.2, D)
    return fs.Matern32(variance=variance, lengthscales=lengthscales), gp.matern32(
        variance, lengthscales
    )


def _matern52(D):
    variance, lengthscales = 1.6, np.linspace(1.3, 0.9, D)
    return fs.Matern52(variance=variance, lengthscales=lengthscales), gp.matern52(
        variance, lengthscales
    )


def _sum(D):
    variance = np.linspace(0.3, 0.5, D)
    ours = fs.covariances.Sum(
        parts=(
            fs.RBF(variance=0.7, lengthscales=0.9),
            fs.Linear(variance=variance),
            fs.covariances.Constant(variance=0.2),
        )
    )
    return ours, gp.sum_of(gp.rbf(0.7, 0.9), gp.linear(variance), gp.constant(0.2))


def _product(D):
    lengthscales = np.linspace(1.2, 0.8, D)
    linear = fs.covariances.Sum(
        parts=(fs.Linear(variance=0.4), fs.covariances.Constant(variance=0.6))
    )
    ours = fs.covariances.Product(
        parts=(linear, fs.Matern32(variance=0.9, lengthscales=lengthscales))
    )
    return ours, gp.product_of(
        gp.sum_of(gp.linear(0.4), gp.constant(0.6)), gp.matern32(0.9, lengthscales)
    )


COVARIANCES = {
    "rbf": _rbf,
    "rbf_shared": _shared,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
    "sum": _sum,
    "product": _product,
}


class Problem(NamedTuple):
    """A regression: ``covariance`` is of the package, ``k`` the same as a plain function.

    q(u) or q(v) is N(mean, scale_tril scale_tril').
    """

    covariance: object
    k: object
    Z: np.ndarray
    X: np.ndarray
    y: np.ndarray
    noise: float
    mean: np.ndarray
    scale_tril: np.ndarray

    def blocks(self, Xs=None):
        X = self.X if Xs is None else Xs
        return (
            self.k(self.Z, self.Z) + JITTER * np.eye(len(self.Z)),
            self.k(self.Z, X),
            gp.diagonal(self.k, X),
        )

    def sgpr(self):
        return fs.SGPR(covariance=self.covariance, inducing=self.Z, noise_variance=self.noise)

    def svgp(self, posterior=None, likelihood=None, **more):
        posterior = (
            fs.Whitened(mean=self.mean, scale_tril=self.scale_tril)
            if posterior is None
            else posterior
        )
        likelihood = fs.Gaussian(variance=self.noise) if likelihood is None else likelihood
        return fs.SVGP(
            covariance=self.covariance,
            inducing=self.Z,
            posterior=posterior,
            likelihood=likelihood,
            **more,
        )

    def expectation(self, mean, var):
        return gp.gaussian_expectation(self.y, self.noise, mean, var)


def spread(rng, n, D):
    """Return random points (n, D) in [-2, 2], no two of which are close in any coordinate.

    With near points Kuu is ill-conditioned, and differences of a bound lose digits.
    """
    cells = np.stack([rng.permutation(n) for _ in range(D)], axis=1)
    return -2 + 4 * (cells + rng.uniform(0.25, 0.75, (n, D))) / n


def lower_factor(rng, *shape, off=0.3):
    """Return random lower factors, with diagonals in (0.4, 1.2) and entries of size ``off``."""
    M = shape[-1]
    W = np.tril(off * rng.standard_normal((*shape, M)))
    W[..., np.arange(M), np.arange(M)] = rng.uniform(0.4, 1.2, shape)
    return W


def factor(rng, *shape, off=0.3):
    """Return a lower factor with NaN above the diagonal, which must not be read."""
    return lower_factor(rng, *shape, off=off) + np.triu(np.full((shape[-1], shape[-1]), np.nan), 1)


def problem(rng, name="rbf", M=7, N=23, D=2):
    covariance, k = COVARIANCES[name](D)
    X = rng.uniform(-2, 2, (N, D))
    y = np.sin(X).sum(axis=1) + 0.3 * rng.standard_normal(N)
    return Problem(
        covariance,
        k,
        rng.uniform(-2, 2, (M, D)),
        X,
        y,
        0.15,
        rng.standard_normal(M),
        factor(rng, M),
    )


def assert_records_close(left, right, rtol=1e-9):
    """Compare leaf by leaf, relative to max(1, largest entry); for factors only lower triangles."""
    for (path, kind, a), (other, _, b) in zip(leaves(left), leaves(right), strict=True):
        assert path == other
        assert (a is None) == (b is None), path
        if a is not None:
            a, b = (np.tril(a), np.tril(b)) if kind == "tril" else (a, b)
            np.testing.assert_allclose(
                a, b, rtol=0, atol=rtol * max(1, np.max(np.abs(b))), err_msg=path
            )


def assert_moments(samples, mean, cov, errors=6):
    """Assert that moments of ``samples`` (S, N) are within standard errors of their Gaussian's."""
    var = cov.diagonal()
    assert (np.abs(samples.mean(axis=0) - mean) <= errors * np.sqrt(var / len(samples))).all()
    assert (
        np.abs(np.cov(samples.T) - cov)
        <= errors * np.sqrt((np.outer(var, var) + cov**2) / len(samples))
    ).all()
