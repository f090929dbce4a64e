"""Peak extra memory of one step, and no memory held after it."""

import gc
import pathlib
import tracemalloc

import numpy as np
import pytest
from support.peak_memory import peak_numbers

import fastsvgp as fs


def problem(rng, cls, M, B):
    q = cls(rng.standard_normal(M), np.tril(0.01 * rng.standard_normal((M, M))) + 0.5 * np.eye(M))
    model = fs.SVGP(fs.RBF(1.0, np.full(8, 1.5)), rng.standard_normal((M, 8)), q, fs.Gaussian(0.1))
    return model, rng.standard_normal((B, 8)), rng.standard_normal(B)


@pytest.mark.parametrize("cls", [fs.Whitened, fs.Marginal], ids=lambda c: c.__name__)
@pytest.mark.parametrize("M, B", [(400, 800), (800, 400), (700, 100), (150, 2000)])
def test_a_step_takes_at_most_four_times_what_its_blocks_take(rng, cls, M, B):
    model, X, Y = problem(rng, cls, M, B)
    # and the lines of a cache by which rows are longer
    assert peak_numbers(lambda: fs.elbo_and_grad(model, X, Y)) <= 4.1 * (M * M + M * B)


@pytest.mark.parametrize("M, N", [(400, 1600), (300, 300)])
def test_collapsed_bound_takes_four_times_what_its_blocks_take(rng, M, N):
    _, X, Y = problem(rng, fs.Whitened, M, N)
    sgpr = fs.SGPR(fs.RBF(1.0, np.full(8, 1.5)), rng.standard_normal((M, 8)), 0.1)
    assert peak_numbers(lambda: fs.collapsed_bound_and_grad(sgpr, X, Y)) <= 4 * (M * M + M * N)


def test_memory_does_not_grow_with_a_long_batch(rng):
    M, B = 64, 200_000
    model, X, Y = problem(rng, fs.Whitened, M, B)
    assert peak_numbers(lambda: fs.elbo_and_grad(model, X, Y)) < M * B / 3


def held_by_us():
    """Bytes allocated by lines of the package and still held; other threads do not count."""
    gc.collect()
    ours = tracemalloc.Filter(True, str(pathlib.Path(fs.__file__).parent / "*"))
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)


def test_a_thousand_steps_leave_nothing_behind(rng):
    model, X, Y = problem(rng, fs.Whitened, 20, 30)
    fs.elbo_and_grad(model, X, Y)
    tracemalloc.start()
    try:
        fs.elbo_and_grad(model, X, Y)
        before = held_by_us()
        for _ in range(1000):
            fs.elbo_and_grad(model, X, Y)
        # Python's own free lists fill up to some 50 kB and stop; one leaked matrix a step would be
        # 3 MB
        assert held_by_us() - before < 80_000
    finally:
        tracemalloc.stop()


def test_chunked_prediction_never_holds_all_of_kuf(rng):
    model, _, _ = problem(rng, fs.Whitened, 50, 1)
    Xs = rng.standard_normal((20_000, 8))
    assert peak_numbers(lambda: fs.predict_f(model, Xs, chunk_size=500)) < 50 * 20_000 / 4
