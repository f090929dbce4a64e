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
    cuda = twin_of("chevron")
    dense, diagonal, x, y, rows = problems.problem(rng, 65, 6, 2, dtype)
    head, rest, u = x[:, :6].copy(), x[:, rows], y[:, : rows.size].copy()
    calls = {
        "multiply": (dense, diagonal, x, False),
        "gram_vjp": (y, dense, diagonal, x),
        "outer": (6, y, x),
        "multiply_rows": (dense, diagonal, rows, head, rest),
        "multiply_rows_transposed": (dense, diagonal, rows, u),
        "outer_rows": (rows, u, head, rest),
        "log_det": (dense, diagonal, rows),
        "log_det_vjp": (0.3, dense, diagonal, rows),
    }
    layouts = [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[::-1].copy()[::-1],
    ]
    for name, arguments in calls.items():
        expected = listed(getattr(cuda, name)(*arguments))
        for layout in layouts:
            moved = [layout(a) if isinstance(a, np.ndarray) else a for a in arguments]
            for one, other in zip(listed(getattr(cuda, name)(*moved)), expected, strict=True):
                np.testing.assert_allclose(
                    one, other, rtol=0, atol=8 * np.finfo(dtype).eps * max(1, np.abs(other).max())
                )


@every_dtype
@pytest.mark.parametrize("m, k, count", [(65, 3, 5), (300, 10, 1)])
def test_equals_the_cpu_twin(twin_of, rng, m, k, count, dtype):
    cuda = twin_of("chevron")
    dense, diagonal, x, y, rows = problems.problem(rng, m, k, count, dtype)
    head, rest = np.ascontiguousarray(x[:, :k]), x[:, rows]
    for name, arguments in {
        "multiply": (dense, diagonal, x, False),
        "outer": (k, y, x),
        "gram_vjp": (y, dense, diagonal, x),
        "multiply_rows": (dense, diagonal, rows, head, rest),
        "multiply_rows_transposed": (dense, diagonal, rows, rest),
        "outer_rows": (rows, rest, head, rest),
        "log_det": (dense, diagonal, None),
        "log_det_vjp": (0.3, dense, diagonal, rows),
    }.items():
        for one, other in zip(
            np.atleast_1d(*listed(getattr(cuda, name)(*arguments))),
            np.atleast_1d(*listed(getattr(cpu, name)(*arguments))),
            strict=True,
        ):
            np.testing.assert_allclose(
                one,
                other,
                rtol=0,
                atol=32 * np.finfo(dtype).eps * max(1, np.abs(other).max(initial=0)),
            )


def listed(results):
    return results if isinstance(results, tuple) else (results,)


def test_no_rows(twin_of, rng):
    dense, diagonal, x, _, rows = problems.problem(rng, 33, 7, 2, np.float64)
    cuda, none = twin_of("chevron"), rows[:0]
    assert cuda.multiply_rows(dense, diagonal, none, x[:, :7], x[:, :0]).shape == (2, 0)
    head, rest = cuda.multiply_rows_transposed(dense, diagonal, none, x[:, :0])
    assert not head.any() and head.shape == (2, 7) and rest.shape == (2, 0)
    assert cuda.log_det(dense, diagonal, none) == 0
    assert [a.shape for a in cuda.outer_rows(none, x[:, :0], x[:, :7], x[:, :0])] == [(0, 7), (0,)]


def test_long_float32_sums_keep_their_digits(twin_of):
    m = 1 << 13
    dense, diagonal = np.full((m, 1), 0.1, np.float32), np.full(m - 1, 1.1, np.float32)
    total = twin_of("chevron").multiply(dense, diagonal, np.ones(m, np.float32), True)[0]
    np.testing.assert_allclose(total, m * float(np.float32(0.1)), rtol=2e-7)


@pytest.mark.parametrize("wrong", [-1, 17])
def test_indices_out_of_range_in_the_checking_mode(twin_of, rng, wrong, monkeypatch):
    monkeypatch.setenv("FASTSVGP_CUDA_CHECK", "1")
    dense, diagonal, x, _, rows = problems.problem(rng, 17, 5, 2, np.float64)
    cuda, right, rows = twin_of("chevron"), rows, np.r_[rows, wrong]
    lines = rng.standard_normal((2, rows.size))
    for name, arguments in {
        "multiply_rows": (dense, diagonal, rows, x[:, :5], lines),
        "multiply_rows_transposed": (dense, diagonal, rows, lines),
        "log_det": (dense, diagonal, rows),
        "log_det_vjp": (1.0, dense, diagonal, rows),
    }.items():
        with pytest.raises(
            IndexError, match=rf"`rows` holds {wrong}, but the matrix has 17 rows \(0 to 16\)"
        ):
            getattr(cuda, name)(*arguments)
    assert np.isfinite(cuda.log_det_vjp(1.0, dense, diagonal, np.r_[right, 0, 16])).all()


def test_the_order_of_threads_changes_no_bit(rng):
    """Reductions have a fixed order for any order of threads."""
    dense, diagonal, x, _, rows = problems.problem(rng, 300, 10, 2, np.float32)

    def work(twin_of):
        cuda = twin_of("chevron")
        return cuda.multiply(dense, diagonal, x, True), cuda.log_det(dense, diagonal, rows)

    assert_same_in_any_order(work)
