"""Row ranges: every row once, results in order, errors are propagated."""

import threading
import time
import weakref

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.kernels.cpu.common.thread_pool import over_rows


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 7, 100])
@pytest.mark.parametrize("work", [1, 1e5, 1e9])
def test_every_row_once_and_in_order(threads, rows, work):
    fs.set_num_threads(threads)
    try:
        ranges = over_rows(
            lambda start, stop, offset: (start + offset, stop + offset), rows, work, 10
        )
    finally:
        fs.set_num_threads(None)
    assert [r[0] for r in ranges] + [rows + 10] == [10] + [r[1] for r in ranges]


def test_caller_does_not_wait_for_late_helpers():
    """If the helpers are busy the caller does all the work, and their jobs keep nothing alive."""
    fs.set_num_threads(2)
    busy, array = threading.Event(), np.zeros(3)
    alive = weakref.ref(array)
    try:
        over_rows(lambda *_: None, 10, 1e9)
        from fastsvgp.kernels.cpu.common import thread_pool as threads

        threads._queue(1).put(lambda: busy.wait(20))
        start = time.monotonic()
        assert len(over_rows(lambda start, stop, _: stop - start, 100, 1e9, array)) == 8
        assert time.monotonic() - start < 10
        del array
        assert alive() is None
    finally:
        busy.set()
        fs.set_num_threads(None)


def test_caller_waits_for_a_long_range():
    """Longer than it polls before sleeping."""
    caller, there = threading.get_ident(), threading.Event()

    def kernel(start, stop):
        if threading.get_ident() == caller:
            there.wait(20)
        else:
            there.set()
            time.sleep(0.1)
        return stop - start

    fs.set_num_threads(2)
    try:
        assert sum(over_rows(kernel, 100, 1e9)) == 100
        assert there.is_set()
    finally:
        fs.set_num_threads(None)


@pytest.mark.parametrize("by_caller", [False, True])
def test_errors_of_any_range_are_raised(by_caller):
    caller, began = threading.get_ident(), {True: threading.Event(), False: threading.Event()}

    def kernel(start, stop):
        mine = threading.get_ident() == caller
        began[mine].set()
        # neither finishes all of it before the other one wakes
        if began[not mine].wait(20) and mine == by_caller:
            raise RuntimeError("no")

    fs.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="no"):
            over_rows(kernel, 100, 1e9)
        assert len(over_rows(lambda start, stop: None, 100, 1e9)) == 8
    finally:
        fs.set_num_threads(None)
