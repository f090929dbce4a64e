"""Whether others want the cores that threads of BLAS would share, told by what calls on all of them get.

A call on several threads of BLAS keeps them all busy, with waiting for one another if with nothing else. So the CPU time of the
process over the wall time of the call, for each thread, says whether they had the cores. Measured on two cores, 5th to 95th
percentiles of whole steps at (200, 500) and (512, 1024): alone 0.83 to 0.99; beside one busy process 0.50 to 0.91, median 0.7;
beside two 0.42 to 0.55. There one thread is the faster choice: 4.6 ms in place of 12 beside one, 5.4 in place of 30 beside two;
45 in place of 58, 68 in place of 84.

A call on one thread cannot tell whether another core is free. So after a while, longer each time up to ``LONGEST``, one call is
made on all threads to see: one step in a hundred that may be slow.
"""

import time

SHARE = 0.8
PATIENCE = 2  # calls in a row with less
FIRST, LONGEST = 0.5, 8.0  # seconds on one thread


class Crowd:
    """What the last calls have shown; calls of several threads at once are told to nobody."""

    def __init__(self):
        self._low, self._until, self._pause = 0, 0.0, FIRST

    def __bool__(self):
        """Whether one thread is the better choice now."""
        return self._until > 0.0 and time.perf_counter() < self._until

    def observe(self, threads, cpu, wall):
        """A call on so many threads took these seconds."""
        if cpu >= SHARE * threads * wall:
            self._low, self._until, self._pause = 0, 0.0, FIRST
            return
        self._low += 1
        if self._low >= PATIENCE:
            self._until = time.perf_counter() + self._pause
            self._low, self._pause = PATIENCE - 1, min(2 * self._pause, LONGEST)


crowd = Crowd()
