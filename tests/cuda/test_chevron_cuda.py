"""CUDA twin of the chevron family, emulated or on a device: the checks of the CPU twin."""

import numpy as np
import pytest
from cuda_host.emulated import assert_same_in_any_order
from support import chevron_problems as problems

from fastsvgp.kernels.cpu import chevron as cpu

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@every_dtype
@pytest.mark.parametrize("m, k, count", problems.SHAPES)
def test_against_the_dense_matrix(twin_of, rng, m, k, count, dtype):
    problems.check_all(twin_of("chevron"), rng, m, k, count, dtype)


@every_dtype
# aligned, padded to it, askew, two pieces of columns
@pytest.mark.parametrize("k, padding", [(8, 0), (6, 2), (7, 5), (150, 2)])
def test_layouts(twin_of, rng, k, padding, dtype):
    problems.check_all(twin_of("chevron"), rng, 200, k, 2, dtype, padding)


@every_dtype
def test_strides_and_orders(twin_of, rng, dtype):
    """The layout of arguments does not change results."""
    cuda, (dense, diagonal, z) = twin_of("chevron"), problems.problem(rng, 65, 6, 2, dtype)
    layouts = [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[::-1].copy()[::-1],
    ]
    for call, arguments in (
        (cuda.chevron_multiply, (dense, diagonal, z)),
        (cuda.chevron_log_det, (dense, diagonal)),
    ):
        expected = call(*arguments)
        for layout in layouts:
            found = call(*map(layout, arguments))
            atol = 8 * np.finfo(dtype).eps * max(1, np.abs(expected).max())
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@every_dtype
@pytest.mark.parametrize("m, k, count", [(65, 3, 5), (300, 10, 1)])
def test_equals_the_cpu_twin(twin_of, rng, m, k, count, dtype):
    cuda, (dense, diagonal, z) = twin_of("chevron"), problems.problem(rng, m, k, count, dtype)
    for name, arguments in (
        ("chevron_multiply", (dense, diagonal, z)),
        ("chevron_log_det", (dense, diagonal)),
    ):
        one, other = (getattr(twin, name)(*arguments) for twin in (cuda, cpu))
        atol = 32 * np.finfo(dtype).eps * max(1, np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


def test_no_rows_and_no_sides(twin_of):
    cuda, dense = twin_of("chevron"), np.ones((4, 2))
    assert cuda.chevron_multiply(dense[:0], dense[0, :0], np.ones((3, 0))).shape == (3, 0)
    assert cuda.chevron_multiply(dense, np.ones(2), np.ones((0, 4))).shape == (0, 4)
    assert cuda.chevron_log_det(dense[:0], dense[0, :0]) == 0


def test_the_order_of_threads_changes_no_bit(rng):
    """Reductions have a fixed order for any order of threads."""
    dense, diagonal, z = problems.problem(rng, 300, 10, 2, np.float32)

    def work(twin_of):
        cuda = twin_of("chevron")
        return cuda.chevron_multiply(dense, diagonal, z), cuda.chevron_log_det(dense, diagonal)

    assert_same_in_any_order(work)
