"""Recycled memory: never while a view is alive, always afterwards."""

import gc
import threading

import numpy as np
import pytest

from fastsvgp.kernels.cpu.common import scratch

SHAPE = (300, 200)


@pytest.fixture(autouse=True)
def _fresh():
    gc.collect()
    scratch.clear()
    yield
    scratch.clear()


def address(a):
    return a.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_memory_is_reused_after_the_last_view_is_deleted(dtype):
    shape = (600, 200)  # large enough to be pooled in either dtype
    a = scratch.empty(shape, dtype)
    assert a.shape == shape and a.dtype == dtype and a.flags.carray and a.nbytes >= scratch.SMALLEST
    where = address(a)
    view = a.T[5:, ::2]
    del a
    other = scratch.empty(shape, dtype)
    assert address(other) != where
    del view
    assert address(scratch.empty(shape, dtype)) == where


def test_slightly_larger_block_is_reused_but_no_larger_one():
    a = scratch.empty((300, 220), np.float64)
    where = address(a)
    del a
    assert address(scratch.empty((300, 110), np.float64)) != where
    b = scratch.empty((300, 200), np.float64)
    assert address(b) == where and b.shape == (300, 200)
    del b
    assert address(scratch.empty((300, 220), np.float64)) == where


def test_arrays_begin_a_cache_line():
    for columns in (200, 201, 333):
        assert address(scratch.empty((300, columns), np.float64)) % 64 == 0
        assert address(scratch.empty((600, columns), np.float32)) % 64 == 0


def test_live_arrays_never_share_memory():
    arrays = [scratch.empty(SHAPE, np.float64) for _ in range(5)]
    for i, a in enumerate(arrays):
        a[...] = i
    assert [a.min() for a in arrays] == [a.max() for a in arrays] == list(range(5))


def test_small_arrays_are_plain_and_idle_memory_is_bounded(monkeypatch):
    assert scratch.empty((3, 4), np.float64).base is None
    monkeypatch.setattr(scratch, "IDLE_LIMIT", 3 * (300 * 200 * 8 + scratch.LINE))
    living = set(scratch._live)  # arrays in the kept frames of a test that failed before
    arrays = [scratch.empty(SHAPE, np.float64) for _ in range(5)]
    del arrays
    assert sum(len(blocks) for blocks in scratch._free.values()) == 3
    assert set(scratch._live) == living


def test_unused_sizes_make_room(monkeypatch):
    monkeypatch.setattr(scratch, "IDLE_LIMIT", 3 * (300 * 200 * 8 + scratch.LINE))
    old = [scratch.empty((300, 100), np.float64) for _ in range(6)]
    del old
    a = scratch.empty(SHAPE, np.float64)
    where = address(a)
    del a
    assert address(scratch.empty(SHAPE, np.float64)) == where
    assert (
        scratch._idle
        == sum(size * len(blocks) for size, blocks in scratch._free.items())
        <= scratch.IDLE_LIMIT
    )
    huge = scratch.empty((600, 400), np.float64)
    del huge
    assert all(size <= 300 * 200 * 8 + scratch.LINE for size in scratch._free)


def test_array_can_be_freed_during_an_allocation():
    """The garbage collector can run in ``empty`` and free memory of a new size."""

    def leave_a_cycle(rows):
        cycle = [scratch.empty((rows, 200), np.float64)]
        cycle.append(cycle)

    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for i in range(200):
            leave_a_cycle(200 + i)
            scratch.empty((200 + i // 2, 200), np.float64)
    finally:
        gc.set_threshold(*thresholds)


def test_threads(rng):
    def work(n):
        for i in range(200):
            a = scratch.copy(np.full(SHAPE, n, np.float64))
            b = scratch.empty(SHAPE, np.float64)
            b[...] = -n
            assert (a == n).all() and (b == -n).all(), i

    failures = []

    def guarded(n):
        try:
            work(n)
        except AssertionError as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
