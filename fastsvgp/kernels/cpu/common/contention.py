"""Whether others want the cores that threads of BLAS would share, told by how long calls wait for one.

OpenBLAS keeps its threads busy during products, with waiting for one another if with nothing else.
So in a call on several of them little CPU time, for the wall time of the call and its threads,
means that they did not have the cores, or that much of the call was serial; and that the thread of
the call stood in a queue for a core (``schedstat`` of Linux) tells these two apart. Where there is
no such file, nothing is told. Measured on two cores for whole steps at (200, 500) and (512, 1024),
5th to 95th percentiles: of the CPU time alone 0.83 to 0.99; beside one busy process 0.50 to 0.91,
median 0.7; beside two 0.42 to 0.55. Of the time in the queue alone 0.00 to 0.03; beside one 0.03 to
0.49; beside two 0.41 to 0.53. There one thread is the faster choice:
4.6 ms in place of 12 beside one, 5.4 in place of 30 beside two; 45 in place of 58, 68 in place of 84.

A call on one thread cannot tell whether another core is free, but the system can (``/proc/stat``):
after half a second, and again and again, the time that the cores of this process were idle is added
to the CPU time of the process. While that leaves others a quarter of a core or more of what is
wanted, one thread it stays. Otherwise, and where there is no such file after a while, longer each
time up to ``LONGEST``, one call is made on all threads to see: one step in a hundred that may be
slow.
"""

import os
import time

# of the wall time: less CPU time for each thread than that, and more in the queue
SHARE, QUEUED = 0.8, 0.02
PATIENCE = 2  # calls in a row
FIRST, LONGEST = 0.5, 8.0  # seconds on one thread
TAKEN = 0.25  # of a core, by others
STATISTICS, CORES = "/proc/thread-self/schedstat", "/proc/stat"


def queued():
    """Seconds that this thread has waited for a core so far; ``None`` where that is not known. 14 us."""
    try:
        with open(STATISTICS, "rb", buffering=0) as file:
            return int(file.read(64).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return None


def idle():
    """Seconds that the cores of this process were idle so far, added up; ``None`` where that is not known. In ticks of 10 ms."""
    try:
        usable = {b"cpu%d" % core for core in os.sched_getaffinity(0)}
        with open(CORES, "rb") as file:
            lines = [line.split() for line in iter(file.readline, b"") if line.startswith(b"cpu")]
        ticks = [int(line[4]) + int(line[5]) for line in lines if line[0] in usable]
        return sum(ticks) / os.sysconf("SC_CLK_TCK") if len(ticks) == len(usable) else None
    except (AttributeError, OSError, IndexError, ValueError):
        return None


class Crowd:
    """What the last calls have shown; those of several threads at once replace it whole."""

    def __init__(self):
        self._low, self._pause = 0, FIRST
        # (until when, since when, CPU time and idle cores then, threads that are wanted): on one
        # thread
        self._alone = None

    def __bool__(self):
        """Whether one thread is the better choice now."""
        alone = self._alone
        if alone is None:
            return False
        until, now = alone[0], time.perf_counter()
        if now >= until and _taken_by_others(now, *alone[1:]):
            self._alone, until = _beginning(now, FIRST, alone[-1]), now + FIRST
        return now < until

    def observe(self, threads, cpu, wall, queued):
        """A call on so many threads took these seconds, and its own thread waited for a core so long."""
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
    """Whether others have had too much of the cores since, as far as the system tells."""
    cores = None if before is None else idle()
    return cores is not None and cores - before + time.process_time() - cpu < (wanted - TAKEN) * (
        now - then
    )


crowd = Crowd()
