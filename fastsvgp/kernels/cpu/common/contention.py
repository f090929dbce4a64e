"""Detect CPU contention from run-queue delays.

OpenBLAS keeps its threads busy during products, if only by waiting for one another. So little CPU
time in a multithreaded call, relative to its wall time and its threads, means that the threads did
not have the cores, or that much of the call was serial. The time that the calling thread spent in
the run queue (``schedstat`` of Linux) distinguishes the two cases. Without that file there is no
detection. Measured on two cores for whole steps at (200, 500) and (512, 1024), 5th to 95th
percentiles: the ratio of CPU time is 0.83 to 0.99 undisturbed, 0.50 to 0.91 (median 0.7) with one
busy process and 0.42 to 0.55 with two. The share of time in the run queue is 0.00 to 0.03
undisturbed, 0.03 to 0.49 with one busy process and 0.41 to 0.53 with two. Under contention one
thread is faster: 4.6 ms instead of 12 with one process, 5.4 instead of 30 with two; 45 instead of
58, 68 instead of 84.

A call on one thread cannot detect whether another core is free, but the system can
(``/proc/stat``): after half a second, and repeatedly, the idle time of this process's cores is
added to its CPU time. While that shows that other processes use a quarter of a core or more of what
the call would need, the limit of one thread is kept. Otherwise, or if the file is missing after a
delay that grows up to ``LONGEST``, one call runs on all threads as a test: one step in a hundred
that may be slow.
"""

import os
import time

# fractions of the wall time: CPU time per thread below the first, run-queue time above the second
SHARE, QUEUED = 0.8, 0.02
PATIENCE = 2  # consecutive calls
FIRST, LONGEST = 0.5, 8.0  # seconds on one thread
TAKEN = 0.25  # of a core, by other processes
STATISTICS, CORES = "/proc/thread-self/schedstat", "/proc/stat"


def queued():
    """Return the seconds that this thread has waited for a core; ``None`` if unknown. 14 us."""
    try:
        with open(STATISTICS, "rb", buffering=0) as file:
            return int(file.read(64).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return None


def idle():
    """Return the total idle seconds of this process's cores; ``None`` if unknown.

    The resolution is 10 ms.
    """
    try:
        usable = {b"cpu%d" % core for core in os.sched_getaffinity(0)}
        with open(CORES, "rb") as file:
            lines = [line.split() for line in iter(file.readline, b"") if line.startswith(b"cpu")]
        ticks = [int(line[4]) + int(line[5]) for line in lines if line[0] in usable]
        return sum(ticks) / os.sysconf("SC_CLK_TCK") if len(ticks) == len(usable) else None
    except (AttributeError, OSError, IndexError, ValueError):
        return None


class Crowd:
    """Contention seen by the last calls; concurrent calls replace this state as a whole."""

    def __init__(self):
        self._low, self._pause = 0, FIRST
        # state on one thread: (end, start, CPU time and idle time at the start, threads wanted)
        self._alone = None

    def __bool__(self):
        """Return whether one thread is the better choice now."""
        alone = self._alone
        if alone is None:
            return False
        until, now = alone[0], time.perf_counter()
        if now >= until and _taken_by_others(now, *alone[1:]):
            self._alone, until = _beginning(now, FIRST, alone[-1]), now + FIRST
        return now < until

    def observe(self, threads, cpu, wall, queued):
        """Record the CPU, wall and run-queue seconds of a call on ``threads`` threads."""
        if cpu >= SHARE * threads * wall or queued <= QUEUED * wall:
            self._low, self._pause, self._alone = 0, FIRST, None
            return
        self._low += 1
        if self._low >= PATIENCE:
            self._alone = _beginning(time.perf_counter(), self._pause, threads)
            self._low, self._pause = PATIENCE - 1, min(2 * self._pause, LONGEST)


def _beginning(now, pause, wanted):
    return now + pause, now, time.process_time(), idle(), wanted


def _taken_by_others(now, then, cpu, before, wanted):
    """Return whether other processes have used too much of the cores since ``then``."""
    cores = None if before is None else idle()
    return cores is not None and cores - before + time.process_time() - cpu < (wanted - TAKEN) * (
        now - then
    )


crowd = Crowd()
