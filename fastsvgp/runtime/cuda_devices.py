"""CuPy, its driver and its devices, with advice if one is missing.

CuPy is imported at the first call.
"""

import functools
import importlib.metadata
import logging
import re
import warnings

from .extras import install_hint, install_package

# an architecture-specific target where we use its instructions; else that of the device
ARCHITECTURE = {"90": "90a"}
FREELY_SHARED = 48 * 1024  # bytes of shared memory per block without opt-in
# packages that provide the module ``cupy``
WHEEL = re.compile(r"cupy([-_]cuda\d+x?|[-_]rocm[-_].*)?", re.IGNORECASE)
TESTED = "tested with CuPy 14.2 and compiled by NVRTC 13.0 and 13.5 for sm_80, sm_90a and sm_100"
MAJOR = {"CuPy": 14, "CUDA": 13, "driver of CUDA": 13}  # the major versions in TESTED


@functools.cache
def cupy():
    """Return the CuPy module.

    Raises ``ImportError`` or ``RuntimeError``, with advice, if CuPy cannot be used.
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
    """Return CuPy's NCCL module; raise ``ImportError``, with advice, if it has none."""
    cupy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns if it finds no library
        from cupy.cuda import nccl as module
    if not module.available:
        raise ImportError(
            f"CuPy finds no NCCL library; {install_package('nvidia-nccl-cu13')} (or"
            " nvidia-nccl-cu12)"
        )
    return module


@functools.cache
def require_device():
    """Return the number of devices; raise ``RuntimeError`` if none can be used."""
    runtime = cupy().cuda.runtime
    driver = runtime.driverGetVersion()
    if driver == 0:
        raise RuntimeError(
            "no NVIDIA driver on this machine (or in this container); the CUDA kernels need one"
        )
    built = runtime.runtimeGetVersion()
    if driver // 1000 < built // 1000:
        raise RuntimeError(
            f"the NVIDIA driver supports CUDA {dotted(driver)}, but this CuPy was built for CUDA"
            f" {dotted(built)}; update the driver, or install the CuPy for CUDA {driver // 1000}"
        )
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise RuntimeError(f"the CUDA runtime does not start: {error}") from error
    if count == 0:
        raise RuntimeError("the NVIDIA driver shows no device; check CUDA_VISIBLE_DEVICES")
    _compare({"CuPy": cupy().__version__, "CUDA": dotted(built), "driver of CUDA": dotted(driver)})
    return count


def _compare(versions):
    """Log a warning if a major version differs from the tested one."""
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
    """Format a CUDA version number, for example 13000 as "13.0"."""
    return f"{version // 1000}.{version % 1000 // 10}"


@functools.cache
def device_facts(device):
    """Return the architecture, number of multiprocessors and shared-memory limit per block."""
    device = cupy().cuda.Device(device)
    capability = device.compute_capability
    attributes = device.attributes
    shared = attributes.get("MaxSharedMemoryPerBlockOptin", FREELY_SHARED)
    return ARCHITECTURE.get(capability, capability), attributes["MultiProcessorCount"], shared


def current_device():
    """Return the number of the current device; raise ``RuntimeError`` if there is none."""
    require_device()
    return cupy().cuda.get_device_id()


def device(number):
    """Return the context that makes a device current."""
    require_device()
    return cupy().cuda.Device(number)


def device_names():
    """Return the PCI bus id of each visible device: its name in every process of this host."""
    return [cupy().cuda.Device(number).pci_bus_id for number in range(require_device())]


def multiprocessors():
    """Return the number of multiprocessors of the current device."""
    return device_facts(current_device())[1]


def shared_memory_limit():
    """Return the shared-memory limit per block of the current device, in bytes."""
    return device_facts(current_device())[2]
