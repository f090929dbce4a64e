"""Groups of ranks: several processes, machines or threads that train one model, each on some of the rows.

A group is anything with ``rank``, ``size``, ``rows`` ("all": X and Y of a call are all rows on every rank, which takes its part
of them; "own": they are this rank's), and two functions on flat float64 arrays, in place: ``sum(buffer)`` over the ranks, and
``broadcast(buffer)`` from rank 0. Bounds and ``fit`` take one as ``group=``.
"""

from .message_passing import mpi
from .one_process import threads

__all__ = ["mpi", "threads"]
