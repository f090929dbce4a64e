"""The only place that asks "CPU or CUDA?"."""

import importlib

_modules = {}


def backend_of(*arrays):
    """"cpu" or "cuda", by where the arrays live; Python numbers and ``None`` follow the others.

    Raises ``TypeError`` where they are mixed.
    """
    cpu = cuda = False
    for a in arrays:
        if hasattr(a, "__cuda_array_interface__"):
            cuda = True
        elif hasattr(a, "__array_interface__") and getattr(a, "ndim", 0) > 0:
            cpu = True
    if cpu and cuda:
        raise TypeError("arrays live on different devices (NumPy and CuPy mixed); move all of them to one device first")
    return "cuda" if cuda else "cpu"


def twin(stem, *arrays):
    """The module that implements a kernel family for these arrays."""
    key = backend_of(*arrays), stem
    module = _modules.get(key)
    if module is None:
        if key[0] == "cuda":
            raise TypeError("CuPy arrays came in, but this version has no CUDA kernels; pass NumPy arrays (cupy.asnumpy)")
        module = _modules[key] = importlib.import_module(f"{__package__}.{key[0]}.{stem}")
    return module
