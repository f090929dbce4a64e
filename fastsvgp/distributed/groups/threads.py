"""Groups of threads of one process: without MPI, for tests and teaching."""

import threading

import numpy as np

from ...errors import RemoteError

ENDED = (
    "its function returned, and other ranks still call with the group; have all ranks make the same"
    " calls"
)


class _Shared:
    """State shared by the ranks of one group."""

    def __init__(self, size):
        self.size, self.changed, self.buffers, self.result = (
            size,
            threading.Condition(),
            [None] * size,
            None,
        )
        self.turn, self.came, self.failure = 0, 0, None

    def meet(self):
        """Wait for all ranks, and return how many came before this one.

        Raises ``RemoteError`` if a rank has left.
        """
        with self.changed:
            if self.failure is not None:
                raise RemoteError(*self.failure)
            turn, before = self.turn, self.came
            self.came += 1
            if self.came == self.size:
                self.turn, self.came = turn + 1, 0
                self.changed.notify_all()
            self.changed.wait_for(lambda: self.turn > turn or self.failure is not None)
            if self.turn == turn:
                raise RemoteError(*self.failure)
            return before

    def begin(self):
        """Reset, so that all ranks can meet again, also if one has left."""
        with self.changed:
            self.came, self.failure = 0, None

    def leave(self, rank, why):
        """Make all ranks that wait, or will wait, for this rank raise ``RemoteError``."""
        with self.changed:
            self.failure = self.failure or (rank, why)
            self.changed.notify_all()


class ThreadGroup:
    """One rank of ``threads``."""

    def __init__(self, shared, rank, rows):
        self._shared, self.rank, self.rows = shared, rank, rows

    @property
    def size(self):
        """Number of ranks."""
        return self._shared.size

    def sum(self, buffer):
        """Sum over the ranks, in their order, in place; all ranks get the same bits."""
        self._exchange(buffer, self._add)

    def broadcast(self, buffer):
        """Broadcast the buffer of rank 0, in place."""
        self._exchange(buffer, lambda buffers: buffers[0].copy())

    def _exchange(self, buffer, make):
        shared = self._shared
        shared.buffers[self.rank] = buffer
        if shared.meet() == 0:  # exactly one rank, any of them
            sizes = [len(one) for one in shared.buffers]
            shared.result = make(shared.buffers) if len(set(sizes)) == 1 else sizes
        shared.meet()
        result = shared.result
        if isinstance(result, list):
            raise ValueError(
                f"the ranks are not in the same call: they exchange {result} numbers; each must"
                " make the same calls"
            )
        buffer[...] = result

    @staticmethod
    def _add(buffers):
        total = buffers[0].copy()
        for other in buffers[1:]:
            total += other
        return total

    def leave(self, error=None):
        """Leave: ranks that wait, or will wait, for this one raise ``RemoteError``."""
        self._shared.leave(
            self.rank, ENDED if error is None else f"{type(error).__name__}: {error}"
        )


class ThreadGroups(list):
    """The groups of all ranks, one per thread."""

    def run(self, function):
        """Call ``function(group)`` on all ranks, each in its own thread; return the results.

        If ranks fail, the first error that is not a ``RemoteError`` is raised here, after all ranks
        have ended.
        """
        results, errors, shared = [None] * len(self), {}, self[0]._shared
        shared.begin()

        def work(group):
            try:
                results[group.rank] = function(group)
            except BaseException as error:
                errors[group.rank] = error
            group.leave(errors.get(group.rank))

        workers = [threading.Thread(target=work, args=(group,), daemon=True) for group in self]
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        except BaseException as error:
            # Ctrl-C reaches only this thread: ranks end at their next sum, and none keeps running
            self[0].leave(error)
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
            raise
        shared.begin()  # ranks can also meet in threads of the caller
        if errors:
            raise min(errors.items(), key=lambda item: (isinstance(item[1], RemoteError), item[0]))[
                1
            ]
        return results


def threads(n, rows="all"):
    """Return a group of ``n`` ranks in one process.

    Parameters
    ----------
    n : int
    rows : {"all", "own"}
        "all": X and Y of a call are all rows, on every rank; "own": they are this rank's rows.

    Returns
    -------
    list of n groups
        One per rank, each for use in its own thread. ``run(function)`` of the list calls
        ``function(group)`` on all ranks, and returns the list of results.

    Notes
    -----
    The ranks share the cores of one process, so this is not faster than a single rank.
    """
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"threads: `n` must be a whole number of at least 1, got {n!r}")
    shared = _Shared(int(n))
    return ThreadGroups(ThreadGroup(shared, rank, check_rows(rows)) for rank in range(int(n)))


def check_rows(rows):
    """Check that ``rows`` is "all" or "own"."""
    if rows not in ("all", "own"):
        raise ValueError(
            '`rows` must be "all", every rank sees all rows, or "own", X and Y are this rank\'s;'
            f" got {rows!r}"
        )
    return rows
