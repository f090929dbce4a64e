"""CPU twin of ``chevron``: one pass over the dense columns, and as many flops as hide behind it.

Its loops are in chevron_products, chevron_sums and chevron_bars.
"""

import math

import numpy as np
from numba import njit
from numpy.lib.stride_tricks import as_strided

from ..common import scratch
from ..common.elementwise import bits, from_bits
from ..common.thread_pool import over_rows
from . import cotangents, products as chevron_products, transposed

NO_ROWS = np.empty(0, np.int64)
LANES = 64


def _flat(dense):
    """The memory of ``dense`` from its first to its last element, and the elements from row to row."""
    m, k = dense.shape
    if dense.flags.c_contiguous:
        return dense.reshape(-1), k
    size = dense.itemsize
    if (
        k > 1
        and dense.strides[1] != size
        or m > 1
        and (dense.strides[0] % size or dense.strides[0] < k * size)
    ):
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


# --- products --------------------------------------------------------------------------------------------------------------


def _product(dense, diagonal, rows, listed, head, rest):
    n, k = rest.shape[1], dense.shape[1]
    out, head = scratch.empty(rest.shape, dense.dtype), np.ascontiguousarray(head[:, :k])
    given = diagonal, False, rows, listed, head, chevron_products.by_lanes(head, k), rest
    over_rows(
        chevron_products.rows_of_product, n, rest.size * (k + 4), *_flat(dense), k, *given, out
    )
    return out


def _transposed(dense, diagonal, rows, listed, x):
    """The first k entries of C' x, in float64, and what each row adds at its own place."""
    n, k = x.shape[1], dense.shape[1]
    rest = scratch.empty(x.shape, dense.dtype)
    given = diagonal, rows, listed, x, x[:0], rest
    return (
        sum(
            over_rows(transposed.columns_of_product, n, x.size * (k + 4), *_flat(dense), k, *given)
        ),
        rest,
    )


def _cotangents(n, k, skip, rows, listed, u, head, rest):
    dense_bar, diagonal_bar = scratch.empty((n, k), u.dtype), scratch.empty((n - skip,), u.dtype)
    given = k, skip, rows, listed, u, np.ascontiguousarray(head[:, :k]).reshape(-1), rest
    over_rows(cotangents.outer, n, u.size * (k + 4), *given, dense_bar.reshape(-1), diagonal_bar)
    return dense_bar, diagonal_bar


# --- log-determinant: a product of 512 mantissas, below 2^512, has one logarithm; their exponents add up as integers ----------


@njit(nogil=True, cache=True, error_model="numpy")
def _log_sum(values, exponents, products):
    """Sum of the logarithms of up to 32768 ``values`` in float64; -inf and NaN as ``numpy.log`` has them."""
    unusual, lanes = np.int64(0), products.size
    for lane in range(lanes):
        exponents[lane], products[lane] = 0, 1
    whole = values.size // lanes * lanes
    for first in range(0, whole, lanes):
        part = values[first : first + lanes]
        for lane in range(part.size):
            pattern = bits(np.float64(part[lane]))
            exponent = pattern >> np.int64(52)
            # below 0 for what is not positive and finite
            unusual |= (exponent - np.int64(1)) | (np.int64(2046) - exponent)
            exponents[lane] += exponent
            products[lane] *= from_bits((pattern & np.int64((1 << 52) - 1)) | np.int64(1023 << 52))
    total = 0.0
    if unusual < 0:
        whole = 0
    else:
        for lane in range(lanes):
            total += (
                np.log(products[lane])
                + (exponents[lane] - 1023 * (whole // lanes)) * 0.6931471805599453
            )
    for x in values[whole:]:
        total += np.log(np.float64(x)) if x >= 0 else np.nan
    return total


@njit(nogil=True, cache=True)
def _log_diagonal(start, stop, flat, stride, k, diagonal, rows, listed):
    total = 0.0
    exponents, products, memory = (
        np.empty(LANES, np.int64),
        np.empty(LANES),
        np.empty(512 * LANES, flat.dtype),
    )
    first = start
    while first < stop:
        n = min(memory.size, stop - first)
        if listed or first < k:
            n = n if listed else min(n, k - first)
            values = memory[:n]
            for p in range(n):
                g = rows[first + p] if listed else first + p
                values[p] = diagonal[g - k] if g >= k else flat[g * stride + g]
        else:
            values = diagonal[first - k : first - k + n]
        total += _log_sum(values, exponents, products)
        first += n
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def _log_diagonal_vjp(start, stop, bar, flat, stride, k, diagonal, rows, listed, out):
    for i in range(start, stop):
        g = rows[i] if listed else i
        out[i] = bar / (diagonal[g - k] if g >= k else flat[g * stride + g])


# --- the operations ----------------------------------------------------------------------------------------------------


def multiply(dense, diagonal, z, transpose):
    lines, diagonal = _lines(z), np.ascontiguousarray(diagonal)
    if transpose:
        head, out = _transposed(dense, diagonal, NO_ROWS, False, lines)
        out[:, : dense.shape[1]] = head
    else:
        out = _product(dense, diagonal, NO_ROWS, False, lines, lines)
    return out.reshape(z.shape)


def outer(k, u, z):
    u, z = _lines(u), _lines(z)
    return _cotangents(u.shape[1], k, k, NO_ROWS, False, u, z, z)


def gram_vjp(y_bar, dense, diagonal, x):
    (m, k), diagonal, x_lines, y_lines = (
        dense.shape,
        np.ascontiguousarray(diagonal),
        _lines(x),
        _lines(y_bar),
    )
    count, work = len(x_lines), 4 * x_lines.size * (k + 4)
    given = *_flat(dense), k, diagonal, NO_ROWS
    heads = over_rows(
        transposed.columns_of_product, m, work, *given, False, y_lines, x_lines, x_lines[:0]
    )
    heads = sum(heads).astype(dense.dtype)
    head = heads[:count]
    bars = [scratch.empty(shape, dense.dtype) for shape in ((m * k,), (m - k,), x_lines.shape)]
    weights = chevron_products.by_lanes(head, k)
    over_rows(
        cotangents.gram_bars,
        m,
        work,
        *given,
        x_lines,
        y_lines,
        head,
        weights,
        heads.reshape(-1),
        *bars,
    )
    return bars[0].reshape(m, k), bars[1], bars[2].reshape(x.shape)


def multiply_rows(dense, diagonal, rows, head, rest):
    rows = _checked(rows, len(dense))
    return _product(
        dense, np.ascontiguousarray(diagonal), rows, True, _lines(head), _lines(rest)
    ).reshape(rest.shape)


def multiply_rows_transposed(dense, diagonal, rows, x):
    rows, k = _checked(rows, len(dense)), dense.shape[1]
    head, rest = _transposed(dense, np.ascontiguousarray(diagonal), rows, True, _lines(x))
    return head.astype(dense.dtype).reshape(*x.shape[:-1], k), rest.reshape(x.shape)


def outer_rows(rows, u, head, rest):
    return _cotangents(
        len(rows),
        head.shape[-1],
        0,
        np.ascontiguousarray(rows, np.int64),
        True,
        *map(_lines, (u, head, rest)),
    )


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
