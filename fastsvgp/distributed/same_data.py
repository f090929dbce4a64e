"""Digests of X, Y and weights, by which ranks check at the start of a call that data agree.

Entries of weight 0 are never read and can be anything, so they count as zeros. A digest does not
depend on the byte order, or on whether the array is in memory, in a file or on a device. Digests of
all numbers are compared only if both ranks have them.
"""

import zlib

import numpy as np

from .. import check
from ..check import weights as weighing
from ..kernels import fold_bits
from ..runtime import devices
from ..runtime.deferred_checks import on_device

ROWS = 256  # evenly spread, including the first and the last
# bytes: largest array in memory that is digested as a whole at the start of a training
WHOLE = 2**26


def digest_rows(X, Y, weights):
    """Return a digest of shape, dtype and 256 rows of each argument, by name.

    It takes some microseconds, and reads only these rows. Rows on a device are copied to the host,
    those of all arguments in one copy.
    """
    return _digest_each(_readable(X, Y, weights))


def digest_all(X, Y, weights):
    """Return ``{name: {"rows": as of_rows, place: digest of all numbers}}``.

    The digest of all numbers is only for arrays in memory of at most 64 MiB.

    place : "host" (some 20 ms for 64 MiB), or "device", where bits are folded on the device and a
    few hundred numbers are copied
    """
    data, found = _readable(X, Y, weights), {}
    for name, rows in _digest_each(data).items():
        array, found[name] = data[name], {"rows": rows}
        at_hand = type(array) is np.ndarray or on_device(array)
        if at_hand and array.nbytes <= WHOLE:
            numbers = np.ascontiguousarray(
                _zero_ignored(name, array, data.get("weights")), np.float64, like=array
            ).reshape(-1)
            if on_device(array):
                found[name]["device"] = [int(word) for word in fold_bits(numbers)]
            else:
                found[name]["host"] = zlib.crc32(numbers)
    return found


def differing(everyone):
    """Return ``(name, ranks)`` of the first argument that differs from rank 0, or None.

    everyone : for each rank the digests by ``digest_all``
    """
    first = everyone[0]
    for name in first:
        others = [rank for rank, found in enumerate(everyone) if _differ(first[name], found[name])]
        if others:
            return name, others
    return None


def _differ(one, other):
    return any(other.get(kind, digest) != digest for kind, digest in one.items())


def _readable(X, Y, weights):
    """Return data by name that can be indexed by row number.

    Lists are converted to arrays, and pandas objects too, because they are indexed by label.
    Weights come first: if they differ, other rows of X and Y count, and X would be named instead.
    """
    found = {}
    for name, array in (("weights", weights), ("X", X), ("Y", Y)):
        if array is not None or name != "weights":
            lazily = (
                name != "weights"
                and hasattr(array, "shape")
                and hasattr(array, "dtype")
                and not hasattr(array, "iloc")
            )
            found[name] = array if lazily else check.as_array(name, array)
    return found


def _digest_each(data):
    parts = {name: _some_rows(name, array) for name, array in data.items()}
    parts = {name: _zero_ignored(name, part, parts.get("weights")) for name, part in parts.items()}
    return {
        name: _digest(data[name].shape, parts[name].dtype, numbers)
        for name, numbers in _on_host(parts).items()
    }


def _some_rows(name, array):
    if array.shape and (len(array) > ROWS or not (type(array) is np.ndarray or on_device(array))):
        rows = (
            np.arange(min(len(array), ROWS)) * (len(array) - 1) // max(min(len(array), ROWS) - 1, 1)
        )
        array = array[devices.copy_to(rows, array)]
    return check.as_array(name, array if on_device(array) else np.asanyarray(array))


def _zero_ignored(name, array, weights):
    """Return X or Y with zeros in place of entries of weight 0.

    Arrays whose shapes do not match are returned unchanged; the call refuses them.
    """
    fit = (
        name != "weights"
        and weights is not None
        and weights.shape
        and array.shape[:1] == weights.shape[:1]
    )
    if not fit or on_device(array) != on_device(weights):
        return array
    counts = (
        weights > 0
        if name == "Y" and weights.shape == array.shape[: weights.ndim]
        else weighing.rows_that_count(weights)
    )
    if type(counts) is np.ndarray and counts.all():  # on a device this would synchronise
        return array
    return np.where(counts.reshape(*counts.shape, *(1,) * (array.ndim - counts.ndim)), array, 0)


def _on_host(parts):
    """Convert parts to float64 on the host; those on a device in one copy."""
    numbers = {
        name: np.ascontiguousarray(part, np.float64, like=part).reshape(-1)
        for name, part in parts.items()
    }
    there = {name: part for name, part in numbers.items() if on_device(part)}
    if there:
        ends = np.cumsum([len(part) for part in there.values()])
        numbers |= zip(
            there, np.split(np.concatenate(list(there.values())).get(), ends[:-1]), strict=True
        )
    return numbers


def _digest(shape, dtype, numbers):
    return zlib.crc32(numbers, zlib.crc32(f"{tuple(map(int, shape))} {dtype.name}".encode()))
