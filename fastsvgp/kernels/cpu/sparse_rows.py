"""CPU twin of ``sparse_rows``: one pass each to draw rows, to gather, add up and update them.

One unit is drawn per block of neighbours, as a pure function of (seed, step). The counter of block
b is (b, low word of the step, high word, stream) and the key is the seed, as for frequencies, which
have other streams. Two of the four words make a number u below 2^64; the unit is number floor(u
width / 2^64) of its block. All units have the same probability up to width / 2^64.
``kernels_cuda/sparse_rows.cu`` has the same numbers.
"""

import math

import numpy as np

from .common import scratch
from .common.compiled import kernel, njit
from .common.elementwise import exp
from .common.thread_pool import over_rows
from .fourier.philox import LANES, philox

PLAIN = {"fastmath": {"contract"}, "error_model": "numpy"}
COLUMNS = 16  # of a thread at a time
u8 = np.uint64
_WORD, _THIRTY_TWO = u8(0xFFFFFFFF), u8(32)


def gather_rows(A, rows, out):
    out[...] = A[rows].T
    return out


@kernel("I1 I1 I1 T1 I1", **PLAIN)
def _places(rows, order, where, first, distinct):
    """Return the number of distinct rows.

    ``distinct`` receives them, ``where`` the place of each row among them, and ``first`` whether a
    row is the first at its place.
    """
    count = 0
    for i in order:
        first[i] = count == 0 or rows[i] != distinct[count - 1]
        if first[i]:
            distinct[count] = rows[i]
            count += 1
        where[i] = count - 1
    return count


@kernel("i i M I1 T1 R2", **PLAIN)
def _add(start, stop, values, where, first, out):
    """out[where] = values, or += if these are not the first, for some of the columns."""
    for c in range(start, stop, COLUMNS):
        last = min(stop, c + COLUMNS)
        for i in range(where.size):
            row = out[where[i]]
            if first[i]:
                for j in range(c, last):
                    row[j] = values[i, j]
            else:
                for j in range(c, last):
                    row[j] += values[i, j]


def sum_rows(rows, values):
    numbers = np.concatenate(rows).astype(np.int64, copy=False)
    order = np.argsort(numbers, kind="stable")  # merges what is in order already
    where, first, distinct = (
        np.empty_like(order),
        np.empty(order.size, bool),
        np.empty_like(numbers),
    )
    count = _places(numbers, order, where, first, distinct)
    shape, at = values[0].shape[1:], 0
    out, width = scratch.empty((count, *shape), values[0].dtype), math.prod(shape)
    for part in values:
        here = slice(at, at := at + len(part))
        columns = (
            part.reshape(len(part), width),
            where[here],
            first[here],
            out.reshape(count, width),
        )
        over_rows(_add, width, 4.0 * part.size, *columns)
    return distinct[:count].copy(), out


@njit(**PLAIN)
def _moved(x, total, g, size, epsilon, positive):
    """(x, total) after a step along g; in the coordinate log x if x is positive."""
    slope = g * x if positive else g
    total += slope * slope
    change = size * slope / (np.sqrt(total) + epsilon)
    return (x * exp(change) if positive else x + change), total


@kernel("i i R2 R2 I1- R2- r r b i", **PLAIN)
def _adagrad(start, stop, array, sums, rows, bar, size, epsilon, positive, period):
    k = array.shape[1]
    if k == 1 and not period:
        for i in range(start, stop):
            x, total = array[rows[i], 0], sums[rows[i], 0]
            x, total = _moved(x, total, bar[i, 0], size, epsilon, positive)
            array[rows[i], 0], sums[rows[i], 0] = x, total
        return
    for i in range(start, stop):
        row = rows[i]
        x, total, g = array[row], sums[row], bar[i]
        place = row % period if period else k
        if positive:
            for c in range(k):
                x[c], total[c] = _moved(x[c], total[c], g[c], size, epsilon, True)
            continue
        pivot, its_sum = x[min(place, k - 1)], total[min(place, k - 1)]
        for c in range(k):
            x[c], total[c] = _moved(x[c], total[c], g[c], size, epsilon, False)
        if place < k:
            x[place], total[place] = _moved(pivot, its_sum, g[place], size, epsilon, True)


def adagrad_rows(array, sums, rows, bar, step_size, epsilon, positive, period):
    arguments = (
        np.ascontiguousarray(rows, np.int64),
        np.ascontiguousarray(bar),
        array.dtype.type(step_size),
        array.dtype.type(epsilon),
    )
    over_rows(_adagrad, len(rows), 30.0 * bar.size, array, sums, *arguments, positive, period)


@njit(error_model="numpy")
def _upper(a, b, width):
    """The upper 64 bits of (2^32 a + b) width."""
    high, low = width >> _THIRTY_TWO, width & _WORD
    across, over = b * high, a * low
    middle = (b * low >> _THIRTY_TWO) + (across & _WORD) + (over & _WORD)
    return a * high + (across >> _THIRTY_TWO) + (over >> _THIRTY_TWO) + (middle >> _THIRTY_TWO)


@kernel("i i u u u I1 X1", error_model="numpy")
def _draw(num, size, seed, step, stream, units, widths):
    words, each, rest = np.empty((4, LANES), np.uint64), num // size, num % size
    for first in range(0, size, LANES):
        count = min(LANES, size - first)
        for i in range(count):
            words[0, i], words[1, i], words[2, i], words[3, i] = (
                u8(first + i),
                step & _WORD,
                step >> _THIRTY_TWO,
                stream,
            )
        philox(words, count, seed & _WORD, seed >> _THIRTY_TWO)
        for i in range(count):
            b = first + i
            begin, end = b * each + b * rest // size, (b + 1) * each + (b + 1) * rest // size
            units[b] = begin + np.int64(_upper(words[0, i], words[1, i], u8(end - begin)))
            widths[b] = end - begin


def stratified_units(num, size, seed, step, stream, like):
    units, widths = np.empty(size, np.int64), np.empty(size)
    _draw(num, size, u8(seed), u8(step), u8(stream), units, widths)
    return units, widths
