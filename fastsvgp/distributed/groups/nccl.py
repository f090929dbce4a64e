"""Ranks that are processes with a device each: the sums are made on the devices by NCCL, all else goes by MPI."""

import ctypes

from ...runtime import cuda_devices
from ...runtime.deferred_checks import on_device
from .hosts import use_device
from .mpi import MPIGroup, library


class NCCLGroup(MPIGroup):
    """This process in an MPI communicator, and its device in one of NCCL.

    device : the number of the device that it uses
    """

    def __init__(self, MPI, comm, rows):
        super().__init__(MPI, comm, rows)
        identity = error = None
        try:
            self._nccl = cuda_devices.nccl()
            identity = self._nccl.get_unique_id() if self.rank == 0 else None
        except Exception as failure:
            error = failure
        self.all_well(error)
        self.device = use_device(self)
        self._devices = _kept(
            self._nccl.NcclCommunicator(self.size, self.comm.bcast(identity, root=0), self.rank)
        )
        self.sums_on_device = True

    def sum(self, buffer):
        """The sum over the ranks, in place: on a device in the order of the current stream, for which nobody waits here."""
        if not on_device(buffer):
            super().sum(buffer)
            return
        _check_dtype(buffer)
        place, stream = buffer.data.ptr, cuda_devices.cupy().cuda.get_current_stream().ptr
        self._devices.allReduce(
            place, place, buffer.size, self._nccl.NCCL_DOUBLE, self._nccl.NCCL_SUM, stream
        )

    def broadcast(self, buffer):
        """The buffer of rank 0, in place, as ``sum``."""
        if not on_device(buffer):
            super().broadcast(buffer)
            return
        _check_dtype(buffer)
        stream = cuda_devices.cupy().cuda.get_current_stream().ptr
        self._devices.bcast(buffer.data.ptr, buffer.size, self._nccl.NCCL_DOUBLE, 0, stream)


def _check_dtype(buffer):
    """NCCL is told of numbers, and knows nothing of arrays."""
    if buffer.dtype != "float64":
        raise TypeError(
            f"`buffer` must be float64, got {buffer.dtype}: other numbers would be read as such,"
            " beyond its end"
        )


def _kept(communicator):
    """The same, never to be destroyed: that waits for the other ranks of the host.

    Where this rank ends by an error they wait for it in a sum, and MPI ends them after the last
    Python object is gone.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(communicator))
    return communicator


def nccl(comm=None, rows="all"):
    """The ranks of an MPI program with a device each: ``mpiexec -n 4 python -m mpi4py script.py``.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        Default ``MPI.COMM_WORLD``. All of its ranks must call this.
    rows : {"all", "own"}
        Whether X and Y of a call are all rows, on every rank, or this rank's.

    Returns
    -------
    group
        Its ``device`` is the number of the device that this process uses from here on: that of its
        rank among those of the host, counted among the devices that it sees.

    Raises
    ------
    ImportError
        No MPI, no CuPy, no NCCL library: says what to install.
    RuntimeError
        No device, or more ranks on a host than devices: on all ranks.
    RemoteError
        Another rank raised one of these.

    Notes
    -----
    Place arrays once the group is there: ``fs.to_device(model)`` and ``cupy.asarray`` then put them
    on the device of the rank. With a model on the device the numbers of a step are packed and
    summed there; five words come to the host. With a model on the host this is ``mpi``.

    No GPU has run this.

    Examples
    --------
    >>> group = fs.distributed.nccl()  # doctest: +SKIP
    >>> trained, info = fs.fit(fs.to_device(model), X, Y, steps=1000, group=group)  # doctest: +SKIP
    """
    MPI = library("nccl")
    return NCCLGroup(MPI, MPI.COMM_WORLD if comm is None else comm, rows)
