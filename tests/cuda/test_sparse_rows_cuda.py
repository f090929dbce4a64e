"""The CUDA twins of sparse_rows and strata, emulated or on a device, against those of the CPU."""

import numpy as np
import pytest
from cuda_host.cupy_on_host import copies, cupy

from fastsvgp import kernels

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def assert_no_copy(gpu, operation):
    before = copies.to_host, copies.to_device
    result = operation()
    assert gpu.cupy is not cupy or (copies.to_host, copies.to_device) == before
    return result


@every_dtype
@pytest.mark.parametrize("sizes", [(1,), (30, 1, 200), (5, 0, 0), (0,), (700, 900)])
@pytest.mark.parametrize("width", [(), (3,), (0,), (2, 3)])
def test_sums(gpu, rng, sizes, width, dtype):
    """Bit by bit: the order of a sum is that of the rows as they came."""
    rows = [rng.integers(0, 1000, size) for size in sizes]
    rows[0].sort()
    values = [rng.standard_normal((*width[::-1], len(r))).astype(dtype).T for r in rows]
    distinct, sums = kernels.sum_rows(rows, values)
    there = tuple(map(gpu.there, rows)), tuple(map(gpu.there, values))
    found, found_sums = map(gpu.back, assert_no_copy(gpu, lambda: kernels.sum_rows(*there)))
    u, n = len(distinct), sum(sizes)
    assert found.shape == (n,) and found_sums.shape == (n, *width) and found_sums.dtype == dtype
    np.testing.assert_array_equal(found[:u], distinct)
    np.testing.assert_array_equal(found_sums[:u], sums)
    assert (found[u:] == found[:u][-1:]).all() and not found_sums[u:].any()


@every_dtype
@pytest.mark.parametrize("m, k, r", [(5, 1, 1), (5, 0, 3), (300, 40, 200)])
def test_gather(gpu, rng, m, k, r, dtype):
    A, rows = rng.standard_normal((m, k)).astype(dtype), rng.integers(0, m, r)
    for layout in (np.copy, np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2]):
        out = gpu.there(np.full((k, r), np.nan, dtype))
        assert kernels.gather_rows(gpu.there(layout(A)), gpu.there(rows), out) is out
        np.testing.assert_array_equal(gpu.back(out), A[rows].T)


@every_dtype
@pytest.mark.parametrize("k, r", [(1, 1), (0, 4), (1, 300), (7, 60)])
@pytest.mark.parametrize("kind", ["free", "positive", "factor"])
def test_adagrad(gpu, rng, kind, k, r, dtype):
    """As on the CPU, and nothing but these rows is looked at; one that comes again moves once."""
    m = 4 * max(r, k)
    rows, g = rng.permutation(m)[:r], rng.standard_normal((r, k)).astype(dtype)
    x, total = np.full((2, m, k), np.nan, dtype)
    x[rows], total[rows] = rng.uniform(0.5, 2, (r, k)), rng.uniform(0, 1, (r, k))
    options = {
        "step_size": 0.3,
        "epsilon": 0.1,
        "positive": kind == "positive",
        "period": 2 * k if kind == "factor" else 0,
    }
    twice = np.append(rows, rows[-1:]), np.concatenate([g, np.zeros((1, k), dtype)])
    there, arguments = (gpu.there(x), gpu.there(total)), tuple(map(gpu.there, twice))
    assert_no_copy(gpu, lambda: kernels.adagrad_rows(*there, *arguments, **options))
    kernels.adagrad_rows(x, total, rows, g, **options)
    for found, truth in zip(there, (x, total), strict=True):
        np.testing.assert_allclose(gpu.back(found), truth, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    "num, size", [(1, 1), (17, 17), (1000, 300), (2**62, 70), (10**13 + 1, 65)]
)
def test_units_are_those_of_the_cpu(gpu, num, size):
    like = np.empty(0)
    away = gpu.there(like)
    for seed, step, stream in ((0, 0, 2), (2**64 - 1, 2**40 + 3, 3)):
        here = kernels.stratified_units(num, size, seed, step, stream, like)
        there = assert_no_copy(
            gpu, lambda at=(seed, step, stream): kernels.stratified_units(num, size, *at, away)
        )
        for one, other in zip(here, there, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(gpu.back(other), one)
