"""A rank whose program ends: it tells the others, who would wait for it in their next call.

It takes part in one more sum of each of its groups. Where the others end too, that is all; where
they make a call, they learn who left. It cannot know in which group they will call, so that it
begins the sums of all groups before it waits for one.
"""

import atexit
import contextlib
import os
import sys
import time

from .. import protocol

POLL = 0.01  # seconds
# in order of creation, each with its process; kept, for a program that returns has let go of its
# groups
_GROUPS: list = []


def tell_at_exit(group, over=lambda: False):
    """Have this process, if its program ends, tell the other ranks of a group that it is gone: ``RemoteError`` there.

    Parameters
    ----------
    group : group of an engine of your own
        Its ranks are processes. It is kept until this one ends. If it offers ``begin_sum(buffer)``,
        which begins ``sum(buffer)`` for five float64 on the host and returns a function that says
        whether it is done, ranks may leave several groups at once.
    over : function without arguments
        Whether its ``sum`` can no longer be called as the process ends.

    Notes
    -----
    All ranks must call this, each as soon as it has the group; ``mpi`` and ``nccl`` do it. A
    process then ends when the others end as well, or when they have learnt that it is gone; MPI
    itself has that rule. What ends a process without ``atexit``, such as ``os._exit`` or a signal,
    tells nothing.
    """
    _GROUPS.append((os.getpid(), group, over))


@atexit.register
def _leave():
    last = getattr(sys, "last_value", None)  # of an error that was printed as it escaped
    how = (
        "its program ended" if last is None else f"its program ended by {protocol.described(last)}"
    )
    why = (
        f"{how}, and other ranks still call with the group; have all ranks make the same calls"
        " before one ends"
    )
    ends = [
        protocol.leaving(group, why)
        for pid, group, over in _GROUPS
        if pid == os.getpid() and not over()
    ]
    while ends := [end for end in ends if _under_way(end)]:
        time.sleep(POLL)


def _under_way(end):
    """Advance one of them. An error ends it silently, because this process can no longer report it."""
    with contextlib.suppress(Exception):
        return next(end, "done") != "done"
    return False
