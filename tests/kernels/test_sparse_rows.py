"""Rows that a step reads and updates, against plain NumPy."""

import numpy as np
import pytest
from support.looped import looped

from fastsvgp import kernels

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def parts(rng, sizes, width, dtype, m=50):
    """Rows with repeats, and values; sorted or not."""
    rows = [rng.integers(0, m, size) for size in sizes]
    rows[0].sort()
    return tuple(rows), tuple(rng.standard_normal((len(r), *width)).astype(dtype) for r in rows)


@every_dtype
@looped("sizes", [(1,), (30,), (30, 1, 200), (5, 0, 0), (0,), (4000, 4000)])
@looped("width", [(), (1,), (3,), (40,), (0,), (2, 3)])
def test_sums(rng, sizes, width, dtype):
    rows, values = parts(rng, sizes, width, dtype)
    distinct, sums = kernels.sum_rows(rows, values)
    expected = np.zeros((50, *width))
    np.add.at(expected, np.concatenate(rows), np.concatenate(values).astype(float))
    np.testing.assert_array_equal(distinct, np.unique(np.concatenate(rows)))
    assert sums.dtype == dtype and sums.shape == (len(distinct), *width) and sums.flags.c_contiguous
    np.testing.assert_allclose(sums, expected[distinct], atol=500 * np.finfo(dtype).eps)


def test_values_of_any_strides(rng):
    rows, values = parts(rng, (30, 200), (40,), np.float64)
    distinct, sums = kernels.sum_rows(rows, values)
    for layout in (np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2]):
        for a, b in zip(
            kernels.sum_rows(rows, tuple(map(layout, values))), (distinct, sums), strict=True
        ):
            np.testing.assert_array_equal(a, b)
    narrow = tuple(r.astype(np.int32) for r in rows)
    np.testing.assert_array_equal(kernels.sum_rows(narrow, values)[1], sums)


@every_dtype
@looped("m, k, r", [(5, 1, 1), (40, 17, 30), (300, 40, 2000)])
def test_gather(rng, m, k, r, dtype):
    A, rows = rng.standard_normal((m, k)).astype(dtype), rng.integers(0, m, r)
    for layout in (np.copy, np.asfortranarray):
        out = np.full((k, r), np.nan, dtype)
        assert kernels.gather_rows(layout(A), rows, out) is out
        np.testing.assert_array_equal(out, A[rows].T)


@every_dtype
@looped("k, r", [(1, 1), (1, 3000), (3, 30), (40, 300)])
@looped("kind", ["free", "positive", "factor"])
def test_adagrad(rng, kind, k, r, dtype):
    """As defined, and no other row is read."""
    m, period = 4 * max(r, k), 2 * k if kind == "factor" else 0
    rows = rng.permutation(m)[:r]
    x, total, g = np.full((m, k), np.nan), np.full((m, k), np.nan), rng.standard_normal((r, k))
    x[rows], total[rows] = rng.uniform(0.5, 2, (r, k)), rng.uniform(0, 1, (r, k))
    positive = np.full((r, k), kind == "positive") | (kind == "factor") * (
        rows[:, None] % (2 * k) == np.arange(k)
    )
    x, total, g = (a.astype(dtype) for a in (x, total, g))
    slope = np.where(positive, g * x[rows], g).astype(float)
    sums = total[rows] + slope**2
    change = 0.3 * slope / (np.sqrt(sums) + 0.1)
    expected = x.copy(), total.copy()
    expected[0][rows], expected[1][rows] = (
        np.where(positive, x[rows] * np.exp(change), x[rows] + change),
        sums,
    )
    options = {"step_size": 0.3, "epsilon": 0.1, "positive": kind == "positive", "period": period}
    kernels.adagrad_rows(x, total, rows, g, **options)
    for found, truth in zip((x, total), expected, strict=True):
        np.testing.assert_allclose(found, truth, rtol=20 * np.finfo(dtype).eps)
