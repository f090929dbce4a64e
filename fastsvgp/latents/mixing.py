"""Linear mixing of independent functions: f = W g, with W (J, L) or block-diagonal.

Given the marginals N(m, v) of g, (L, N), those of f are

    mean_f = W m,    var_f = W^2 v,    W^2 entrywise,

because the g are independent under q. Reverse, from the cotangents a, b of mean_f and var_f:

    W_bar = a m' + 2 W o (b v'),    m_bar = W' a,    v_bar = (W^2)' b
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..records import Marginals


class Block(NamedTuple):
    """One matrix W, the rows of f that it makes, and the rows of g that it mixes."""

    W: Any
    out: slice
    into: slice


class Mixing:
    """The map from g (L, N) to f (J, N) of a model; ``mixing`` None is the identity.

    mixing : None, (J, L), or a tuple of matrices, the blocks of a block-diagonal W

    Attributes
    ----------
    blocks : tuple of Block; empty for the identity
    """

    def __init__(self, mixing):
        self.given, blocks, j, k = mixing, [], 0, 0
        for W in matrices(mixing):
            J, L = np.shape(W)
            blocks.append(Block(W, slice(j, j + J), slice(k, k + L)))
            j, k = j + J, k + L
        self.blocks = tuple(blocks)

    def forward(self, g):
        """Return the marginals of f, for the marginals of g."""
        if not self.blocks:
            return g
        mean, var = (
            [kernels.matmul(power(W), moment[into]) for W, _, into in self.blocks]
            for power, moment in ((_same, g.mean), (np.square, g.var))
        )
        return Marginals(_joined(mean), _joined(var))

    def pull(self, f_bar, g, need):
        """Return ``(mixing_bar, g_bar)``; the first is None unless ``need``."""
        if not self.blocks:
            return None, f_bar
        a, b = f_bar.mean, f_bar.var
        bars = None
        if need:
            bars = tuple(
                kernels.matmul(a[out], g.mean[into], transpose_b=True)
                + 2 * W * kernels.matmul(b[out], g.var[into], transpose_b=True)
                for W, out, into in self.blocks
            )
        mean, var = (
            [kernels.matmul(power(W), bar[out], transpose_a=True) for W, out, _ in self.blocks]
            for power, bar in ((_same, a), (np.square, b))
        )
        return self._like_given(bars), Marginals(_joined(mean), _joined(var))

    def of_values(self, g):
        """Return W g for values g (L, N)."""
        return (
            _joined([kernels.matmul(W, g[into]) for W, _, into in self.blocks])
            if self.blocks
            else g
        )

    def values_vjp(self, f_bar, g, need):
        """Return ``(mixing_bar, g_bar)`` of ``of_values``; the first is None unless ``need``."""
        if not self.blocks:
            return None, f_bar
        bars = None
        if need:
            bars = tuple(
                kernels.matmul(f_bar[out], g[into], transpose_b=True)
                for _, out, into in self.blocks
            )
        g_bar = [kernels.matmul(W, f_bar[out], transpose_a=True) for W, out, _ in self.blocks]
        return self._like_given(bars), _joined(g_bar)

    def of_covariances(self, cov):
        """Return the covariances (J, N, N) of f over rows, for those of g (L, N, N)."""
        if not self.blocks:
            return cov
        L, N = cov.shape[:2]
        flat = cov.reshape(L, N * N)
        parts = [kernels.matmul(np.square(W), flat[into]) for W, _, into in self.blocks]
        return _joined(parts).reshape(-1, N, N)

    def over_functions(self, var):
        """Return W diag(v) W' of each row (N, J, J), for the variances v of g (L, N)."""
        J = self.blocks[-1].out.stop if self.blocks else len(var)
        cov = np.zeros((var.shape[1], J, J), var.dtype, like=var)
        if not self.blocks:
            cov.reshape(len(cov), -1)[:, :: J + 1] = var.T
        for W, out, into in self.blocks:
            scaled = (W * var[into].T[:, None]).reshape(-1, W.shape[1])
            cov[:, out, out] = kernels.matmul(scaled, W, transpose_b=True).reshape(
                len(cov), len(W), -1
            )
        return cov

    def pairs(self):
        """Yield ``(k, l, W_k * W_l)`` for rows k < l of g in one block, with the rows of f."""
        for W, out, into in self.blocks:
            for k in range(into.start, into.stop):
                for other in range(k + 1, into.stop):
                    yield k, other, W[:, k - into.start] * W[:, other - into.start], out

    def _like_given(self, bars):
        return bars if bars is None or isinstance(self.given, tuple) else bars[0]


def matrices(mixing):
    """Return the matrices of a ``mixing`` as a tuple."""
    if mixing is None:
        return ()
    return mixing if isinstance(mixing, tuple) else (mixing,)


def no_gradient(mixing):
    """Return zeros like a ``mixing``."""
    if isinstance(mixing, tuple):
        return tuple(np.zeros_like(W) for W in mixing)
    return np.zeros_like(mixing)


def _same(W):
    return W


def _joined(parts):
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
