"""Frequencies of random Fourier features, each a function of a seed and its index only.

Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") turns a counter
and a key into four random words. The key is the seed; the counter of component d of frequency i is
(low word of i, high word of i, d // 4, stream). Stream 0 gives normals, two from two words by Box
and Muller; stream 1 gives the chi-square variable of a Matern spectrum. A uniform number is (word
>> 9 + 1/2) / 2^23: exact in float32 and never 0 or 1, so float32 frequencies are those of float64,
rounded. The normals end at 5.77 standard deviations. ``kernels_cuda/philox.cuh`` has the same
numbers.
"""

import numpy as np

from ..common.compiled import kernel, njit
from ..common.elementwise import cos_sin
from ..common.normal_cdf import log_sum

PLAIN = {"fastmath": {"contract"}, "error_model": "numpy"}
# of freedom of the Student-t spectrum; 0: normal
DEGREES = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}
LANES = 64

u8, f8 = np.uint64, np.float64
_WORD, _THIRTY_TWO, _NINE = u8(0xFFFFFFFF), u8(32), u8(9)
_M0, _M1, _W0, _W1 = u8(0xD2511F53), u8(0xCD9E8D57), u8(0x9E3779B9), u8(0xBB67AE85)
_STEP = f8(2.0**-23)


@njit(**PLAIN)
def _round(c0, c1, c2, c3, k0, k1):
    """One round; only the low 32 bits of a word count.

    The masks vanish in vectors of 32-bit products.
    """
    p0, p1 = _M0 * (c0 & _WORD), _M1 * (c2 & _WORD)
    return (p1 >> _THIRTY_TWO) ^ c1 ^ k0, p1, (p0 >> _THIRTY_TWO) ^ c3 ^ k1, p0


@kernel("U2 i u u", **PLAIN)
def philox(counters, count, k0, k1):
    """Ten rounds in place on ``count`` counters, the columns of (4, LANES) uint64 words below 2^32.

    The key is two such words. Rounds are unrolled by five: otherwise LLVM leaves them as a loop
    inside the loop over counters and does not vectorise it (17 ns per counter, not 2).
    """
    w0, w1, w2, w3 = counters[0], counters[1], counters[2], counters[3]
    for _ in range(2):
        for i in range(count):
            c0, c1, c2, c3 = _round(w0[i], w1[i], w2[i], w3[i], k0, k1)
            c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + _W0, k1 + _W1)
            c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + u8(2) * _W0, k1 + u8(2) * _W1)
            c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + u8(3) * _W0, k1 + u8(3) * _W1)
            c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0 + u8(4) * _W0, k1 + u8(4) * _W1)
            w0[i], w1[i], w2[i], w3[i] = c0 & _WORD, c1 & _WORD, c2 & _WORD, c3 & _WORD
        k0, k1 = k0 + u8(5) * _W0, k1 + u8(5) * _W1


@njit(**PLAIN)
def _count(words, indices, block, stream):
    """Write the counters of a block of four components."""
    w0, w1, w2, w3 = words[0], words[1], words[2], words[3]
    for i in range(indices.size):
        index = u8(indices[i])
        w0[i], w1[i], w2[i], w3[i] = index & _WORD, index >> _THIRTY_TWO, block, stream


@njit(**PLAIN)
def _uniform(word):
    return (f8(np.int64(word >> _NINE)) + f8(0.5)) * _STEP


@njit(**PLAIN)
def _exponential(word):
    """-2 log(uniform): chi-square with two degrees of freedom."""
    return f8(-2.0) * log_sum(_uniform(word), f8(0.0))


@kernel("i i u I1 i R2", **PLAIN)
def draw(start, stop, seed, indices, degrees, omega):
    """omega[d, p] = component d of frequency ``indices[p]``, p from start to stop.

    For unit lengthscales: normal, or for a Matern spectrum times sqrt(degrees / chi-square).
    ``omega`` is (a multiple of 4 not below D, n).
    """
    k0, k1 = seed & _WORD, seed >> _THIRTY_TWO
    words, factor = np.empty((4, LANES), np.uint64), np.ones(LANES)
    w0, w1, w2, w3 = words[0], words[1], words[2], words[3]
    for first in range(start, stop, LANES):
        part = indices[first : min(stop, first + LANES)]
        if degrees:
            _count(words, part, u8(0), u8(1))
            philox(words, part.size, k0, k1)
            for i in range(part.size):
                _, z = cos_sin(_uniform(w1[i]))  # a sine: small ones keep their digits
                chi_square = _exponential(w0[i]) * z * z
                chi_square += _exponential(w2[i]) if degrees > 1 else f8(0.0)
                chi_square += _exponential(w3[i]) if degrees > 3 else f8(0.0)
                factor[i] = np.sqrt(degrees / chi_square)
        for q in range(omega.shape[0] // 4):
            _count(words, part, u8(q), u8(0))
            philox(words, part.size, k0, k1)
            a, b = (
                omega[4 * q, first : first + part.size],
                omega[4 * q + 1, first : first + part.size],
            )
            c, d = (
                omega[4 * q + 2, first : first + part.size],
                omega[4 * q + 3, first : first + part.size],
            )
            for i in range(part.size):
                cosine, sine = cos_sin(_uniform(w1[i]))
                radius = np.sqrt(_exponential(w0[i])) * factor[i]
                a[i], b[i] = radius * cosine, radius * sine
            for i in range(part.size):
                cosine, sine = cos_sin(_uniform(w3[i]))
                radius = np.sqrt(_exponential(w2[i])) * factor[i]
                c[i], d[i] = radius * cosine, radius * sine
