"""CPU twin of ``chevron``: one pass over the dense columns, and as many flops as hide behind it.

Line i of a product stands for row g of C: g = rows[i], or g = i where the rows are not ``listed``. The dense columns come to the
loops as one flat array and the distance from row to row, so that LLVM sees contiguous rows also where they are padded.
"""

import math

import numpy as np
from numba import njit
from numpy.lib.stride_tricks import as_strided

from . import scratch
from .threads import over_rows
from .vmath import bits, from_bits

FAST = {"contract", "reassoc", "nsz", "arcp"}
NO_ROWS = np.empty(0, np.int64)
SHORT = 32  # columns


def _flat(dense):
    """The memory of ``dense`` from its first to its last element, and the elements from row to row."""
    m, k = dense.shape
    size = dense.itemsize
    if k > 1 and dense.strides[1] != size or m > 1 and (dense.strides[0] % size or dense.strides[0] < k * size):
        dense = np.ascontiguousarray(dense)
    stride = dense.strides[0] // size if m > 1 else k
    return as_strided(dense, (max(0, (m - 1) * stride + k) if k else 0,), (size,)), stride


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return np.ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _checked(rows, m):
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= m):
        wrong = rows[(rows < 0) | (rows >= m)][0]
        raise IndexError(f"`rows` holds {wrong}, but the matrix has {m} rows (0 to {m - 1})")
    return rows


# --- C z ---------------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, fastmath=FAST)
def _multiply(start, stop, flat, stride, k, diagonal, rows, listed, head, rest, out):
    for i in range(start, stop):
        g = rows[i] if listed else i
        row = flat[g * stride : g * stride + min(k, g + 1)]
        for r in range(head.shape[0]):
            weights = head[r, :k]
            total = flat.dtype.type(0)
            for j in range(row.size):
                total += row[j] * weights[j]
            if g >= k:
                total += diagonal[g - k] * rest[r, i]
            out[r, i] = total


def _product(dense, diagonal, rows, listed, head, rest, n):
    k = dense.shape[1]
    out, diagonal = scratch.empty((len(head), n), dense.dtype), np.ascontiguousarray(diagonal)
    over_rows(_multiply, n, n * (k + 4) * len(head), *_flat(dense), k, diagonal, rows, listed, head, rest, out)
    return out


# --- C' x: sums over rows in float64. Short rows go four at a time; long ones one by one, as four streams defeat the prefetcher:
# measured, 14.1 against 5.7 ms for (200000, 100) in float64, but 5.0 against 6.5 ms for (1000000, 10) ------------------------


@njit(nogil=True, cache=True, fastmath=FAST)
def _transposed(start, stop, flat, stride, k, x):
    total = np.zeros((x.shape[0], k))
    i = start
    while i < stop:
        if k < SHORT and i >= k and i + 4 <= stop:
            a = flat[i * stride : i * stride + k]
            b = flat[(i + 1) * stride : (i + 1) * stride + k]
            c = flat[(i + 2) * stride : (i + 2) * stride + k]
            d = flat[(i + 3) * stride : (i + 3) * stride + k]
            for r in range(x.shape[0]):
                xa, xb, xc, xd = x[r, i], x[r, i + 1], x[r, i + 2], x[r, i + 3]
                sums = total[r]
                for j in range(k):
                    sums[j] += (a[j] * xa + b[j] * xb) + (c[j] * xc + d[j] * xd)
            i += 4
        else:
            a = flat[i * stride : i * stride + min(k, i + 1)]
            for r in range(x.shape[0]):
                xa, sums = x[r, i], total[r]
                for j in range(a.size):
                    sums[j] += a[j] * xa
            i += 1
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
def _transposed_rows(start, stop, flat, stride, k, diagonal, rows, x, rest):
    total = np.zeros((x.shape[0], k))
    for i in range(start, stop):
        g = rows[i]
        a = flat[g * stride : g * stride + min(k, g + 1)]
        for r in range(x.shape[0]):
            xa, sums = x[r, i], total[r]
            for j in range(a.size):
                sums[j] += a[j] * xa
            rest[r, i] = diagonal[g - k] * xa if g >= k else 0
    return total


@njit(nogil=True, cache=True, fastmath=FAST)
def _scale(start, stop, diagonal, x, out):
    for r in range(x.shape[0]):
        d, source, target = diagonal[start:stop], x[r, start:stop], out[r, start:stop]
        for i in range(d.size):
            target[i] = d[i] * source[i]


def _full_transposed(dense, diagonal, x):
    m, k = dense.shape
    out = scratch.empty(x.shape, dense.dtype)
    over_rows(_scale, m - k, x.size, np.ascontiguousarray(diagonal), x[:, k:], out[:, k:])
    out[:, :k] = sum(over_rows(_transposed, m, m * (k + 4) * len(x), *_flat(dense), k, x))
    return out


# --- the places of C in u z' ---------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, fastmath=FAST)
def _outer(start, stop, dense_bar, diagonal_bar, skip, rows, listed, u, head, rest):
    k = dense_bar.shape[1]
    for i in range(start, stop):
        g = rows[i] if listed else i
        width = min(k, g + 1)
        row = dense_bar[i, :width]
        dense_bar[i, width:] = 0
        total = dense_bar.dtype.type(0)
        for r in range(u.shape[0]):
            weights, ui = head[r, :width], u[r, i]
            if r == 0:
                for j in range(width):
                    row[j] = ui * weights[j]
            else:
                for j in range(width):
                    row[j] += ui * weights[j]
            if g >= k:
                total += ui * rest[r, i]
        if i >= skip:
            diagonal_bar[i - skip] = total


def _cotangents(n, k, skip, rows, listed, u, head, rest):
    dense_bar, diagonal_bar = scratch.empty((n, k), u.dtype), scratch.empty((n - skip,), u.dtype)
    if len(u) == 0:
        dense_bar[:] = 0
    over_rows(_outer, n, n * (k + 4) * len(u), dense_bar, diagonal_bar, skip, rows, listed, u, head, rest)
    return dense_bar, diagonal_bar


# --- log-determinant: the product of 64 mantissas has one logarithm, their exponents add up as integers ----------------------


@njit(nogil=True, cache=True, error_model="numpy")
def _log_sum(values, exponents, products):
    """Sum of the logarithms of up to 4096 float64 ``values``; -inf and NaN as ``numpy.log`` has them. The others are scratch."""
    unusual = 0
    for x in values:
        unusual += 0 if (x > 2.3e-308) & (x < np.inf) else 1
    total, lanes = 0.0, products.size
    whole = 0 if unusual else values.size // lanes * lanes
    exponents[:] = 0
    products[:] = 1
    for first in range(0, whole, lanes):
        part = values[first : first + lanes]
        for lane in range(part.size):
            pattern = bits(part[lane])
            exponents[lane] += (pattern >> np.int64(52)) - np.int64(1023)
            products[lane] *= from_bits((pattern & np.int64((1 << 52) - 1)) | np.int64(1023 << 52))  # below 2^64 in the end
    for lane in range(lanes):
        total += np.log(products[lane]) + exponents[lane] * 0.6931471805599453
    for x in values[whole:]:
        total += np.log(x) if x >= 0 else np.nan
    return total


@njit(nogil=True, cache=True)
def _log_diagonal(start, stop, flat, stride, k, diagonal, rows, listed):
    total = 0.0
    values, exponents, products = np.empty(4096), np.empty(64, np.int64), np.empty(64)
    for first in range(start, stop, values.size):
        part = values[: min(values.size, stop - first)]
        if not listed and first >= k:
            part[:] = diagonal[first - k : first - k + part.size]
        else:
            for p in range(part.size):
                g = rows[first + p] if listed else first + p
                part[p] = diagonal[g - k] if g >= k else flat[g * stride + g]
        total += _log_sum(part, exponents, products)
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def _log_diagonal_vjp(start, stop, bar, flat, stride, k, diagonal, rows, listed, out):
    for i in range(start, stop):
        g = rows[i] if listed else i
        out[i] = bar / (diagonal[g - k] if g >= k else flat[g * stride + g])


# --- the operations ----------------------------------------------------------------------------------------------------


def multiply(dense, diagonal, z, transpose):
    lines = _lines(z)
    if transpose:
        out = _full_transposed(dense, diagonal, lines)
    else:
        out = _product(dense, diagonal, NO_ROWS, False, lines, lines, len(dense))
    return out.reshape(z.shape)


def outer(k, u, z):
    u, z = _lines(u), _lines(z)
    return _cotangents(u.shape[1], k, k, NO_ROWS, False, u, z, z)


def gram_vjp(y_bar, dense, diagonal, x):
    both = np.concatenate([_lines(x), _lines(y_bar)])
    products = _full_transposed(dense, diagonal, both)
    half = len(both) // 2
    x_bar = multiply(dense, diagonal, products[half:], False).reshape(x.shape)
    return *outer(dense.shape[1], both, np.concatenate([products[half:], products[:half]])), x_bar


def multiply_rows(dense, diagonal, rows, head, rest):
    rows = _checked(rows, len(dense))
    return _product(dense, diagonal, rows, True, _lines(head), _lines(rest), rows.size).reshape(rest.shape)


def multiply_rows_transposed(dense, diagonal, rows, x):
    rows, lines, k = _checked(rows, len(dense)), _lines(x), dense.shape[1]
    rest = np.empty(lines.shape, dense.dtype)
    work = lines.size * (k + 4)
    heads = over_rows(_transposed_rows, rows.size, work, *_flat(dense), k, np.ascontiguousarray(diagonal), rows, lines, rest)
    return sum(heads).astype(dense.dtype).reshape(*x.shape[:-1], k), rest.reshape(x.shape)


def outer_rows(rows, u, head, rest):
    return _cotangents(len(rows), head.shape[-1], 0, np.ascontiguousarray(rows, np.int64), True, *map(_lines, (u, head, rest)))


def _diagonal_places(dense, diagonal, rows):
    listed = rows is not None
    rows = _checked(rows, len(dense)) if listed else NO_ROWS
    n = rows.size if listed else len(dense)
    return n, (*_flat(dense), dense.shape[1], np.ascontiguousarray(diagonal), rows, listed)


def log_det(dense, diagonal, rows):
    n, places = _diagonal_places(dense, diagonal, rows)
    return np.float64(sum(over_rows(_log_diagonal, n, 4 * n, *places)))


def log_det_vjp(log_det_bar, dense, diagonal, rows):
    n, places = _diagonal_places(dense, diagonal, rows)
    out = scratch.empty((n,), dense.dtype)
    over_rows(_log_diagonal_vjp, n, 4 * n, dense.dtype.type(log_det_bar), *places, out)
    return out
