"""Our own thread pool: row ranges of nogil kernels on a few waiting helper threads.

``prange`` is never used: an OpenMP or TBB pool competes with OpenBLAS's spinning threads and costs
a factor of ten and more.

Dispatching takes microseconds, spent on waking threads: in a virtual machine 30 to 50 us each. A
helper must be woken when there is work. The caller, who usually waits for the last range of another
thread, does not sleep but polls for 50 us. Measured on two cores with work of 150 us: 92 us, or 112
us if the helpers have slept for long; with ``concurrent.futures``, which also takes 15 us to
submit, 130 to 140 us.
"""

import itertools
import math
import os
import threading
from queue import SimpleQueue

import numpy as np

from ....runtime import tuning
from ....runtime.num_threads import get_num_threads
from .blas_threads import allowed, one_thread
from .compiled import intrinsic, kernel, types

CHUNKS = 4  # per thread
LOOKS = 100_000  # half a nanosecond each
TRIANGLE = 1e7  # flops of a lower triangle of a product that several threads compute

_lock = threading.Lock()
_jobs = None
_helpers = 0


def _forget():
    """Reset the state in a forked child, which inherits neither threads nor the lock's state."""
    global _jobs, _helpers, _lock
    _jobs, _helpers, _lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _help(jobs):
    while True:
        jobs.get()()


def _queue(helpers):
    """Return the queue on which at least ``helpers`` helpers wait for jobs."""
    global _jobs, _helpers
    if _helpers < helpers:
        with _lock:
            _jobs = SimpleQueue() if _jobs is None else _jobs
            while _helpers < helpers:
                threading.Thread(
                    target=_help, args=(_jobs,), name=f"fastsvgp_{_helpers}", daemon=True
                ).start()
                _helpers += 1
    return _jobs


@intrinsic
def _now(typingctx, array, i):
    """array[i], read from memory in every iteration of a loop"""

    def codegen(context, builder, signature, args):
        place = builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])
        return builder.load_atomic(place, "acquire", 1)

    return array.dtype(array, types.intp), codegen


@kernel("B1 i")
def _watch(finished, looks):
    """Poll until all of ``finished`` are set, or for ``looks`` iterations."""
    for i in range(finished.size):
        while not _now(finished, i):
            looks -= 1
            if looks < 0:
                return


def over_rows(kernel, rows, work, *args, serial_below=60_000, chunks=CHUNKS, products=False):
    """Run ``kernel(start, stop, *args)`` over row ranges that cover ``range(rows)``.

    Returns the results in order.

    Parameters
    ----------
    kernel : njit(nogil=True) function, or one that spends its time in such functions
        Ranges write to disjoint places, or return partial sums.
    rows : int
    work : float
        Rough number of elementary operations; below ``serial_below`` one call covers all (a
        hand-over costs 30 us).
    chunks : int
        Ranges per thread, if there is enough work; fewer if each returns something large.
    products : bool
        Whether ranges call BLAS, which then uses one thread in each.
    """
    threads = 1 if work < serial_below else min(get_num_threads(), rows)
    if threads <= 1:
        return [kernel(0, rows, *args)]
    if products:
        with one_thread():
            return over_rows(kernel, rows, work, *args, serial_below=serial_below, chunks=chunks)
    # After a product the threads of BLAS spin for a while, and ours may start late: whichever is
    # running takes the next chunk. Whole steps at M = 1000 take 3 % less time than with one range
    # per thread.
    parts = min(chunks * threads, rows) if work > CHUNKS * serial_below else threads
    edges = [rows * i // parts for i in range(parts + 1)]
    results, numbers = [None] * parts, itertools.count()
    finished, errors = np.zeros(parts, np.uint8), SimpleQueue()

    def take():
        while (i := next(numbers)) < parts:
            error = None
            try:
                results[i] = kernel(edges[i], edges[i + 1], *args)
            except BaseException as raised:
                error = raised
            errors.put(error)
            finished[i] = 1

    jobs = _queue(threads - 1)
    try:
        for _ in range(threads - 1):
            jobs.put(take)
        take()
        _watch(finished, LOOKS)
        raised = [error for _ in range(parts) if (error := errors.get()) is not None]
    except BaseException:  # an interrupt between two ranges
        parts = 0
        raise
    finally:
        # a helper that starts late has nothing left to do, and must not keep arrays alive
        args = None
    done, results = results, None
    if raised:
        raise raised[0]
    return done


def over_triangle(fill, n, flops):
    """Call ``fill(i, j)`` for ranges of rows that have equal shares of a lower triangle.

    ``fill`` computes the rows of a product by BLAS, on one thread in each range. OpenBLAS's threads
    wait for one another within a product, and long products of few rows gain nothing from a second
    one: syrk on (256, 2048) runs at 41 GFLOP/s on one thread, at 41 or 58 on two, from minute to
    minute, and in two such ranges at 66 to 79.
    """
    threads = allowed()
    if threads < 2 or n < threads * tuning.current.triangle_rows or flops < TRIANGLE:
        fill(0, n)
        return
    edges = [round(n * math.sqrt(i / threads) / 8) * 8 for i in range(threads)] + [n]
    over_rows(_fill, threads, flops, fill, edges, chunks=1, products=True)


def _fill(start, stop, fill, edges):
    for i in range(start, stop):
        fill(edges[i], edges[i + 1])
