"""Logarithms and normal tails as vector code, for the integrands of ``quadrature``. float64 only.

The rules of ``elementwise`` apply. Only contraction is allowed here: reassociation would cancel the
correction terms.
"""

import numpy as np

from .compiled import njit
from .elementwise import bits, exp, from_bits, numbers

f8 = np.float64
PLAIN = {"fastmath": {"contract"}, "error_model": "numpy"}

_ONE, _ROOT_HALF = np.int64(1023 << 52), np.int64(0x3FE6A09E667F3BCD)  # bits of 1 and of sqrt(1/2)
_FRACTION, _SHIFT = np.int64((1 << 52) - 1), np.int64(52)
# ln 2; n times the first part is exact
_HIGH, _LOW = f8(6.93147180369123816490e-01), f8(1.90821492927058770002e-10)
# (log((1 + s) / (1 - s)) - 2 s) / s as a polynomial in s^2, |s| <= 3 - 2 sqrt(2): the coefficients
# of FDLIBM's e_log.c
_L = numbers(f8, """
    6.666666666666735130e-01 3.999999999940941908e-01 2.857142874366239149e-01
    2.222219843214978396e-01 1.818357216161805012e-01 1.531383769920937332e-01
    1.479819860511658591e-01
""")  # fmt: skip
# (1 + 2 x) erfcx(x) as a polynomial in q = (x - 3.75) / (x + 3.75), which maps [0, inf) to [-1, 1):
# the truncated Chebyshev series (Shepherd & Laframboise 1981) computed with 50 digits; the
# truncated terms sum to 1.3e-16
_E = numbers(f8, """
    1.2375126308378275 -0.14024059858554525 0.0035854154854790257 0.08227673848999506
    -0.10880393014244462 0.09230432116428125 -0.05869339857664934 0.02836227737211114
    -0.009746579683265262 0.0017556261651970652 0.000293714378044958 -0.00029015535246077655
    5.164652974177416e-05 2.2387565714911816e-05 -1.1438048033346894e-05 -9.792625707303523e-07
    1.7419821586224816e-06 -5.084465378687302e-08 -2.4857126248016745e-07 1.879082322370048e-08
    3.197926671666804e-08 -1.9551358868985616e-09 -2.623107347133476e-09
""")  # fmt: skip
_SQRT_HALF, _SQRT_2_PI = f8(np.sqrt(0.5)), f8(np.sqrt(2 * np.pi))


@njit(**PLAIN)
def log_sum(y, lost):
    """Return log(y + lost) for a normal number y > 0 and its rounding error ``lost``.

    The relative error is below 4e-16.
    """
    b = bits(y) + (_ONE - _ROOT_HALF)
    n = f8((b >> _SHIFT) - np.int64(1023))
    # y = 2^n (1 + m), sqrt(1/2) <= 1 + m < sqrt(2)
    m = from_bits((b & _FRACTION) + _ROOT_HALF) - f8(1.0)
    s = m / (f8(2.0) + m)
    w = s * s
    p = w * (
        _L[0] + w * (_L[1] + w * (_L[2] + w * (_L[3] + w * (_L[4] + w * (_L[5] + w * _L[6])))))
    )
    h = f8(0.5) * m * m
    return n * _HIGH - ((h - (s * (h + p) + (n * _LOW + lost / y))) - m)


@njit(**PLAIN)
def log1p(x):
    """Return log(1 + x) for x >= 0; relative error below 4e-16, also for tiny x."""
    y = f8(1.0) + x
    return log_sum(y, x - (y - f8(1.0)) if x < f8(1.0) else f8(1.0) - (y - x))


@njit(**PLAIN)
def erfcx(x):
    """Return exp(x^2) erfc(x) for x >= 0; relative error below 1e-15."""
    q = (x - f8(3.75)) / (x + f8(3.75))
    q2 = q * q
    even, odd = _E[22], _E[21]
    for i in (20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0):
        even = even * q2 + _E[i]
    for i in (19, 17, 15, 13, 11, 9, 7, 5, 3, 1):
        odd = odd * q2 + _E[i]
    return (even + q * odd) / (f8(1.0) + f8(2.0) * x)


# The functions below fill rows, value and derivative together: a loop that calls the scalar
# functions above is vectorised, a function that calls several of them is no longer inlined.


@njit(**PLAIN)
def log_ndtr(x, value, slope):
    """Compute log Phi(x) and phi(x) / Phi(x).

    With E = erfcx(|x| / sqrt 2) and e = exp(-x^2 / 2), the far tail is Phi(-|x|) = E e / 2. Left of
    0 the logarithm is taken only of E / 2, so nothing underflows; right of 0 it is log(1 - tail).
    The slope reuses these terms: 2 / (sqrt(2 pi) E) on the left, e / (sqrt(2 pi) (1 - tail)) on the
    right.
    """
    for i in range(x.size):
        half = f8(0.5) * erfcx(abs(x[i]) * _SQRT_HALF)
        square = f8(0.5) * x[i] * x[i]
        e = exp(-square)
        left = x[i] < f8(0.0)
        tail = half * e
        y = half if left else f8(1.0) - tail
        value[i] = log_sum(y, f8(0.0) if left else (f8(1.0) - y) - tail) - (
            square if left else f8(0.0)
        )
        slope[i] = (f8(1.0) if left else e) / (_SQRT_2_PI * y)


@njit(**PLAIN)
def log_sigmoid(x, value, slope):
    """Compute -log(1 + exp(-x)) and 1 / (1 + exp(x))."""
    for i in range(x.size):
        e = exp(-abs(x[i]))
        value[i] = min(x[i], f8(0.0)) - log1p(e)
        slope[i] = (f8(1.0) if x[i] < f8(0.0) else e) / (f8(1.0) + e)


@njit(**PLAIN)
def log1p_square(x, value, slope):
    """Compute log(1 + x^2) and 2 x / (1 + x^2)."""
    for i in range(x.size):
        square = x[i] * x[i]
        value[i] = log1p(square)
        slope[i] = f8(2.0) * x[i] / (f8(1.0) + square)


@njit(**PLAIN)
def ndtr(x, value, slope):
    """Compute Phi(x) and phi(x)."""
    for i in range(x.size):
        e = exp(f8(-0.5) * x[i] * x[i])
        tail = f8(0.5) * erfcx(abs(x[i]) * _SQRT_HALF) * e
        value[i] = tail if x[i] < f8(0.0) else f8(1.0) - tail
        slope[i] = e / _SQRT_2_PI
