"""Compile, cache and launch CUDA kernels.

NVRTC compiles CUDA C++ to a cubin for the current device, a cache folder keeps it, and CuPy loads
and launches it.

The cache key of a cubin is the hash of everything that it depends on: source, headers, options,
architecture and NVRTC version. ``FASTSVGP_CACHE_DIR`` sets the folder (default
``~/.cache/fastsvgp``). ``FASTSVGP_CUDA_CHECK=1`` enables kernel checks that synchronise, for
example of the range of indices.
"""

import functools
import hashlib
import logging
import os
import pathlib
import tempfile
from importlib import resources

import numpy as np

from ....runtime import cuda_devices

OPTIONS = ("-std=c++17", "-default-device")
NULL = np.uint64(0)  # a null pointer
C_NAMES = {"float32": "float", "float64": "double"}

_modules: dict = {}  # by device, family and dtype
_functions: dict = {}  # those of them, by device, family, dtype and name


def checking():
    """Return whether to run checks that synchronise."""
    return os.environ.get("FASTSVGP_CUDA_CHECK", "0") not in ("", "0")


# --- sources and cubins ---------------------------------------------------------------------------


def source_folder():
    """Return the folder of the ``.cu`` and ``.cuh`` files, in the package or the checkout."""
    try:
        return resources.files("fastsvgp.kernels.cuda.src")
    except ModuleNotFoundError:
        return pathlib.Path(__file__).parents[4] / "kernels_cuda"


@functools.cache
def sources(stem):
    """Return ``(source, headers)`` of a family: a text, and a dictionary of texts by name."""
    folder = source_folder()
    headers = {
        f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".cuh")
    }
    return (folder / f"{stem}.cu").read_text(encoding="utf-8"), dict(sorted(headers.items()))


def compile_cubin(stem, dtype, architecture, options=()):
    """Return ``(cubin, log)`` of ``stem.cu`` for elements of ``dtype``.

    This needs NVRTC, but neither a driver nor a device. Raises ``RuntimeError`` with the compiler's
    log.
    """
    cuda_devices.cupy()
    from cupy.cuda import nvrtc

    source, headers = sources(stem)
    options = (f"-arch=sm_{architecture}", *_options(dtype), *options)
    texts, names = (tuple(part.encode() for part in parts) for parts in (headers.values(), headers))
    program = nvrtc.createProgram(source, f"{stem}.cu", texts, names)
    try:
        nvrtc.compileProgram(program, options)
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        version = ".".join(map(str, nvrtc.getVersion()))
        log = nvrtc.getProgramLog(program)
        said = (
            f"NVRTC {version} cannot compile {stem}.cu with {' '.join(options)}: {error}"
            f" ({cuda_devices.TESTED})"
        )
        raise RuntimeError(f"{said}\n{log}") from error
    finally:
        nvrtc.destroyProgram(program)


def _options(dtype):
    return (*OPTIONS, f"-DREAL={C_NAMES[dtype]}")


def cache_folder():
    """Return the folder of cached cubins."""
    named = os.environ.get("FASTSVGP_CACHE_DIR")
    if named:
        return pathlib.Path(named)
    return (
        pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        / "fastsvgp"
    )


def load_cubin(stem, dtype, architecture):
    """Return the cubin of ``stem.cu`` from the cache, or compile it.

    Concurrent processes are safe: files are written atomically.
    """
    cuda_devices.cupy()
    from cupy.cuda import nvrtc

    source, headers = sources(stem)
    parts = [
        source,
        *headers,
        *headers.values(),
        *_options(dtype),
        architecture,
        str(nvrtc.getVersion()),
    ]
    path = (
        cache_folder()
        / f"{stem}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}.cubin"
    )
    try:
        return path.read_bytes()
    except OSError:
        cubin, _ = compile_cubin(stem, dtype, architecture)
    try:
        _write_atomically(path, cubin)
    except OSError as error:
        log = logging.getLogger("fastsvgp")
        log.warning(
            "compiled CUDA kernels cannot be kept in %s (%s), so each process compiles them",
            path.parent,
            error,
        )
    return cubin


def _write_atomically(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


# --- launching ------------------------------------------------------------------------------------


def _load_module(stem, dtype, architecture):
    module = cuda_devices.cupy().cuda.function.Module()
    try:
        module.load(load_cubin(stem, dtype, architecture))
    except cuda_devices.cupy().cuda.driver.CUDADriverError as error:
        driver = cuda_devices.dotted(cuda_devices.cupy().cuda.runtime.driverGetVersion())
        said = (
            f"the driver (CUDA {driver}) does not load {stem}.cu built for sm_{architecture}:"
            f" {error} ({cuda_devices.TESTED})"
        )
        raise RuntimeError(said) from error
    return module


def launch(stem, kernel, dtype, grid, block, arguments, shared_memory=0):
    """Launch ``kernel`` of ``stem.cu`` on the current device and stream; return without waiting.

    Parameters
    ----------
    dtype : NumPy dtype of the elements that the family is compiled for
    grid, block : tuples of up to three int
    arguments : CuPy arrays and NumPy scalars, of the types of the kernel's parameters
    shared_memory : bytes of dynamic shared memory
    """
    devices, device = cuda_devices.require_device(), cuda_devices.cupy().cuda.get_device_id()
    if devices > 1:
        _check_home(arguments, device)
    prepared = _functions.get((device, stem, dtype.char, kernel)) or _prepare(
        device, stem, dtype, kernel
    )
    if shared_memory > prepared.shared_memory:
        prepared.allow(shared_memory)
    prepared.function(grid, block, arguments, shared_memory)


def _check_home(arguments, device):
    for argument in arguments:
        if hasattr(argument, "__cuda_array_interface__") and argument.device.id != device:
            raise ValueError(
                f"an array is on device {argument.device.id}, but the current device is {device};"
                " move the array, or select its device"
            )


class _Prepared:
    """A loaded kernel, and the shared memory that its blocks may use."""

    def __init__(self, function):
        self.function, self.shared_memory = function, cuda_devices.FREELY_SHARED

    def allow(self, shared_memory):
        driver = cuda_devices.cupy().cuda.driver
        driver.funcSetAttribute(
            self.function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_memory
        )
        self.shared_memory = shared_memory


def _prepare(device, stem, dtype, kernel):
    module = _modules.get((device, stem, dtype.char))
    if module is None:
        module = _modules[device, stem, dtype.char] = _load_module(
            stem, str(dtype), cuda_devices.device_facts(device)[0]
        )
    prepared = _functions[device, stem, dtype.char, kernel] = _Prepared(module.get_function(kernel))
    return prepared


def launcher(stem, block):
    """Return ``launch(kernel, dtype, grid, *arguments)`` of a family; ``grid`` can be one int."""

    def launch_of_family(kernel, dtype, grid, *arguments, threads=block, shared_memory=0):
        grid = grid if isinstance(grid, tuple) else (grid,)
        launch(stem, kernel, dtype, grid, (threads,), arguments, shared_memory)

    return launch_of_family


# --- arguments: numbers of the host, or on the device --------------------------------------------


def is_aligned(*arrays):
    """Return whether contiguous rows are whole numbers of 128 bits, at multiples of these."""
    return all(
        (a.data.ptr if hasattr(a, "__cuda_array_interface__") else a.ctypes.data) % 16 == 0
        and a.shape[-1] * a.itemsize % 16 == 0
        and all(n <= 1 or step % 16 == 0 for n, step in zip(a.shape[:-1], a.strides, strict=False))
        for a in arrays
    )


def on_device(value):
    return isinstance(value, cuda_devices.cupy().ndarray)


def parameter(value, dtype):
    """Return a parameter () or (D,) as kernel arguments: address, feature stride, value.

    The address is null for a host number; the value is 0 for an array, which goes to the device.
    """
    if on_device(value) or np.ndim(value):
        return (
            cuda_devices.cupy().ascontiguousarray(value, dtype=dtype),
            np.int32(value.ndim),
            dtype.type(0),
        )
    return NULL, np.int32(0), dtype.type(value)


def number(value, dtype):
    """Return a parameter () as kernel arguments: like ``parameter``, without the stride."""
    at, _, value = parameter(value, dtype)
    return at, value
