"""Transforms between positive numbers and unconstrained coordinates."""

import numpy as np
import pytest
from support.numerics import five_point

from fastsvgp.records import transforms

BOTH = pytest.mark.parametrize("name", ["softplus", "log"])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@BOTH
@DTYPES
def test_there_and_back(name, dtype):
    t = transforms.look_up(name)
    x = np.geomspace(1e-30, 1e30, 301).astype(dtype)
    u = t.inverse(x)
    assert u.dtype == dtype
    back = t.forward(u)
    assert back.dtype == dtype
    # if forward is steep in relative terms, |u| units in the last place of u are as many of x
    np.testing.assert_allclose(
        back, x, rtol=4 * np.finfo(dtype).eps * (1 + np.abs(np.log(x)).max())
    )


def test_softplus_is_what_its_name_says():
    u = np.array([-30.0, -3.0, -1e-9, 0.0, 1e-9, 3.0, 30.0])
    np.testing.assert_allclose(transforms.softplus.forward(u), np.log1p(np.exp(u)), rtol=1e-15)
    np.testing.assert_allclose(transforms.softplus.forward(-600.0), np.exp(-600.0), rtol=1e-13)
    np.testing.assert_array_equal(
        transforms.softplus.inverse(np.array([50.0, 1e8, 1e300])), [50.0, 1e8, 1e300]
    )


@BOTH
@DTYPES
@pytest.mark.parametrize("u", [-1e300, -1e5, -800.0, -104.0, 89.0, 710.0, 1e5, 1e300])
def test_forward_stays_positive_and_finite(name, dtype, u):
    t = transforms.look_up(name)
    u = np.clip(u, -np.finfo(dtype).max, np.finfo(dtype).max).astype(dtype)
    x, slope = t.forward(u), t.derivative(u)
    assert x > 0 and np.isfinite(x) and x.dtype == dtype
    assert slope >= 0 and np.isfinite(slope) and slope.dtype == dtype


@BOTH
def test_derivative(name):
    t = transforms.look_up(name)
    u = np.linspace(-20, 20, 41)
    numeric = five_point(lambda s: t.forward(u + s))
    np.testing.assert_allclose(t.derivative(u), numeric, rtol=1e-8, atol=1e-14)


@BOTH
def test_integers_and_scalars_are_float64(name):
    t = transforms.look_up(name)
    assert t.forward(0).dtype == np.float64 and np.ndim(t.forward(0)) == 0
    assert t.inverse(2).dtype == np.float64


def test_unknown_name():
    with pytest.raises(ValueError, match='must be "softplus" or "log", got \'exp\''):
        transforms.look_up("exp")
