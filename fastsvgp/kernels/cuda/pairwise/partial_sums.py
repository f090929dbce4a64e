"""Final reduction of the partial sums of contractions, by ``kernels_cuda/pairwise.cu``.

It serves ``pairwise`` and ``patches``, in float64 and in a fixed order.
"""

import numpy as np

from ..common import loader
from ..common.scalars import parameter

BLOCK = 256  # as in pairwise.cu


def _launch(kernel, out, blocks, *arguments):
    loader.launch("pairwise", kernel, out.dtype, (blocks,), (BLOCK,), arguments)


def sum_sides(parts, factor, lengthscales, out):
    """Set out (items, N, D) to factor / lengthscales^2 times the sum of parts over the shares.

    parts : (items, shares, D, N)
    """
    if out.size:
        _, shares, D, N = parts.shape
        sizes = np.int32(shares), np.int64(N), np.int32(D), np.float64(factor)
        spread = parameter(lengthscales, out.dtype)
        _launch(
            "sum_sides", out, -(-out.size // BLOCK), parts, *sizes, *spread, out, np.int64(out.size)
        )


def sum_parts(parts, values, cubed, out):
    """Set out () or (D,) to the sum of all parts, or of each column of (blocks, D).

    The sum is divided by the values, or by their cubes.
    """
    if out.size:
        sizes = np.int64(parts.size // out.size), np.int32(out.size)
        _launch(
            "sum_parts",
            out,
            out.size,
            parts,
            *sizes,
            *parameter(values, out.dtype),
            np.int32(cubed),
            out,
        )
