"""Compiling, caching and launching, and the messages if they fail.

A stand-in for CuPy records launches.
"""

import importlib.metadata
import logging
import os
import pathlib
import sys
import types

import numpy as np
import pytest
from cuda_host import ptxas

from fastsvgp.kernels.cuda.common import loader
from fastsvgp.runtime import cuda_devices

COMPILES = """
extern "C" __global__ void scale(real* out, real a) { out[threadIdx.x] *= a; }
"""


ATTRIBUTES = {"MultiProcessorCount": 132, "MaxSharedMemoryPerBlockOptin": 232448}


class RuntimeTrouble(Exception):
    pass


class DriverTrouble(Exception):
    pass


class OnDevice:
    """The part of an array that the loader needs."""

    __cuda_array_interface__ = {}

    def __init__(self, device=0):
        self.device = types.SimpleNamespace(id=device)


def stand_in(driver=13000, runtime=13020, devices=1, load_fails=False, version="14.2.0"):
    """The part of CuPy that the loader needs; ``launched`` records the launches."""
    launched, requests = [], []

    class Function:
        def __init__(self, *origin):
            self.origin = self.ptr = origin

        def __call__(self, grid, block, arguments, shared_mem=0):
            launched.append((*self.origin, grid, block, arguments, shared_mem))

    class Module:
        def load(self, cubin):
            if load_fails:
                raise DriverTrouble("CUDA_ERROR_NO_BINARY_FOR_GPU")
            self.cubin = cubin

        def get_function(self, name):
            return Function(self.cubin, name)

    def device_count():
        if devices is None:
            raise RuntimeTrouble("cudaErrorUnknown")
        return devices

    cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(
            driverGetVersion=lambda: driver,
            runtimeGetVersion=lambda: runtime,
            getDeviceCount=device_count,
            CUDARuntimeError=RuntimeTrouble,
        ),
        driver=types.SimpleNamespace(
            CUDADriverError=DriverTrouble,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
            funcSetAttribute=lambda *arguments: requests.append(arguments),
        ),
        function=types.SimpleNamespace(Module=Module),
        get_device_id=lambda: 0,
        Device=lambda i: types.SimpleNamespace(compute_capability="90", attributes=ATTRIBUTES),
    )
    return types.SimpleNamespace(
        cuda=cuda, launched=launched, requests=requests, __version__=version
    )


@pytest.fixture
def pretend(monkeypatch):
    """Replace CuPy and cached state of it, for one test."""

    def replace(**facts):
        module = stand_in(**facts)
        monkeypatch.setattr(cuda_devices, "cupy", lambda: module)
        for name in ("_modules", "_functions"):
            monkeypatch.setattr(loader, name, {})
        cuda_devices.require_device.cache_clear()
        cuda_devices.device_facts.cache_clear()
        return module

    yield replace
    cuda_devices.require_device.cache_clear()
    cuda_devices.device_facts.cache_clear()


@pytest.mark.parametrize(
    "facts, said",
    [
        (dict(driver=0), "no NVIDIA driver"),
        (
            dict(driver=12080),
            r"driver supports CUDA 12\.8, but this CuPy was built for CUDA 13\.2; .* CUDA 12$",
        ),
        (dict(devices=0), "CUDA_VISIBLE_DEVICES"),
        (dict(devices=None), "does not start: cudaErrorUnknown"),
    ],
)
def test_no_usable_device(pretend, facts, said):
    pretend(**facts)
    with pytest.raises(RuntimeError, match=said):
        loader.launch("any", "any", np.dtype("float64"), (1,), (1,), ())
    with pytest.raises(RuntimeError, match=said):
        cuda_devices.multiprocessors()


@pytest.mark.parametrize(
    "facts, said",
    [
        ({}, None),
        (dict(version="14.9.1", driver=13090), None),
        (dict(version="15.0.0rc1"), "CuPy 15.0.0rc1: not tested"),
        (dict(driver=14000, runtime=14010), "CUDA 14.1, driver of CUDA 14.0: not tested"),
    ],
)
def test_other_versions_than_were_tested_are_named_once(pretend, caplog, facts, said):
    pretend(**facts)
    for _ in range(2):
        cuda_devices.multiprocessors()
    assert [record.getMessage().partition(" with")[0] for record in caplog.records] == (
        [] if said is None else [said]
    )
    assert said is None or cuda_devices.TESTED in caplog.text


def test_launches_reach_the_kernel_of_the_device(pretend, monkeypatch):
    module = pretend()
    requests = []
    monkeypatch.setattr(loader, "load_cubin", lambda *key: requests.append(key) or b"cubin")
    array = OnDevice()
    for kernel in ("scale", "shift", "scale"):
        loader.launch("stem", kernel, np.dtype("float32"), (2,), (32,), (array, np.float32(2)))
    # one module for all, with architecture-specific code
    assert requests == [("stem", "float32", "90a")]
    assert [entry[1] for entry in module.launched] == ["scale", "shift", "scale"]
    assert module.launched[0] == (b"cubin", "scale", (2,), (32,), (array, np.float32(2)), 0)
    assert cuda_devices.multiprocessors() == 132 and cuda_devices.shared_memory_limit() == 232448


def test_much_shared_memory_is_requested_once(pretend, monkeypatch):
    module = pretend()
    monkeypatch.setattr(loader, "load_cubin", lambda *key: b"cubin")
    for size in (1000, 60_000, 50_000, 90_000, 90_000):
        loader.launch("stem", "solve", np.dtype("float64"), (1,), (1,), (), size)
    assert [entry[-1] for entry in module.launched] == [1000, 60_000, 50_000, 90_000, 90_000]
    assert module.requests == [((b"cubin", "solve"), 8, 60_000), ((b"cubin", "solve"), 8, 90_000)]


def test_arrays_of_another_device_are_refused(pretend):
    """If there is another one; otherwise no launch checks."""
    pretend(devices=2)
    with pytest.raises(ValueError, match="is on device 1, but the current device is 0"):
        loader.launch("stem", "scale", np.dtype("float32"), (1,), (1,), (OnDevice(1),))


def test_refused_cubins_name_the_driver(pretend, monkeypatch):
    pretend(load_fails=True)
    monkeypatch.setattr(loader, "load_cubin", lambda *key: b"cubin")
    with pytest.raises(
        RuntimeError,
        match=r"driver \(CUDA 13\.0\) does not load stem\.cu built for sm_90a: CUDA.*tested with",
    ):
        loader.launch("stem", "scale", np.dtype("float32"), (1,), (1,), ())


@pytest.fixture
def installed(monkeypatch):
    def pretend_wheels(*names):
        found = [types.SimpleNamespace(metadata={"Name": n}) for n in names]
        monkeypatch.setattr(importlib.metadata, "distributions", lambda: found)
        cuda_devices.cupy.cache_clear()

    yield pretend_wheels
    cuda_devices.cupy.cache_clear()


def test_packages_beside_cupy(installed):
    """Not every package whose name begins with "cupy" is a wheel of CuPy."""
    installed("cupy-cuda13x", "cupy-xarray", "cupyx-extras", "cupy-cuda-helpers", "cupynumeric")
    try:
        cuda_devices.cupy()
    except ImportError as error:  # it need not be installed
        assert str(error).startswith("CuPy cannot be imported")


@pytest.mark.parametrize(
    "other", ["cupy-cuda13x", "cupy", "cupy-cuda110", "cupy_cuda13x", "cupy-rocm-5-0"]
)
def test_two_cupy_wheels(installed, other):
    installed("numpy", other, "cupy-cuda12x", "cupy-xarray")
    both = ", ".join(sorted(["cupy-cuda12x", other]))
    with pytest.raises(
        ImportError, match=rf"several CuPy packages are installed \({both}\).*uninstall all of them"
    ):
        cuda_devices.cupy()


def test_no_cupy(installed, monkeypatch):
    installed()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match=r'pip install "fastsvgp\[cuda13\]"'):
        cuda_devices.cupy()


def test_sources_are_found():
    _, headers = loader.sources("chevron")
    assert "shared.cuh" in headers


# --- the cache, with a stand-in for the compiler --------------------------------------------------


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Everything that cubins depend on, changeable by the test; ``made`` counts compilations.

    The cache is in ``tmp_path / "kept"``.
    """
    facts = types.SimpleNamespace(
        source="kernels", headers={"a.cuh": "first", "b.cuh": "second"}, version=(13, 0), made=0
    )
    nvrtc = types.SimpleNamespace(getVersion=lambda: facts.version)
    cuda = types.ModuleType("cupy.cuda")
    cuda.nvrtc = nvrtc
    module = types.ModuleType("cupy")
    module.cuda = cuda
    for name, stand_in_for in {"cupy": module, "cupy.cuda": cuda, "cupy.cuda.nvrtc": nvrtc}.items():
        monkeypatch.setitem(sys.modules, name, stand_in_for)

    def compile_cubin(*key, **options):
        facts.made += 1
        return b"cubin %d" % facts.made, ""

    monkeypatch.setattr(cuda_devices, "cupy", lambda: module)
    monkeypatch.setattr(loader, "sources", lambda stem: (facts.source, facts.headers))
    monkeypatch.setattr(loader, "compile_cubin", compile_cubin)
    monkeypatch.setenv("FASTSVGP_CACHE_DIR", str(tmp_path / "kept"))
    return facts


CHANGES = {
    "the source": lambda facts, monkeypatch: setattr(facts, "source", "others"),
    "a header": lambda facts, monkeypatch: facts.headers.update({"b.cuh": "changed"}),
    "the name of a header": lambda facts, monkeypatch: setattr(
        facts, "headers", {"a.cuh": "first", "c.cuh": "second"}
    ),
    "the version of NVRTC": lambda facts, monkeypatch: setattr(facts, "version", (13, 1)),
    "the options": lambda facts, monkeypatch: monkeypatch.setattr(
        loader, "OPTIONS", (*loader.OPTIONS, "-lineinfo")
    ),
}
KEY = "small", "float32", "90a"


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_cubin_depends_on_its_sources_and_options(compiler, monkeypatch, change):
    first = loader.load_cubin(*KEY)
    assert loader.load_cubin(*KEY) == first and compiler.made == 1
    with monkeypatch.context() as patch:
        before = dict(vars(compiler), headers=dict(compiler.headers))
        change(compiler, patch)
        assert loader.load_cubin(*KEY) != first and compiler.made == 2
    vars(compiler).update(before, made=2)
    assert loader.load_cubin(*KEY) == first and compiler.made == 2  # still cached


@pytest.mark.parametrize(
    "other", [("other", "float32", "90a"), ("small", "float64", "90a"), ("small", "float32", "80")]
)
def test_cubin_depends_on_what_is_requested(compiler, other):
    assert loader.load_cubin(*KEY) != loader.load_cubin(*other)


@pytest.mark.parametrize("trouble", [OSError, KeyboardInterrupt])
def test_cubin_is_written_atomically(compiler, monkeypatch, tmp_path, caplog, trouble):
    """A cubin is written to a temporary file and renamed; on failure neither file remains."""
    seen = []

    def stopped(written, target):
        seen.append(
            (
                pathlib.Path(written).read_bytes(),
                pathlib.Path(target).exists(),
                pathlib.Path(target).name,
            )
        )
        raise trouble("while it is renamed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stopped)
        if trouble is OSError:
            assert loader.load_cubin(*KEY) == b"cubin 1" and "cannot be kept" in caplog.text
        else:
            with pytest.raises(KeyboardInterrupt):
                loader.load_cubin(*KEY)
    ((written, there, name),) = seen
    assert written == b"cubin 1" and not there and name.endswith(".cubin")
    assert list((tmp_path / "kept").iterdir()) == []
    assert loader.load_cubin(*KEY) == b"cubin 2"
    assert [p.name for p in (tmp_path / "kept").iterdir()] == [name]


# --- with NVRTC, which needs no driver ------------------------------------------------------------


@pytest.fixture
def nvrtc(monkeypatch, tmp_path):
    """One small family, and an empty folder for its cubins."""
    if reason := ptxas.why_not("nvrtc"):
        pytest.skip(reason)
    headers = loader.sources("chevron")[1]
    text = {"text": '#include "shared.cuh"\n' + COMPILES}
    monkeypatch.setattr(loader, "sources", lambda stem: (text["text"], headers))
    monkeypatch.setenv("FASTSVGP_CACHE_DIR", str(tmp_path / "kept"))
    return text


def count_compilations(monkeypatch):
    calls, compile_cubin = [], loader.compile_cubin
    monkeypatch.setattr(
        loader, "compile_cubin", lambda *key: calls.append(key) or compile_cubin(*key)
    )
    return calls


def test_cubins_are_kept_by_all_that_they_depend_on(nvrtc, monkeypatch, tmp_path):
    calls = count_compilations(monkeypatch)
    first = loader.load_cubin("small", "float32", "90a")
    assert first[:4] == b"\x7fELF" and loader.load_cubin("small", "float32", "90a") == first
    assert calls == [("small", "float32", "90a")]
    loader.load_cubin("small", "float64", "90a")
    loader.load_cubin("small", "float32", "80")
    nvrtc["text"] += "// another source\n"
    loader.load_cubin("small", "float32", "90a")
    assert len(calls) == 4
    kept = [p.name for p in (tmp_path / "kept").iterdir()]
    assert len(kept) == 4 and all(
        name.startswith("small-") and name.endswith(".cubin") for name in kept
    )


def test_unwritable_cache_folder_is_logged(nvrtc, monkeypatch, tmp_path, caplog):
    (tmp_path / "kept").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        assert loader.load_cubin("small", "float32", "90a")[:4] == b"\x7fELF"
    assert "cannot be kept" in caplog.text


def test_compile_errors_come_with_the_log(nvrtc):
    nvrtc["text"] = (
        '#include "shared.cuh"\nextern "C" __global__ void broken(real* a) { *a = missing; }\n'
    )
    with pytest.raises(
        RuntimeError,
        match=r'(?s)cannot compile small\.cu with .*-DREAL=double.*"missing" is undefined',
    ):
        loader.load_cubin("small", "float64", "80")
