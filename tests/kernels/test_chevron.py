"""Chevron products on the CPU: explicit matrix, layouts, long sums, numbers at the edges."""

import numpy as np
import pytest
from oracles import chevron as oracle
from support import chevron_problems as problems

from fastsvgp import kernels
from fastsvgp.kernels.cpu import chevron

# several tiles; shared among threads
LONG = [(700, 65, 2), (301, 10, 1), (200, 130, 6), (9000, 20, 3)]
every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@every_dtype
@pytest.mark.parametrize("m, k, count", [*problems.SHAPES, *LONG[:3]])
def test_against_the_dense_matrix(rng, m, k, count, dtype):
    problems.check_all(chevron, rng, m, k, count, dtype)


@every_dtype
def test_strides(rng, dtype):
    for k, count in ((3, 2), (6, 1), (40, 3)):
        problems.check_all(chevron, rng, 65, k, count, dtype, padding=5)
    dense, diagonal, z = problems.problem(rng, 33, 7, 2, dtype)
    expected, wide = kernels.chevron_multiply(dense, diagonal, z), np.repeat(diagonal, 2)
    odd = [np.asfortranarray(dense), np.repeat(dense, 2, axis=1)[:, ::2], dense[::-1].copy()[::-1]]
    for layout in odd:
        for d in (diagonal, wide[::2]):
            result = kernels.chevron_multiply(layout, d, np.asfortranarray(z))
            np.testing.assert_array_equal(result, expected)


def test_leading_axes(rng):
    dense, diagonal, z = problems.problem(rng, 33, 7, 6, np.float64)
    flat = kernels.chevron_multiply(dense, diagonal, z)
    stacked = kernels.chevron_multiply(dense, diagonal, z.reshape(2, 3, 33))
    np.testing.assert_array_equal(stacked, flat.reshape(2, 3, 33))
    assert kernels.chevron_multiply(dense, diagonal, z[0]).shape == (33,)


def test_log_det_of_odd_values():
    dense = np.empty((40, 0))
    for values in (
        np.geomspace(1e-300, 1e300, 40),
        np.full(40, 5e-324),
        np.r_[np.ones(39), 1e-310],
    ):
        np.testing.assert_allclose(
            kernels.chevron_log_det(dense, values), np.log(values).sum(), rtol=1e-14, atol=1e-12
        )
    assert kernels.chevron_log_det(dense, np.r_[0.0, np.ones(39)]) == -np.inf
    assert kernels.chevron_log_det(dense, np.r_[np.inf, np.ones(39)]) == np.inf
    for bad in (-1.0, np.nan):
        assert np.isnan(kernels.chevron_log_det(dense, np.r_[bad, np.ones(39)]))


def test_long_float32_sums_keep_their_digits():
    """A float32 sum over 2^18 rows would be lost to one part in 1e3 or so; ours are float64."""
    m = 1 << 18
    dense, diagonal = np.full((m, 1), 0.1, np.float32), np.full(m - 1, 1.1, np.float32)
    logs = [np.log(float(np.float32(value))) for value in (0.1, 1.1)]
    np.testing.assert_allclose(
        kernels.chevron_log_det(dense, diagonal), logs[0] + (m - 1) * logs[1], rtol=1e-12
    )


@pytest.mark.parametrize("k", [0, 1, 6, 40])
def test_no_right_hand_sides(rng, k):
    """Nothing is written: 200 times, because damage beside an empty array shows only sometimes."""
    dense, diagonal, _ = problems.problem(rng, 4000, k, 1, np.float64)
    z = np.empty((0, 4000))
    for _ in range(200):
        assert kernels.chevron_multiply(dense, diagonal, z).shape == (0, 4000)


@pytest.mark.parametrize("k", [10, 32, 33])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_more_columns_than_a_cache_holds(rng, k, count):
    """In parts: the dense matrix of the other tests would not fit into memory."""
    m = 2**21 // k + 77  # 16 MiB and some rows
    dense = rng.standard_normal((m, k)) / np.sqrt(m)
    dense[np.triu_indices(k, 1)] = 0
    dense[range(k), range(k)] = rng.uniform(0.5, 2, k)
    diagonal, z = rng.uniform(0.5, 2, m - k), rng.standard_normal((count, m))
    expected = z[:, :k] @ dense.T
    expected[:, k:] += diagonal * z[:, k:]
    found = chevron.chevron_multiply(dense, diagonal, z)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@every_dtype
def test_results_repeat_to_the_bit(rng, dtype):
    m, k, count = LONG[3]
    dense, diagonal, z = problems.problem(rng, m, k, count, dtype)
    first = kernels.chevron_multiply(dense, diagonal, z)
    for _ in range(3):
        np.testing.assert_array_equal(kernels.chevron_multiply(dense, diagonal, z), first)


def test_the_oracle_itself():
    C = oracle.matrix(np.array([[1.0, 9], [2, 3], [4, 5], [6, 7]]), np.array([8.0, 10]))
    np.testing.assert_array_equal(C, [[1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 8, 0], [6, 7, 0, 10]])
