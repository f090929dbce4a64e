"""Elementary functions that LLVM vectorises: polynomials and exponent bits, no calls or branches.

A loop over a contiguous row that calls one of these processes four to sixteen lanes at a time;
``math.exp`` in the same place is a call per element. To keep it so: constants are NumPy scalars of
the row's own dtype (a Python float would convert float32 rows to float64), conditions are
selections, and comparisons are written so that NaN reaches the result.
"""

import numpy as np

from .compiled import intrinsic, ir, njit, overload, types

f8, f4 = np.float64, np.float32


def numbers(real, text):
    """Return the numbers of a text as a tuple of NumPy scalars."""
    return tuple(map(real, text.split()))


@intrinsic
def bits(typingctx, x):
    """Return the bit pattern of a float as an integer of the same width."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(signature.return_type.bitwidth))

    return (types.int64 if x == types.float64 else types.int32)(x), codegen


@intrinsic
def from_bits(typingctx, i):
    """Return the float with this bit pattern."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(signature.return_type))

    return (types.float64 if i == types.int64 else types.float32)(i), codegen


# exp(x) = 2^n exp(r) with n = round(x / ln 2) and r = x - n ln 2, |r| <= ln(2) / 2. ln 2 is split
# into two parts, the first with trailing zeros so that n times it is exact. Adding 1.5 * 2^52
# (1.5 * 2^23) to n leaves n in the low bits of the sum; shifted up by 52 (23) they are the exponent
# of 2^n minus the bias, which the bits of 1.0 supply. The polynomials interpolate (exp(r) - 1) / r,
# and (2^f - 1) / f, at Chebyshev points, so exp(0) is exactly 1. Only contraction is allowed in
# these functions: reassociation would merge the two parts of ln 2 and eliminate the magic number.

_LOG2E_8, _HIGH_8, _LOW_8 = (
    f8(1.4426950408889634),
    f8(6.93147180369123816490e-01),
    f8(1.90821492927058770002e-10),
)
_MAGIC_8, _SHIFT_8, _ONE_8 = f8(1.5 * 2.0**52), np.int64(52), np.int64(1023 << 52)
_LOG2E_4, _HIGH_4, _LOW_4 = f4(1.44269504), f4(0.693359375), f4(-2.12194440e-4)
_MAGIC_4, _SHIFT_4, _ONE_4 = f4(1.5 * 2.0**23), np.int32(23), np.int32(127 << 23)
_P = numbers(f8, """
    1.0 0.5000000000000006 0.1666666666666667 0.041666666666573066 0.008333333333326136
    0.001388888893251478 0.00019841269874820627 2.480150431378554e-05 2.7557255400206422e-06
    2.7626371065696354e-07 2.5105217004720745e-08
""")  # fmt: skip
_Q = numbers(f4, """
    1.00000001077804 0.500000001346581 0.1666650519575811 0.0416664649252859
    0.008369155667697397 0.00139336499963
""")  # fmt: skip

_POWERS_8 = numbers(f8, """
    0.6931471805599453 0.24022650695910097 0.0555041086648216 0.009618129107606888
    0.0013333558146416936 0.0001540353044173605 1.525273382983612e-05 1.321544258792169e-06
    1.0178062445845774e-07 7.072585949269223e-09 4.454960598186521e-10
""")  # fmt: skip
_POWERS_4 = numbers(f4, """
    0.693147188026 0.240226507606 0.0555035711422 0.00961808255728 0.00133908633647
    0.000154531629451
""")  # fmt: skip


@njit(fastmath={"contract"})
def _series8(r, c):
    """1 + r (c0 + c1 r + ...)"""
    p = c[8] + r * (c[9] + r * c[10])
    p = c[4] + r * (c[5] + r * (c[6] + r * (c[7] + r * p)))
    p = c[0] + r * (c[1] + r * (c[2] + r * (c[3] + r * p)))
    return f8(1.0) + r * p


@njit(fastmath={"contract"})
def _series4(r, c):
    return f4(1.0) + r * (c[0] + r * (c[1] + r * (c[2] + r * (c[3] + r * (c[4] + r * c[5])))))


@njit(fastmath={"contract"})
def _exp8(x):
    y = f8(709.0) if x > f8(709.0) else x
    n = np.rint(y * _LOG2E_8)
    r = (y - n * _HIGH_8) - n * _LOW_8
    power = from_bits((bits(n + _MAGIC_8) << _SHIFT_8) + _ONE_8)
    return f8(0.0) if x < f8(-700.0) else _series8(r, _P) * power


@njit(fastmath={"contract"})
def expm1(x):
    """Return exp(x) - 1 for |x| < 700 in float64; the relative error is below 4e-16.

    2^n (1 + r P(r)) - 1 = 2^n r P(r) + (2^n - 1): at small x nothing cancels.
    """
    n = np.rint(x * _LOG2E_8)
    r = (x - n * _HIGH_8) - n * _LOW_8
    power = from_bits((bits(n + _MAGIC_8) << _SHIFT_8) + _ONE_8)
    p = _P[8] + r * (_P[9] + r * _P[10])
    p = _P[4] + r * (_P[5] + r * (_P[6] + r * (_P[7] + r * p)))
    p = _P[0] + r * (_P[1] + r * (_P[2] + r * (_P[3] + r * p)))
    return power * (r * p) + (power - f8(1.0))


@njit(fastmath={"contract"})
def _exp4(x):
    y = f4(88.0) if x > f4(88.0) else x
    n = np.rint(y * _LOG2E_4)
    r = (y - n * _HIGH_4) - n * _LOW_4
    power = from_bits(np.int32((bits(n + _MAGIC_4) << _SHIFT_4) + _ONE_4))  # Numba widens integers
    return f4(0.0) if x < f4(-87.0) else _series4(r, _Q) * power


# 2^-t = 2^n 2^f with n = round(-t) and f = -t - n exact, |f| <= 1/2. The magic number minus t
# equals the magic number plus n: a subtraction gives n, and the low bits are those of n; this magic
# number includes the exponent bias.

_BIASED_8, _BIASED_4 = f8(1.5 * 2.0**52 + 1023), f4(1.5 * 2.0**23 + 127)


@njit(fastmath={"contract"})
def _power_of_half8(t):
    shifted = _BIASED_8 - t
    f = (_BIASED_8 - shifted) - t
    power = from_bits(bits(shifted) << _SHIFT_8)
    return f8(0.0) if t > f8(1010.0) else _series8(f, _POWERS_8) * power


@njit(fastmath={"contract"})
def _power_of_half4(t):
    shifted = _BIASED_4 - t
    f = (_BIASED_4 - shifted) - t
    power = from_bits(np.int32(bits(shifted) << _SHIFT_4))
    return f4(0.0) if t > f4(125.0) else _series4(f, _POWERS_4) * power


def exp(x):
    """Return exp(x) in the dtype of ``x``, for Numba code.

    The relative error is below 4e-16 (float64) or 2e-7 (float32). Exact at 0; NaN stays NaN; below
    -700 (-87) the result is exactly 0, so that products with it are not subnormal; above 709 (88)
    it keeps the value there.
    """
    return np.exp(x)


@overload(exp, jit_options={"fastmath": {"contract"}})
def _exp(x):
    if x == types.float64:
        return lambda x: _exp8(x)
    if x == types.float32:
        return lambda x: _exp4(x)


def power_of_half(t):
    """Return 2^-t for t >= 0 in the dtype of ``t``, for Numba code.

    The relative error is below 4e-16 (float64) or 2e-7 (float32). A fifth cheaper than ``exp``, for
    decaying exponentials. Exact at integer t; NaN stays NaN; beyond 1010 (125) the result is
    exactly 0.
    """
    return np.exp2(-t)


@overload(power_of_half, jit_options={"fastmath": {"contract"}})
def _power_of_half(t):
    if t == types.float64:
        return lambda t: _power_of_half8(t)
    if t == types.float32:
        return lambda t: _power_of_half4(t)


# cos and sin of 2 pi t: k = round(2 t) and r = t - k / 2 is exact, |r| <= 1/4; then both are
# polynomials in r^2, times (-1)^k. They interpolate sin(2 pi r) / r and (cos(2 pi r) - 1) / r^2 at
# Chebyshev points (computed with 40 digits; their errors are 3e-19 and 2e-17 in float64, 6e-9 and
# 8e-10 in float32). Added to the magic number above, k has its last bit in the last place, and
# shifted up that bit is the sign.

_TURN_8 = numbers(f8, """
    6.283185307179586 -41.341702240399755 81.60524927607362 -76.70585975282492
    42.058693925428685 -15.0946416761179 3.8199280942271643 -0.7177337921413454
    0.10089695501646812 -19.739208802178716 64.93939402266777 -85.45681720652034
    60.24464134967237 -26.4262553864964 7.903488624557531 -1.7134856385866277 0.2730491551892733
""")  # fmt: skip
_TURN_4 = numbers(f4, """
    6.283185280154407 -41.34168061334652 81.60247636892518 -76.58117264427872 39.7598270853191
    -19.73920878794794 64.939382634935 -85.45535748485729 60.179038290533356 -25.21816227351394
""")  # fmt: skip
_LAST_8, _LAST_4 = np.int64(63), np.int32(31)


@njit(fastmath={"contract"})
def _cos_sin8(t):
    k = np.rint(t + t)
    r = t - f8(0.5) * k
    z, c = r * r, _TURN_8
    s = c[0] + z * (
        c[1]
        + z * (c[2] + z * (c[3] + z * (c[4] + z * (c[5] + z * (c[6] + z * (c[7] + z * c[8]))))))
    )
    p = c[9] + z * (
        c[10] + z * (c[11] + z * (c[12] + z * (c[13] + z * (c[14] + z * (c[15] + z * c[16])))))
    )
    sign = bits(k + _MAGIC_8) << _LAST_8
    return from_bits(bits(f8(1.0) + z * p) ^ sign), from_bits(bits(r * s) ^ sign)


@njit(fastmath={"contract"})
def _cos_sin4(t):
    k = np.rint(t + t)
    r = t - f4(0.5) * k
    z, c = r * r, _TURN_4
    s = c[0] + z * (c[1] + z * (c[2] + z * (c[3] + z * c[4])))
    p = c[5] + z * (c[6] + z * (c[7] + z * (c[8] + z * c[9])))
    sign = np.int32(bits(k + _MAGIC_4) << _LAST_4)
    return from_bits(np.int32(bits(f4(1.0) + z * p) ^ sign)), from_bits(
        np.int32(bits(r * s) ^ sign)
    )


def cos_sin(t):
    """Return (cos(2 pi t), sin(2 pi t)) in the dtype of ``t``, for Numba code.

    The absolute error is below 3e-16 (float64) or 2e-7 (float32). ``t`` counts turns, so the
    reduction to |t| <= 1/4 is exact; beyond 2^50 (2^21) turns, where a float has no fraction left,
    the signs are meaningless. NaN stays NaN, and infinity becomes NaN.
    """
    return np.cos(2 * np.pi * t), np.sin(2 * np.pi * t)


@overload(cos_sin, jit_options={"fastmath": {"contract"}})
def _cos_sin(t):
    if t == types.float64:
        return lambda t: _cos_sin8(t)
    if t == types.float32:
        return lambda t: _cos_sin4(t)
