"""The only place that asks "CPU or CUDA?"."""

import importlib

from numpy import ndarray, ndim

from .memory import explained

_modules: dict = {}
# its types, once they came: to ask one of its arrays for an attribute takes ten times as long
_cupy: set = set()


def backend_of(*arrays):
    """Say where arrays live: "cpu" or "cuda"; Python numbers, 0-d arrays and ``None`` follow the others.

    Raises ``TypeError`` where they are mixed.
    """
    for a in arrays:
        # nearly always an array of NumPy's: to see that is three times as fast as to ask for
        # attributes that are not there
        kind = type(a)
        if kind is not ndarray and (kind in _cupy or hasattr(a, "__cuda_array_interface__")):
            break
    else:
        return "cpu"
    if kind.__module__ == "cupy":
        _cupy.add(kind)
    for a in arrays:
        if (
            type(a) not in _cupy
            and getattr(a, "ndim", 0) > 0
            and not hasattr(a, "__cuda_array_interface__")
        ):
            raise TypeError(
                "arrays live on different devices (NumPy and CuPy mixed); move all of them to one"
                " device first"
            )
    return "cuda"


def one_device(*named):
    """Refuse arrays, given as (name, array), of which some live on a device and some do not."""
    there = [f"`{name}`" for name, a in named if hasattr(a, "__cuda_array_interface__")]
    here = [
        f"`{name}`"
        for name, a in named
        if not hasattr(a, "__cuda_array_interface__") and ndim(a) > 0
    ]
    if there and here:
        raise TypeError(
            f"arrays live on different devices: {', '.join(there)} on the GPU, {', '.join(here)} on"
            ' the CPU; move all of them to one, models with fastsvgp.to_device(model, "cuda") or'
            " fastsvgp.to_host(model), data with cupy.asarray or .get()"
        )


def shares_memory(a, b):
    """Whether the bytes from the first to the last entry of one array meet those of the other, on any device."""
    (a_low, a_high), (b_low, b_high) = map(_extent, (a, b))
    return a.size > 0 and b.size > 0 and a_low < b_high and b_low < a_high


def _extent(a):
    start = (a.__array_interface__ if type(a) is ndarray else a.__cuda_array_interface__)["data"][0]
    steps = [stride * (n - 1) for stride, n in zip(a.strides, a.shape, strict=True)]
    return (
        start + sum(min(step, 0) for step in steps),
        start + sum(max(step, 0) for step in steps) + a.itemsize,
    )


def twin(stem, /, **arrays):
    """The module that implements a kernel family where these arrays live.

    Messages call them by these names.

    Raises ``TypeError`` where they are mixed. What the module of a device raises where memory runs
    out names one of them.
    """
    try:
        backend = backend_of(*arrays.values())
    except TypeError:
        one_device(*arrays.items())
        raise
    module = _modules.get((backend, stem))
    if module is None:
        module = _modules[backend, stem] = _imported(backend, stem)
    return module if backend == "cpu" else _Explaining(module, arrays)


def _imported(backend, stem):
    name = f"fastsvgp.kernels.{backend}.{stem}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if backend == "cpu" or error.name != name:
            raise
        raise TypeError(
            f"CuPy arrays came in, but the family `{stem}` has no CUDA kernels in this version;"
            " pass NumPy arrays (cupy.asnumpy)"
        ) from None


class _Explaining:
    """The module of a device: its functions say which array is to blame where memory runs out."""

    __slots__ = ("_arrays", "_module")

    def __init__(self, module, arrays):
        self._module, self._arrays = module, arrays

    def __getattr__(self, name):
        operation = getattr(self._module, name)

        def call(*args, **kwargs):
            try:
                return operation(*args, **kwargs)
            except MemoryError as error:
                raise explained(error, self._arrays) from error

        return call
