"""Squared distances: entries, exact symmetry, and the reverse rule."""

import numpy as np
import pytest
from support import distances_problems as problems

from fastsvgp.kernels.cpu import pairwise as cpu

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@every_dtype
@pytest.mark.parametrize("N1, N2, D", problems.SHAPES)
def test_squared_distances(twin_of, rng, N1, N2, D, dtype):
    problems.check_distances(twin_of("pairwise"), rng, N1, N2, D, dtype)


@every_dtype
@pytest.mark.parametrize("N1, N2, D", problems.SHAPES)
def test_reverse_rule(twin_of, rng, N1, N2, D, dtype):
    problems.check_vjp(twin_of("pairwise"), rng, N1, N2, D, dtype)


@every_dtype
def test_near_points_far_from_the_origin(twin_of, rng, dtype):
    problems.check_near_points(twin_of("pairwise"), rng, dtype)


def test_an_infinitely_small_lengthscale_overflows_nothing(rng):
    X = rng.standard_normal((4, 2))
    R = cpu.squared_distances(X, None, np.finfo(float).smallest_subnormal)
    assert (np.diag(R) == 0).all() and (R[~np.eye(4, dtype=bool)] > 1e300).all()
