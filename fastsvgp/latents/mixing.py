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


def _same(W):
    return W


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
        return Marginals(self.mix_values(g.mean), self.mix_values(g.var, np.square))

    def vjp(self, f_bar, g, need):
        """Return ``(mixing_bar, g_bar)``; the first is None unless ``need``."""
        of_mean, mean = self._blocks_vjp(f_bar.mean, g.mean, need)
        of_var, var = self._blocks_vjp(f_bar.var, g.var, need, np.square)
        pairs = zip(self.blocks, of_mean, of_var, strict=False)
        bars = tuple(bar + 2 * block.W * squares for block, bar, squares in pairs)
        return self._like_given(bars), Marginals(mean, var)

    def mix_values(self, g, power=_same):
        """Return W g for values g (L, ...), or power(W) g."""
        if not self.blocks:
            return g
        return _concatenate([kernels.matmul(power(W), g[into]) for W, _, into in self.blocks])

    def values_vjp(self, f_bar, g, need):
        """Return ``(mixing_bar, g_bar)`` of ``mix_values``; the first is None unless ``need``."""
        bars, g_bar = self._blocks_vjp(f_bar, g, need)
        return self._like_given(tuple(bars)), g_bar

    def _blocks_vjp(self, f_bar, g, need, power=_same):
        """Return the cotangents of each power(W), none unless ``need``, and that of g."""
        if not self.blocks:
            return [], f_bar
        bars = [
            kernels.matmul(f_bar[out], g[into], transpose_b=True)
            for _, out, into in self.blocks
            if need
        ]
        of_g = (kernels.matmul(power(W), f_bar[out], transpose_a=True) for W, out, _ in self.blocks)
        return bars, _concatenate(list(of_g))

    def mix_covariances(self, cov):
        """Return the covariances (J, N, N) of f over rows, for those of g (L, N, N)."""
        return self.mix_values(cov.reshape(len(cov), -1), np.square).reshape(-1, *cov.shape[1:])

    def covariances_of_rows(self, var):
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
        """Return the bars, none or one per block, as one array if ``mixing`` is one."""
        if not bars:
            return None
        return bars if isinstance(self.given, tuple) else bars[0]


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


def _concatenate(parts):
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
