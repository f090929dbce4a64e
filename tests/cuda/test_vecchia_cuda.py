"""The CUDA twin of near_rows, emulated or on a device, against that of the CPU."""

import numpy as np
import pytest
from support.near_rows import near_rows_problem

from fastsvgp import kernels


def assert_same(gpu, found, expected):
    for one, truth in zip(map(gpu.back, found), expected, strict=True):
        assert one.dtype == truth.dtype and one.shape == truth.shape
        np.testing.assert_allclose(one, truth, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "n, k, u, M", [(0, 3, 5, 6), (1, 0, 1, 1), (9, 1, 12, 3), (12, 7, 20, 70), (3, 35, 40, 40)]
)
def test_rows_and_reverse_rule(gpu, rng, n, k, u, M):
    given = near_rows_problem(rng, n, k, u, M)
    expected = kernels.near_rows(*given)
    assert_same(gpu, kernels.near_rows(*map(gpu.there, given)), expected)
    saved = given[1], given[2], expected[0], expected[3]
    outputs = rng.standard_normal((n, k)), rng.standard_normal(n), rng.standard_normal((n, M))
    for bars in outputs, (*outputs[:2], None):
        there = [None if bar is None else gpu.there(bar) for bar in bars]
        found = kernels.near_rows_vjp(*map(gpu.there, saved), *there)
        assert_same(gpu, found, kernels.near_rows_vjp(*saved, *bars))


def test_a_failing_pivot_is_named(gpu, rng):
    K, Lam, rows, noise = near_rows_problem(rng, 4, 4, 12, 5)
    rows = rng.integers(0, 12, rows.shape)
    noise[1, 2], noise[3, 0] = -50, np.nan
    expected = kernels.near_rows(K, Lam, rows, noise)
    assert expected[4].tolist() == [-1, 2, -1, 0]
    assert_same(gpu, kernels.near_rows(*map(gpu.there, (K, Lam, rows, noise))), expected)
