"""Matrix products by the one BLAS, and the fused passes over (M, N) arrays between them."""

import numpy as np

from ..runtime.dispatch import family, one_device, shares_memory

twin = family("products")


def matmul(A, B, transpose_a=False, transpose_b=False):
    """``op(A) op(B)`` for matrices (..., m, k), (..., k, n): the same BLAS, the same threads as all the rest. 2 m n k flops."""
    return twin(A=A, B=B).matmul(A, B, transpose_a, transpose_b)


def weighted_gram(A, w, out=None, add=False, overwrite_a=False):
    """Lower triangle of ``A diag(w) A'`` for A (M, N) and weights w (N,) of either sign.

    M^2 N flops, one (M, N) copy.

    What stands above the diagonal is not touched: ``symmetrise`` fills it in. ``out`` (M, M),
    C-contiguous, receives the result; with ``add`` it is added to what ``out`` holds. With
    ``overwrite_a`` the copy is spared where all weights have one sign; ``A`` is then lost.
    """
    return twin(A=A, w=w, out=out).weighted_gram(A, w, out, add, overwrite_a)


def chunk_numbers(like):
    """How many numbers a matrix should have of which a long one is made part by part, for its memory: there where ``like`` lives.

    Enough for the work on a part to be efficient: 2^21 (16 MiB in float64), on a device 2^18 for
    each multiprocessor.
    """
    return twin(like=like).chunk_numbers(like)


def symmetrise(A):
    """Copy the lower triangles of A (..., M, M), C-contiguous, onto the upper ones, in place; returns A."""
    return twin(A=A).symmetrise(A)


def empty(shape, like):
    """An uninitialised array of the dtype, and on the device, of ``like``; big ones reuse memory that is no longer in use."""
    return twin(like=like).empty(shape, like)


def full(shape, value, like, dtype=None):
    """An array of one number, where ``like`` is, and of its dtype by default.

    For ``np.full(..., like=)``, which NumPy hands on with arguments that CuPy's function does not
    have.
    """
    one_device(("value", value), ("like", like))
    out = np.empty(shape, like.dtype if dtype is None else dtype, like=like)
    out[...] = value
    return out


def column_moments(A, x, B=None):
    """``(A' x, sum_i A[i] B[i])``, both (N,), in one pass over A and B (M, N), in float64; B is A by default. 4 M N flops."""
    return twin(A=A, x=x, B=B).column_moments(A, x, B)


def scale_columns(A, w, out=None):
    """``A diag(w)`` for A (M, N); ``out`` may be A itself. One pass."""
    return twin(A=A, w=w, out=out).scale_columns(A, w, out)


def add_outer(T, x, a, w=None):
    """In place ``T += x a'``, or ``T = T diag(w) + x a'``, for T (M, N), C-contiguous, x (M,), a, w (N,); returns T. One pass."""
    return twin(T=T, x=x, a=a, w=w).add_outer(T, x, a, w)


def add_scaled(T, A, c):
    """In place ``T += c A`` for T, A (M, N), C-contiguous, and a number c; returns T. One pass."""
    return twin(T=T, A=A, c=c).add_scaled(T, A, c)


def add_outer_minus_scaled(T, x, a, A, w, scale=False):
    """In place ``T += x a' - A diag(w)``, or ``T = T diag(w) + x a' - A diag(w)`` with ``scale``; returns ``A a`` (M,). One pass.

    T, A : (M, N), C-contiguous; x : (M,); a, w : (N,)
    """
    return twin(T=T, x=x, a=a, A=A, w=w).add_outer_minus_scaled(T, x, a, A, w, scale)


def scale_add_outer(T, w, x, a, A):
    """In place ``T = T diag(w) + x a'``; returns ``A a`` (M,). One pass.

    T, A : (M, N), C-contiguous; x : (M,); a, w : (N,)
    """
    return twin(T=T, w=w, x=x, a=a, A=A).scale_add_outer(T, w, x, a, A)


def tril_sum_of_squares(L):
    """Sum of squares over the lower triangles of L (..., M, M), in float64: a float.

    The upper triangle is never read.
    """
    return twin(L=L).tril_sum_of_squares(L)


def kl_from_standard(means, trils):
    """``KL[N(m, W W') || N(0, I)] = (|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii``, summed over leading axes, in float64.

    means : (..., M); trils : (..., M, M) W, whose upper triangle is never read
    """
    return twin(means=means, trils=trils).kl_from_standard(means, trils)


def raise_to_floor(var, kff, add=False):
    """In place ``var = max(var, eps kff)``, eps that of the dtype; how many were raised: an int, or () int64 on a device.

    var : (N,) or (P, N), of any strides; kff : (N,); add : add kff to var first
    """
    return twin(var=var, kff=kff).raise_to_floor(var, kff, add)


def tril_update(C, L, shift, out, transpose=False):
    """``out`` becomes ``tril(C) + shift (L - diag(1 / L_ii))`` for C, L (M, M); ``transpose``: with C' for C.

    Only the lower triangles of L and op(C) are read; zeros above the diagonal. ``out`` may be C
    without ``transpose``; with it ``ValueError``, since entries would be written before they are
    read. One pass.
    """
    if transpose and shares_memory(out, C):
        raise ValueError(
            "tril_update: with `transpose` `out` must not share memory with `C`; give a new array"
        )
    return twin(C=C, L=L, out=out).tril_update(C, L, shift, out, transpose)
