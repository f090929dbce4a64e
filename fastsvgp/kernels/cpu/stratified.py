"""One unit per block of neighbours, as a pure function of (seed, step).

The counter of block b is (b, low word of the step, high word, stream) and the key is the seed, as
for frequencies, which have other streams. Two of the four words make a number u below 2^64; the
unit is number floor(u width / 2^64) of its block. All units have the same probability up to width /
2^64. ``kernels_cuda/stratified.cu`` has the same numbers.
"""

import numpy as np

from .common.compiled import kernel, njit
from .fourier.philox import LANES, philox

PLAIN = {"error_model": "numpy"}
u8 = np.uint64
_WORD, _THIRTY_TWO = u8(0xFFFFFFFF), u8(32)


@njit(**PLAIN)
def _upper(a, b, width):
    """The upper 64 bits of (2^32 a + b) width."""
    high, low = width >> _THIRTY_TWO, width & _WORD
    across, over = b * high, a * low
    middle = (b * low >> _THIRTY_TWO) + (across & _WORD) + (over & _WORD)
    return a * high + (across >> _THIRTY_TWO) + (over >> _THIRTY_TWO) + (middle >> _THIRTY_TWO)


@kernel("i i u u u I1 X1", **PLAIN)
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
