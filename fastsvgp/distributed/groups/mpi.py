"""Ranks that are processes, on one machine or several, by MPI."""

import sys
import time

from ... import check
from ...errors import RemoteError
from ...runtime import cuda_devices
from ...runtime.deferred_checks import on_device
from ...runtime.extras import install_hint, install_package
from ..protocol import described, known
from .hosts import affinity, share_cores, use_device
from .leaving import tell_at_exit
from .threads import checked_rows

POLL = 0.01  # seconds
WORDS = 5  # of a sum with which a call begins


class MPIGroup:
    """This process in an MPI communicator.

    comm : a duplicate of the communicator that was given, so that no message meets another's
    local_rank, local_size : among the ranks of this host, of which the first compiles before the others begin
    sums_on_device : whether ``sum`` and ``broadcast`` take arrays on devices; device : then the number of this rank's
    """

    def __init__(self, MPI, comm, rows, device_pointers=False):
        self._MPI, self.rows = MPI, checked_rows(rows)
        self.comm = comm.Dup()
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        host = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.local_rank, self.local_size = host.Get_rank(), host.Get_size()
        self._host = host
        tell_at_exit(self, self._over)
        own = affinity()
        share_cores(self.on_host(own), own)
        self.sums_on_device = device_pointers
        if device_pointers:
            self.device = use_device(self)

    def sum(self, buffer):
        """The sum over the ranks, in place."""
        if len(buffer) == WORDS and not on_device(buffer):
            # MPI matches it with ``begin_sum`` of a rank that ends
            self.comm.Iallreduce(self._MPI.IN_PLACE, buffer).Wait()
            return
        _wait_for(buffer)
        self.comm.Allreduce(self._MPI.IN_PLACE, buffer)

    def begin_sum(self, buffer):
        """Begin the sum of five words; a function that says whether it is done."""
        return self.comm.Iallreduce(self._MPI.IN_PLACE, buffer).Test

    def _over(self):
        """Whether this process, which ends, can tell nothing: MPI is finalised, or ``-m mpi4py`` is about to abort the job."""
        escaped = getattr(sys, "last_value", None) is not None
        return self._MPI.Is_finalized() or escaped and "mpi4py.run" in sys.modules

    def broadcast(self, buffer):
        """The buffer of rank 0, in place."""
        _wait_for(buffer)
        self.comm.Bcast(buffer, root=0)

    def all_well(self, error):
        """Raise on all ranks where some rank has an error: there its own, and ``RemoteError`` elsewhere."""
        said = self.comm.allgather(None if error is None else described(error))
        if error is not None:
            raise known(error)
        for rank, text in enumerate(said):
            if text is not None:
                raise known(RemoteError(rank, text))

    def on_host(self, value):
        """The values of all ranks of this host, in their order."""
        return self._host.allgather(value)

    def wait_on_host(self):
        """Until all ranks of this host have come, without a processor: MPI itself would use one, which others may want."""
        here = self._host.Ibarrier()
        while not here.Test():
            time.sleep(POLL)

    def abort(self, code=1):
        """End the processes of all ranks."""
        self.comm.Abort(code)


def _wait_for(buffer):
    """Let what writes to a buffer on a device end: MPI knows of no streams."""
    if on_device(buffer):
        cuda_devices.cupy().cuda.get_current_stream().synchronize()


def mpi(comm=None, rows="all", device_pointers=False):
    """The ranks of an MPI program: ``mpiexec -n 4 python -m mpi4py script.py``.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        Default ``MPI.COMM_WORLD``. All of its ranks must call this.
    rows : {"all", "own"}
        Whether X and Y of a call are all rows, on every rank, or this rank's.
    device_pointers : bool
        Whether this MPI sums arrays on devices ("CUDA-aware"). It is not guessed, for one that
        cannot crashes. Each rank then uses a device of its own, as with ``nccl``. Otherwise the
        numbers of a model on a device go through pinned memory.

    Returns
    -------
    group

    Raises
    ------
    ImportError
        No mpi4py, or no MPI library: says what to install. With ``device_pointers`` no CuPy.
    RuntimeError
        With ``device_pointers`` no device, or more ranks on a host than devices: on all ranks.

    Notes
    -----
    Ranks of one host share its cores: where nobody has said how many threads there shall be
    (``set_num_threads``, ``OMP_NUM_THREADS``, ``NUMBA_NUM_THREADS``), each takes its part of those
    that it may use.

    Start scripts by ``python -m mpi4py``: an error that escapes on one rank then ends all at once.
    A rank that ends in another way, by ``sys.exit`` too, tells the others: in their next call they
    raise ``RemoteError``.
    """
    MPI = library()
    return MPIGroup(
        MPI,
        MPI.COMM_WORLD if comm is None else comm,
        rows,
        check.flag("device_pointers", device_pointers),
    )


def library(asked="mpi"):
    """``mpi4py.MPI``, which starts MPI when it is first imported; ``asked`` is who wants it."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            f"{asked}: mpi4py could not be loaded ({error}). Install it beside an MPI library:"
            f" {install_hint('mpi')}, and the MPI of your cluster, or {install_package('mpich')}"
        ) from error
    except RuntimeError as error:  # mpi4py is there, and finds no libmpi
        raise ImportError(
            f"{asked}: mpi4py found no MPI library ({error}). Load the MPI module of your cluster,"
            f" or install one: {install_package('mpich')}"
        ) from error
    return MPI
