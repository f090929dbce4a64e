"""One Gram matrix for all outputs, if the cotangents of their variances are multiples of one row.

Gaussian noise gives b_pn = -1 / (2 variance): every row of b is constant. Weights of rows give
equal rows. In both cases b_p = c_p w' exactly. With Gamma = (Lam * 2w) Lam' and
H = sum_p c_p (W_p W_p' - I) the sums of the Gram form are

    Lam_bar = sum_p m_p a_p' + (H Lam) * 2w,
    W_bar_p = c_p tril(Gamma W_p),    C = sum_p m_p (Lam a_p)' + H Gamma.

P outputs so take 3 M^2 B and (4/3 P + 1) M^3 in the place of 2 P M^2 B, and 5/3 P M^3 in the Gram
form. (P + 1) M^3 would do: full products with a triangular factor run faster than halves of them.
If only the sum of the variances is needed (``summed_variances``), the factors add
tr(sum_p c_p W_p W_p' Gamma) / 2 to it, so the products W_p' Lam, P M^2 B, are not needed either.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import kernels
from ..base import add_to_diagonals

FEWEST = 3  # outputs
LEAST = 1e6  # M^2 N: below it calls from Python dominate


def common_row(b, M, fewest=FEWEST):
    """Return ``(c (P,), w (N,))`` with b = c w' to the bit; None if it is not so, or saves nothing.

    Reads no array on a device.
    """
    if type(b) is not np.ndarray or len(b) < fewest or not b.size:
        return None
    if M * M * b.shape[1] < LEAST:
        return None
    if (b == b[0]).all():
        return np.ones(len(b), b.dtype), b[0]
    if (b == b[:, :1]).all():
        return b[:, 0].copy(), np.ones(b.shape[1], b.dtype)
    return None


def trace_product(A, B):
    """tr(A B) of symmetric matrices, a float."""
    return float(kernels.column_moments(A, A[0], B)[1].sum(dtype=float))


@dataclass(slots=True)
class CommonSums:
    """Sums over all rows with the same c (P,): Gamma, and Lam a.

    Only the lower triangle of Gamma is valid until ``symmetrise`` is called.

    H : (M, M), or None if it is not needed
    """

    c: Any
    H: Any
    Lam_a: Any
    Gamma: Any = None

    @classmethod
    def start(cls, c, covariances, like):
        H = None
        if covariances is not None:
            H = kernels.matmul(c[None], covariances.reshape(len(c), -1)).reshape(
                covariances[0].shape
            )
            H = add_to_diagonals(H, -c.sum())
        return cls(c, H, np.zeros((len(c), like.shape[0]), like.dtype))

    def add_gram(self, Lam, w2, overwrite):
        add = self.Gamma is not None
        self.Gamma = kernels.weighted_gram(Lam, w2, self.Gamma, add=add, overwrite_a=overwrite)

    def symmetrise(self):
        """Fill in the upper triangle of Gamma, after the last rows."""
        if self.Gamma is not None:
            self.Gamma = kernels.symmetrise(self.Gamma)

    def omitted_variances(self):
        """Return sum_p tr(W_p W_p' c_p Gamma) / 2, a float."""
        if self.Gamma is None:
            return 0.0
        self.symmetrise()
        trace = float(self.c.sum(dtype=float)) * float(np.trace(self.Gamma, dtype=float))
        return 0.5 * (trace_product(self.H, self.Gamma) + trace)

    def tril_bars(self, trils, Gamma, shift):
        """W_bar of all outputs: c_p tril(Gamma W_p) + ``shift`` (W_p - diag(1 / W_p,ii)).

        Gamma : the block that belongs to the set of these factors
        """
        bars = kernels.empty(trils.shape, trils)
        for number, W, bar in zip(self.c, trils, bars, strict=True):
            GW = kernels.multiply_triangular(W, Gamma, transpose=True)  # W' Gamma
            if number != 1:
                GW *= number
            kernels.tril_update(GW, W, shift, out=bar, transpose=True)
        return bars

    def C(self, means):
        """Return the lower triangle of sum_p m_p (Lam a_p)' + H Gamma."""
        C = kernels.tril_product(self.H, self.Gamma)
        left, right = (np.ascontiguousarray(A.T) for A in (means, self.Lam_a))
        return kernels.tril_product(left, right, out=C, add=True)
