"""Groups of ranks: several processes, machines or threads that train one model, each on some of the rows.

A group is anything with ``rank``, ``size``, ``rows`` ("all": X and Y of a call are all rows on
every rank, which takes its part of them; "own": they are this rank's), and two functions on flat
float64 arrays, in place: ``sum(buffer)`` over the ranks, and ``broadcast(buffer)`` from rank 0.
Bounds and ``fit`` take one as ``group=``.

One whose two functions take arrays on devices as well, in the order of the current stream, says so
by an attribute ``sums_on_device`` that is true. Others get the numbers of a model on a device in
pinned memory of the host.
"""

from .groups.leaving import tell_at_exit
from .groups.mpi import mpi
from .groups.nccl import nccl
from .groups.threads import threads

__all__ = ["mpi", "nccl", "tell_at_exit", "threads"]
