"""Units of a step, from a seed and the number of the step, against the definition."""

import numpy as np
import pytest
from oracles import fourier as oracle

from fastsvgp import kernels

LIKE = np.empty(0)


@pytest.mark.parametrize(
    "num, size", [(1, 1), (17, 17), (1000, 300), (2**62, 70), (10**13 + 1, 65)]
)
@pytest.mark.parametrize("seed, step, stream", [(0, 0, 2), (2**64 - 1, 2**40 + 3, 3)])
def test_by_definition(num, size, seed, step, stream):
    units, widths = kernels.stratified_units(num, size, seed, step, stream, LIKE)
    assert units.dtype == np.int64 and widths.dtype == np.float64
    edges = [b * num // size for b in range(size + 1)]
    for b in range(size):
        a, c, *_ = oracle.philox([b, step % 2**32, step >> 32, stream], [seed % 2**32, seed >> 32])
        width = edges[b + 1] - edges[b]
        assert units[b] == edges[b] + (((a << 32) + c) * width >> 64) and widths[b] == width


def test_every_unit_of_a_block_comes_as_often():
    drawn = np.array([kernels.stratified_units(12, 4, 5, step, 2, LIKE)[0] for step in range(3000)])
    counts = np.bincount(drawn.ravel(), minlength=12)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000 * 2 / 3)
