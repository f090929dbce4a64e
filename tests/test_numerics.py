"""Tests of the numerical assertions that other tests use."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from support import numerics
from support.numerics import assert_adjoint, exactly, five_point, generator, nine_point


def one_large_one_small(rng):
    """Return a function whose two cotangents differ a thousandfold in size, and these."""
    a, b, y_bar = rng.standard_normal((3, 10))
    return (
        lambda a, b: 1e3 * np.sin(a) + np.exp(b),
        (a, b),
        (1e3 * np.cos(a) * y_bar, np.exp(b) * y_bar),
        y_bar,
    )


@pytest.mark.parametrize("cast", [lambda *args: args, exactly], ids=["float64", "long double"])
def test_each_cotangent_is_judged_by_its_own_size(rng, cast):
    f, args, bars, y_bar = one_large_one_small(rng)
    assert_adjoint(f, cast(*args), bars, y_bar, rng)
    for wrong in (0, 1):
        for factor in (1 + 1e-6, 1 - 1e-6, -1, 0):
            changed = [bar * factor if i == wrong else bar for i, bar in enumerate(bars)]
            directions = [np.sign(bar) for bar in bars]  # a random one may lie across the cotangent
            with pytest.raises(AssertionError, match=rf"^\({wrong}, "):
                assert_adjoint(f, cast(*args), changed, y_bar, rng, directions=directions)


def test_rounding_of_differences_is_allowed_for(rng):
    """A small slope of large values: six digits in float64, nine in long double if available."""
    a = rng.standard_normal(3)
    f, bars, y_bar = lambda a: 1e8 + a, [np.ones(3)], np.ones(3)
    assert_adjoint(f, (a,), bars, y_bar, rng)
    almost = [np.full(3, 1 + 1e-5)]
    assert_adjoint(f, (a,), almost, y_bar, rng, directions=[np.ones(3)])
    if np.finfo(np.longdouble).eps < np.finfo(float).eps:
        with pytest.raises(AssertionError):
            assert_adjoint(f, exactly(a), almost, y_bar, rng, directions=[np.ones(3)])
        assert_adjoint(f, exactly(a), almost, y_bar, rng, directions=[np.ones(3)], condition=1e4)


def test_orders_of_the_differences():
    assert five_point(np.exp, 0.1) - 1 == pytest.approx(-(0.1**4) / 30, rel=0.02)
    assert nine_point(np.exp, 0.1) - 1 == pytest.approx(-(0.1**8) / 630, rel=0.02)


def test_long_double_is_kept_and_scalars_stay_scalars():
    x, y = exactly(np.float32(0.1), np.ones(3))
    assert np.shape(x) == () and x.dtype == y.dtype == np.longdouble and x == np.float32(0.1)


def test_one_seed_for_all(monkeypatch):
    def drawn(*stream):
        return generator(*stream).integers(0, 2**40, 4).tolist()

    assert drawn(1) == drawn(1) != drawn(2) != drawn()
    before = drawn(1)
    monkeypatch.setattr(numerics, "SEED", numerics.SEED + 1)
    assert drawn(1) != before
    command = [sys.executable, "-c", "from support import numerics; print(numerics.SEED)"]
    here = pathlib.Path(__file__).parent
    for settings, seed in (({"FASTSVGP_TEST_SEED": "7"}, "7"), ({}, "20240917")):
        environment = {
            name: value for name, value in os.environ.items() if name != "FASTSVGP_TEST_SEED"
        } | settings
        done = subprocess.run(
            command, cwd=here, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == seed
