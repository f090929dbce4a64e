"""Matrix products by BLAS, and the fused passes over (M, N) arrays between them."""

import numpy as np

from ..runtime.dispatch import family, one_device, operation, shares_memory

twin = family("products")


@operation("A", "B")
def matmul(A, B, transpose_a=False, transpose_b=False):
    """Multiply ``op(A) op(B)`` for matrices (..., m, k), (..., k, n). 2 m n k flops.

    It uses the same BLAS and the same threads as all other operations.
    """


@operation("A", "w", "out")
def weighted_gram(A, w, out=None, add=False, overwrite_a=False):
    """Compute the lower triangle of ``A diag(w) A'`` for A (M, N) and weights w (N,).

    Weights may have either sign. Entries above the diagonal are not touched: ``symmetrise`` fills
    them in. ``out`` (M, M), C-contiguous, receives the result; with ``add`` the result is added to
    ``out``. With ``overwrite_a`` no copy is made if all weights have one sign; ``A`` is then
    overwritten. M^2 N flops, one (M, N) copy.
    """


@operation("like")
def chunk_numbers(like):
    """Return how many numbers one chunk of a long matrix should have, on the device of ``like``.

    It bounds the memory, and is large enough for the work on a chunk to be efficient: 2^21 (16 MiB
    in float64) on the CPU, 2^18 per multiprocessor on a GPU.
    """


@operation("A")
def symmetrise(A):
    """Copy lower triangles of A (..., M, M), C-contiguous, to the upper ones in place; return A."""


@operation("like")
def empty(shape, like):
    """Return an uninitialised array with the dtype and on the device of ``like``.

    Large arrays reuse memory that is no longer in use.
    """


def full(shape, value, like, dtype=None):
    """Return a constant array on the device of ``like``, and of its dtype by default.

    It replaces ``np.full(..., like=)``: NumPy forwards arguments that CuPy's function does not
    accept.
    """
    one_device(("value", value), ("like", like))
    out = np.empty(shape, like.dtype if dtype is None else dtype, like=like)
    out[...] = value
    return out


@operation("A", "x", "B")
def column_moments(A, x, B=None):
    """Compute ``(A' x, sum_i A[i] B[i])``, both (N,), in one pass over A and B (M, N), in float64.

    B defaults to A. 4 M N flops.
    """


@operation("A", "w", "out")
def scale_columns(A, w, out=None):
    """Compute ``A diag(w)`` for A (M, N); ``out`` may be A itself. One pass."""


@operation("T", "x", "a", "w")
def add_outer(T, x, a, w=None):
    """Update ``T += x a'``, or ``T = T diag(w) + x a'``, in place; return T. One pass.

    T : (M, N), C-contiguous; x : (M,); a, w : (N,)
    """


@operation("T", "A", "c")
def add_scaled(T, A, c):
    """Update ``T += c A`` in place; return T. One pass.

    T, A : (M, N), C-contiguous; c : a number
    """


@operation("T", "x", "a", "A", "w")
def add_outer_minus_scaled(T, x, a, A, w, scale=False):
    """Update ``T += x a' - A diag(w)`` in place; return ``A a`` (M,). One pass.

    With ``scale`` the update is ``T = T diag(w) + x a' - A diag(w)``.

    T, A : (M, N), C-contiguous; x : (M,); a, w : (N,)
    """


@operation("T", "w", "x", "a", "A")
def scale_add_outer(T, w, x, a, A):
    """Update ``T = T diag(w) + x a'`` in place; return ``A a`` (M,). One pass.

    T, A : (M, N), C-contiguous; x : (M,); a, w : (N,)
    """


@operation("L")
def tril_sum_of_squares(L):
    """Sum the squares over the lower triangles of L (..., M, M), in float64: a float.

    The strict upper triangle is never read.
    """


@operation("means", "trils")
def kl_from_standard(means, trils):
    """Compute ``KL[N(m, W W') || N(0, I)]``, summed over leading axes, in float64.

    It is ``(|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii``.

    means : (..., M); trils : (..., M, M) W, whose strict upper triangle is never read
    """


@operation("var", "kff")
def raise_to_floor(var, kff, add=False):
    """Set ``var = max(var, eps kff)`` in place, eps that of the dtype; return how many were raised.

    The count is an int, or () int64 on a GPU.

    var : (N,) or (P, N), of any strides; kff : (N,); add : add kff to var first
    """


def tril_update(C, L, shift, out, transpose=False):
    """Write ``tril(C) + shift (L - diag(1 / L_ii))`` to ``out`` for C, L (M, M). One pass.

    With ``transpose``, C' replaces C. Only the lower triangles of L and op(C) are read; ``out`` has
    zeros above the diagonal. Without ``transpose``, ``out`` may be C; with it that is a
    ``ValueError``, because entries would be overwritten before they are read.
    """
    if transpose and shares_memory(out, C):
        raise ValueError(
            "tril_update: with `transpose` `out` must not share memory with `C`; give a new array"
        )
    return twin(C=C, L=L, out=out).tril_update(C, L, shift, out, transpose)
