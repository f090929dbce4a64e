"""Programs of ranks that end while others call: ``mpiexec -n 3 python leaving_program.py WAY``.

One rank leaves; the others print what they learn.
"""

import os
import sys
import time

from program import broken, problem, tell

import fastsvgp as fs
from fastsvgp.bounds import relay

model, X, Y = problem()


class Engine:
    """A user-defined group with the minimal interface."""

    rows = "all"

    def __init__(self):
        from mpi4py import MPI

        self.comm, self.in_place = MPI.COMM_WORLD.Dup(), MPI.IN_PLACE
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        fs.distributed.tell_at_exit(self, MPI.Is_finalized)

    def sum(self, buffer):
        self.comm.Allreduce(self.in_place, buffer)

    def broadcast(self, buffer):
        self.comm.Bcast(buffer)


def bound(group):
    return fs.elbo(model, X, Y, group=group)


def train(group):
    return fs.fit(model, X, Y, steps=3, group=group)


def interrupted(*_, **__):
    raise KeyboardInterrupt


def used(call, goes):
    """One call by all ranks, then rank 1 leaves."""

    def work(group):
        call(group)
        if group.rank == 1:
            goes()
        else:
            call(group)

    return work


def unused(group):
    if group.rank != 1:
        bound(group)


def of_two_groups(group):
    """No rank uses the first group, and rank 1 does not use the second one."""
    own = fs.distributed.mpi(rows="own")
    if group.rank != 1:
        train(own)


def during_a_call(group):
    """Ctrl-C ends the program of one rank before the all-reduce of a bound."""
    bound(group)
    if group.rank == 1:
        relay.subtract_kl = interrupted
    try:
        bound(group)
    except KeyboardInterrupt:
        sys.exit(0)


def during_a_callback(group):
    """An error in a callback of rank 0 is reported; its program ends before the next call."""
    fs.fit(model, X, Y, steps=5, group=group, callback=lambda step, *_: step == 3 and sys.exit(0))


WAYS = {
    "exits": used(bound, lambda: sys.exit(0)),
    "exits before a training": used(train, lambda: sys.exit(0)),
    "returns": used(bound, lambda: None),
    "fails": used(bound, broken),
    "has not started": unused,
    "of two groups": of_two_groups,
    "during a call": during_a_call,
    "during a callback": during_a_callback,
    "all together": train,
    "all apart": lambda group: (train(group), time.sleep(0.3 * group.rank)),
    "unused by all": lambda group: None,
}


def main(way, engine):
    group = Engine() if engine else fs.distributed.mpi()
    try:
        WAYS[way](group)
    except fs.RemoteError as error:
        try:
            bound(group)  # ends immediately, because no other rank calls
        except fs.RemoteError as again:
            tell(
                group,
                end="RemoteError",
                who=[error.rank, again.rank],
                messages=[error.message, again.message],
            )
    else:
        tell(group, end="value")


if __name__ == "__main__":
    main(sys.argv[1], "ENGINE" in os.environ)
