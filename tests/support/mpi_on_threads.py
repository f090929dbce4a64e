"""An MPI whose ranks are threads: the part of mpi4py that ``MPIGroup`` uses.

Tests can place its ranks on hosts of any name.
"""

import contextlib
import threading
import types
from unittest import mock

from fastsvgp.distributed.groups import mpi, nccl
from fastsvgp.distributed.protocol import is_reported

MPI = types.SimpleNamespace(
    COMM_TYPE_SHARED=1,
    IN_PLACE=object(),
    Is_finalized=lambda: True,  # called at the end of the process; the threads have ended already
)


class Comm:
    """A communicator of one rank; ``hosts`` has the host name of each rank."""

    def __init__(self, meeting, rank):
        self._meeting, self._rank = meeting, rank

    def Get_rank(self):
        return self._rank

    def Get_size(self):
        return len(self._meeting.hosts)

    def allgather(self, value):
        self._meeting.values[self._rank] = value
        self._meeting.barrier.wait()
        found = list(self._meeting.values)
        self._meeting.barrier.wait()
        return found

    def bcast(self, value, root=0):
        return self.allgather(value)[root]

    def Dup(self):
        return Comm(self.bcast(Meeting(self._meeting.hosts)), self._rank)

    def Split_type(self, kind, key):
        assert kind == MPI.COMM_TYPE_SHARED and key == self._rank
        hosts = self._meeting.hosts
        mine = [rank for rank, host in enumerate(hosts) if host == hosts[self._rank]]
        return Comm(
            self.allgather(Meeting([hosts[self._rank]] * len(mine)))[mine[0]],
            mine.index(self._rank),
        )

    def Allreduce(self, in_place, buffer):
        assert in_place is MPI.IN_PLACE
        first, *others = self.allgather(buffer.copy())
        total = first.copy()
        for other in others:
            total += other
        buffer[...] = total

    def Iallreduce(self, in_place, buffer):
        self.Allreduce(in_place, buffer)
        return types.SimpleNamespace(Wait=lambda: None)

    def Bcast(self, buffer, root):
        buffer[...] = self.bcast(buffer.copy(), root)


class Meeting:
    """The shared state of the ranks of a communicator."""

    def __init__(self, hosts):
        self.hosts, self.values, self.barrier = (
            hosts,
            [None] * len(hosts),
            threading.Barrier(len(hosts), timeout=60),
        )


def run(hosts, function):
    """Run ``function(comm)`` on ranks of these hosts, in threads; return results or errors."""
    world, results = Meeting(hosts), [None] * len(hosts)

    def work(rank):
        try:
            results[rank] = function(Comm(world, rank))
        except Exception as error:
            results[rank] = error
            if not is_reported(error):
                world.barrier.abort()

    with contextlib.ExitStack() as stack:
        for module in (mpi, nccl):
            stack.enter_context(mock.patch.object(module, "library", lambda *_: MPI))
        stack.enter_context(mock.patch.object(mpi, "share_cores", lambda *_: None))
        workers = [
            threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(len(hosts))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return results
