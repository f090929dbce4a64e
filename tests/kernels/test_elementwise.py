"""Functions that kernels apply to each number: exp, and powers of a half."""

import numpy as np
from numba import njit
from support.numerics import LONG

from fastsvgp.kernels.cpu.common import elementwise as vmath


def elementwise(function):
    @njit
    def each(x):
        out = np.empty_like(x)
        for i in range(x.size):
            out[i] = function(x[i])
        return out

    return each


def test_exp_in_both_dtypes(rng):
    exp = elementwise(vmath.exp)
    for dtype, lowest, highest, bound in (
        (np.float64, -700, 709, 4e-16),
        (np.float32, -87, 88, 2e-7),
    ):
        x = np.concatenate(
            [rng.uniform(lowest, highest, 50_000), rng.uniform(-1, 1, 50_000)]
        ).astype(dtype)
        truth = np.exp(x.astype(LONG))
        assert (np.abs(exp(x) - truth) / truth).max() < bound
        special = exp(np.array([0.0, -0.0, np.nan, -np.inf, -1e30, np.inf], dtype))
        assert np.isnan(special[2])
        np.testing.assert_array_equal(special[[0, 1, 3, 4]], [1, 1, 0, 0])
        assert np.isfinite(special[5]) and special[5] > np.finfo(dtype).max / 4


def test_expm1_keeps_its_digits_near_0(rng):
    x = np.concatenate([rng.uniform(-1, 1, 4001) * 10.0 ** rng.uniform(-18, 2.5, 4001), [0.0]])
    found, truth = elementwise(vmath.expm1)(x), np.expm1(x)
    np.testing.assert_allclose(found, truth, rtol=4.5e-16, atol=0)
    assert found[-1] == 0


def test_power_of_half_in_both_dtypes(rng):
    power_of_half = elementwise(vmath.power_of_half)
    for dtype, highest, bound in ((np.float64, 1010, 4e-16), (np.float32, 125, 2e-7)):
        t = np.concatenate([rng.uniform(0, highest, 50_000), rng.uniform(0, 1, 50_000)]).astype(
            dtype
        )
        truth = np.exp2(-t.astype(LONG))
        assert (np.abs(power_of_half(t) - truth) / truth).max() < bound
        special = power_of_half(np.array([0.0, 1.0, 7.0, 2e3, 1e30, np.inf, np.nan], dtype))
        np.testing.assert_array_equal(special, [1, 0.5, 2.0**-7, 0, 0, 0, np.nan])
