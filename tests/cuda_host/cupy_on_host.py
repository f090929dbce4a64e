"""A CuPy on the host: everything above the kernels runs on "device" arrays without a device.

It is strict where CuPy is: an array is never converted to a NumPy array implicitly, and never mixes
with one; results of reductions stay on the device; NumPy's functions reach it only through
``__array_ufunc__`` and ``__array_function__``, by CuPy's rules. Missing functions raise. Copies to
the host are counted in ``copies``: ``get``, ``item``, ``float(x)``, ``bool(x)``, and sizes that
only the device knows. Kernels run on the emulation, cuBLAS and cuSOLVER are ``libraries_on_host``.
"""

import contextlib
import functools
import inspect
import types
from unittest import mock

import numpy as np
import scipy.special
from cuda_host import libraries_on_host, nccl_on_host
from cuda_host.emulated import CUDA, module_of

from fastsvgp.kernels.cuda.common import graphs, libraries, loader, scratch
from fastsvgp.runtime import cuda_devices


class Copies:
    """Counts of copies from the device to the host and back, and their bytes."""

    def __init__(self):
        self.to_host = self.to_device = self.bytes_to_host = self.bytes_to_device = 0

    def down(self, array):
        self.to_host += 1
        self.bytes_to_host += array.nbytes

    def up(self, array):
        self.to_device += 1
        self.bytes_to_device += array.nbytes


copies = Copies()


def _refused(value):
    return TypeError(f"Unsupported type {type(value)}")


def _inner(value):
    """Return the NumPy value of an argument; NumPy's own arrays are refused."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise _refused(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_inner, value))
    return value


def _outer(result):
    """Return a result as a device has it: 0-d arrays too."""
    if isinstance(result, (np.ndarray, np.generic)):
        return ndarray(np.asarray(result))
    if isinstance(result, (list, tuple)):
        return type(result)(map(_outer, result))
    return result


quiet = np.errstate(all="ignore")  # a device raises no floating-point flags; as a decorator


def _on_device(function, parameters):
    """Return a NumPy function with these parameters, for arrays of the device."""
    signature = inspect.signature(eval(f"lambda {parameters}: None"))

    @quiet
    @functools.wraps(function, assigned=("__name__",), updated=())
    def call(*args, **kwargs):
        signature.bind(*args, **kwargs)  # TypeError as from the real one
        return _outer(
            function(*map(_inner, args), **{name: _inner(value) for name, value in kwargs.items()})
        )

    return call


class Ufunc:
    """A ufunc of CuPy: called, or as a reduction."""

    def __init__(self, ufunc):
        self._ufunc = ufunc
        self.__name__ = ufunc.__name__

    @quiet
    def __call__(self, *args, out=None, dtype=None):
        options = {} if dtype is None else {"dtype": dtype}
        if out is None:
            return _outer(self._ufunc(*map(_inner, args), **options))
        self._ufunc(*map(_inner, args), out=_inner(out), **options)
        return out

    @quiet
    def reduce(self, array, axis=0, dtype=None, keepdims=False):
        return _outer(self._ufunc.reduce(_inner(array), axis=axis, dtype=dtype, keepdims=keepdims))


class Pointer:
    """A place in the memory of a NumPy array, which it keeps alive."""

    def __init__(self, memory, ptr=None):
        self.memory, self.ptr = memory, memory.ctypes.data if ptr is None else ptr

    def __add__(self, nbytes):
        return Pointer(self.memory, self.ptr + nbytes)

    def view(self, shape, dtype, strides):
        return np.ndarray(shape, dtype, self.memory, self.ptr - self.memory.ctypes.data, strides)


def _binary(name):
    @quiet
    def operator(self, other):
        if not isinstance(other, (ndarray, int, float, np.generic)):
            return NotImplemented
        return _outer(getattr(self._host, f"__{name}__")(_inner(other)))

    return operator


def _in_place(name):
    @quiet
    def operator(self, other):
        if isinstance(other, np.ndarray):
            raise _refused(other)
        getattr(self._host, f"__i{name}__")(_inner(other))
        return self

    return operator


def _method(name):
    @quiet
    def method(self, *args, **kwargs):
        return _outer(
            getattr(self._host, name)(
                *map(_inner, args), **{k: _inner(v) for k, v in kwargs.items()}
            )
        )

    return method


def _to_host(name):
    def method(self, *args):
        copies.down(self)
        return getattr(self._host, name)(*args)

    return method


class ndarray:
    """Device memory, stored on the host in ``_host``."""

    __array_priority__ = 100
    __hash__ = None

    def __init__(self, host, dtype=None, memptr=None, strides=None):
        """Wrap a NumPy array; or, as in CuPy, take a shape and existing memory."""
        self._host = host if memptr is None else memptr.view(host, dtype, strides)
        assert type(self._host) is np.ndarray

    @property
    def __cuda_array_interface__(self):
        return self._host.__array_interface__ | {"version": 3}

    def __array__(self, *args, **kwargs):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct"
            " one explicitly."
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        if "out" in kwargs:
            (kwargs["out"],) = kwargs["out"]
        module = cupy if hasattr(cupy, ufunc.__name__) else special
        function = getattr(module, ufunc.__name__, None)
        if function is None or method not in ("__call__", "reduce"):
            return NotImplemented
        return (function if method == "__call__" else function.reduce)(*inputs, **kwargs)

    def __array_function__(self, function, types, args, kwargs):
        if function.__module__ != "numpy" or not hasattr(cupy, function.__name__):
            return NotImplemented
        return getattr(cupy, function.__name__)(*args, **kwargs)

    shape, dtype, ndim, size, itemsize, nbytes, strides, flags = (
        property(lambda self, name=name: getattr(self._host, name))
        for name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags")
    )
    T = property(lambda self: ndarray(self._host.T))
    data = property(lambda self: Pointer(self._host))
    device = types.SimpleNamespace(id=0)

    def get(self, stream=None, order="C", out=None, blocking=True):
        copies.down(self)
        if out is None:
            return self._host.copy(order)
        assert (
            type(out) is np.ndarray
            and out.flags.c_contiguous
            and (out.shape, out.dtype) == (self.shape, self.dtype)
        )
        out[...] = self._host
        return out

    def set(self, arr, stream=None):
        copies.up(arr)
        assert type(arr) is np.ndarray and (arr.shape, arr.dtype) == (self.shape, self.dtype)
        self._host[...] = arr

    item, tolist, __float__, __int__, __bool__, __index__ = map(
        _to_host, ("item", "tolist", "__float__", "__int__", "__bool__", "__index__")
    )

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    @staticmethod
    def _index(index):
        parts = index if isinstance(index, tuple) else (index,)
        for part in parts:
            if isinstance(part, ndarray) and part.dtype == bool:
                copies.to_host += 1  # the number of True entries decides the shape of the result
            elif not isinstance(
                part, (ndarray, int, np.integer, slice, type(None), type(Ellipsis))
            ):
                raise _refused(part)
        return _inner(index)

    def __getitem__(self, index):
        return _outer(self._host[self._index(index)])

    def __setitem__(self, index, value):
        self._host[self._index(index)] = _inner(value)

    for _name in ("add", "sub", "mul", "truediv", "pow", "matmul", "mod", "floordiv"):
        locals()[f"__{_name}__"] = _binary(_name)
        locals()[f"__r{_name}__"] = _binary(f"r{_name}")
        locals()[f"__i{_name}__"] = _in_place(_name)
    for _name in ("eq", "ne", "lt", "le", "gt", "ge", "and", "or"):
        locals()[f"__{_name}__"] = _binary(_name)
    for _name in ("reshape", "ravel", "astype", "copy", "sum", "prod", "max", "min", "all", "any",
                  "diagonal", "transpose", "swapaxes", "view", "take", "argsort", "cumsum",
                  "squeeze", "__neg__", "__abs__", "__invert__"):  # fmt: skip
        locals()[_name] = _method(_name)
    del _name

    def fill(self, value):
        # the real one reads it back, too
        self._host.fill(value.item() if isinstance(value, ndarray) else value)


# --- the modules ----------------------------------------------------------------------------------

UFUNCS = """absolute add arccos ceil cos divide equal exp expm1 floor greater greater_equal invert
isfinite less less_equal log log1p isnan logaddexp logical_and logical_or maximum minimum multiply
negative not_equal power rint sin square sqrt subtract tanh""".split()
# with the parameters of CuPy's functions: NumPy's have more, and ``like=`` forwards some of these
# unasked
FUNCTIONS = {
    "all": "a, axis=None, out=None, keepdims=False",
    "any": "a, axis=None, out=None, keepdims=False",
    "arange": "start, stop=None, step=1, dtype=None",
    "argmax": "a, axis=None, dtype=None, out=None, keepdims=False",
    "argwhere": "a",
    "atleast_2d": "*arys",
    "broadcast_to": "array, shape",
    "clip": "a, a_min, a_max, out=None",
    "concatenate": "tup, axis=0, out=None, *, dtype=None, casting='same_kind'",
    "cumsum": "a, axis=None, dtype=None, out=None",
    "diag": "v, k=0",
    "diagonal": "a, offset=0, axis1=0, axis2=1",
    "eye": "N, M=None, k=0, dtype=float, order='C'",
    "full": "shape, fill_value, dtype=None, order='C'",
    "full_like": "a, fill_value, dtype=None, order='K', subok=None, shape=None",
    "hsplit": "ary, indices_or_sections",
    "hstack": "tup, *, dtype=None, casting='same_kind'",
    "matmul": "x1, x2, out=None, casting='same_kind', order='K', dtype=None",
    "max": "a, axis=None, out=None, keepdims=False",
    "min": "a, axis=None, out=None, keepdims=False",
    "moveaxis": "a, source, destination",
    "ndim": "a",
    "ones": "shape, dtype=float, order='C'",
    "ones_like": "a, dtype=None, order='K', subok=None, shape=None",
    "ravel": "a, order='C'",
    "repeat": "a, repeats, axis=None",
    "shape": "a",
    "stack": "tup, axis=0, out=None, *, dtype=None, casting='same_kind'",
    "sum": "a, axis=None, dtype=None, out=None, keepdims=False",
    "take": "a, indices, axis=None, out=None",
    "take_along_axis": "a, indices, axis",
    "tile": "A, reps",
    "trace": "a, offset=0, axis1=0, axis2=1, dtype=None, out=None",
    "tril": "m, k=0",
    "unravel_index": "indices, dims, order='C'",
    "vdot": "a, b",
    "where": "condition, x=None, y=None",
    "zeros": "shape, dtype=float, order='C'",
    "zeros_like": "a, dtype=None, order='K', subok=None, shape=None",
}


def _plain(a):
    return a._host if isinstance(a, ndarray) else a


def _array(a, dtype=None, order="K"):
    made = ndarray(np.array(_plain(a), dtype, order=order))
    if not isinstance(a, ndarray):
        copies.up(made)
    return made


def _asarray(a, dtype=None, blocking=False):
    if isinstance(a, ndarray) and (dtype is None or a.dtype == dtype):
        return a
    return _array(a, dtype)


def _ascontiguousarray(a, dtype=None):
    # in NumPy float64 == None
    same = isinstance(a, ndarray) and a.flags.c_contiguous and (dtype is None or a.dtype == dtype)
    return a if same else _array(a, dtype, "C")


def _empty(shape, dtype=float):
    """Return memory that holds NaN, so that entries that a kernel does not write show."""
    return ndarray(
        np.full(shape, np.nan, dtype) if np.dtype(dtype).kind == "f" else np.full(shape, 77, dtype)
    )


def _as_strided(x, shape=None, strides=None):
    return ndarray(np.lib.stride_tricks.as_strided(x._host, shape, strides))


def _count_nonzero(a):
    return ndarray(np.asarray(np.count_nonzero(_inner(a))))


def _asnumpy(a):
    return a.get()


class Core:
    """CuPy's choice of libraries for reductions, without effect here."""

    def __init__(self):
        self.reduction, self.routine = [1], [1]

    def get_reduction_accelerators(self):
        return list(self.reduction)

    def get_routine_accelerators(self):
        return list(self.routine)

    def set_reduction_accelerators(self, found):
        self.reduction = list(found)

    def set_routine_accelerators(self, found):
        self.routine = list(found)


cupy = types.ModuleType("cupy")
cupy.__dict__.update(
    **{name: Ufunc(getattr(np, name)) for name in UFUNCS},
    **{name: _on_device(getattr(np, name), parameters) for name, parameters in FUNCTIONS.items()},
    _core=Core(),
    ndarray=ndarray,
    array=_array,
    asarray=_asarray,
    ascontiguousarray=_ascontiguousarray,
    asnumpy=_asnumpy,
    count_nonzero=_count_nonzero,
    cuda=CUDA,
    empty=_empty,
    empty_like=lambda a: _empty(a.shape, a.dtype),
    lib=types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=_as_strided)),
)
# of cupyx.scipy.special; it has no wrightomega
SPECIAL = (
    "betainc erf erfc erfcx expit gammainc gammaincc gammaincinv gammaln log_expit log_ndtr logit"
    " ndtr ndtri psi"
).split()
special = types.SimpleNamespace(**{name: Ufunc(getattr(scipy.special, name)) for name in SPECIAL})


@contextlib.contextmanager
def cupy_on_host(order="forward", sanitizer=None, multiprocessors=2, devices=1):
    """Let the CUDA twins run on the arrays of this module, within the context; yield the module."""

    def launch(stem, kernel, dtype, grid, block, arguments, shared_memory=0):
        for a in arguments:
            if isinstance(a, np.ndarray):
                raise _refused(a)
        module_of(stem, str(dtype), sanitizer).launch(
            kernel, grid, block, [*map(_plain, arguments)], shared_memory, order
        )

    replaced = {
        "cupy": lambda: cupy,
        "multiprocessors": lambda: multiprocessors,
        "current_device": lambda: 0,
        "device": lambda number: contextlib.nullcontext(),
        "shared_memory_limit": lambda: 227 * 1024,
        "nccl": lambda: nccl_on_host,
        "device_names": lambda: [CUDA.Device(i).pci_bus_id for i in range(devices)],
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(cuda_devices, **replaced))
        stack.enter_context(mock.patch.object(loader, "launch", launch))
        stack.enter_context(mock.patch.multiple(libraries, **libraries_on_host.ROUTINES))
        # run each time
        stack.enter_context(mock.patch.object(graphs, "Recorded", lambda body, beside=None: body))
        stack.enter_context(mock.patch.dict(scratch._kept, clear=True))
        yield cupy
