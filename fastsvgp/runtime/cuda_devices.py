"""CuPy, its driver and its devices: what there is, and what to do where something is missing.

CuPy is imported with the first call.
"""

import functools
import importlib.metadata
import logging
import re
import warnings

from .extras import install_hint, install_package

# the specific one where its instructions serve us; else the device's own
ARCHITECTURE = {"90": "90a"}
FREELY_SHARED = 48 * 1024  # bytes of shared memory that a block may have without asking
# the packages that install ``cupy`` itself
WHEEL = re.compile(r"cupy([-_]cuda\d+x?|[-_]rocm[-_].*)?", re.IGNORECASE)
TESTED = "tested with CuPy 14.2 and compiled by NVRTC 13.0 and 13.5 for sm_80, sm_90a and sm_100"
MAJOR = {"CuPy": 14, "CUDA": 13, "driver of CUDA": 13}  # what these words stand for


@functools.cache
def cupy():
    """The CuPy module.

    Raises ``ImportError`` or ``RuntimeError``, with what to do, where it cannot work.
    """
    names = {d.metadata["Name"] or "" for d in importlib.metadata.distributions()}
    wheels = sorted(name for name in names if WHEEL.fullmatch(name))
    if len(wheels) > 1:
        raise ImportError(
            f"several CuPy packages are installed ({', '.join(wheels)}) and overwrite one another;"
            " uninstall all of them, then install one"
        )
    try:
        import cupy as module
    except ImportError as error:
        raise ImportError(
            f"CuPy cannot be imported ({error}); {install_hint('cuda13', 'cuda12')}"
        ) from error
    return module


def nccl():
    """CuPy's NCCL module. ``ImportError``, with what to do, where it has none."""
    cupy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where it finds no library
        from cupy.cuda import nccl as module
    if not module.available:
        raise ImportError(
            f"CuPy finds no NCCL library; {install_package('nvidia-nccl-cu13')} (or"
            " nvidia-nccl-cu12)"
        )
    return module


@functools.cache
def require_device():
    """How many devices there are; ``RuntimeError`` where none can be used."""
    runtime = cupy().cuda.runtime
    driver = runtime.driverGetVersion()
    if driver == 0:
        raise RuntimeError(
            "no NVIDIA driver on this machine (or in this container); the CUDA kernels need one"
        )
    built = runtime.runtimeGetVersion()
    if driver // 1000 < built // 1000:
        raise RuntimeError(
            f"the NVIDIA driver serves CUDA {dotted(driver)}, this CuPy was built for CUDA"
            f" {dotted(built)}; update the driver, or install the CuPy for CUDA {driver // 1000}"
        )
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise RuntimeError(f"the CUDA runtime does not start: {error}") from error
    if count == 0:
        raise RuntimeError("the NVIDIA driver shows no device; look at CUDA_VISIBLE_DEVICES")
    _compare({"CuPy": cupy().__version__, "CUDA": dotted(built), "driver of CUDA": dotted(driver)})
    return count


def _compare(versions):
    """Log a warning where a version is of another generation than was tested."""
    others = [
        f"{what} {version}"
        for what, version in versions.items()
        if int(version.partition(".")[0]) != MAJOR[what]
    ]
    if others:
        logging.getLogger("fastsvgp").warning(
            "%s: not tested with our kernels, which were %s", ", ".join(others), TESTED
        )


def dotted(version):
    """The number of a version of CUDA as people write it."""
    return f"{version // 1000}.{version % 1000 // 10}"


@functools.cache
def device_facts(device):
    """Its architecture, how many multiprocessors it has, and how many bytes of shared memory a block may have."""
    device = cupy().cuda.Device(device)
    capability = device.compute_capability
    attributes = device.attributes
    shared = attributes.get("MaxSharedMemoryPerBlockOptin", FREELY_SHARED)
    return ARCHITECTURE.get(capability, capability), attributes["MultiProcessorCount"], shared


def current_device():
    """The number of the current device; ``RuntimeError`` where there is none."""
    require_device()
    return cupy().cuda.get_device_id()


def device(number):
    """The context in which a device is the current one."""
    require_device()
    return cupy().cuda.Device(number)


def device_names():
    """Where on the buses of this host each device is that this process sees: its name there for every process."""
    return [cupy().cuda.Device(number).pci_bus_id for number in range(require_device())]


def multiprocessors():
    """How many multiprocessors the current device has."""
    return device_facts(current_device())[1]


def shared_memory_limit():
    """How many bytes of shared memory a block may have on the current device."""
    return device_facts(current_device())[2]
