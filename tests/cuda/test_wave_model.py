"""The model by which ``tiled`` chooses the length of slices."""

import heapq
import itertools
import math

import numpy as np
import pytest

from fastsvgp.kernels.cuda import tiled
from fastsvgp.kernels.cuda.common import loader, waves
from fastsvgp.runtime import cuda_devices, tuning

MULTIPROCESSORS, RESIDENT = 132, 3  # of an H200
# launches of newton_schulz_step: ranges, and products that are added
STEP = (tiled.BETWEEN, 1), (tiled.FROM_ROW, 2), (tiled.BETWEEN, 1)
CHUNK = 2 * 64 * 64 * 16 / (59e12 / MULTIPROCESSORS)  # seconds, by cuBLAS's rate of an H200


def of_tile(which, row, column, high, deep):
    """Return the tiles of k of one tile of the result, by the definition of the range."""
    return {
        tiled.BETWEEN: row - column + 1,
        tiled.FROM_ROW: deep - row,
        tiled.UP_TO_COLUMN: column + 1,
        tiled.UP_TO_ROW: row + 1,
        tiled.WHOLE: deep,
        tiled.ROWS_UP_TO_ROW: row + 1,
        tiled.ROWS_FROM_ROW: deep - row,
        tiled.ROWS_WHOLE: deep,
    }[which]


@pytest.mark.parametrize("which", range(8))
def test_lengths_are_those_of_the_tiles(which):
    for high, wide in ((1, 1), (2, 5), (7, 3)):
        rows = which >= tiled.ROWS_UP_TO_ROW
        deep = 4 if which in (tiled.WHOLE, tiled.ROWS_WHOLE) else high
        found = tiled._lengths(which, high, wide if rows else high, deep)
        each = [length for length, number in found for _ in range(number)]
        tiles = itertools.product(range(high), range(wide if rows else high))
        expected = [of_tile(which, i, j, high, deep) for i, j in tiles if rows or j <= i]
        assert each == sorted(expected, reverse=True)


def simulated(lengths, slice_, multiprocessors, resident, cost):
    """Each place takes the next block when it is free."""
    each = [chunks for chunks, tiles in lengths for _ in range(tiles)]
    blocks = [
        (slice_, True)
        for y in range(1, math.ceil(max(each) / slice_))
        for chunks in each
        if chunks > slice_ * y
    ]
    last = [(chunks - slice_ * ((chunks - 1) // slice_), chunks > slice_) for chunks in each]
    blocks += [block for block in last if block[0] > slice_ / 2]
    blocks += [block for block in last if block[0] <= slice_ / 2]
    held = min(resident, math.ceil(len(blocks) / multiprocessors))
    places = [0.0] * (held * multiprocessors)
    for chunks, cut in blocks:
        duration = chunks * max(held, waves.ALONE) + waves.START + cost * cut
        heapq.heapreplace(places, places[0] + duration)
    return max(places), len(blocks)


@pytest.mark.parametrize("slice_", [1, 3, 7, 20, 40])
@pytest.mark.parametrize("multiprocessors", [1, 5, 60])
def test_time_is_that_of_a_queue(slice_, multiprocessors):
    lengths = [(40, 3), (33, 11), (8, 20), (2, 9)]
    given = lengths, slice_, multiprocessors, 3, 4.0
    time, count = waves.time_of(*given)
    expected, blocks = simulated(*given)
    assert time == pytest.approx(expected) and count == blocks


def step_of(M, cost, start=waves.START):
    """Return the model's times of a step: by the plan, by its standard slices, and at least."""
    times = [0.0, 0.0, 0.0]
    high, chunks = -(-M // 64), -(-M // 16)
    for which, both in STEP:
        mode = tiled.Mode(0, 0, 0, which, both, 0, 0, 0)
        _, _, plan = tiled._plan(MULTIPROCESSORS, (1, M, M, M), mode, (0,) * 7, RESIDENT)
        lengths = [
            (min(4 * length, chunks) * both, number)
            for length, number in tiled._lengths(which, high, high, high)
        ]
        total = sum(length * number for length, number in lengths)
        standard = max(tiled.LEAST, math.ceil(total / (tiled.BLOCKS_EACH * MULTIPROCESSORS)))
        for i, slice_ in enumerate((int(plan["slice"]), standard)):
            times[i] += waves.time_of(lengths, slice_, MULTIPROCESSORS, RESIDENT, cost, start)[0]
        times[2] += total / MULTIPROCESSORS
    return times


@pytest.mark.parametrize("M", [512, 1000, 2000])
def test_waves_of_a_step_are_nearly_full(M):
    """Without the costs of starts and of cuts."""
    planned, _, least = step_of(M, 0.0, 0.0)
    assert least <= planned <= 1.35 * least


@pytest.mark.parametrize("M", [1000, 2000])
def test_a_step_takes_little_more_than_its_products(M):
    planned, _, least = step_of(M, tuning.current.cut_slice_chunks)
    assert planned <= 1.35 * least


def test_a_small_step_takes_little_more_than_its_launches():
    """At M = 512 the starts and cuts of three launches take longer than the products."""
    cut = tuning.current.cut_slice_chunks
    planned, _, least = step_of(512, cut)
    assert 2.3 * least < least + len(STEP) * (waves.START + cut) < planned < 2.5 * least


@pytest.mark.parametrize("M", [70, 300, 512, 1000, 1500, 2000, 3000, 5000])
def test_plans_are_no_slower_than_standard_slices(M):
    planned, standard, _ = step_of(M, tuning.current.cut_slice_chunks)
    assert planned <= standard


@pytest.mark.parametrize("M, seconds", [(1000, 60e-6), (2000, 310e-6)])
def test_a_step_takes_less_than_its_target_time(M, seconds):
    """By the model: an estimate."""
    planned, _, _ = step_of(M, tuning.current.cut_slice_chunks)
    assert planned * CHUNK < seconds


def test_costly_cuts_are_not_made():
    lengths = [(64, 5), (32, 20)]
    assert waves.slice_of(lengths, 8, 132, 3, 0.0) < 8
    assert waves.slice_of(lengths, 8, 132, 3, 1e6) == 64
    # the standard, if nothing improves on it
    assert waves.slice_of([(4, 1000)], 4, 10, 3, 1.0) == 4


def test_places_are_those_of_the_compiled_kernel(real):
    shared = tiled.BUFFERED * 8
    kernel = "tiled", "multiply", np.dtype(np.float64), tiled.BLOCK, shared
    found = loader.resident_blocks(*kernel)
    assert 1 <= found <= cuda_devices.shared_memory_limit() // shared
    assert loader.resident_blocks(*kernel) == found
