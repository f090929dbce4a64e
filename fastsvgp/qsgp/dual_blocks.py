"""Optimal mean by blocks of data: Gauss-Seidel steps on the dual of the bound.

With Gaussian noise s^2 and S = I the bound is, in the mean mu and up to a constant,

    L(mu) = -|y - phi mu|^2 / (2 s^2) - |mu|^2 / 2.

A square is the maximum of a line: -|r|^2 / (2 s^2) = min_a s^2 |a|^2 / 2 - a' r, with r = s^2 a at
the minimum. So L(mu) <= s^2 |a|^2 / 2 - a' (y - phi mu) - |mu|^2 / 2 for every a, and the largest L
is at most the maximum of the right-hand side over mu, which is at mu = phi' a:

    L(mu) <= U(a) = s^2 |a|^2 / 2 + |phi' a|^2 / 2 - a' y.

At mu = phi' a, and with the residual r = y - phi mu - s^2 a = -dU / da, the two differ by

    U(a) - L(phi' a) = |r|^2 / (2 s^2):

the residual bounds what the present mean can still gain. Its zero is the optimum of both.

*A block* of rows moves its part a_r along d = (K_rr + s^2 I)^-1 r_r, with K_rr = phi_r phi_r', or
with the covariance k(X_r, X_r) in place of it, which costs no b^2 m flops. Along d,

    U(a + t d) = U(a) - t d' r_r + t^2 (|phi_r' d|^2 + s^2 |d|^2) / 2,

and phi_r' d is the change of mu, which the step computes anyway. So the best t is known: t = 1 with
phi_r phi_r', near 1 with k(X_r, X_r) if there are many features. U falls by t d' r_r / 2 in every
step, whatever stands in for phi_r phi_r'. Source of the step: Evans and Nair 2018, section 2.2, and
block coordinate descent, as in Shalev-Shwartz and Zhang 2013, "Stochastic dual coordinate ascent".

*Covariances with all data*, phi = S = K, without the jitter of S: the optimum solves (K K / s^2 +
K) mu = K y / s^2, that is (K + s^2 I) mu = y. So mu is a itself, K takes the place of phi phi', and
a step changes b entries of mu.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..records import tree_map
from ..runtime import tuning
from ..runtime.blas_scope import blas_threads_for
from .bases import InducingBasis, RandomFourier
from .bases.base import BasisWeights


class BlockStep(NamedTuple):
    """Change of a block: of its dual variables (b,), and of the mean (m,), or None if they are it.

    size : factor t of the step; gain : fall of the dual, in nats
    """

    dual: Any
    mean: Any
    size: float
    gain: float


@dataclass(frozen=True)
class FeatureBlocks:
    """Blocks for features with S = I; the mean is phi' a."""

    basis: Any
    noise: float

    exact = False  # whether the covariance of the rows is phi_r phi_r'

    def residual(self, X, y, dual, mean):
        """Return y - phi mean - noise dual at some rows, in float64; ``dual`` is theirs."""
        with blas_threads_for((X,)):
            out, _ = self.basis.products(X, BasisWeights(mean.astype(X.dtype)[None]))
        return y - out[0].astype(np.float64) - self.noise * dual

    def step(self, X, residual, products):
        """Return the ``BlockStep`` from a residual; ``products``: take phi_r phi_r'.

        2 m b flops and the features, b^2 covariances and b^3 / 3 flops; with ``products`` 4 m b^2.
        """
        matrix = self._products(X) if products else _covariance(self.basis, X)
        d = self._round(_solve(matrix, self.noise, residual), X.dtype)
        nothing = BasisWeights(np.zeros((1, self.basis.num_functions()), X.dtype, like=X))
        bar = self.basis.products_vjp(X, nothing, d.astype(X.dtype)[None], None, ())[0]
        moved = bar[0].astype(np.float64)
        slope, curvature = _sum(d * residual), _sum(moved * moved) + self.noise * _sum(d * d)
        size = slope / curvature if curvature else 0.0
        return BlockStep(size * d, size * moved, size, 0.5 * size * slope)

    def _round(self, d, dtype):
        """Return d as the features are multiplied by it, so that the mean stays phi' a."""
        return d.astype(dtype).astype(np.float64)

    def _products(self, X):
        """Return phi_r phi_r' in float64, from panels of features."""
        basis, X = _double(self.basis), X.astype(np.float64)
        units = np.arange(basis.num_functions() // basis.width, like=X)
        total = np.zeros((len(X), len(X)), like=X)
        size = max(1, tuning.current.basis_panel_numbers // (basis.width * len(X)))
        for at in range(0, len(units), size):
            phi = basis.features(X, units[at : at + size].astype(np.int64))
            with blas_threads_for((total,)):
                total += kernels.matmul(phi, phi, transpose_b=True)
        return total


class CovarianceBlocks(FeatureBlocks):
    """Blocks for phi = S = K, covariances with all data; the mean is a."""

    exact = True

    def step(self, X, residual, products):
        """Return the ``BlockStep`` from a residual. b^2 covariances, b^3 / 3 flops."""
        d = _solve(_covariance(self.basis, X), self.noise, residual)
        return BlockStep(d, None, 1.0, 0.5 * _sum(d * residual))


def blocks_of(basis, noise):
    """Return the blocks for a basis; ``TypeError`` if it has none."""
    if isinstance(basis, RandomFourier):
        return FeatureBlocks(basis, noise)
    if isinstance(basis, InducingBasis) and basis.dense_precision:
        return CovarianceBlocks(basis, noise)
    raise TypeError(
        'optimal_weights: method="blocks" is for a RandomFourier or an InducingBasis, not for a'
        f' {type(basis).__name__}; use "conjugate_gradients"'
    )


def _covariance(basis, X):
    return _double(basis.covariance).Kff(X.astype(np.float64))


def _double(tree):
    """Return a record with its numbers in float64."""
    return tree_map(lambda a: a.astype(np.float64) if hasattr(a, "astype") else float(a), tree)


def _solve(matrix, noise, residual):
    """Return (matrix + noise I)^-1 residual (b,). The matrix is overwritten."""
    with blas_threads_for((matrix,)):
        L = kernels.cholesky(matrix, noise, overwrite_a=True)
        half = kernels.solve_triangular(L, residual[:, None].copy(), overwrite_b=True)
        return kernels.solve_triangular(L, half, transpose=True, overwrite_b=True)[:, 0]


def _sum(values):
    return float(values.sum(dtype=np.float64))
