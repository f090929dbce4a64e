"""The CUDA twin of squared distances: the requirements on the CPU twin."""

import numpy as np
import pytest
from support import distances_problems as problems

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@every_dtype
@pytest.mark.parametrize("N1, N2, D", problems.SHAPES)
def test_squared_distances(twin_of, rng, N1, N2, D, dtype):
    problems.check_distances(twin_of("distances"), rng, N1, N2, D, dtype)


@every_dtype
@pytest.mark.parametrize("N1, N2, D", problems.SHAPES)
def test_reverse_rule(twin_of, rng, N1, N2, D, dtype):
    problems.check_vjp(twin_of("distances"), rng, N1, N2, D, dtype)


@every_dtype
def test_near_points_far_from_the_origin(twin_of, rng, dtype):
    problems.check_near_points(twin_of("distances"), rng, dtype)
