"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..distributed.groups.leaving import tell_at_exit as tell_at_exit
from ..distributed.groups.mpi import mpi as mpi
from ..distributed.groups.nccl import nccl as nccl
from ..distributed.groups.threads import threads as threads
