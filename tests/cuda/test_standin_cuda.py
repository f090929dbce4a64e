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


def test_two_devices(standin, tmp_path):
    """Each has its own allocations, streams and modules; a call that mixes them fails."""
    from cupy_backends.cuda.api import runtime

    driver = next(
        line.split()[-1]
        for line in pathlib.Path("/proc/self/maps").read_text().splitlines()
        if line.endswith("/libcuda.so.1")
    )
    library = tmp_path / "libcuda.so.1"
    places = [f'-DDRIVER="{driver}"', f'-DRUNTIME="{runtime.__file__}"']
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-fPIC", "-shared", *places]
    source = HOST / "devices.cpp"
    linked = ["-Wl,--no-as-needed", driver, "-Wl,-soname,libcuda.so.1", "-ldl"]
    command = ["g++", *flags, source, *linked, "-o", library]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [sys.executable, HOST / "two_devices.py"],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 5
    said = [line for line in done.stderr.splitlines() if line.startswith("DEVICES: ")]
    assert said == [
        "DEVICES: argument of kernel row_squares: device 1 and device 0",
        "DEVICES: module of kernel row_squares: device 0 and device 1",
        "DEVICES: copy cudaMemcpy: device 0 and device 1",
        "DEVICES: copy cudaMemcpyAsync: device 0 and device 1",
        "DEVICES: stream of cudaMemsetAsync: device 0 and device 1",
    ]
