"""Dispatch of kernels by device: the only module that chooses between CPU and CUDA."""

import functools
import importlib
from collections.abc import Callable
from typing import Any, ParamSpec

from numpy import float32, float64, ndarray, ndim

from . import cuda_devices

P = ParamSpec("P")

# the types of nearly all arguments: a look-up here takes a fifth of the time of testing for a
# missing attribute
_HOST = frozenset({ndarray, type(None), float, int, float64, float32})
# CuPy's types, once seen: testing one of its arrays for an attribute takes ten times as long
_cupy: set = set()
_gpus = 1  # devices, counted when the first of CuPy's arrays is seen


def backend_of(*arrays):
    """Return the device of arrays, "cpu" or "cuda". Raise ``TypeError`` if both occur, or two GPUs.

    Python numbers, 0-d arrays and ``None`` go with either.
    """
    for a in arrays:
        kind = type(a)
        if kind not in _HOST and (kind in _cupy or hasattr(a, "__cuda_array_interface__")):
            break
    else:
        return "cpu"
    if kind.__module__ == "cupy" and kind not in _cupy:
        _see(kind)
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
    if _gpus > 1 and len({_gpu_of(a) for a in arrays} - {None}) > 1:
        raise TypeError("arrays live on different GPUs; move all of them to one first")
    return "cuda"


def is_on_device(a):
    """Whether an array is on a device."""
    kind = type(a)
    return kind in _cupy or (kind not in _HOST and hasattr(a, "__cuda_array_interface__"))


def _see(kind):
    global _gpus
    _cupy.add(kind)
    _gpus = cuda_devices.require_device()


def _gpu_of(a):
    """Return the number of an array's GPU, or None if the array is not CuPy's."""
    if not hasattr(a, "__cuda_array_interface__"):
        return None
    return getattr(getattr(a, "device", None), "id", None)


def one_device(*named):
    """Raise ``TypeError`` if the arrays, given as (name, array), are not all on one device."""
    there: dict = {}  # names by GPU
    here = []
    for name, a in named:
        if hasattr(a, "__cuda_array_interface__"):
            there.setdefault(_gpu_of(a), []).append(f"`{name}`")
        elif ndim(a) > 0:
            here.append(f"`{name}`")
    if there and here:
        raise TypeError(
            f"arrays live on different devices: {', '.join(sum(there.values(), []))} on the GPU,"
            f" {', '.join(here)} on"
            ' the CPU; move models with fastsvgp.to_device(model, "cuda") or'
            " fastsvgp.to_host(model), and data with cupy.asarray or .get()"
        )
    if len(there) > 1:
        places = ", ".join(f"{', '.join(names)} on GPU {gpu}" for gpu, names in there.items())
        raise TypeError(
            f"arrays live on different devices: {places}; move models with"
            ' fastsvgp.to_device(model, "cuda:0"), and data with cupy.asarray in the context'
            " cupy.cuda.Device(0)"
        )


def check_gpu(name, array):
    """Raise ``ValueError`` if an array is on another GPU than the current one.

    Libraries use the current one, whatever their operands are.
    """
    kind = type(array)
    if kind not in _cupy:
        if kind.__module__ != "cupy":
            return
        _see(kind)
    if _gpus > 1 and array.device.id != (current := cuda_devices.current_device()):
        gpu = array.device.id
        raise ValueError(
            f"`{name}` is on GPU {gpu}, but the current device is {current}; call in the context"
            f" cupy.cuda.Device({gpu}), or move the array"
        )


def shares_memory(a, b):
    """Whether the memory ranges from first to last entry of two arrays overlap, on any device."""
    (a_low, a_high), (b_low, b_high) = map(_extent, (a, b))
    return a.size > 0 and b.size > 0 and a_low < b_high and b_low < a_high


def _extent(a):
    """Return the address of the first byte of an array, and the address after its last."""
    on_device = hasattr(a, "__cuda_array_interface__")
    interface = a.__cuda_array_interface__ if on_device else a.__array_interface__
    start = interface["data"][0]
    steps = [stride * (n - 1) for stride, n in zip(a.strides, a.shape, strict=True)]
    return (
        start + sum(min(step, 0) for step in steps),
        start + sum(max(step, 0) for step in steps) + a.itemsize,
    )


@functools.cache
def family(stem):
    """Return a function that maps named arrays to the module of a kernel family on their device.

    The function raises ``TypeError`` if the devices are mixed, and ``ValueError`` if their GPU is
    not the current one. Messages use these names.
    """
    host = None

    def twin(**arrays):
        nonlocal host
        for a in arrays.values():
            if type(a) not in _HOST and _backend_of_named(arrays) == "cuda":
                if _gpus > 1:
                    for name, array in arrays.items():
                        check_gpu(name, array)
                return _cuda_twin(stem)
        if host is None:
            host = _cpu_twin(stem)
        return host

    return twin


def twin(stem, /, **arrays):
    """Return the module of a kernel family on the device of these arrays; see ``family``."""
    return family(stem)(**arrays)


def operation(*arrays: str) -> Callable[[Callable[P, object]], Callable[P, Any]]:
    """Make a front door of a declaration: name, arguments and documentation, without a body.

    The door calls the function with the name and arguments of the declaration, in the twin that has
    the name of its module, on the device of these ``arrays``. Each names an argument, or with a
    star a sequence of arrays, or of such sequences, which can be None.
    """

    def declare(function: Callable[P, object]) -> Callable[P, Any]:
        name, code = function.__name__, function.__code__
        places, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        given, starred = code.co_varnames[:last], ("*",) if last > places else ()
        parameters = ", ".join((*given[:places], *starred, *given[places:]))
        named = (f"**each('{a[1:]}', {a[1:]})" if a[0] == "*" else f"{a}={a}" for a in arrays)
        # made of text, as dataclasses make theirs: binding arguments at each call would take longer
        text = f"lambda {parameters}: twin({', '.join(named)}).{name}({', '.join(given)})"
        twin = family(function.__module__.rpartition(".")[2])
        door = eval(text, {"twin": twin, "each": _each})
        door.__defaults__, door.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        here = {"co_name": name, "co_filename": code.co_filename}
        door.__code__ = door.__code__.replace(**here, co_firstlineno=code.co_firstlineno)
        return functools.update_wrapper(door, function)

    return declare


def _each(name, arrays):
    named = {}
    for i, array in enumerate(arrays or ()):
        inner = isinstance(array, (tuple, list))
        named |= _each(f"{name}[{i}]", array) if inner else {f"{name}[{i}]": array}
    return named


def _backend_of_named(arrays):
    try:
        return backend_of(*arrays.values())
    except TypeError:
        one_device(*arrays.items())
        raise


def kernels_of(*arrays):
    """Return which kernels work on these arrays: "CUDA", "Numba", or a level of processor."""
    if backend_of(*arrays) == "cuda":
        return "CUDA"
    return importlib.import_module("fastsvgp.kernels.cpu.common.ahead").found()[0] or "Numba"


def _cpu_twin(stem):
    return importlib.import_module(f"fastsvgp.kernels.cpu.{stem}")


@functools.cache
def _cuda_twin(stem):
    name = f"fastsvgp.kernels.cuda.{stem}"
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise TypeError(
            f"got CuPy arrays, but the family `{stem}` has no CUDA kernels in this version; pass"
            " NumPy arrays (cupy.asnumpy)"
        ) from None
