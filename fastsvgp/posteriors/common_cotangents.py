"""One Gram matrix for all outputs, if the cotangents of their variances are multiples of one row.

Gaussian noise gives b_pn = -1 / (2 variance): every row of b is constant. Weights of rows give
equal rows. In both cases b_p = c_p w', exactly, and with Gamma = (Lam * 2w) Lam'

    G_p = c_p Gamma,    Lam_bar = sum_p m_p a_p' + H Lam * 2w,    H = sum_p c_p (W_p W_p' - I).

So P outputs take one half product and one product with the batch, 3 M^2 B, in place of 2 P M^2 B;
H takes P M^3 / 3. At P = 10, M = 512 and B = 1024 a step takes RATIO of the time.
"""

import numpy as np

from .. import kernels
from .base import add_to_diagonals


def common_row(b):
    """Return ``(c (P,), w (N,))`` with b = c w' to the bit, or None. Reads no array on a device."""
    if type(b) is not np.ndarray or len(b) < 2 or not b.size:
        return None
    if (b == b[0]).all():
        return np.ones(len(b), b.dtype), b[0]
    if (b == b[:, :1]).all():
        return b[:, 0].copy(), np.ones(b.shape[1], b.dtype)
    return None


class CommonSums:
    """Mixin of the whitened passes: the sums over rows with common cotangents.

    G : (P, M, M), sums of the Gram matrices, of which only lower triangles are valid, or None
    """

    G = None
    _excess = None, None  # c, and H for it

    def _add_grams(self, Lam, c, w2, overwrite):
        """Add c_p (Lam * 2w) Lam' to G."""
        first = self.G is None
        if first:
            self.G = kernels.empty(self.trils.shape, Lam)
        gram = kernels.symmetrise(kernels.weighted_gram(Lam, w2, overwrite_a=overwrite))
        for number, G in zip(c, self.G, strict=True):
            if first:
                np.multiply(gram, number, out=G)
            else:
                kernels.add_scaled(G, gram, number)

    def _common_Lam_bar(self, rows, a, c, w2):
        """Return the cotangent of Lam, and add Lam a to the sums."""
        Lam = rows.Lam
        self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        known, H = self._excess
        if known is None or not np.array_equal(c, known):
            H = add_to_diagonals(np.tensordot(c, self._covariances(), 1), -c.sum())
            self._excess = c, H
        T = kernels.matmul(H, Lam)
        T = kernels.scale_columns(T, w2, out=T)
        return kernels.add_scaled(T, kernels.matmul(self.means, a, transpose_a=True), 1.0)
