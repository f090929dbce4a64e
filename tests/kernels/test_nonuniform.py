"""Nonuniform Fourier sums against dense sums, and the two operations against each other."""

import numpy as np
import pytest

from fastsvgp import kernels
from fastsvgp.kernels.common.window import window_transform


def problem(rng, D, n, R=2):
    sizes = {1: (1, 1, 60), 2: (1, 36, 48), 3: (30, 32, 36)}[D]
    angles = rng.uniform(0, np.pi, (D, n))
    angles[:, :2] = [[0, np.pi]] * D  # the window goes round
    return sizes, angles, rng.standard_normal((R, n))


@pytest.mark.parametrize("D, n", [(1, 300), (2, 70), (3, 40), (1, 70_000)])
def test_spread_values_have_the_sums_of_the_definition(rng, D, n):
    sizes, angles, values = problem(rng, D, n)
    grids = np.zeros((len(values), *sizes))
    kernels.spread_to_grid(angles, values, grids)
    K = 6
    waves = np.exp(-1j * np.arange(K + 1)[:, None, None] * angles)  # (K + 1, D, n)
    for r, value in enumerate(values):
        found = np.fft.fftn(grids[r]).reshape(sizes[3 - D :])[(slice(K + 1),) * D]
        truth = value
        for d in range(D):
            found = found / window_transform(sizes[3 - D + d], K).reshape(-1, *(1,) * (D - 1 - d))
            truth = truth[..., None, :] * waves[:, d]
        np.testing.assert_allclose(found, truth.sum(-1), atol=1e-10 * np.sqrt(n) * 10)


@pytest.mark.parametrize("D", [1, 2, 3])
def test_interpolation_is_the_adjoint(rng, D):
    sizes, angles, values = problem(rng, D, 50)
    grids, others = np.zeros((2, *sizes)), rng.standard_normal((2, *sizes))
    kernels.spread_to_grid(angles, values, grids)
    there = kernels.interpolate_grid(angles, others)
    np.testing.assert_allclose((grids * others).sum(), (values * there).sum(), rtol=1e-11)


def test_spreading_adds(rng):
    sizes, angles, values = problem(rng, 2, 50)
    grids = np.ones((2, *sizes))
    kernels.spread_to_grid(angles, values, grids)
    again = np.zeros_like(grids)
    kernels.spread_to_grid(angles, values, again)
    np.testing.assert_allclose(grids, again + 1)
