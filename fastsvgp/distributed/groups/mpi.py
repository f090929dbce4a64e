"""Groups of MPI processes, on one machine or several."""

import os
import sys
import time

from ... import check
from ...runtime import cuda_devices, num_threads
from ...runtime.deferred_checks import on_device
from ...runtime.extras import install_hint, install_package
from ..protocol import Communicator
from .leaving import tell_at_exit
from .threads import check_rows

POLL = 0.01  # seconds
HEADER = 5  # numbers of a meeting


class MPIGroup:
    """This process in an MPI communicator.

    comm : a duplicate of the given communicator, which keeps messages separate
    local_rank, local_size : rank and number of ranks on this host; local rank 0 compiles first
    sums_on_device : whether ``sum`` and ``broadcast`` take arrays on devices
    device : number of this rank's device, if ``sums_on_device``
    """

    def __init__(self, MPI, comm, rows, device_pointers=False):
        self._MPI, self.rows = MPI, check_rows(rows)
        self.comm = comm.Dup()
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        host = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.local_rank, self.local_size = host.Get_rank(), host.Get_size()
        self._host = host
        tell_at_exit(self, self._is_over)
        own = affinity()
        share_cores(self.gather_on_host(own), own)
        self.sums_on_device = device_pointers
        if device_pointers:
            self.device = use_device(self)

    def sum(self, buffer):
        """Sum over the ranks, in place."""
        if len(buffer) == HEADER and not on_device(buffer):
            # MPI matches this call with ``begin_sum`` of a rank that ends
            self.comm.Iallreduce(self._MPI.IN_PLACE, buffer).Wait()
            return
        _wait_for(buffer)
        self.comm.Allreduce(self._MPI.IN_PLACE, buffer)

    def begin_sum(self, buffer):
        """Begin the sum of a meeting; return a function that returns whether it is done."""
        return self.comm.Iallreduce(self._MPI.IN_PLACE, buffer).Test

    def _is_over(self):
        """Return whether MPI is finalised, or ``-m mpi4py`` is about to abort the job."""
        escaped = getattr(sys, "last_value", None) is not None
        return self._MPI.Is_finalized() or escaped and "mpi4py.run" in sys.modules

    def broadcast(self, buffer):
        """Broadcast the buffer of rank 0, in place."""
        _wait_for(buffer)
        self.comm.Bcast(buffer, root=0)

    def gather_on_host(self, value):
        """Return the values of all ranks of this host, in their order."""
        return self._host.allgather(value)

    def wait_on_host(self):
        """Wait for all ranks of this host by polling, because MPI would busy-wait on a core."""
        here = self._host.Ibarrier()
        while not here.Test():
            time.sleep(POLL)

    def abort(self, code=1):
        """End the processes of all ranks."""
        self.comm.Abort(code)


def share_cores(affinities, own):
    """Set the number of threads of this rank to its part of the cores, unless one is configured.

    affinities : core sets of all ranks of the host, including this one's; own : this rank's
    """
    num_threads.share_cores(max(1, len(own) // affinities.count(own)))


def affinity():
    """Return the cores available to this process, as a sorted tuple."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on every platform
        return tuple(range(os.cpu_count() or 1))


def use_device(group):
    """Assign a separate device to this process, ``cuda:{local_rank}``, and return its number.

    Ranks that see the same devices take them in their order. A launcher can show each rank only one
    or some devices; then the rank takes one of these. Raises on all ranks: ``ImportError`` or
    ``RuntimeError`` if some rank has no CuPy or no device, or if a host has more ranks than
    devices.
    """
    communicator = Communicator(group)

    def choose():
        names = cuda_devices.device_names()
        communicator.agree()
        everyone = group.gather_on_host(names)
        numbers = [everyone[:rank].count(seen) for rank, seen in enumerate(everyone)]
        taken = {seen[n] for n, seen in zip(numbers, everyone, strict=True) if n < len(seen)}
        if len(taken) < group.local_size:
            raise RuntimeError(
                f"{group.local_size} ranks on this host, and they see"
                f" {len(set().union(*everyone))} of its devices: each needs one of its own; start"
                " fewer ranks a host, or look at CUDA_VISIBLE_DEVICES"
            )
        communicator.agree()
        return numbers[group.local_rank]

    number = communicator.run(choose)
    cuda_devices.cupy().cuda.Device(number).use()
    return number


def _wait_for(buffer):
    """Synchronise the current stream before MPI reads a buffer on a device."""
    if on_device(buffer):
        cuda_devices.cupy().cuda.get_current_stream().synchronize()


def mpi(comm=None, rows="all", device_pointers=False):
    """Return the group of an MPI program: ``mpiexec -n 4 python -m mpi4py script.py``.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        All of its ranks must make this call. Default ``MPI.COMM_WORLD``.
    rows : {"all", "own"}
        "all": X and Y of a call are all rows, on every rank; "own": they are this rank's rows.
    device_pointers : bool
        Sum arrays on devices, which needs a CUDA-aware MPI. This is not detected, and an MPI that
        is not CUDA-aware crashes. Each rank then uses its own device, as with ``nccl``. Otherwise
        the numbers of a model on a device go through pinned memory. Default False.

    Returns
    -------
    group

    Raises
    ------
    ImportError
        mpi4py, the MPI library, or, with ``device_pointers``, CuPy is missing; the message names
        the package to install.
    RuntimeError
        With ``device_pointers``: no device, or more ranks on a host than devices. Raised on all
        ranks.

    Notes
    -----
    Ranks of one host share its cores: each takes its part of those that are available to it, unless
    ``set_num_threads``, ``OMP_NUM_THREADS`` or ``NUMBA_NUM_THREADS`` sets the number of threads.

    Start scripts by ``python -m mpi4py``: an uncaught error on one rank then ends all ranks
    immediately. If a rank ends in another way, ``sys.exit`` included, the other ranks raise
    ``RemoteError`` in their next call.
    """
    MPI = library()
    return MPIGroup(
        MPI,
        MPI.COMM_WORLD if comm is None else comm,
        rows,
        check.flag("device_pointers", device_pointers),
    )


def library(caller="mpi"):
    """Return ``mpi4py.MPI``, whose first import starts MPI; ``caller`` is a name for messages."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            f"{caller}: mpi4py could not be loaded ({error}). Install it beside an MPI library:"
            f" {install_hint('mpi')}, and the MPI of your cluster, or {install_package('mpich')}"
        ) from error
    except RuntimeError as error:  # mpi4py is installed, and finds no libmpi
        raise ImportError(
            f"{caller}: mpi4py found no MPI library ({error}). Load the MPI module of your cluster,"
            f" or install one: {install_package('mpich')}"
        ) from error
    return MPI
