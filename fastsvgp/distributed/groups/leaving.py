"""Notice to the other ranks when the program of a rank ends, so that they do not wait for it.

A leaving rank joins one more all-reduce of each of its groups. If the other ranks end too, nothing
else happens; if they make a call, they learn which rank left. A rank cannot know in which group the
others call next, so it begins the all-reduces of all groups before it waits for one.
"""

import atexit
import contextlib
import os
import sys
import time

from .. import protocol

POLL = 0.01  # seconds
# in order of creation, each with its process; references are kept because the program has dropped
# its own when it returns
_GROUPS: list = []


def tell_at_exit(group, over=lambda: False):
    """Notify the other ranks of a group when this process ends: ``RemoteError`` in their next call.

    Parameters
    ----------
    group : group of a user-defined engine
        Its ranks are processes. A reference is kept until this process ends. If the group offers
        ``begin_sum(buffer)``, which begins ``sum(buffer)`` for five float64 on the host and returns
        a function that returns whether it is done, ranks can leave several groups at once.
    over : function without arguments
        Return True if ``sum`` can no longer be called at exit.

    Notes
    -----
    All ranks must call this, each as soon as it has the group; ``mpi`` and ``nccl`` call it
    themselves. A process then ends when the others end as well, or when they have been notified;
    MPI itself has this rule. ``os._exit`` and signals end a process without ``atexit``, and notify
    no rank.
    """
    _GROUPS.append((os.getpid(), group, over))


@atexit.register
def _leave():
    last = getattr(sys, "last_value", None)  # of an error that was printed as it escaped
    how = "its program ended" if last is None else f"its program ended by {protocol.describe(last)}"
    why = (
        f"{how}, and other ranks still call with the group; have all ranks make the same calls"
        " before one ends"
    )
    ends = [
        protocol.leaving(group, why)
        for pid, group, over in _GROUPS
        if pid == os.getpid() and not over()
    ]
    while ends := [end for end in ends if _advance(end)]:
        time.sleep(POLL)


def _advance(end):
    """Advance a leaving group; ignore errors, because this process can no longer report them."""
    with contextlib.suppress(Exception):
        return next(end, "done") != "done"
    return False
