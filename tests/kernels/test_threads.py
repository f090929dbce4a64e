"""Row ranges: every row once, results in order, errors come out."""

import threading
import time
import weakref

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.kernels.cpu.threads import over_rows


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 7, 100])
@pytest.mark.parametrize("work", [1, 1e5, 1e9])
def test_every_row_once_and_in_order(threads, rows, work):
    fs.set_num_threads(threads)
    try:
        ranges = over_rows(lambda start, stop, offset: (start + offset, stop + offset), rows, work, 10)
    finally:
        fs.set_num_threads(None)
    assert [r[0] for r in ranges] + [rows + 10] == [10] + [r[1] for r in ranges]


def test_nobody_waits_for_a_thread_that_starts_late():
    """The caller does all of it where the others are busy, and what they were to work on is not kept for them."""
    fs.set_num_threads(2)
    busy, array = threading.Event(), np.zeros(3)
    alive = weakref.ref(array)
    try:
        over_rows(lambda *_: None, 10, 1e9)
        from fastsvgp.kernels.cpu import threads

        threads._executor(1).submit(busy.wait, 20)
        start = time.monotonic()
        assert len(over_rows(lambda start, stop, _: stop - start, 100, 1e9, array)) == 8
        assert time.monotonic() - start < 10
        del array
        assert alive() is None
    finally:
        busy.set()
        fs.set_num_threads(None)


def test_errors_of_any_range_come_out():
    def kernel(start, stop):
        if start <= 40 < stop:
            raise RuntimeError("row 40")

    fs.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match="row 40"):
            over_rows(kernel, 100, 1e9)
    finally:
        fs.set_num_threads(None)
