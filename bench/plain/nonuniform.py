"""Nonuniform Fourier sums: spreading to a grid and back, against plain loops over its points."""

import math

import numpy as np

from fastsvgp.kernels.common.window import SHAPE, WIDTH
from fastsvgp.kernels.cpu import nonuniform

from .common import Case, plain

TURN = 2 * math.pi


@plain
def window(distance):
    return math.exp(SHAPE * (math.sqrt(max(0, 1 - (2 * distance / WIDTH) ** 2)) - 1))


@plain
def plain_spread(angles, values, grid):
    n1, n2 = grid.shape
    for n in range(angles.shape[1]):
        y, x = angles[0, n] / TURN * n1, angles[1, n] / TURN * n2
        i0, j0 = math.ceil(y - WIDTH / 2), math.ceil(x - WIDTH / 2)
        for i in range(i0, i0 + WIDTH):
            a = values[n] * math.exp(
                SHAPE * (math.sqrt(max(0, 1 - (2 * (i - y) / WIDTH) ** 2)) - 1)
            )
            for j in range(j0, j0 + WIDTH):
                w = window(j - x)
                grid[i % n1, j % n2] += a * w


@plain
def plain_interpolate(angles, grid, out):
    n1, n2 = grid.shape
    for n in range(angles.shape[1]):
        y, x, total = angles[0, n] / TURN * n1, angles[1, n] / TURN * n2, 0.0
        i0, j0 = math.ceil(y - WIDTH / 2), math.ceil(x - WIDTH / 2)
        for i in range(i0, i0 + WIDTH):
            a = window(i - y)
            for j in range(j0, j0 + WIDTH):
                w = window(j - x)
                total += grid[i % n1, j % n2] * (a * w)
        out[n] = total


def cases(dtype):
    """Sums are float64 whatever the data are."""
    rng = np.random.default_rng(0)
    for N, size in ((2000, 64), (20_000, 256)):
        angles, values = rng.uniform(0, TURN, (2, N)), rng.standard_normal((1, N))
        grids, out = rng.standard_normal((1, 1, size, size)), np.empty((1, N))

        def spread(function, grids=grids, angles=angles, values=values):
            work = np.zeros_like(grids)
            function(angles, values, work)
            return work

        yield Case(
            f"spread, {N} rows, {size} x {size}",
            lambda run=spread: run(nonuniform.spread_to_grid),
            lambda run=spread: run(lambda a, v, g: plain_spread(a, v[0], g[0, 0])),
            1e-13,
        )

        def interpolate(grids=grids, angles=angles, out=out):
            plain_interpolate(angles, grids[0, 0], out[0])
            return out

        yield Case(
            f"interpolate, {N} rows, {size} x {size}",
            lambda angles=angles, grids=grids: nonuniform.interpolate_grid(angles, grids),
            interpolate,
            1e-13,
        )
