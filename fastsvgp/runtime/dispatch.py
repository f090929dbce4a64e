"""The only place that asks "CPU or CUDA?"."""

import functools
import importlib

from numpy import float32, float64, ndarray, ndim

from .memory import explained

# what nearly all arguments are: to find a type here takes a fifth of the time of asking for an
# attribute that is not there
_HOST = frozenset({ndarray, type(None), float, int, float64, float32})
# its types, once they came: to ask one of its arrays for an attribute takes ten times as long
_cupy: set = set()


def backend_of(*arrays):
    """Say where arrays live: "cpu" or "cuda"; Python numbers, 0-d arrays and ``None`` follow the others.

    Raises ``TypeError`` where they are mixed.
    """
    for a in arrays:
        kind = type(a)
        if kind not in _HOST and (kind in _cupy or hasattr(a, "__cuda_array_interface__")):
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
    """The address of the first byte of an array, and that behind its last."""
    on_device = hasattr(a, "__cuda_array_interface__")
    interface = a.__cuda_array_interface__ if on_device else a.__array_interface__
    start = interface["data"][0]
    steps = [stride * (n - 1) for stride, n in zip(a.strides, a.shape, strict=True)]
    return (
        start + sum(min(step, 0) for step in steps),
        start + sum(max(step, 0) for step in steps) + a.itemsize,
    )


def check_out(out, **read):
    """Refuse an ``out`` that is not C-contiguous, or whose memory is that of an argument which is read while it is written."""
    if out is None:
        return
    if not out.flags.c_contiguous:
        raise ValueError(
            f"`out` must be C-contiguous, got shape {out.shape} with strides {out.strides}"
        )
    for name, a in read.items():
        if shares_memory(out, a):
            raise ValueError(
                f"`out` shares memory with `{name}`, which is read meanwhile; give it memory of"
                " its own"
            )


@functools.cache
def family(stem):
    """A function from named arrays to the module that implements a kernel family where they live.

    Messages call the arrays by these names. It raises ``TypeError`` where they are mixed. What the
    module of a device raises where memory runs out names one of them.
    """
    host = None

    def twin(**arrays):
        nonlocal host
        for a in arrays.values():
            if type(a) not in _HOST and _backend_of_named(arrays) == "cuda":
                return _Explaining(_cuda_twin(stem), arrays)
        if host is None:
            host = importlib.import_module(f"fastsvgp.kernels.cpu.{stem}")
        return host

    return twin


def twin(stem, /, **arrays):
    """The module that implements a kernel family where these arrays live: see ``family``."""
    return family(stem)(**arrays)


def _backend_of_named(arrays):
    try:
        return backend_of(*arrays.values())
    except TypeError:
        one_device(*arrays.items())
        raise


@functools.cache
def _cuda_twin(stem):
    name = f"fastsvgp.kernels.cuda.{stem}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
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
