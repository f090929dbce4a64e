"""Chevron products on the CPU: explicit matrix, adjoints, layouts, long sums, bad indices."""

import numpy as np
import pytest
from oracles import chevron as oracle
from support import chevron_problems as problems
from support.numerics import assert_adjoint

from fastsvgp import kernels
from fastsvgp.kernels.cpu import chevron

# shared among threads; few columns as lanes; columns in two parts
LONG = [(700, 65, 2), (301, 10, 1), (200, 130, 6)]
every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@every_dtype
@pytest.mark.parametrize("m, k, count", [*problems.SHAPES, *LONG])
def test_against_the_dense_matrix(rng, m, k, count, dtype):
    problems.check_all(chevron, rng, m, k, count, dtype)


@every_dtype
def test_strides(rng, dtype):
    for k, count in ((3, 2), (6, 1), (40, 3)):
        problems.check_all(chevron, rng, 65, k, count, dtype, padding=5)
    dense, diagonal, x, _, _ = problems.problem(rng, 33, 7, 2, dtype)
    plain = [kernels.chevron_multiply(dense, diagonal, x, transpose) for transpose in (False, True)]
    wide = np.repeat(diagonal, 2)
    odd = [np.asfortranarray(dense), np.repeat(dense, 2, axis=1)[:, ::2], dense[::-1].copy()[::-1]]
    for layout in odd:
        for d in (diagonal, wide[::2]):
            for transpose, expected in enumerate(plain):
                result = kernels.chevron_multiply(layout, d, np.asfortranarray(x), bool(transpose))
                np.testing.assert_array_equal(result, expected)


def test_leading_axes(rng):
    dense, diagonal, x, y, rows = problems.problem(rng, 33, 7, 6, np.float64)
    for transpose in (False, True):
        flat = kernels.chevron_multiply(dense, diagonal, x, transpose)
        stacked = kernels.chevron_multiply(dense, diagonal, x.reshape(2, 3, 33), transpose)
        np.testing.assert_array_equal(stacked, flat.reshape(2, 3, 33))
        assert kernels.chevron_multiply(dense, diagonal, x[0], transpose).shape == (33,)
    head, rest = kernels.chevron_multiply_rows_transposed(dense, diagonal, rows, x[0, : rows.size])
    assert head.shape == (7,) and rest.shape == rows.shape
    assert kernels.chevron_gram(dense, diagonal, x.reshape(2, 3, 33)).shape == (2, 3, 33)
    none = kernels.chevron_multiply_rows(dense, diagonal, rows[:0], x[:, :7], x[:, :0])
    assert none.shape == (6, 0)


# --- reverse rules ------------------------------------------------------------


@pytest.fixture
def small(rng):
    dense, *others = problems.problem(rng, 17, 5, 3, np.float64)
    # five-point differences move every entry, also those that are not read
    return np.nan_to_num(dense), *others


@pytest.mark.parametrize("transpose", [False, True])
def test_multiply_vjp(rng, small, transpose):
    dense, diagonal, x, y_bar, _ = small
    bars = kernels.chevron_multiply_vjp(y_bar, dense, diagonal, x, transpose)
    assert_adjoint(
        lambda *a: kernels.chevron_multiply(*a, transpose), (dense, diagonal, x), bars, y_bar, rng
    )


def test_gram_vjp(rng, small):
    dense, diagonal, x, y_bar, _ = small
    bars = kernels.chevron_gram_vjp(y_bar, dense, diagonal, x)
    assert_adjoint(kernels.chevron_gram, (dense, diagonal, x), bars, y_bar, rng)


def by_rows(rows, dense_bar, diagonal_bar, m):
    """Cotangents row by row, added up at their rows."""
    k = dense_bar.shape[1]
    dense_sum, diagonal_sum = np.zeros((m, k)), np.zeros(m)
    np.add.at(dense_sum, rows, dense_bar)
    np.add.at(diagonal_sum, rows, diagonal_bar)
    assert not diagonal_sum[:k].any()
    return dense_sum, diagonal_sum[k:]


def test_multiply_rows_vjp(rng, small):
    dense, diagonal, x, _, rows = small
    head, rest = x[:, :5].copy(), x[:, rows]
    y_bar = rng.standard_normal(rest.shape)
    dense_bar, diagonal_bar, *others = kernels.chevron_multiply_rows_vjp(
        y_bar, dense, diagonal, rows, head, rest
    )
    bars = (*by_rows(rows, dense_bar, diagonal_bar, 17), *others)
    f = lambda dense, diagonal, head, rest: kernels.chevron_multiply_rows(  # noqa: E731
        dense, diagonal, rows, head, rest
    )
    assert_adjoint(f, (dense, diagonal, head, rest), bars, y_bar, rng)


def test_multiply_rows_transposed_vjp(rng, small):
    dense, diagonal, _, _, rows = small
    x, y_bar = (rng.standard_normal((3, n)) for n in (rows.size, 5 + rows.size))
    arguments = (
        np.ascontiguousarray(y_bar[:, :5]),
        np.ascontiguousarray(y_bar[:, 5:]),
        dense,
        diagonal,
        rows,
        x,
    )
    dense_bar, diagonal_bar, x_bar = kernels.chevron_multiply_rows_transposed_vjp(*arguments)
    bars = (*by_rows(rows, dense_bar, diagonal_bar, 17), x_bar)

    def f(*a):
        return np.concatenate(kernels.chevron_multiply_rows_transposed(*a[:2], rows, a[2]), axis=1)

    assert_adjoint(f, (dense, diagonal, x), bars, y_bar, rng)


def test_log_det_vjp(rng, small):
    dense, diagonal, _, _, rows = small
    for chosen in (None, rows):
        entries_bar = kernels.chevron_log_det_vjp(1.7, dense, diagonal, chosen)
        total = np.zeros(17)
        np.add.at(total, np.arange(17) if chosen is None else chosen, entries_bar)
        dense_bar = np.zeros_like(dense)
        dense_bar[np.arange(5), np.arange(5)] = total[:5]

        def f(dense, diagonal, chosen=chosen):
            return kernels.chevron_log_det(dense, diagonal, chosen)

        directions = [rng.uniform(-0.1, 0.1, a.shape) for a in (dense, diagonal)]
        assert_adjoint(
            f,
            (dense, diagonal),
            (dense_bar, total[5:]),
            np.float64(1.7),
            rng,
            directions=directions,
        )


# --- numbers at the edges ------------------------------------------------------------


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
    x = np.ones(m, np.float32)
    total = kernels.chevron_multiply(dense, diagonal, x, transpose=True)[0]
    np.testing.assert_allclose(total, m * float(np.float32(0.1)), rtol=2e-7)
    logs = [np.log(float(np.float32(value))) for value in (0.1, 1.1)]
    np.testing.assert_allclose(
        kernels.chevron_log_det(dense, diagonal), logs[0] + (m - 1) * logs[1], rtol=1e-12
    )


@pytest.mark.parametrize("wrong", [-1, 17])
def test_indices_out_of_range(rng, small, wrong):
    dense, diagonal, x, _, rows = small
    rows = np.r_[rows, wrong]
    lines = rng.standard_normal((3, rows.size))
    for call in (
        lambda: kernels.chevron_multiply_rows(dense, diagonal, rows, x[:, :5], lines),
        lambda: kernels.chevron_multiply_rows_transposed(dense, diagonal, rows, lines),
        lambda: kernels.chevron_log_det(dense, diagonal, rows),
    ):
        with pytest.raises(
            IndexError, match=rf"`rows` holds {wrong}, but the matrix has 17 rows \(0 to 16\)"
        ):
            call()


@pytest.mark.parametrize("k", [0, 1, 6, 40])
def test_no_right_hand_sides(rng, k):
    """Nothing is written: 200 times, because damage beside an empty array shows only sometimes."""
    m, rows = 4000, np.arange(k, 4000)
    dense, diagonal, _, _, _ = problems.problem(rng, m, k, 1, np.float64)
    z = np.empty((0, m))
    for _ in range(200):
        for transpose in (False, True):
            assert kernels.chevron_multiply(dense, diagonal, z, transpose).shape == (0, m)
        assert kernels.chevron_multiply_rows(dense, diagonal, rows, z[:, :k], z[:, k:]).shape == (
            0,
            m - k,
        )
    guarded = np.full(64, 7.0)
    out, given = guarded[32:32].reshape(0, m - k), chevron._chevron(dense, diagonal, rows)
    head, rest = np.empty((0, k)), np.empty((0, m - k))
    chevron.rows_of_product(0, m - k, given, head, rest, out)
    assert (guarded == 7).all()
    head, rest = kernels.chevron_multiply_rows_transposed(dense, diagonal, rows, z[:, k:])
    assert head.shape == (0, k) and rest.shape == (0, m - k)
    bars = kernels.chevron_gram_vjp(z, dense, diagonal, z)
    assert not bars[0].any() and not bars[1].any() and bars[2].shape == (0, m)


@pytest.mark.parametrize("k", [10, 32, 33])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_more_columns_than_a_cache_holds(rng, k, count):
    """In parts: the dense matrix of the other tests would not fit into memory."""
    m = 2**21 // k + 77  # 16 MiB and some rows
    dense = rng.standard_normal((m, k)) / np.sqrt(m)
    dense[np.triu_indices(k, 1)] = 0
    dense[range(k), range(k)] = rng.uniform(0.5, 2, k)
    diagonal, x = rng.uniform(0.5, 2, m - k), rng.standard_normal((count, m))
    forwards, backwards = x[:, :k] @ dense.T, x.copy()
    forwards[:, k:] += diagonal * x[:, k:]
    backwards[:, :k], backwards[:, k:] = x @ dense, diagonal * x[:, k:]
    np.testing.assert_allclose(
        chevron.multiply(dense, diagonal, x, False), forwards, rtol=0, atol=1e-13
    )
    np.testing.assert_allclose(
        chevron.multiply(dense, diagonal, x, True), backwards, rtol=0, atol=1e-11
    )
    dense_bar, diagonal_bar, x_bar = chevron.gram_vjp(x, dense, diagonal, x)
    head_sum = backwards[:, :k]
    np.testing.assert_allclose(dense_bar[k:], 2 * x[:, k:].T @ head_sum, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        diagonal_bar, 2 * (x[:, k:] * backwards[:, k:]).sum(0), rtol=0, atol=1e-11
    )
    again = head_sum @ dense.T
    again[:, k:] += diagonal * backwards[:, k:]
    np.testing.assert_allclose(x_bar, again, rtol=0, atol=1e-11)


def test_results_repeat_to_the_bit(rng):
    dense, diagonal, x, _, _ = problems.problem(rng, 3000, 33, 2, np.float32)
    first = kernels.chevron_multiply(dense, diagonal, x, transpose=True)
    for _ in range(3):
        np.testing.assert_array_equal(
            kernels.chevron_multiply(dense, diagonal, x, transpose=True), first
        )


def test_the_oracle_itself():
    C = oracle.matrix(np.array([[1.0, 9], [2, 3], [4, 5], [6, 7]]), np.array([8.0, 10]))
    np.testing.assert_array_equal(C, [[1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 8, 0], [6, 7, 0, 10]])
