"""Groups of ranks: processes, machines or threads that train one model, each on some of the rows.

Come here for data that one machine does not hold, or for more processors than one.

A group is any object with ``rank``, ``size``, ``rows`` ("all": X and Y of a call are all rows, and
each rank takes its part of them; "own": they are this rank's rows), and two in-place functions of
flat float64 arrays: ``sum(buffer)``, an all-reduce, and ``broadcast(buffer)`` from rank 0. Bounds
and ``fit`` take a group as ``group=``.

A group whose two functions also take arrays on devices, in the order of the current stream, has an
attribute ``sums_on_device`` that is true. For other groups the numbers of a model on a device go
through pinned host memory.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("distributed")
