"""The CUDA twin of nonuniform sums, emulated or on a device, against that of the CPU."""

import numpy as np
import pytest

from fastsvgp import kernels

SIZES = {1: (1, 1, 60), 2: (1, 36, 48), 3: (30, 32, 36)}


@pytest.mark.parametrize("D, n, R", [(1, 40, 2), (2, 9, 3), (3, 4, 1), (2, 0, 1)])
def test_spread_and_interpolate(gpu, rng, D, n, R):
    angles, values = rng.uniform(0, np.pi, (D, n)), rng.standard_normal((R, n))
    angles[:, :2] = np.array([0, np.pi])[: angles.shape[1]]  # the window goes round
    grids = rng.standard_normal((R, *SIZES[D]))
    expected, there = grids.copy(), gpu.there(grids)
    kernels.spread_to_grid(angles, values, expected)
    kernels.spread_to_grid(gpu.there(angles), gpu.there(values), there)
    np.testing.assert_allclose(gpu.back(there), expected, rtol=1e-12, atol=1e-12)
    found = kernels.interpolate_grid(gpu.there(angles), gpu.there(grids))
    truth = kernels.interpolate_grid(angles, grids)
    np.testing.assert_allclose(gpu.back(found), truth, rtol=1e-11, atol=1e-11)
