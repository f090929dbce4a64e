"""The collapsed posterior of a regression at given features, and its best variance and noise.

For a kernel s k with noise n, L L' = k(Z, Z) + jitter, Lam = L^-1 k(Z, F), and W the weights of
rows,

    A = Lam W Lam'      b = Lam W y      t = tr(W (kff - diag(Lam' Lam)))      B = I + (s / n) A

    bound = -sum(W) / 2 log(2 pi n) - log|B| / 2 - y'Wy / (2 n) + (s / n^2) b' B^-1 b / 2
            - s t / (2 n).

With A = U diag(w) U' and g = U' b this is a function of s and n only, which takes no other pass
over the data: with d = 1 + w s / n, r = (w s / n) / d, q = g^2 s / (n^2 d),

    bound = -sum(W) / 2 log(2 pi n) - sum log d / 2 - y'Wy / (2 n) + sum q / 2 - s t / (2 n)
    d bound / d log s = -sum r / 2 + sum q (1 - r) / 2 - s t / (2 n)
    d bound / d log n = -sum(W) / 2 + sum r / 2 + y'Wy / (2 n) - sum q (2 - r) / 2 + s t / (2 n).

At a new row, lam = L^-1 k(Z, phi):

    mean = (sqrt(s) / n) b' B^-1 sqrt(s) lam      variance of f = s (kff - lam'lam + lam' B^-1 lam).
"""

from typing import Any, NamedTuple

import numpy as np

from ... import kernels
from ...covariances import OnFeatures
from ...posteriors import Whitened
from ...posteriors.base import add_to_diagonals
from ...runtime import tuning

# largest variance of a process: without noise in the targets it would go to infinity, and jitter
# would be lost in it
LARGEST = 1e6
CONDITION = 1e12  # largest condition number of B
WIDEST = 8.0  # largest change of log s and of log n


def of_features(covariance):
    """Return the covariance on features: without a network ``covariance`` itself."""
    return covariance.covariance if isinstance(covariance, OnFeatures) else covariance


def features(covariance, X):
    """Return features (N, F) of inputs X (N, D); without a network X."""
    return covariance.network(X) if isinstance(covariance, OnFeatures) else X


class Sums(NamedTuple):
    """The sums over rows that the collapsed bound needs."""

    L: Any  # (M, M)
    A: Any  # (M, M)
    b: Any  # (M,)
    yy: float
    t: float
    num_rows: float  # sum of their weights
    variance: float  # of the process, at a row


def _runs(X):
    """Return the chunks of rows, as slices."""
    size = tuning.current.search_chunk_rows
    return [slice(start, start + size) for start in range(0, len(X), size)]


def sums(covariance, Z, X, y, weights, jitter):
    """Compute ``Sums`` of rows X (N, D), y (N,), weights (N,) or None, in chunks.

    N M^2 flops, and those of the features.
    """
    k = of_features(covariance)
    K = k.matrix(Z)
    add_to_diagonals(K, jitter)
    L = kernels.cholesky(K)
    M = len(Z)
    A, b, prior = np.zeros((M, M)), np.zeros(M), 0.0
    for rows in _runs(X):
        phi = features(covariance, X[rows])
        Lam = kernels.solve_triangular(L, k.matrix(Z, phi))
        counted = Lam if weights is None else Lam * weights[rows]
        A += kernels.matmul(counted, Lam, transpose_b=True)
        b += counted @ y[rows]
        kff = k.diag(phi)
        prior += kff.sum() if weights is None else kff @ weights[rows]
    weighted = y if weights is None else weights * y
    count = len(X) if weights is None else weights.sum()
    return Sums(
        L, A, b, float(weighted @ y), float(prior - np.trace(A)), float(count), float(prior / count)
    )


def tuned(found, noise, fixed_noise=False):
    """Maximise the bound over s and n, from s = 1 and n = ``noise``; ``fixed_noise`` keeps n.

    The variance stays below ``LARGEST``, and n large enough to factorise B.

    9 M^3 flops, then O(M) per iteration.
    """
    from scipy.optimize import minimize

    w, U = np.linalg.eigh(found.A)
    w, g2 = np.maximum(w, 0), np.square(U.T @ found.b)

    def loss(point):
        s, n = np.exp(point)
        d = 1 + w * (s / n)
        r, q = (w * (s / n)) / d, g2 * (s / n**2) / d
        rest, lost = found.yy / (2 * n), s * found.t / (2 * n)
        bound = -0.5 * (found.num_rows * np.log(2 * np.pi * n) + np.log(d).sum() - q.sum())
        by_s = 0.5 * (q @ (1 - r) - r.sum()) - lost
        by_n = 0.5 * (r.sum() - found.num_rows - q @ (2 - r)) + rest + lost
        return (
            -(bound - rest - lost) / found.num_rows,
            -np.array([by_s, by_n]) / found.num_rows,
        )

    start = np.array([0.0, np.log(noise)])
    most = min(WIDEST, np.log(LARGEST / found.variance))
    around = 0.0 if fixed_noise else WIDEST
    bounds = [(min(-WIDEST, most), most), (start[1] - around, start[1] + around)]
    start[0] = min(start[0], most)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    s, n = np.exp(best)
    return float(s), float(max(n, s * w[-1] / CONDITION))


class Collapsed:
    """The posterior with kernel s k and noise n. M^3 / 3 flops."""

    def __init__(self, covariance, Z, found, s, n):
        self.covariance, self.Z, self.s, self.noise, self._L = covariance, Z, s, n, found.L
        B = found.A * (s / n)
        add_to_diagonals(B, 1)
        self._B, self._R = B, kernels.cholesky(B)
        c = kernels.solve_triangular(self._R, (np.sqrt(s) / n) * found.b[:, None])
        self._mean = kernels.solve_triangular(self._R, c, transpose=True)[:, 0]

    def posterior(self):
        """Return q(u) for the kernel s k. 2 M^3 / 3 flops."""
        return Whitened(self._mean, kernels.cholesky_of_inverse(self._B))

    def predict(self, X):
        """Return mean and variance of f at X (N, D): two (N,) arrays. 4 N M^2 flops."""
        k, means, variances = of_features(self.covariance), [], []
        for rows in _runs(X):
            phi = features(self.covariance, X[rows])
            Lam = kernels.solve_triangular(self._L, k.matrix(self.Z, phi))
            means.append(np.sqrt(self.s) * (self._mean @ Lam))
            explained = np.square(kernels.solve_triangular(self._R, Lam)).sum(0)
            explained -= np.square(Lam).sum(0)
            variances.append(self.s * np.maximum(k.diag(phi) + explained, 0))
        return np.concatenate(means), np.concatenate(variances)
