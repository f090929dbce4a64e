"""Our own threads: row ranges of nogil kernels on one small shared pool.

No ``prange`` anywhere: an OpenMP or TBB pool beside OpenBLAS's spins against it and costs a factor of ten and more.
"""

import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor

CHUNKS = 4  # for each thread

_lock = threading.Lock()
_pool = None
_count = None


def get_num_threads():
    """How many threads our own kernels use: what ``set_num_threads`` said, else the cores this process may use."""
    if _count is not None:
        return _count
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def set_num_threads(count):
    """Set the number of threads of our own kernels (BLAS keeps its own setting); ``None`` goes back to all cores.

    Raises
    ------
    ValueError
        ``count`` is not a positive integer.
    """
    global _count, _pool
    if count is not None and (isinstance(count, bool) or int(count) != count or count < 1):
        raise ValueError(f"set_num_threads: `count` must be a positive integer or None, got {count!r}")
    with _lock:
        _count = None if count is None else int(count)
        _pool = None


def _forget():
    """A forked child inherits neither the threads nor the state of the lock."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _executor(workers):
    global _pool
    with _lock:
        if _pool is None or _pool._max_workers < workers:
            # the old one is not shut down: another thread may be about to submit to it; it ends when nobody holds it any more
            _pool = ThreadPoolExecutor(workers, thread_name_prefix="fastsvgp")
        return _pool


def over_rows(kernel, rows, work, *args, serial_below=60_000):
    """Run ``kernel(start, stop, *args)`` over row ranges that cover ``range(rows)``; return the results in order.

    Parameters
    ----------
    kernel : njit(nogil=True) function
        Ranges write to disjoint places, or return partial sums.
    rows : int
    work : float
        Rough number of elementary operations; below ``serial_below`` one call covers all (a hand-over costs 30 us).
    """
    threads = 1 if work < serial_below else min(get_num_threads(), rows)
    if threads <= 1:
        return [kernel(0, rows, *args)]
    # After a product the threads of BLAS spin for a while, and ours may start late: whoever is there takes the next chunk. Whole
    # steps at M = 1000 take 3 % less time than with one range for each thread.
    parts = min(CHUNKS * threads, rows) if work > CHUNKS * serial_below else threads
    edges = [rows * i // parts for i in range(parts + 1)]
    results, chunks = [None] * parts, itertools.count()

    def take():
        while (i := next(chunks)) < parts:
            results[i] = kernel(edges[i], edges[i + 1], *args)

    pool = _executor(threads - 1)
    others = [pool.submit(take) for _ in range(threads - 1)]
    try:
        take()
    finally:
        for other in others:
            if not other.cancel():  # it never started, and nothing is left to do
                other.result()
        args = None  # what was cancelled may stay in the pool's queue for a while, and must not keep arrays alive
    done, results = results, None
    return done
