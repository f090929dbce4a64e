"""Rows more than 2^31 numbers apart: offsets have 64 bits.

The memory is a sparse file, of which almost nothing exists. The matrices begin in the middle of the
file, so an offset truncated to 32 bits hits zeros, not other memory.
"""

import os
import shutil

import numpy as np
import pytest
from cuda_host.emulated import emulated
from support.numerics import generator

ROWS, APART = 6, (1 << 30) + 64  # in float32 rows are 4 GiB and 256 bytes apart: aligned
BEFORE = 1 << 31  # how far below its place an offset of 32 bits can fall
NUMBERS = BEFORE + ROWS * APART

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the host emulation of CUDA needs g++"
)


@pytest.fixture
def far(tmp_path):
    """Return a function that copies a matrix of six rows to places far from one another."""
    path, made = tmp_path / "sparse", []
    try:
        with open(path, "wb") as file:
            file.truncate(4 * NUMBERS)
            file.seek(4 * (NUMBERS - 1))
            file.write(b"1234")
        if os.stat(path).st_blocks * 512 > 1 << 20:
            pytest.skip("the file system has no sparse files")
        memory = np.memmap(path, np.float32, "r+").view(np.ndarray)
    except (OSError, ValueError, MemoryError) as error:
        pytest.skip(f"no sparse file of {4 * NUMBERS >> 30} GiB here: {error}")

    def moved(A):
        start = BEFORE + 64 * len(made)  # matrices are adjacent
        view = np.lib.stride_tricks.as_strided(memory[start:], A.shape, (4 * APART, 4))
        view[...] = A
        made.append(view)
        return view

    yield moved
    path.unlink()


def lower(rng):
    return (np.tril(rng.standard_normal((ROWS, ROWS))) + 3 * np.eye(ROWS)).astype(np.float32)


def side_by_side(A):
    """Aligned too, so that sums have the same order."""
    memory = np.zeros((ROWS, 8), np.float32)
    memory[:, :ROWS] = A
    return memory[:, :ROWS]


def of_chevron(twin, A, *_, rng):
    dense, diagonal = A[:, :4], np.array([2, 3], np.float32)
    z = rng.standard_normal((4, ROWS)).astype(np.float32)
    for count in (1, 4):
        yield twin.chevron_multiply(dense, diagonal, z[:count])
    yield twin.chevron_log_det(dense, diagonal)


def of_products(twin, A, B, C, *, rng):
    x, w = rng.standard_normal((2, ROWS)).astype(np.float32)
    yield from twin.column_moments(A, x, B)
    yield twin.scale_columns(A, w)
    yield twin.scale_columns(A, w, out=C)
    for transpose in (False, True):
        yield twin.tril_update(A, B, -0.7, np.empty((ROWS, ROWS), np.float32), transpose)


def of_checks(twin, A, *_, rng):
    for high in (np.inf, float(np.max(A[: ROWS - 1]))):
        A[-1, -1] = 1000
        yield twin.find_outside([(A, -np.inf, high)], np.zeros(1, np.int32))


def of_triangular(twin, L, B, C, *, rng):
    for transpose in (False, True):
        yield twin.solve_triangular(L, B, transpose)
        yield twin.multiply_triangular(L, B, transpose)
    yield twin.tril_gram(L)
    yield np.tril(twin.tril_product(B, B, C))


FAMILIES = {
    "chevron": of_chevron,
    "products": of_products,
    "deferred_checks": of_checks,
    "triangular": of_triangular,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_results_are_those_of_rows_side_by_side(far, rng, family):
    matrices = [lower(rng) for _ in range(3)]
    with emulated() as twin_of:
        near, there = (
            [np.array(a) for a in FAMILIES[family](twin_of(family), *arrays, rng=generator(1))]
            for arrays in (map(side_by_side, matrices), map(far, matrices))
        )
    for one, other in zip(near, there, strict=True):
        np.testing.assert_array_equal(one, other)
    assert all(np.any(one) for one in near[1:])
