"""CUDA twins on the host: CuPy is NumPy, a launch is a run of the emulation."""

import contextlib
import functools
import importlib
import pathlib
import types
from unittest import mock

import numpy as np
from cuda_host.host_module import SANITIZERS, HostModule
from cuda_host.small_runs import LIBRARIES

from fastsvgp.kernels.cuda import loader


def _empty(shape, dtype=float):
    """Fresh memory holds NaN, so that what a kernel leaves unwritten shows."""
    return np.full(shape, np.nan, dtype) if np.dtype(dtype).kind == "f" else np.full(shape, np.iinfo(dtype).min, dtype)


ARRAYS = types.SimpleNamespace(**{name: getattr(np, name) for name in np.__all__} | {"empty": _empty})


@functools.cache
def module_of(stem, dtype, sanitizer):
    return HostModule(*_source(stem, dtype), sanitizer)


def _source(stem, dtype):
    return pathlib.Path(loader.source_folder()) / f"{stem}.cu", (f"-DREAL={loader.C_NAMES[dtype]}",)


def builds():
    """Arguments of ``build`` for all libraries that the tests will ask for."""
    stems = sorted(path.stem for path in pathlib.Path(loader.source_folder()).glob("*.cu"))
    jobs = [(stem, dtype, None) for dtype in ("float64", "float32") for stem in stems]  # the order in which tests come to them
    small = [(stem, dtype) for stem in stems for dtype in LIBRARIES.get(stem, ("float32",))]
    jobs += [(*job, sanitizer) for sanitizer in SANITIZERS if sanitizer for job in small]
    return [(*_source(stem, dtype), sanitizer) for stem, dtype, sanitizer in jobs]


@contextlib.contextmanager
def emulated(order="forward", sanitizer=None, multiprocessors=2, shared_memory=227 * 1024):
    """While this lasts, the modules of ``fastsvgp.kernels.cuda`` take NumPy arrays; threads run in the given order."""

    def launch(stem, kernel, dtype, grid, block, arguments, shared_memory=0):
        module = module_of(stem, str(dtype), sanitizer)
        module.launch(kernel, grid, block, arguments, shared_memory, order, seed=len(kernel))

    limits = {"multiprocessors": lambda: multiprocessors, "shared_memory_limit": lambda: shared_memory}
    replaced = {"cupy": lambda: ARRAYS, "launch": launch, **limits}
    with mock.patch.multiple(loader, **replaced):
        yield lambda stem: importlib.import_module(f"fastsvgp.kernels.cuda.{stem}")

