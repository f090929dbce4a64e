"""Rows given their near rows, against batched NumPy and its complex step."""

import numpy as np
import pytest
from support.looped import looped
from support.near_rows import near_rows_oracle, near_rows_problem

import fastsvgp as fs
from fastsvgp import kernels

SIZES = [(0, 3, 5, 6), (1, 0, 1, 1), (9, 1, 12, 3), (6, 3, 8, 1), (40, 7, 30, 70), (5, 21, 60, 256)]


def bars(rng, n, k, M):
    return rng.standard_normal((n, k)), rng.standard_normal(n), rng.standard_normal((n, M))


@looped("n, k, u, M", SIZES)
def test_rows(rng, n, k, u, M):
    given = near_rows_problem(rng, n, k, u, M)
    found = kernels.near_rows(*given)
    for one, truth in zip(found, near_rows_oracle(*given), strict=False):
        assert one.shape == truth.shape and one.flags.c_contiguous and one.dtype == np.float64
        np.testing.assert_allclose(one, truth, rtol=1e-10, atol=1e-10)
    assert (found[4] == -1).all() and found[4].dtype == np.int64
    absent = given[2][:, :k] < 0
    assert not found[0][absent].any()
    np.testing.assert_array_equal(found[3][absent], np.broadcast_to(np.eye(k), (n, k, k))[absent])


def test_what_is_not_read(rng):
    """The upper triangle of K, and what belongs to absent rows."""
    K, Lam, rows, noise = near_rows_problem(rng, 20, 6, 15, 9)
    expected = kernels.near_rows(K, Lam, rows, noise)
    K[:, *np.triu_indices(7, 1)] = np.nan
    absent = rows < 0
    K[absent[:, :, None] | absent[:, None]] = np.nan
    noise[absent[:, :-1]] = np.nan
    for found, truth in zip(kernels.near_rows(K, Lam, rows, noise), expected, strict=True):
        np.testing.assert_array_equal(found, truth)


@looped("n, k, u, M", SIZES)
def test_reverse_rule_against_complex_steps(rng, n, k, u, M):
    K, Lam, rows, noise = near_rows_problem(rng, n, k, u, M)
    a, _, _, factor, _ = kernels.near_rows(K, Lam, rows, noise)
    outputs = bars(rng, n, k, M)
    outputs[0][rows[:, :k] < 0] = 0
    K_bar, Lam_bar, noise_bar = kernels.near_rows_vjp(Lam, rows, a, factor, *outputs)
    np.testing.assert_array_equal(K_bar, np.swapaxes(K_bar, 1, 2))
    absent = rows < 0
    assert not K_bar[absent[:, :, None] | absent[:, None]].any()
    assert not noise_bar[absent[:, :k]].any()
    for _ in range(3):
        dK, dLam, dnoise = map(rng.standard_normal, (K.shape, Lam.shape, noise.shape))
        dK = dK + np.swapaxes(dK, 1, 2)
        h = 1e-30j
        moved = near_rows_oracle(K + h * dK, Lam + h * dLam, rows, noise + h * dnoise)
        slope = (
            sum((bar * out.imag).sum() for bar, out in zip(outputs, moved, strict=False)) / 1e-30
        )
        found = (K_bar * dK).sum() + (Lam_bar * dLam).sum() + (noise_bar * dnoise).sum()
        size = sum(
            np.linalg.norm(b) * np.linalg.norm(d)
            for b, d in ((K_bar, dK), (Lam_bar, dLam), (noise_bar, dnoise))
        )
        assert abs(slope - found) <= 1e-10 * size + 1e-12


def test_a_failing_pivot_is_named(rng):
    K, Lam, rows, noise = near_rows_problem(rng, 6, 4, 12, 5)
    rows = rng.integers(0, 12, rows.shape)
    noise[1, 2], noise[3, 0] = -50, np.nan
    found = kernels.near_rows(K, Lam, rows, noise)
    np.testing.assert_array_equal(found[4], [-1, 2, -1, 0, -1, -1])
    for out in found[:4]:
        assert np.isnan(out[[1, 3]]).all() and np.isfinite(out[[0, 2, 4, 5]]).all()


def test_zeros_without_phi_bar(rng):
    K, Lam, rows, noise = near_rows_problem(rng, 30, 5, 20, 40)
    a, _, phi, factor, _ = kernels.near_rows(K, Lam, rows, noise)
    a_bar, s_bar, _ = bars(rng, 30, 5, 40)
    given = Lam, rows, a, factor, a_bar, s_bar
    for one, other in zip(
        kernels.near_rows_vjp(*given, None),
        kernels.near_rows_vjp(*given, np.zeros_like(phi)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_any_number_of_threads_gives_the_same_bits(rng, threads):
    K, Lam, rows, noise = near_rows_problem(rng, 300, 6, 50, 333)
    outputs = bars(rng, 300, 6, 333)

    def both():
        found = kernels.near_rows(K, Lam, rows, noise)
        return *found, *kernels.near_rows_vjp(Lam, rows, found[0], found[3], *outputs)

    with fs.set_num_threads(1):
        expected = both()
    with fs.set_num_threads(threads):
        found = both()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
