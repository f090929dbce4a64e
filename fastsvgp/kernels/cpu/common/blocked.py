"""Recursive blocked algorithms on row-major sub-blocks: nearly every flop is a gemm.

Measured on two cores relative to the gemm rate (time times that rate over the flops; M = B = 1000):
OpenBLAS trsm 1.32, this solve 1.07; potrf 1.8-2.6, against about 1.5 here. The diagonal blocks of a
solve are inverted explicitly (64 rows: the error grows with the condition number of a 64-row block,
not with that of the whole factor), because a product with them runs at the gemm rate. The strict
upper triangle of a lower factor is never read.
"""

import math

import numpy as np

from . import blas
from .blas import N, T
from .compiled import FAST, kernel, njit

BLOCK = 64
PANEL = 128
SOLVED = 96  # rows of a panel between whose products is a solve with it
# panels of a matrix that is too large for panels of the smallest width; the second if they are
# inverted
PARTS, FINE_PARTS = 8, 16
NARROW = 32  # columns of a panel of a half product, if that is small
MOST = 512  # rows of a half product that is computed by panels


@njit
def panels(n, width):
    """Return the number of panels of about this width that n rows or columns are split into."""
    return max(1, (n + width // 2) // width)


@njit
def edge(n, count, p):
    """Return the start of panel p of ``count``; all but the last are multiples of 8 wide."""
    return n if p >= count else n * p // count // 8 * 8


@njit
def half(n):
    """Return the multiple of BLOCK nearest to the middle of n, so that leaves are full blocks."""
    return max(BLOCK, (n // 2 + BLOCK - 1) // BLOCK * BLOCK) if n > BLOCK else n // 2


@njit(fastmath=FAST, error_model="numpy")
def _inverted(L):
    """Compute X = L^-1 in new memory, zeros above the diagonal.

    From L X = I: row i is -1 / L_ii sum_k<i L_ik X_k, and 1 / L_ii.
    """
    n = L.shape[0]
    C, X = np.empty((n, n), L.dtype), np.zeros((n, n), L.dtype)
    for i in range(n):  # Numba must know that X is C-ordered, for the loops below
        for j in range(i + 1):
            C[i, j] = L[i, j]
    for i in range(n):
        x, reciprocal, fours = X[i], 1 / C[i, i], i // 4 * 4
        for k in range(0, fours, 4):
            x0, x1, x2, x3 = X[k], X[k + 1], X[k + 2], X[k + 3]
            c0, c1, c2, c3 = (
                reciprocal * C[i, k],
                reciprocal * C[i, k + 1],
                reciprocal * C[i, k + 2],
                reciprocal * C[i, k + 3],
            )
            for j in range(k + 4):
                x[j] -= (c0 * x0[j] + c1 * x1[j]) + (c2 * x2[j] + c3 * x3[j])
        for k in range(fours, i):
            x0, c0 = X[k], reciprocal * C[i, k]
            for j in range(k + 1):
                x[j] -= c0 * x0[j]
        x[i] = reciprocal
    return X[:, :]


@njit
def _put_lower(X, L):
    for i in range(L.shape[0]):
        for j in range(i + 1):
            L[i, j] = X[i, j]


@kernel("M")
def inverse(L):
    """L := L^-1 in place, lower; n^3/3 flops.

    LAPACK's trtri takes 1.2 (M = 1000) to 2 times as long (M = 100, 256).
    """
    n = L.shape[0]
    if n <= BLOCK:
        _put_lower(_inverted(L), L)
        return
    h = (n // 2 + 7) // 8 * 8
    L11, L21, L22 = L[:h, :h], L[h:, :h], L[h:, h:]
    # [L11 0; L21 L22]^-1 = [X11 0; -X22 L21 X11, X22]
    # by gemm, which computes small products in the calling thread: trmm would distribute them and
    # wake the other threads
    if n <= 2 * BLOCK:
        X11, X22, Y = _inverted(L11), _inverted(L22), np.empty((n - h, h), L.dtype)
        blas.gemm(L21, X11, Y, N, N, -1.0, 0.0)
        blas.gemm(X22, Y, L21, N, N, 1.0, 0.0)
        _put_lower(X11, L11)
        _put_lower(X22, L22)
        return
    inverse(L11)
    inverse(L22)
    blas.trmm(L11, L21, False, N, -1.0)
    blas.trmm(L22, L21, True, N, 1.0)


@kernel("M M i")
def solve(L, B, trans):
    """B := op(L)^-1 B in place; m m n flops."""
    n = L.shape[0]
    if n <= BLOCK:
        if B.shape[1] >= n:
            blas.trmm(_inverted(L), B, True, trans, 1.0)
        else:
            blas.trsm(L, B, True, trans, 1.0)
        return
    h = half(n)
    if trans == N:
        solve(L[:h, :h], B[:h], trans)
        blas.gemm(L[h:, :h], B[:h], B[h:], N, N, -1.0, 1.0)
        solve(L[h:, h:], B[h:], trans)
    else:
        solve(L[h:, h:], B[h:], trans)
        blas.gemm(L[h:, :h], B[h:], B[:h], T, N, -1.0, 1.0)
        solve(L[:h, :h], B[:h], trans)


@kernel("M M")
def solve_right(L, B):
    """B := B L^-T in place; n n m flops."""
    n = L.shape[0]
    if n <= BLOCK:
        if B.shape[0] >= n:
            blas.trmm(_inverted(L), B, False, T, 1.0)
        else:
            blas.trsm(L, B, False, T, 1.0)
        return
    h = half(n)
    solve_right(L[:h, :h], B[:, :h])
    blas.gemm(B[:, :h], L[h:, :h], B[:, h:], N, T, -1.0, 1.0)
    solve_right(L[h:, h:], B[:, h:])


@njit(fastmath=FAST, error_model="numpy")
def _cholesky_leaf(C):
    """Factor a C-ordered C in place: column j by four rows at a time against row j.

    Returns 0, or one plus the failing row.
    """
    n = C.shape[0]
    for j in range(n):
        cj, pivot = C[j, :j], C[j, j]
        for k in range(j):
            pivot -= cj[k] * cj[k]
        if not 0 < pivot < math.inf:  # rejects NaN too
            return j + 1
        C[j, j] = math.sqrt(pivot)
        reciprocal = 1 / C[j, j]
        fours = j + 1 + (n - j - 1) // 4 * 4
        for i in range(j + 1, fours, 4):
            c0, c1, c2, c3 = C[i, :j], C[i + 1, :j], C[i + 2, :j], C[i + 3, :j]
            s0, s1, s2, s3 = C[i, j], C[i + 1, j], C[i + 2, j], C[i + 3, j]
            for k in range(j):
                x = cj[k]
                s0 -= c0[k] * x
                s1 -= c1[k] * x
                s2 -= c2[k] * x
                s3 -= c3[k] * x
            C[i, j], C[i + 1, j], C[i + 2, j], C[i + 3, j] = (
                s0 * reciprocal,
                s1 * reciprocal,
                s2 * reciprocal,
                s3 * reciprocal,
            )
        for i in range(fours, n):
            ci, s0 = C[i, :j], C[i, j]
            for k in range(j):
                s0 -= ci[k] * cj[k]
            C[i, j] = s0 * reciprocal
    return 0


@kernel("M")
def cholesky(A):
    """Factor A in place, lower; return 0, or one plus the failing row. n^3/3 flops.

    Panel by panel: the diagonal block, the rows below it times its inverse, and a syrk of all that
    is left. Relative to two halves with large products between them, one thread (two): 0.88 (0.84)
    of the time at n = 512, 0.88 (0.97) at 1000. Leaves take 0.6 to 0.8 of the time of potrf.
    """
    n = A.shape[0]
    if n <= 2 * BLOCK:
        C = np.empty((n, n), A.dtype)
        for i in range(n):
            for j in range(i + 1):
                C[i, j] = A[i, j]
        info = _cholesky_leaf(C)
        for i in range(n):
            for j in range(i + 1):
                A[i, j] = C[i, j]
        return info
    count = panels(n, max(BLOCK, n // PARTS))
    for p in range(count):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        info = cholesky(A[i:j, i:j])
        if info:
            return info + i
        solve_right(A[i:j, i:j], A[j:, i:j])
        blas.syrk(A[j:, i:j], A[j:, j:], N, -1.0, 1.0)
    return 0


@kernel("M M M x x")
def tril_product(A, B, C, alpha, beta):
    """Lower triangle of C := alpha A B' + beta C; n n k flops.

    The strict upper triangle of C is scratch within blocks.
    """
    # Up to MOST rows by tall panels of few columns, above by halves. Time of panels relative to
    # halves throughout, on one thread (two): 0.77 (0.91) at n = 128, 0.86 (0.92) at 250,
    # 0.94 (0.98) at 512, but 1.06 (1.08) at 1000 and 1.25 (1.24) at 2000.
    n = C.shape[0]
    if n > MOST:
        h = half(n)
        tril_product(A[:h], B[:h], C[:h, :h], alpha, beta)
        blas.gemm(A[h:], B[:h], C[h:, :h], N, T, alpha, beta)
        tril_product(A[h:], B[h:], C[h:, h:], alpha, beta)
        return
    width = NARROW if n <= 2 * BLOCK else BLOCK
    for i in range(0, n, width):
        end = min(i + width, n)
        blas.gemm(A[i:], B[i:end], C[i:, i:end], N, T, alpha, beta)


@kernel("M M x x")
def gram_of_panels(A, C, alpha, beta):
    """Do the same for B = A.

    Of few rows, gemm on panels of 32 takes 0.35 to 0.75 of the time of syrk; of 64, 1.2 times that.
    """
    if A.shape[0] >= BLOCK:
        blas.syrk(A, C, N, alpha, beta)
        return
    for i in range(0, A.shape[0], 32):
        end = min(i + 32, A.shape[0])
        blas.gemm(A[i:end], A[:end], C[i:end, :end], N, T, alpha, beta)


@kernel("M M")
def tril_solve(L, W):
    """W := L^-1 W in place for lower-triangular L and W; n^3/3 flops.

    W has zeros above its diagonal, and keeps them.
    """
    n = L.shape[0]
    count = panels(n, PANEL)
    for p in range(count):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        solve(L[i:, i:], W[i:, i:j], N)


@kernel("M M")
def tril_solve_transposed(L, W):
    """W := tril(L^-T W) in place for lower-triangular L and W; n^3/3 flops.

    Row i of the result takes W_i and the rows below it, all up to column i: from the last panel of
    rows to the first. Above its diagonal W is read within panels, and then holds scratch.
    """
    n = L.shape[0]
    count = panels(n, SOLVED)
    for p in range(count - 1, -1, -1):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        blas.gemm(L[j:, i:j], W[j:, :j], W[i:j, :j], T, N, -1.0, 1.0)
        solve(L[i:j, i:j], W[i:j, :j], T)


@njit("M M")
def subtract(A, B):
    """A := A - B."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            A[i, j] -= B[i, j]


@kernel("M M")
def inverse_congruence(L, S):
    """Lower triangle of the symmetric S := L^-T S L^-1, in place, lower triangle read; n^3 flops.

    With X = L^-T S L^-1 the blocks of L' X L = S read

        S22 = L22' X22 L22
        S21 = L22' (X21 L11 + X22 L21)
        S11 = L11' X11 L11 + L11' X21' L21 + L21' X21 L11 + L21' X22 L21

    so X22 first, then with Y = X22 L21 / 2, Q = L22^-T S21 - Y and R = X21 L11 = Q - Y

        S11 - (Q' L21 + L21' Q) = L11' X11 L11 ,    X21 = R L11^-1 .

    Block 2 is the last panel of rows, and S11 is treated likewise. Rows R of a panel wait: when the
    loop arrives at the columns of panel p, those of all rows below are multiplied by L_pp^-1 and
    subtracted from the columns on the left. Panels are of about as many rows as blocks of a solve,
    because they are inverted, too. Time relative to wider panels with solves inside, on two
    threads: 0.86 to 0.91 at n = 320 and 512, 0.93 to 0.95 at 1000, 0.95 to 1.0 at 2000.
    """
    n = L.shape[0]
    count = panels(n, max(BLOCK, n // FINE_PARTS))
    for p in range(count - 1, -1, -1):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        below, left, Q = S[j:, i:j], L[i:j, :i], S[i:j, :i]
        X = np.empty((j - i, j - i), S.dtype)
        D = np.zeros((j - i, j - i), L.dtype)
        for k in range(j - i):
            for m in range(k + 1):
                X[k, m] = S[i + k, i + m]
                X[m, k] = S[i + k, i + m]
                D[k, m] = L[i + k, i + m]
        inverse(D[:, :])
        blas.trmm(D[:, :], below, False, N, 1.0)
        blas.gemm(below, left, S[j:, :i], N, N, -1.0, 1.0)
        blas.trmm(D[:, :], X[:, :], True, T, 1.0)
        blas.trmm(D[:, :], X[:, :], False, N, 1.0)
        _put_lower(X[:, :], S[i:j, i:j])
        blas.trmm(D[:, :], Q, True, T, 1.0)
        Y = np.empty((j - i, i), S.dtype)
        blas.gemm(X[:, :], left, Y[:, :], N, N, 0.5, 0.0)
        subtract(Q, Y[:, :])
        blas.syr2k(Q, left, S[:i, :i], -1.0, 1.0)
        subtract(Q, Y[:, :])


@kernel("M")
def gram(L):
    """Lower triangle of L := L' L in place, for a lower-triangular L; n^3/3 flops."""
    n = L.shape[0]
    if n <= BLOCK:
        D = np.zeros(L.shape, L.dtype)
        # no slice assignment: it compiles Numba's shape check, which takes two seconds
        for i in range(n):
            for j in range(i + 1):
                D[i, j] = L[i, j]
        blas.syrk(D, L, T, 1.0, 0.0)
        return
    h = half(n)
    gram(L[:h, :h])
    blas.syrk(L[h:, :h], L[:h, :h], T, 1.0, 1.0)
    blas.trmm(L[h:, h:], L[h:, :h], True, T, 1.0)
    gram(L[h:, h:])


@kernel("M")
def gram_of_rows(L):
    """Lower triangle of L := L L' in place, for a lower-triangular L; n^3/3 flops."""
    n = L.shape[0]
    if n <= BLOCK:
        D = np.zeros(L.shape, L.dtype)
        for i in range(n):
            for j in range(i + 1):
                D[i, j] = L[i, j]
        blas.syrk(D, L, N, 1.0, 0.0)
        return
    h = half(n)
    gram_of_rows(L[h:, h:])
    blas.syrk(L[h:, :h], L[h:, h:], N, 1.0, 1.0)
    blas.trmm(L[:h, :h], L[h:, :h], False, T, 1.0)
    gram_of_rows(L[:h, :h])


@njit
def mirror_rows(S, start, stop):
    """Copy rows of the lower triangle to the columns above it; ``start`` is a multiple of 8.

    It works in 8 x 8 tiles, whose loops of fixed length become vector shuffles. With more rows,
    cache sets would conflict if the row length is a power of two.
    """
    for i0 in range(start, stop, 8):
        tiled = i0 if i0 + 8 <= stop else 0
        for j0 in range(0, tiled, 8):
            for j in range(8):
                for i in range(8):
                    S[j0 + j, i0 + i] = S[i0 + i, j0 + j]
        for j in range(tiled, min(i0 + 8, stop)):
            for i in range(max(i0, j + 1), min(i0 + 8, stop)):
                S[j, i] = S[i, j]


@kernel("M")
def mirror(S):
    """Copy the lower triangle to the upper one."""
    mirror_rows(S, 0, S.shape[0])


@kernel("M")
def clear_upper(L):
    """Set the strict upper triangle to zero."""
    for i in range(L.shape[0]):
        L[i, i + 1 :] = 0
