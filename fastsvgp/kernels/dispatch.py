"""The only place that asks "CPU or CUDA?"."""

import importlib

from numpy import ndarray

_modules = {}


def backend_of(*arrays):
    """Say where arrays live: "cpu" or "cuda"; Python numbers, 0-d arrays and ``None`` follow the others.

    Raises ``TypeError`` where they are mixed.
    """
    cpu = cuda = False
    for a in arrays:
        if type(a) is ndarray:  # nearly always: three times as fast as asking for attributes that are not there
            cpu = cpu or a.ndim > 0
        elif hasattr(a, "__cuda_array_interface__"):
            cuda = True
        elif getattr(a, "ndim", 0) > 0:
            cpu = True
    if cpu and cuda:
        raise TypeError("arrays live on different devices (NumPy and CuPy mixed); move all of them to one device first")
    return "cuda" if cuda else "cpu"


def twin(stem, *arrays):
    """The module that implements a kernel family for these arrays."""
    key = backend_of(*arrays), stem
    module = _modules.get(key)
    if module is None:
        name = f"{__package__}.{key[0]}.{stem}"
        try:
            module = _modules[key] = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if key[0] == "cpu" or error.name != name:
                raise
            raise TypeError(
                f"CuPy arrays came in, but the family `{stem}` has no CUDA kernels in this version; "
                "pass NumPy arrays (cupy.asnumpy)"
            ) from None
    return module
