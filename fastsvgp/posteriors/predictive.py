"""Moments of f as a linear and a quadratic form in k = k(Z, x): predictions without a factor.

Every posterior has mean = k'a and var = k(x, x) + k'Q k, Q = K^-1 (S - K) K^-1. Entries of Q are as
large as 1 / jitter, and k'Q k loses their digits. With L = chol(K + jitter I), k = L t, and the
moments (m', S') that the posterior's pass gives "at k = L" with the prior covariance I,

    mean = t'm' = k'a,                 a = L^-T m'
    var - k(x, x) = t'(S' - I) t = sum_i s_i (C k)_i^2,    S' - I = E' diag(s) E,  C = E L^-1

where all numbers are of the size of k(x, x). If I - S' is positive definite, E is the lower factor
of I - S' = E'E: with J the reversal, J (I - S') J = R R' gives E = J R' J. Then C is lower
triangular, and s = -1. Otherwise S' - I = V diag(e) V', E = |e|^1/2 V', s = sign(e). Reverse, with
a_f, b_f the cotangents of mean and var,

    k_bar = a a_f + 2 C' (s * C k) b_f
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..records import Marginals, leaf, record, static
from ..records.typed import Array
from .base import Joint, Pass, Posterior, Projection, raise_to_floor


@record
class PredictiveWeights(Posterior):
    """What is left of q(u) for predictions, made by ``predictor``: no bound, no training.

    mean = k'alpha and var = k(x, x) + sum_i sign_i (C k)_i^2 with k = k(Z, x).

    Parameters
    ----------
    alpha : (..., M)
    C : (R, M), for all outputs, or (..., R, M)
        R <= M. Not searched for NaN before a prediction.
    sign : (R,) or (..., R)
        1, -1, or 0 for rows that an output does not use.
    triangular : bool
        Whether C is lower triangular, R = M, and all signs are -1. Static.
    num_sets : int
        Number of sets of inducing inputs. Static.

    Examples
    --------
    >>> fs.predictor(model).posterior.alpha.shape
    (6,)
    """

    alpha: Array = leaf()
    C: Array = leaf("matrix")
    sign: Array = leaf()
    triangular: bool = static(default=False)
    num_sets: int = static(default=1)  # type: ignore[misc]

    no_natural_step = "it is a predictor, which only predicts"

    def check_size(self, *sizes):
        """Return the leading axes of ``alpha``; ``ValueError`` unless the fields fit."""
        a, C, s = np.shape(self.alpha), np.shape(self.C), np.shape(self.sign)
        M = sum(sizes)
        fits = len(a) in (1, 2) and a[-1] == M and C[-1:] == (M,) and s == C[:-1]
        if not fits or C[:-2] not in ((), a[:-1]):
            raise ValueError(
                f"`posterior` has alpha {a}, C {C} and sign {s}, but there are {M} inducing inputs:"
                " make it by fastsvgp.predictor"
            )
        return a[:-1]

    def start_from(self, prior, columns=0, need=(), **more):
        """Begin a pass; the prior is not read."""
        return PredictivePass(self, keep="blocks.Kuf" in need)

    def path_weights(self, prior, values, normal):
        """Refuse: paths need the joint distribution of u."""
        raise TypeError(
            "sample_paths: a predictor keeps the moments of f alone, and no q(u) to draw from; give"
            " the model that it was made of, or draw with sample_f"
        )


class PredictiveRows(NamedTuple):
    """Residuals of a chunk of rows: C k of each matrix C, or None."""

    products: Any


class PredictivePass(Pass):
    """Predictions forward, and their reverse rule to k(Z, x)."""

    def __init__(self, q, keep):
        self.q, self._keep, M = q, keep, q.alpha.shape[-1]
        self._alpha = q.alpha.reshape(-1, M)
        self._C, self._sign = q.C.reshape(-1, *q.C.shape[-2:]), q.sign.reshape(-1, q.C.shape[-2])
        self._outputs = q.alpha.shape[:-1]

    def _times(self, C, B, transpose=False):
        if self.q.triangular:
            return kernels.multiply_triangular(C, B, transpose)
        return kernels.matmul(C, B, transpose_a=transpose)

    def project(self, Kuf, kff):
        products = [self._times(C, Kuf) for C in self._C]
        sums = [
            kernels.matmul(s[None], np.square(T))[0]
            for s, T in zip(self._sign, products, strict=True)
        ]
        var = np.broadcast_to(np.stack(sums) + kff, (len(self._alpha), len(kff)))
        var = np.ascontiguousarray(var, like=var)
        if len(self._C) < len(self._alpha):
            var = var.copy()
        self.count_clamped(raise_to_floor(var, kff))
        mean = kernels.matmul(self._alpha, Kuf)
        shape = *self._outputs, len(kff)
        f = Marginals(mean.reshape(shape), var.reshape(shape))
        return Projection(f, PredictiveRows(products if self._keep else None))

    def joint(self, Kuf, Kff):
        P, N = len(self._alpha), len(Kff)
        covs = []
        for C, s in zip(self._C, self._sign, strict=True):
            T = self._times(C, Kuf)
            covs.append(Kff + kernels.matmul(T, s[:, None] * T, transpose_a=True))
        cov = np.stack(covs * (P // len(covs)))
        floor = np.ascontiguousarray(np.diagonal(Kff), like=Kff)
        self.count_clamped(raise_to_floor(cov.reshape(P, N * N)[:, :: N + 1], floor))
        mean = kernels.matmul(self._alpha, Kuf)
        return Joint(mean.reshape(*self._outputs, N), cov.reshape(*self._outputs, N, N))

    def pull(self, rows, f_bar):
        if rows.products is None:
            return None
        N = f_bar.mean.shape[-1]
        Kuf_bar = kernels.matmul(self._alpha, f_bar.mean.reshape(-1, N), transpose_a=True)
        var_bar = f_bar.var.reshape(-1, N)
        if len(self._C) < len(var_bar):
            var_bar = var_bar.sum(axis=0, keepdims=True)
        for C, s, T, b in zip(self._C, self._sign, rows.products, var_bar, strict=True):
            Kuf_bar += self._times(C, 2 * s[:, None] * T * b, transpose=True)
        return Kuf_bar

    def kl(self):
        raise TypeError("a predictor only predicts, and has no bound: give the model it came from")
