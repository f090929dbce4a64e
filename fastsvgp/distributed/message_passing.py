"""Ranks that are processes, on one machine or several, by MPI."""

import time

from .hosts import affinity, share_cores
from .one_process import checked_rows

PIP = 'pip install "fastsvgp[mpi]"'
POLL = 0.01  # seconds


class MPIGroup:
    """This process in an MPI communicator.

    comm : a duplicate of the communicator that was given, so that no message meets another's
    local_rank, local_size : among the ranks of this host, of which the first compiles before the others begin
    """

    def __init__(self, MPI, comm, rows):
        self._MPI, self.rows = MPI, checked_rows(rows)
        self.comm = comm.Dup()
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        host = self.comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.local_rank, self.local_size = host.Get_rank(), host.Get_size()
        self._host = host
        own = affinity()
        share_cores(self.on_host(own), own)

    def sum(self, buffer):
        """The sum over the ranks, in place."""
        self.comm.Allreduce(self._MPI.IN_PLACE, buffer)

    def broadcast(self, buffer):
        """The buffer of rank 0, in place."""
        self.comm.Bcast(buffer, root=0)

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


def mpi(comm=None, rows="all"):
    """The ranks of an MPI program: ``mpiexec -n 4 python -m mpi4py script.py``.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        Default ``MPI.COMM_WORLD``. All of its ranks must call this.
    rows : {"all", "own"}
        Whether X and Y of a call are all rows, on every rank, or this rank's.

    Returns
    -------
    group

    Raises
    ------
    ImportError
        No mpi4py, or no MPI library: says what to install.

    Notes
    -----
    Ranks of one host share its cores: where nobody has said how many threads there shall be (``set_num_threads``,
    ``OMP_NUM_THREADS``, ``NUMBA_NUM_THREADS``), each takes its part of those that it may use.

    Start scripts by ``python -m mpi4py``: an error that escapes on one rank then ends all, where plain Python leaves the others
    waiting for ever.
    """
    MPI = library()
    return MPIGroup(MPI, MPI.COMM_WORLD if comm is None else comm, rows)


def library():
    """``mpi4py.MPI``, which starts MPI when it is first imported."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ImportError(
            f"mpi: mpi4py could not be loaded ({error}). Install it beside an MPI library: {PIP}, and the MPI of your cluster, "
            "or the wheel `pip install mpich`"
        ) from error
    except RuntimeError as error:  # mpi4py is there, and finds no libmpi
        raise ImportError(
            f"mpi: mpi4py found no MPI library ({error}). Load the MPI module of your cluster, or install one: pip install mpich"
        ) from error
    return MPI
