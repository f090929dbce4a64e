"""CPU twin of ``nonuniform``: plain loops over rows, and over the 13^D points around each.

Rows are divided among a number of grids that depends only on sizes, so sums do not depend on the
number of threads.
"""

import math

import numpy as np

from ..common.window import SHAPE, WIDTH
from .common.compiled import FAST, kernel, njit
from .common.elementwise import exp
from .common.thread_pool import over_rows

OPTIONS = {"fastmath": FAST, "error_model": "numpy"}
PARTS, ROWS_EACH, NUMBERS = 8, 1 << 15, 1 << 22  # of partial grids: how many, rows, numbers in all
TURN = 1 / (2 * math.pi)


@njit(**OPTIONS)
def _window(angle, size, weights):
    """Compute the window around an angle; return the first point, which may be negative."""
    at = angle * TURN * size
    first = int(np.ceil(at - WIDTH / 2))
    for j in range(WIDTH):
        z = (first + j - at) * (2 / WIDTH)
        weights[j] = exp(SHAPE * (np.sqrt(max(0.0, 1 - z * z)) - 1))
    return first


@kernel("i i X2- X2- X5", **OPTIONS)
def _spread(start, stop, angles, values, grids):
    D, rows = angles.shape
    weights, first, count = np.ones((3, WIDTH)), np.zeros(3, np.int64), np.ones(3, np.int64)
    parts, R, n0, n1, n2 = grids.shape
    size = np.array([n0, n1, n2])
    count[3 - D :] = WIDTH
    last = weights[2]
    for part in range(start, stop):
        for n in range(rows * part // parts, rows * (part + 1) // parts):
            for d in range(D):
                axis = 3 - D + d
                first[axis] = _window(angles[d, n], size[axis], weights[axis])
            inside = first[2] >= 0 and first[2] + WIDTH <= n2
            for r in range(R):
                for i in range(count[0]):
                    a = values[r, n] * weights[0, i]
                    for j in range(count[1]):
                        b = a * weights[1, j]
                        line = grids[part, r, (first[0] + i) % n0, (first[1] + j) % n1]
                        if inside:
                            place = line[first[2] : first[2] + WIDTH]
                            for k in range(WIDTH):
                                place[k] += b * last[k]
                        else:
                            for k in range(WIDTH):
                                line[(first[2] + k) % n2] += b * last[k]


@kernel("i i X2- X4- X2", **OPTIONS)
def _interpolate(start, stop, angles, grids, out):
    D = angles.shape[0]
    weights, first, count = np.ones((3, WIDTH)), np.zeros(3, np.int64), np.ones(3, np.int64)
    R, n0, n1, n2 = grids.shape
    size = np.array([n0, n1, n2])
    count[3 - D :] = WIDTH
    last = weights[2]
    for n in range(start, stop):
        for d in range(D):
            axis = 3 - D + d
            first[axis] = _window(angles[d, n], size[axis], weights[axis])
        inside = first[2] >= 0 and first[2] + WIDTH <= n2
        for r in range(R):
            total = 0.0
            for i in range(count[0]):
                for j in range(count[1]):
                    line = grids[r, (first[0] + i) % n0, (first[1] + j) % n1]
                    near = 0.0
                    if inside:
                        place = line[first[2] : first[2] + WIDTH]
                        for k in range(WIDTH):
                            near += place[k] * last[k]
                    else:
                        for k in range(WIDTH):
                            near += line[(first[2] + k) % n2] * last[k]
                    total += weights[0, i] * weights[1, j] * near
            out[r, n] = total


def _work(angles, R):
    return angles.shape[1] * (13.0 * R * WIDTH ** len(angles) + 100)


def spread_to_grid(angles, values, grids):
    parts = max(1, min(PARTS, angles.shape[1] // ROWS_EACH, NUMBERS // grids.size))
    partial = grids[None] if parts == 1 else np.zeros((parts, *grids.shape))
    over_rows(_spread, parts, _work(angles, len(values)), angles, values, partial)
    if parts > 1:
        grids += partial.sum(axis=0)


def interpolate_grid(angles, grids):
    out = np.empty((len(grids), angles.shape[1]))
    over_rows(_interpolate, angles.shape[1], _work(angles, len(grids)), angles, grids, out)
    return out
