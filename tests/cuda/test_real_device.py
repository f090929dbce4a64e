"""Test arrays have the same memory layout on the device, and tools see their bounds."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
from cuda_host import cupy_on_host
from cuda_host.small_runs import RUNS
from support.real_device import ALIGNMENT, POOL, cupy_or_skip, laid_out, on_device, why_none

from fastsvgp.kernels.cuda.common import loader
from fastsvgp.runtime import cuda_devices


def cupys_own_class():
    """CuPy's array class over host memory: shows its pointers and strides without a device."""
    cupy = pytest.importorskip("cupy")

    def asarray(buffer):
        kept = buffer.copy()
        memory = cupy.cuda.UnownedMemory(kept.ctypes.data, kept.nbytes, kept, 0)
        return cupy.ndarray(kept.shape, kept.dtype, cupy.cuda.MemoryPointer(memory, 0))

    return types.SimpleNamespace(asarray=asarray, ndarray=cupy.ndarray)


def seen(array):
    """Read the memory at the address of the array."""
    place = types.SimpleNamespace(
        __array_interface__={"version": 3, "shape": array.shape, "typestr": array.dtype.str,
                             "strides": array.strides,
                             "data": (array.data.ptr, True)}
    )  # fmt: skip
    return np.array(place)


LAYOUTS = {
    "dense": lambda a: a,
    "padded rows": lambda a: a[:, :5],
    "askew": lambda a: a.ravel()[1:41].reshape(5, 8),
    "a part": lambda a: a[2:4, 3:6],
    "every second column": lambda a: a[:, ::2],
    "columns first": lambda a: np.asfortranarray(a),
    "turned": lambda a: a.T[1:],
    "backwards": lambda a: a[::-1, ::-2],
    "the same row again": lambda a: np.broadcast_to(a[0], (3, 8)),
    "a batch": lambda a: a.reshape(2, 3, 8).swapaxes(0, 1)[:, :, 1:],
    "a line": lambda a: a[3, 1::3],
    "a number": lambda a: a[1, 1:2].reshape(()),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize(
    "module", [lambda: cupy_on_host.cupy, cupys_own_class], ids=["emulated", "CuPy's class"]
)
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_strides_and_address_are_kept(layout, module, dtype):
    here = layout(np.arange(48, dtype=dtype).reshape(6, 8))
    there = laid_out(module(), here)
    assert there.strides == here.strides and there.shape == here.shape and there.dtype == here.dtype
    assert (
        there.flags.c_contiguous == here.flags.c_contiguous
        and there.flags.f_contiguous == here.flags.f_contiguous
    )
    assert there.data.ptr % ALIGNMENT == here.ctypes.data % ALIGNMENT
    np.testing.assert_array_equal(seen(there), here)


def test_copy_includes_the_gaps_between_rows():
    wide = np.full((4, 6), np.nan)
    wide[:, :3] = 1
    there = laid_out(cupy_on_host.cupy, wide[:, :3])
    wide[:] = 2
    memory = there._host.base.view(np.float64)
    # and nothing after the last entry
    np.testing.assert_array_equal(memory, [1, 1, 1, np.nan, np.nan, np.nan] * 3 + [1, 1, 1])
    assert laid_out(cupy_on_host.cupy, wide[:0, ::2]).shape == (0, 3)


def test_kernels_get_strides_and_alignment(rng, monkeypatch):
    """A twin called on a device is launched with the strides and alignment of the host's arrays."""
    launched = []
    monkeypatch.setattr(cuda_devices, "cupy", lambda: cupy_on_host.cupy)
    monkeypatch.setattr(loader, "launch", lambda *call: launched.append(call[5]))
    multiply = on_device(cupy_on_host.cupy, "chevron").chevron_multiply
    memory, diagonal, x = np.zeros(201), np.ones(14), np.ones((1, 20))
    for dense in (
        memory[:120].reshape(20, 6),
        memory[:200].reshape(20, 10)[:, :6],
        memory[1:121].reshape(20, 6),
    ):
        multiply(dense, diagonal, x)
    assert [(int(stride), int(aligned)) for _, stride, aligned, *_ in launched] == [
        (6, 1),
        (10, 1),
        (6, 0),
    ]


def test_results_come_back_as_they_lie_there(monkeypatch):
    module = types.ModuleType("fastsvgp.kernels.cuda.stand_in")
    module.turn = lambda a: (a.T, a, 3)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    turned, same, number = on_device(cupy_on_host.cupy, "stand_in").turn(np.ones((2, 3)))
    assert (
        turned.flags.f_contiguous
        and not turned.flags.c_contiguous
        and same.flags.c_contiguous
        and number == 3
    )


# --- compute-sanitizer ----------------------------------------------------------------------------

SCRIPT, SMALL = map(
    pathlib.Path(__file__).with_name, ("sanitize_on_device.sh", "small_on_device.py")
)
TOOL = '#!/bin/sh\necho "pool=$FASTSVGP_TEST_POOL $*"\n'


@pytest.mark.parametrize("names", [("python",), ("python3",), ("python", "python3")])
def test_the_script_runs_one_tool_without_a_pool(tmp_path, names):
    """The real script, with a compute-sanitizer that reports how it was called."""
    for name in ("compute-sanitizer", *names):
        (tmp_path / name).write_text(TOOL)
        (tmp_path / name).chmod(0o755)
    for name in ("dirname", "sed", "bash", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name))
    run = functools.partial(
        subprocess.run, env=os.environ | {"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    done = run(["bash", SCRIPT, "racecheck", "chevron", "device"])
    assert done.returncode == 0, done.stderr
    called = (
        f"pool=0 --tool racecheck --error-exitcode 1 {tmp_path}/{names[0]}"
        " tests/cuda/small_on_device.py chevron device"
    )
    assert done.stdout.strip() == called
    done = run(["bash", SCRIPT])
    assert done.returncode == 2 and done.stderr.startswith(
        "usage: tests/cuda/sanitize_on_device.sh memcheck|racecheck"
    )
    (tmp_path / "compute-sanitizer").unlink()
    done = run(["bash", SCRIPT, "memcheck"])
    assert done.returncode == 2 and "compute-sanitizer is not on the path" in done.stderr


def test_small_runs_on_a_device():
    """All of them if there is a device; otherwise, and for unknown families, a reason."""
    run = functools.partial(subprocess.run, capture_output=True, text=True)
    done = run([sys.executable, SMALL])
    if reason := why_none():
        assert done.returncode == 1 and reason.split(" (")[0] in done.stderr
    else:
        assert done.returncode == 0 and done.stdout.splitlines() == [
            f"{f}, {d}: done" for f, ds in RUNS.items() for d in ds
        ]
    done = run([sys.executable, SMALL, "chevron", "nothing"])
    assert done.returncode == 1 and "no family nothing; there are chevron, fourier" in done.stderr


def test_only_tests_on_a_device_are_marked(request):
    for item in request.session.items:
        fixtures = {"twin_of", "gpu", "real"} & {
            *getattr(getattr(item, "callspec", None), "params", ())
        }
        on_it = any(item.callspec.params[name] == "device" for name in fixtures)
        assert on_it == (item.get_closest_marker("on_device") is not None), item.nodeid


@pytest.mark.parametrize("pool, allocators", [("0", [None]), ("1", []), (None, [])])
def test_every_array_is_an_allocation_of_its_own(monkeypatch, pool, allocators):
    calls = []
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 1)
    cuda = types.SimpleNamespace(runtime=runtime, set_allocator=calls.append)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    if pool is None:
        monkeypatch.delenv(POOL, raising=False)
    else:
        monkeypatch.setenv(POOL, pool)
    assert cupy_or_skip() is sys.modules["cupy"] and calls == allocators
