"""CPU twin of ``chevron``: one pass over the dense columns, and as many flops as hide behind it."""

import math

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..common import scratch
from ..common.compiled import kernel, njit
from ..common.elementwise import bits, from_bits
from ..common.thread_pool import over_rows
from .cotangents import gram_bars, outer as outer_loop
from .products import columns_of_product, rows_of_product

NO_ROWS = np.empty(0, np.int64)
LANES = 64


def _chevron(dense, diagonal, rows=NO_ROWS):
    """``(dense, stride, k, diagonal, rows)``: see ``products``."""
    (m, k), size = dense.shape, dense.itemsize
    if rows is not NO_ROWS:
        rows = np.ascontiguousarray(rows, np.int64)
        if rows.size and (rows.min() < 0 or rows.max() >= m):
            wrong = rows[(rows < 0) | (rows >= m)][0]
            raise IndexError(f"`rows` holds {wrong}, but the matrix has {m} rows (0 to {m - 1})")
    diagonal = np.ascontiguousarray(diagonal)
    if dense.flags.c_contiguous:
        return dense.reshape(-1), k, k, diagonal, rows
    between, within = dense.strides
    if k > 1 and within != size or m > 1 and (between % size or between < k * size):
        dense = np.ascontiguousarray(dense)
    stride = dense.strides[0] // size if m > 1 else k
    numbers = max(0, (m - 1) * stride + k) if k else 0
    return as_strided(dense, (numbers,), (size,)), stride, k, diagonal, rows


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return np.ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _product(chevron, head, rest):
    n, k, out = rest.shape[1], chevron[2], scratch.empty(rest.shape, rest.dtype)
    head = np.ascontiguousarray(head[:, :k])
    over_rows(rows_of_product, n, rest.size * (k + 4), chevron, head, rest, out)
    return out


def _transposed(chevron, x):
    """The first k entries of C' x, in float64, and what each row adds at its own place."""
    rest = scratch.empty(x.shape, x.dtype)
    work = x.size * (chevron[2] + 4)
    return sum(over_rows(columns_of_product, x.shape[1], work, chevron, x, rest)), rest


def _cotangents(k, skip, rows, u, head, rest):
    n = u.shape[1]
    dense_bar, diagonal_bar = scratch.empty((n, k), u.dtype), scratch.empty((n - skip,), u.dtype)
    given = k, skip, rows, u, np.ascontiguousarray(head[:, :k]), rest, dense_bar, diagonal_bar
    over_rows(outer_loop, n, u.size * (k + 4), *given)
    return dense_bar, diagonal_bar


# --- log-determinant: one logarithm per product of 512 mantissas, below 2^512; exponents add up as
# integers


@njit(error_model="numpy")
def _log_sum(values, exponents, products):
    """Sum of logarithms of up to 32768 ``values`` in float64; -inf and NaN as of ``numpy.log``."""
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
    for lane in range(lanes if whole else 0):
        exponent = exponents[lane] - 1023 * (whole // lanes)
        total += np.log(products[lane]) + exponent * 0.6931471805599453
    for x in values[whole:]:
        total += np.log(np.float64(x)) if x >= 0 else np.nan
    return total


@njit
def _pivot(chevron, i):
    """The diagonal entry of line i."""
    dense, stride, k, diagonal, rows = chevron
    g = rows[i] if rows.size else i
    return diagonal[g - k] if g >= k else dense[g * stride + g]


@kernel("i i (R1 i i R1 I1)")
def _log_diagonal(start, stop, chevron):
    dense, _, k, diagonal, rows = chevron
    total, first = 0.0, start
    exponents, products = np.empty(LANES, np.int64), np.empty(LANES)
    memory = np.empty(512 * LANES, dense.dtype)
    while first < stop:
        n = min(memory.size, stop - first)
        if rows.size == 0 and first >= k:
            values = diagonal[first - k : first - k + n]
        else:
            n = n if rows.size else min(n, k - first)
            values = memory[:n]
            for p in range(n):
                values[p] = _pivot(chevron, first + p)
        total += _log_sum(values, exponents, products)
        first += n
    return total


@kernel("i i r (R1 i i R1 I1) R1", error_model="numpy")
def _log_diagonal_vjp(start, stop, bar, chevron, out):
    for i in range(start, stop):
        out[i] = bar / _pivot(chevron, i)


# --- the operations ------------------------------------------------------------


def multiply(dense, diagonal, z, transpose):
    lines, chevron = _lines(z), _chevron(dense, diagonal)
    if transpose:
        head, out = _transposed(chevron, lines)
        out[:, : dense.shape[1]] = head
    else:
        out = _product(chevron, lines, lines)
    return out.reshape(z.shape)


def outer(k, u, z):
    u, z = _lines(u), _lines(z)
    return _cotangents(k, k, NO_ROWS, u, z, z)


def gram_vjp(y_bar, dense, diagonal, x):
    (m, k), lines = dense.shape, _lines(x)
    both, chevron = np.concatenate([lines, _lines(y_bar)]), _chevron(dense, diagonal)
    work = 2 * both.size * (k + 4)
    heads = sum(over_rows(columns_of_product, m, work, chevron, both, both[:0]))
    heads = np.roll(heads, len(lines), axis=0).astype(dense.dtype)
    bars = [scratch.empty(shape, dense.dtype) for shape in ((m, k), (m - k,), lines.shape)]
    over_rows(gram_bars, m, work, chevron, both, heads, *bars)
    return *bars[:2], bars[2].reshape(x.shape)


def multiply_rows(dense, diagonal, rows, head, rest):
    chevron = _chevron(dense, diagonal, rows)
    return _product(chevron, _lines(head), _lines(rest)).reshape(rest.shape)


def multiply_rows_transposed(dense, diagonal, rows, x):
    head, rest = _transposed(_chevron(dense, diagonal, rows), _lines(x))
    return head.astype(dense.dtype).reshape(*x.shape[:-1], dense.shape[1]), rest.reshape(x.shape)


def outer_rows(rows, u, head, rest):
    rows = np.ascontiguousarray(rows, np.int64)
    return _cotangents(head.shape[-1], 0, rows, *map(_lines, (u, head, rest)))


def log_det(dense, diagonal, rows):
    chevron = _chevron(dense, diagonal, NO_ROWS if rows is None else rows)
    n = len(dense) if rows is None else len(rows)
    return np.float64(sum(over_rows(_log_diagonal, n, 4 * n, chevron)))


def log_det_vjp(log_det_bar, dense, diagonal, rows):
    chevron = _chevron(dense, diagonal, NO_ROWS if rows is None else rows)
    out = scratch.empty((len(dense) if rows is None else len(rows),), dense.dtype)
    over_rows(
        _log_diagonal_vjp, out.size, 4 * out.size, dense.dtype.type(log_det_bar), chevron, out
    )
    return out
