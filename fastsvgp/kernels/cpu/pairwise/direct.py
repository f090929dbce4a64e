"""Covariance matrices by differences and their backward pass, for few features.

The features of X2 are rows (``Bt`` (D, N2)), so every inner loop runs over contiguous j. The inputs
are subtracted before they are scaled: near points keep all digits, wherever they are. Two rows of
X1, or four in the backward pass, share each load from Bt: loads take longer than the arithmetic.
"""

import numpy as np

from ..common.blocked import mirror_rows
from ..common.compiled import kernel
from .tiles import LOOP, ROWS, fold, jit, profile, weights, weights_by_value

COLUMNS = 512  # at a time, a multiple of ROWS: so that the sums over them stay in the L1 cache


@kernel("R2 R1 r", **LOOP)
def prepared(X2, lengthscales, smallest):
    """Return Bt and 1 / lengthscales (D,); ``lengthscales`` is (D,) or (1,)."""
    N2, D = X2.shape
    Bt, scale = np.empty((D, N2), X2.dtype), np.empty(D, X2.dtype)
    for d in range(D):
        scale[d] = 1 / max(lengthscales[d % lengthscales.size], smallest)
        for j in range(N2):
            Bt[d, j] = X2[j, d]
    return Bt, scale


@jit
def _squared_distances(x, y, Bt, scale, j0, to_x, to_y):
    """Set to_x[j] = sum_d ((Bt[d, j0 + j] - x[d]) scale[d])^2, and to_y to the same with y."""
    n, D = to_x.size, x.size
    for j in range(n):
        to_x[j], to_y[j] = 0, 0
    whole = D // 4 * 4
    for d in range(0, whole, 4):  # four per pass, or loads and stores of the sums take longest
        p, q, s = Bt[d, j0 : j0 + n], Bt[d + 1, j0 : j0 + n], Bt[d + 2, j0 : j0 + n]
        t = Bt[d + 3, j0 : j0 + n]
        x0, x1, x2, x3 = x[d], x[d + 1], x[d + 2], x[d + 3]
        y0, y1, y2, y3 = y[d], y[d + 1], y[d + 2], y[d + 3]
        s0, s1, s2, s3 = scale[d], scale[d + 1], scale[d + 2], scale[d + 3]
        for j in range(n):
            b0, b1, b2, b3 = p[j], q[j], s[j], t[j]
            e0, e1, e2, e3 = (b0 - x0) * s0, (b1 - x1) * s1, (b2 - x2) * s2, (b3 - x3) * s3
            to_x[j] += (e0 * e0 + e1 * e1) + (e2 * e2 + e3 * e3)
            e0, e1, e2, e3 = (b0 - y0) * s0, (b1 - y1) * s1, (b2 - y2) * s2, (b3 - y3) * s3
            to_y[j] += (e0 * e0 + e1 * e1) + (e2 * e2 + e3 * e3)
    for d in range(whole, D):
        b, x0, y0, s0 = Bt[d, j0 : j0 + n], x[d], y[d], scale[d]
        for j in range(n):
            e0, e1 = (b[j] - x0) * s0, (b[j] - y0) * s0
            to_x[j] += e0 * e0
            to_y[j] += e1 * e1


@kernel("i i i r R2 R2 R1 b R2", **LOOP)
def matrix_rows(start, stop, family, variance, X1, Bt, scale, symmetric, K):
    """Compute K[i, j] = k(x_i, x_j) for block rows start..stop.

    ``symmetric``: compute the lower triangle and mirror it.
    """
    N1, N2 = K.shape
    blocks, r2 = (N1 + ROWS - 1) // ROWS, np.empty((2, min(N2, COLUMNS)), K.dtype)
    for u in range(start, stop):
        i0 = fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        end = i1 if symmetric else N2
        for j0 in range(0, end, COLUMNS):
            n = min(end - j0, COLUMNS)
            for i in range(i0, i1, 2):
                last = min(i + 1, i1 - 1)
                _squared_distances(X1[i], X1[last], Bt, scale, j0, r2[0, :n], r2[1, :n])
                for q in range(i, last + 1):
                    m = min(n, q + 1 - j0) if symmetric else n
                    profile(family, variance, r2[q - i, :m], K[q, j0 : j0 + m])
        if symmetric:
            mirror_rows(K, i0, i1)


@jit
def _pull(w, n, X1, i, last, Bt, j0, both, X1_bar, X2_bar, squares):
    """With e = Bt[:, j0 + j] - X1[i], add sums over j < n of w e to X1_bar[i], w e^2 to squares.

    For rows i to ``last``; the others of four have weight 0. ``both``: also subtract w e from
    X2_bar.
    """
    w0, w1, w2, w3 = w[0, :n], w[1, :n], w[2, :n], w[3, :n]
    i1, i2 = min(i + 1, last), min(i + 2, last)
    for d in range(X1.shape[1]):
        x0, x1, x2, x3, b = X1[i, d], X1[i1, d], X1[i2, d], X1[last, d], Bt[d, j0 : j0 + n]
        t0 = t1 = t2 = t3 = q0 = q1 = X1.dtype.type(0)
        if both:
            other = X2_bar[d, j0 : j0 + n]
            for j in range(n):
                e0, e1, e2, e3 = b[j] - x0, b[j] - x1, b[j] - x2, b[j] - x3
                f0, f1, f2, f3 = w0[j] * e0, w1[j] * e1, w2[j] * e2, w3[j] * e3
                t0, t1, t2, t3 = t0 + f0, t1 + f1, t2 + f2, t3 + f3
                q0, q1 = q0 + (f0 * e0 + f1 * e1), q1 + (f2 * e2 + f3 * e3)
                other[j] -= (f0 + f1) + (f2 + f3)
        else:
            for j in range(n):
                e0, e1, e2, e3 = b[j] - x0, b[j] - x1, b[j] - x2, b[j] - x3
                f0, f1, f2, f3 = w0[j] * e0, w1[j] * e1, w2[j] * e2, w3[j] * e3
                t0, t1, t2, t3 = t0 + f0, t1 + f1, t2 + f2, t3 + f3
                q0, q1 = q0 + (f0 * e0 + f1 * e1), q1 + (f2 * e2 + f3 * e3)
        squares[d] += q0 + q1
        X1_bar[i, d] += t0
        X1_bar[i1, d] += t1
        X1_bar[i2, d] += t2
        X1_bar[last, d] += t3


@kernel("i i i r R2 R2 R1 b i R2 R2 R2", **LOOP)
def pullback_rows(start, stop, family, variance, X1, Bt, scale, symmetric, sides, K_bar, K, X1_bar):
    """Sum over block rows: K_bar K, w e^2 (D,) and -sum_i w e (D, N2), with e = x_j - x_i.

    X1_bar[i] += sum_j w e. ``symmetric``: only j < i, and half of the diagonal. ``sides``: 2
    computes everything, 1 omits the (D, N2) part, 0 computes only the first sum. K is that of an
    RBF, or empty.
    """
    (N1, D), N2, dtype = X1.shape, Bt.shape[1], X1.dtype
    blocks, columns = (N1 + ROWS - 1) // ROWS, min(N2, COLUMNS)
    r2, w = np.empty((4, columns), dtype), np.empty((4, columns), dtype)
    X2_bar, squares, total = np.zeros((D if sides == 2 else 0, N2), dtype), np.zeros(D), 0.0
    for u in range(start, stop):
        i0 = fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        for i in range(i0, i1 if symmetric else i0):
            total += 0.5 * K_bar[i, i] * variance
        for j0 in range(0, i1 if symmetric else N2, COLUMNS):
            for i in range(i0, i1, 4):
                last = min(i + 4, i1) - 1
                n = min(COLUMNS, (last if symmetric else N2) - j0)
                if K.size == 0:
                    x, y = X1[i], X1[min(i + 1, last)]
                    _squared_distances(x, y, Bt, scale, j0, r2[0, :n], r2[1, :n])
                    x, y = X1[min(i + 2, last)], X1[last]
                    _squared_distances(x, y, Bt, scale, j0, r2[2, :n], r2[3, :n])
                for q in range(4):
                    row = i + q
                    m = 0 if row > last else min(n, row - j0) if symmetric else n
                    if m > 0 and K.size > 0:
                        k, k_bar = K[row, j0 : j0 + m], K_bar[row, j0 : j0 + m]
                        total += weights_by_value(k, k_bar, w[q, :m])
                    elif m > 0:
                        k_bar = K_bar[row, j0 : j0 + m]
                        total += weights(family, variance, r2[q, :m], k_bar, w[q, :m])
                    for j in range(m, n):
                        w[q, j] = 0
                if sides > 0:
                    _pull(w, n, X1, i, last, Bt, j0, sides == 2, X1_bar, X2_bar, squares)
    return total, squares, X2_bar


@kernel("x X1 R2 R2 R1 b", **LOOP)
def finished(total, squares, X1_bar, X2_bar, scale, symmetric):
    """Return ``(sum of K_bar K, squares, X1_bar, X2_bar (N2, D), scale)`` from sums over all rows.

    lengthscales_bar is squares * scale; X2_bar is empty if not requested. The caller multiplies by
    the last factor: the product of all factors at once could overflow where it multiplies a zero.
    """
    both, dtype = len(X2_bar) > 0, X1_bar.dtype
    other = np.empty((X2_bar.shape[1] if both and not symmetric else 0, len(scale)), dtype)
    twice = dtype.type(2 if symmetric else 1)  # the lower triangle stands for both
    for d in range(len(scale)):
        factor = twice * (scale[d] * scale[d])
        squares[d] *= factor
        for i in range(len(X1_bar)):
            if symmetric and both:
                X1_bar[i, d] += X2_bar[d, i]
            X1_bar[i, d] *= factor
        for j in range(len(other)):
            other[j, d] = X2_bar[d, j] * factor
    return twice * total, squares, X1_bar, other, scale


@kernel("i R2 R2 R1 r r b", **LOOP)
def matrix(family, X1, X2, lengthscales, smallest, variance, symmetric):
    """Compute a small matrix in one call on one thread."""
    Bt, scale = prepared(X2, lengthscales, smallest)
    K, blocks = np.empty((len(X1), len(X2)), X1.dtype), (len(X1) + ROWS - 1) // ROWS
    matrix_rows(0, blocks, family, variance, X1, Bt, scale, symmetric, K)
    return K


@kernel("R2 i R2 R2 R1 r r b i R2", **LOOP)
def matrix_vjp(K_bar, family, X1, X2, lengthscales, smallest, variance, symmetric, sides, K):
    """Contract a small cotangent in one call on one thread; return what ``finished`` does."""
    Bt, scale = prepared(X2, lengthscales, smallest)
    X1_bar, blocks = np.zeros(X1.shape, X1.dtype), (len(X1) + ROWS - 1) // ROWS
    total, squares, X2_bar = pullback_rows(
        0, blocks, family, variance, X1, Bt, scale, symmetric, sides, K_bar, K, X1_bar
    )
    return finished(total, squares, X1_bar, X2_bar, scale, symmetric)
