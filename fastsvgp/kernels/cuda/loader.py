"""From CUDA C++ to a launched kernel: NVRTC makes a cubin for the device at hand, a folder keeps it, CuPy loads and launches it.

A cubin is kept under the hash of everything that it depends on: source, headers, options, architecture and the version of NVRTC.
``FASTSVGP_CACHE_DIR`` moves the folder (``~/.cache/fastsvgp``). ``FASTSVGP_CUDA_CHECK=1`` makes the kernels check what costs a
wait for the device, such as the range of indices.
"""

import functools
import hashlib
import importlib.metadata
import logging
import os
import pathlib
import re
import tempfile
import warnings
from importlib import resources

from ...extras import install_hint, install_package

ARCHITECTURE = {"90": "90a"}  # the specific one where its instructions serve us; else the device's own
OPTIONS = ("-std=c++17", "-default-device")
FREELY_SHARED = 48 * 1024  # bytes of shared memory that a block may have without asking
WHEEL = re.compile(r"cupy([-_]cuda\d+x?|[-_]rocm[-_].*)?", re.IGNORECASE)  # the packages that install ``cupy`` itself
C_NAMES = {"float32": "float", "float64": "double"}
TESTED = "tested with CuPy 14.2 and compiled by NVRTC 13.0 and 13.5 for sm_80, sm_90a and sm_100"
MAJOR = {"CuPy": 14, "CUDA": 13, "driver of CUDA": 13}  # what these words stand for

_modules: dict = {}  # by device, family and dtype
_functions: dict = {}  # those of them, by device, family, dtype and name


def checking():
    """Whether to check what costs a wait for the device."""
    return os.environ.get("FASTSVGP_CUDA_CHECK", "0") not in ("", "0")


# --- CuPy, its driver and its device -------------------------------------------------------------------------------------


@functools.cache
def cupy():
    """The CuPy module. Raises ``ImportError`` or ``RuntimeError``, with what to do, where it cannot work."""
    names = {d.metadata["Name"] or "" for d in importlib.metadata.distributions()}
    wheels = sorted(name for name in names if WHEEL.fullmatch(name))
    if len(wheels) > 1:
        raise ImportError(
            f"several CuPy packages are installed ({', '.join(wheels)}) and overwrite one another; uninstall all of them, "
            "then install one"
        )
    try:
        import cupy as module
    except ImportError as error:
        raise ImportError(f"CuPy cannot be imported ({error}); {install_hint('cuda13', 'cuda12')}") from error
    return module


def nccl():
    """CuPy's NCCL module. ``ImportError``, with what to do, where it has none."""
    cupy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where it finds no library
        from cupy.cuda import nccl as module
    if not module.available:
        raise ImportError(f"CuPy finds no NCCL library; {install_package('nvidia-nccl-cu13')} (or nvidia-nccl-cu12)")
    return module


@functools.cache
def _require_device():
    """How many devices there are; ``RuntimeError`` where none can be used."""
    runtime = cupy().cuda.runtime
    driver = runtime.driverGetVersion()
    if driver == 0:
        raise RuntimeError("no NVIDIA driver on this machine (or in this container); the CUDA kernels need one")
    built = runtime.runtimeGetVersion()
    if driver // 1000 < built // 1000:
        raise RuntimeError(
            f"the NVIDIA driver serves CUDA {_dotted(driver)}, this CuPy was built for CUDA {_dotted(built)}; update the driver, "
            f"or install the CuPy for CUDA {driver // 1000}"
        )
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise RuntimeError(f"the CUDA runtime does not start: {error}") from error
    if count == 0:
        raise RuntimeError("the NVIDIA driver shows no device; look at CUDA_VISIBLE_DEVICES")
    _compare({"CuPy": cupy().__version__, "CUDA": _dotted(built), "driver of CUDA": _dotted(driver)})
    return count


def _compare(versions):
    """Log a warning where a version is of another generation than was tested."""
    others = [f"{what} {version}" for what, version in versions.items() if int(version.partition(".")[0]) != MAJOR[what]]
    if others:
        logging.getLogger("fastsvgp").warning("%s: not tested with our kernels, which were %s", ", ".join(others), TESTED)


def _dotted(version):
    return f"{version // 1000}.{version % 1000 // 10}"


@functools.cache
def _device_facts(device):
    device = cupy().cuda.Device(device)
    capability = device.compute_capability
    attributes = device.attributes
    shared = attributes.get("MaxSharedMemoryPerBlockOptin", FREELY_SHARED)
    return ARCHITECTURE.get(capability, capability), attributes["MultiProcessorCount"], shared


def current_device():
    """The number of the current device; ``RuntimeError`` where there is none."""
    _require_device()
    return cupy().cuda.get_device_id()


def device(number):
    """The context in which a device is the current one."""
    _require_device()
    return cupy().cuda.Device(number)


def device_names():
    """Where on the buses of this host each device is that this process sees: its name there for every process."""
    return [cupy().cuda.Device(number).pci_bus_id for number in range(_require_device())]


def multiprocessors():
    """How many multiprocessors the current device has."""
    return _device_facts(current_device())[1]


def shared_memory_limit():
    """How many bytes of shared memory a block may have on the current device."""
    return _device_facts(current_device())[2]


# --- sources and cubins --------------------------------------------------------------------------------------------------


def source_folder():
    """Where the ``.cu`` and ``.cuh`` files are: in the installed package, or beside an uninstalled checkout."""
    try:
        return resources.files("fastsvgp.kernels.cuda.src")
    except ModuleNotFoundError:
        return pathlib.Path(__file__).parents[3] / "kernels_cuda"


@functools.cache
def sources(stem):
    """``(source, headers)`` of a family: text, and a dictionary of the texts of all headers by name."""
    folder = source_folder()
    headers = {f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".cuh")}
    return (folder / f"{stem}.cu").read_text(encoding="utf-8"), dict(sorted(headers.items()))


def compile_cubin(stem, dtype, architecture, options=()):
    """``(cubin, log)`` of ``stem.cu`` for elements of ``dtype``; needs NVRTC, but neither a driver nor a device.

    Raises ``RuntimeError`` with the compiler's log.
    """
    cupy()
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
        said = f"NVRTC {version} cannot compile {stem}.cu with {' '.join(options)}: {error} ({TESTED})"
        raise RuntimeError(f"{said}\n{log}") from error
    finally:
        nvrtc.destroyProgram(program)


def _options(dtype):
    return (*OPTIONS, f"-DREAL={C_NAMES[dtype]}")


def cache_folder():
    """Where cubins are kept."""
    named = os.environ.get("FASTSVGP_CACHE_DIR")
    if named:
        return pathlib.Path(named)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "fastsvgp"


def load_cubin(stem, dtype, architecture):
    """The cubin of ``stem.cu``, from the folder or made now. Processes may race: a file appears whole or not at all."""
    cupy()
    from cupy.cuda import nvrtc

    source, headers = sources(stem)
    parts = [source, *headers, *headers.values(), *_options(dtype), architecture, str(nvrtc.getVersion())]
    path = cache_folder() / f"{stem}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        cubin, _ = compile_cubin(stem, dtype, architecture)
    try:
        _write_atomically(path, cubin)
    except OSError as error:
        log = logging.getLogger("fastsvgp")
        log.warning("compiled CUDA kernels cannot be kept in %s (%s), so each process compiles them", path.parent, error)
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


# --- launching -----------------------------------------------------------------------------------------------------------


def _load_module(stem, dtype, architecture):
    module = cupy().cuda.function.Module()
    try:
        module.load(load_cubin(stem, dtype, architecture))
    except cupy().cuda.driver.CUDADriverError as error:
        driver = _dotted(cupy().cuda.runtime.driverGetVersion())
        said = f"the driver (CUDA {driver}) does not load {stem}.cu built for sm_{architecture}: {error} ({TESTED})"
        raise RuntimeError(said) from error
    return module


def launch(stem, kernel, dtype, grid, block, arguments, shared_memory=0):
    """Launch ``kernel`` of ``stem.cu`` on the current device and stream; returns at once.

    Parameters
    ----------
    dtype : of NumPy, the elements that the family is compiled for
    grid, block : tuples of up to three int
    arguments : CuPy arrays and NumPy scalars, of the types of the kernel's parameters
    shared_memory : bytes of dynamic shared memory
    """
    devices, device = _require_device(), cupy().cuda.get_device_id()
    if devices > 1:
        _check_home(arguments, device)
    prepared = _functions.get((device, stem, dtype.char, kernel)) or _prepare(device, stem, dtype, kernel)
    if shared_memory > prepared.shared_memory:
        prepared.allow(shared_memory)
    prepared.function(grid, block, arguments, shared_memory)


def _check_home(arguments, device):
    for argument in arguments:
        if hasattr(argument, "__cuda_array_interface__") and argument.device.id != device:
            raise ValueError(
                f"an array lives on device {argument.device.id}, the current device is {device}; move it, or choose its device"
            )


class _Prepared:
    """A kernel that is loaded, and the shared memory that its blocks may have."""

    def __init__(self, function):
        self.function, self.shared_memory = function, FREELY_SHARED

    def allow(self, shared_memory):
        driver = cupy().cuda.driver
        driver.funcSetAttribute(self.function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_memory)
        self.shared_memory = shared_memory


def _prepare(device, stem, dtype, kernel):
    module = _modules.get((device, stem, dtype.char))
    if module is None:
        module = _modules[device, stem, dtype.char] = _load_module(stem, str(dtype), _device_facts(device)[0])
    prepared = _functions[device, stem, dtype.char, kernel] = _Prepared(module.get_function(kernel))
    return prepared
