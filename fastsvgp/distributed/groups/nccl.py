"""Groups of processes with a device each: sums on the devices by NCCL, all else by MPI."""

import ctypes

from ...runtime import cuda_devices
from ...runtime.deferred_checks import on_device
from ..protocol import Communicator
from .mpi import MPIGroup, library, use_device


class NCCLGroup(MPIGroup):
    """This process in an MPI communicator, and its device in an NCCL communicator.

    device : number of the device of this process
    """

    def __init__(self, MPI, comm, rows):
        super().__init__(MPI, comm, rows)
        communicator = Communicator(self)

        def identify():
            self._nccl = cuda_devices.nccl()
            identity = self._nccl.get_unique_id() if self.rank == 0 else None
            communicator.agree()
            return identity

        identity = communicator.run(identify)
        self.device = use_device(self)
        self._devices = _keep_alive(
            self._nccl.NcclCommunicator(self.size, self.comm.bcast(identity, root=0), self.rank)
        )
        self.sums_on_device = True

    def sum(self, buffer):
        """Sum over the ranks, in place; on a device asynchronously, on the current stream."""
        if not on_device(buffer):
            super().sum(buffer)
            return
        _check_dtype(buffer)
        place, stream = buffer.data.ptr, cuda_devices.cupy().cuda.get_current_stream().ptr
        self._devices.allReduce(
            place, place, buffer.size, self._nccl.NCCL_DOUBLE, self._nccl.NCCL_SUM, stream
        )

    def broadcast(self, buffer):
        """Broadcast the buffer of rank 0, in place, as ``sum``."""
        if not on_device(buffer):
            super().broadcast(buffer)
            return
        _check_dtype(buffer)
        stream = cuda_devices.cupy().cuda.get_current_stream().ptr
        self._devices.bcast(buffer.data.ptr, buffer.size, self._nccl.NCCL_DOUBLE, 0, stream)


def _check_dtype(buffer):
    """Require float64, because NCCL takes a pointer and a count, not an array."""
    if buffer.dtype != "float64":
        raise TypeError(
            f"`buffer` must be float64, got {buffer.dtype}: other numbers would be read as such,"
            " beyond its end"
        )


def _keep_alive(communicator):
    """Return the communicator with a reference that is never released.

    Destroying it would wait for the other ranks of the host. If this rank ends by an error, the
    others wait for it in a sum, and MPI ends them only after the last Python object is destroyed.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(communicator))
    return communicator


def nccl(comm=None, rows="all"):
    """Return the group of an MPI program with one device per rank.

    Start the program by ``mpiexec -n 4 python -m mpi4py script.py``.

    Parameters
    ----------
    comm : mpi4py communicator, optional
        All of its ranks must make this call. Default ``MPI.COMM_WORLD``.
    rows : {"all", "own"}
        "all": X and Y of a call are all rows, on every rank; "own": they are this rank's rows.

    Returns
    -------
    group
        Its ``device`` is the number of the device that this process uses from now on: that of its
        rank among those of the host, counted among the visible devices.

    Raises
    ------
    ImportError
        MPI, CuPy or the NCCL library is missing; the message names the package to install.
    RuntimeError
        No device, or more ranks on a host than devices. Raised on all ranks.
    RemoteError
        Another rank raised one of these.

    Notes
    -----
    Create the group before placing arrays: ``fs.to_device(model)`` and ``cupy.asarray`` then put
    them on the device of the rank. With a model on the device the numbers of a step are packed and
    summed there; only the value is copied to the host. With a model on the host this is ``mpi``.

    This has never been run on a GPU.

    Examples
    --------
    >>> group = fs.distributed.nccl()  # doctest: +SKIP
    >>> trained, info = fs.fit(fs.to_device(model), X, Y, steps=1000, group=group)  # doctest: +SKIP
    """
    MPI = library("nccl")
    return NCCLGroup(MPI, MPI.COMM_WORLD if comm is None else comm, rows)
