"""The stand-in driver shows errors of memory that a GPU may hide."""

import ctypes
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from fastsvgp.kernels.cuda.common import graphs

HOST = pathlib.Path(__file__).resolve().parents[1] / "cuda_host"


@pytest.fixture
def standin(real):
    if "fakegpu" not in sys.modules:
        pytest.skip("on a GPU memory keeps its numbers")
    return real


def test_memory_of_the_pool_is_overwritten(standin):
    x = standin.ones(1000)
    there = x.data.ptr
    del x
    assert ctypes.string_at(there, 8000) == b"\xff" * 8000
    assert standin.isnan(standin.empty(500)).all() and (standin.empty(7, np.int32) == -1).all()
    assert standin.zeros(500).sum() == 0


def test_a_graph_that_reads_memory_it_does_not_hold(standin):
    """Its first launch may still see the numbers on a GPU; here it computes NaN."""
    x, lost = standin.arange(1000.0), [standin.ones(1000)]
    recorded = graphs.Recorded(lambda: x * 2.0 + lost[0])
    recorded()
    np.testing.assert_array_equal(recorded().get(), 2.0 * np.arange(1000) + 1)
    lost.clear()
    assert standin.isnan(recorded()).all()


def loaded(name):
    """Return the path of a library of this process."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return next(line.split()[-1] for line in lines if line.endswith(f"/{name}"))


def built(folder, name, source, *arguments):
    """Build a library that takes the place of another one of this name."""
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    path = str(folder / name)
    command = ["g++", *flags, HOST / source, *arguments, f"-Wl,-soname,{name}", "-o", path, "-ldl"]
    subprocess.run(command, check=True)
    return path


def test_two_devices(standin, tmp_path):
    """Each has its own allocations, streams, modules and handles; a call that mixes them fails."""
    from cupy_backends.cuda.api import runtime
    from cupy_backends.cuda.libs import cublas, cusolver  # noqa: F401, which load their libraries

    driver = loaded("libcuda.so.1")
    places = [f'-DDRIVER="{driver}"', f'-DRUNTIME="{runtime.__file__}"']
    preloaded = [
        built(tmp_path, "libcuda.so.1", "devices.cpp", *places, "-Wl,--no-as-needed", driver)
    ]
    for blas, name in enumerate(("libcusolver.so.12", "libcublas.so.13")):
        places = [f"-DBLAS={blas}", f'-DORIGINAL="{loaded(name)}"']
        preloaded.append(built(tmp_path, name, "device_libraries.cpp", *places))
    done = subprocess.run(
        [sys.executable, HOST / "two_devices.py"],
        env=os.environ | {"LD_PRELOAD": ":".join(preloaded)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 9
    said = [line for line in done.stderr.splitlines() if line.startswith("DEVICES: ")]
    assert said == [
        "DEVICES: argument of kernel row_squares: device 1 and device 0",
        "DEVICES: module of kernel row_squares: device 0 and device 1",
        "DEVICES: copy cudaMemcpy: device 0 and device 1",
        "DEVICES: copy cudaMemcpyAsync: device 0 and device 1",
        "DEVICES: stream of cudaMemsetAsync: device 0 and device 1",
        "DEVICES: operand of cublasDgemm_v2: device 1 and device 0",
        "DEVICES: operand of cublasDtrsm_v2: device 1 and device 0",
        "DEVICES: operand of cusolverDnDpotrf_bufferSize: device 1 and device 0",
        "DEVICES: operand of cusolverDnDpotrf: device 1 and device 0",
        "DEVICES: handle of cublasDgemm_v2: device 0 and device 1",
        "DEVICES: stream of cublasDgemm_v2: device 0 and device 1",
        "DEVICES: operand of cublasDgemm_v2: device 0 and device 1",
        "DEVICES: operand of cublasGemmEx: device 1 and device 0",
        "DEVICES: operand of cublasGemmStridedBatchedEx: device 1 and device 0",
    ]
