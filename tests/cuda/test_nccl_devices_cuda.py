"""The device of each rank of a host, and groups that cannot be made."""

import sys
import types
from unittest import mock

import pytest
from cuda_host import cupy_on_host, nccl_on_host
from support import mpi_on_threads
from support.device_ranks import WAYS

import fastsvgp as fs
from fastsvgp.distributed.groups import mpi
from fastsvgp.runtime import cuda_devices


def placed(hosts, seen=None, make=WAYS["nccl"]):
    """Return the outcome of ranks on these hosts: the device of each, or its error."""

    def work(comm):
        names.here = None if seen is None else seen[comm.Get_rank()]
        group = make(comm)
        assert cupy_on_host.CUDA.Device.used.id == group.device
        return group.device

    names = mpi_on_threads.threading.local()
    with cupy_on_host.cupy_on_host(devices=2):
        plain = cuda_devices.device_names
        with mock.patch.object(
            cuda_devices, "device_names", lambda: plain() if names.here is None else names.here
        ):
            return mpi_on_threads.run(hosts, work)


@pytest.mark.parametrize("way", ["nccl", "device pointers"])
def test_each_rank_of_a_host_has_a_device(way):
    assert placed(["a", "a", "b", "b"], make=WAYS[way]) == [0, 1, 0, 1]
    assert placed(["a", "b", "a", "b"], make=WAYS[way]) == [0, 0, 1, 1]


def test_devices_that_a_launcher_shows_to_single_ranks():
    assert placed(["a"] * 3, [["A"], ["B"], ["C"]]) == [0, 0, 0]
    assert placed(["a"] * 4, [["A", "B"], ["C", "D"]] * 2) == [0, 0, 1, 1]


@pytest.mark.parametrize("way", ["nccl", "device pointers"])
def test_more_ranks_than_devices(way):
    *full, other = placed(["a"] * 3 + ["b"], make=WAYS[way])
    for error in full:
        assert type(
            error
        ) is RuntimeError and "3 ranks on this host, and they see 2 of its devices" in str(error)
    assert (
        isinstance(other, fs.RemoteError)
        and other.rank == 0
        and "3 ranks on this host" in other.message
    )


def test_what_is_missing(monkeypatch):
    first, second = missing(ImportError("CuPy cannot be imported; pip install it"))
    assert isinstance(first, fs.RemoteError) and "CuPy cannot be imported" in first.message
    assert type(second) is ImportError
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    monkeypatch.setitem(
        sys.modules, "cupy.cuda", types.SimpleNamespace(nccl=types.SimpleNamespace(available=False))
    )
    monkeypatch.setattr(cuda_devices, "cupy", lambda: sys.modules["cupy"])
    with pytest.raises(
        ImportError, match="CuPy finds no NCCL library; python -m pip install nvidia-nccl-cu13"
    ):
        cuda_devices.nccl()
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match="nccl: mpi4py could not be loaded.*pip install"):
        fs.distributed.nccl()


def missing(error):
    """Return the outcome of two ranks, of which the second lacks something."""

    def work(comm):
        raises.here = comm.Get_rank() == 1
        return fs.distributed.nccl(comm)

    def nccl():
        if raises.here:
            raise error
        return nccl_on_host

    raises = mpi_on_threads.threading.local()
    with cupy_on_host.cupy_on_host(devices=2), mock.patch.object(cuda_devices, "nccl", nccl):
        return mpi_on_threads.run(["a", "a"], work)


def test_bad_arguments():
    with (
        mock.patch.object(mpi, "library", mock.Mock()),
        pytest.raises(TypeError, match="`device_pointers` must be"),
    ):
        fs.distributed.mpi(device_pointers=1)
