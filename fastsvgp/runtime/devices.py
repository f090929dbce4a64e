"""Move models between host and device."""

import functools
import operator

import numpy as np

from ..records import is_parts, is_record, leaves, replace, tree_map
from ..records.dtypes import common_dtype
from ..records.typed import RecordT
from . import cuda_devices
from .deferred_checks import on_device


def to_device(tree: RecordT, device: str = "cuda") -> RecordT:
    """Copy a model, or any record, to a device.

    Parameters
    ----------
    tree : record
    device : str
        "cuda" for CuPy's current device, "cuda:1" for device 1, "cpu" for the same as ``to_host``.

    Returns
    -------
    record
        All leaves are CuPy arrays. Python numbers become 0-d arrays with the dtype of the others.
        The inputs and targets of ``NearRows`` move too; what says which rows are near does not.

    Raises
    ------
    ImportError, RuntimeError
        CuPy, the driver or the device is missing.
    MemoryError
        The record does not fit.

    Examples
    --------
    >>> on_gpu = fs.to_device(model, "cuda")  # doctest: +SKIP
    >>> fs.elbo(on_gpu, X, Y)  # doctest: +SKIP
    """
    if not is_record(tree):
        raise TypeError(
            f"to_device: `tree` must be a fastsvgp record, got {type(tree).__name__}; for arrays"
            " use cupy.asarray"
        )
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return to_host(tree)
    if kind != "cuda" or not (number.isdecimal() or number == ""):
        raise ValueError(
            f'to_device: `device` must be "cuda", "cuda:<number>" or "cpu", got {device!r}'
        )
    cp = cuda_devices.cupy()
    dtype = common_dtype(*(value for _, _, value in leaves(tree) if value is not None))
    with cuda_devices.device(int(number) if number else cuda_devices.current_device()):
        return _move(
            lambda v: cp.asarray(v, dtype=dtype if isinstance(v, (int, float)) else None), tree
        )


def to_host(tree: RecordT) -> RecordT:
    """Copy a model, or any record, from a device to the host.

    Parameters
    ----------
    tree : record

    Returns
    -------
    record
        All leaves are NumPy arrays or numbers.

    Raises
    ------
    TypeError
        ``tree`` is not a record.

    Examples
    --------
    >>> fs.to_host(model).inducing.shape
    (6, 1)
    """
    if not is_record(tree):
        raise TypeError(
            f"to_host: `tree` must be a fastsvgp record, got {type(tree).__name__}; arrays have"
            " .get()"
        )
    return _move(lambda v: v.get()[()] if on_device(v) else v, tree)


def _move(move, tree):
    """Apply ``move`` to the leaves of a record, and to the data that move with it."""
    return _move_data(move, tree_map(move, tree))


def _move_data(move, tree):
    changes = {}
    for name, _ in tree._record_fields:
        value = getattr(tree, name)
        if is_record(value):
            moved = _move_data(move, value)
        elif is_parts(value):
            moved = tuple(_move_data(move, part) for part in value)
            moved = value if all(map(operator.is_, moved, value)) else moved
        elif name in tree._moved_data and value is not None:
            moved = move(value)
        else:
            continue
        if moved is not value:
            changes[name] = moved
    return replace(tree, **changes) if changes else tree


def device_array(tree):
    """Return the first array of the record on a device, or None."""
    return next((value for _, _, value in leaves(tree) if on_device(value)), None)


def copy_to(value, device_like):
    """Copy a NumPy array or a number to the device of ``device_like``, asynchronously."""
    if not on_device(device_like) or on_device(value):
        return value
    return np.asarray(value, like=device_like)


def constant_like(device_like, function, *arguments):
    """Return ``function(*arguments)``, a constant NumPy array, on the device of ``device_like``.

    A device gets it once: a step that is captured into a graph cannot copy from the host.
    """
    if not on_device(device_like):
        return function(*arguments)
    return _constant(cuda_devices.cupy(), cuda_devices.current_device(), function, *arguments)


@functools.lru_cache(maxsize=32)
def _constant(cupy, device, function, *arguments):
    return cupy.asarray(function(*arguments), blocking=True)
