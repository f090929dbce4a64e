"""Whether all ranks were given the same data: digests of X, Y and weights, which are compared as a call begins.

What has the weight 0 is never read and may be anything, so zeros stand in its place. A digest does not depend on the byte order,
or on whether the array is in memory, in a file or on a device. Digests of all numbers are compared only if both ranks have them.
"""

import zlib

import numpy as np

from . import check, devices, weighing
from .kernels import fold_bits
from .kernels.verdicts import on_device

ROWS = 256  # spread evenly, the first and the last among them
WHOLE = 2**26  # bytes: arrays at hand up to this size are digested as a whole where a training begins


def of_rows(X, Y, weights):
    """A digest of shape, dtype and 256 rows of each argument, by name: some microseconds, and no more is read or copied."""
    return {name: _of_part(array.shape, part) for name, array, part in _parts(X, Y, weights)}


def of_all(X, Y, weights):
    """``{name: {"rows": as of_rows, place: digest of all numbers}}``, the latter of arrays at hand of at most 64 MiB.

    place : "host" (about 10 ms for 64 MiB), or "device", where the bits are folded there and two numbers are copied
    """
    found, weights = {}, None if weights is None else check.as_array("weights", weights)
    for name, array, part in _parts(X, Y, weights):
        found[name] = {"rows": _of_part(array.shape, part)}
        if type(array) is np.ndarray and array.nbytes <= WHOLE:
            found[name]["host"] = _of_part(array.shape, _counted(name, array, weights))
        elif on_device(array) and array.nbytes <= WHOLE:
            numbers = np.ascontiguousarray(_counted(name, array, weights), np.float64, like=array)
            found[name]["device"] = [int(word) for word in fold_bits(numbers.reshape(-1))]
    return found


def differing(everyone):
    """``(name, ranks)`` of the first argument whose digests, by ``of_all``, are not those of rank 0; None where all are."""
    first = everyone[0]
    for name in first:
        others = [rank for rank, found in enumerate(everyone) if _differ(first[name], found[name])]
        if others:
            return name, others
    return None


def _differ(one, other):
    return any(other.get(kind, digest) != digest for kind, digest in one.items())


def _parts(X, Y, weights):
    """``(name, array, rows of it on the host)`` of each argument."""
    data = {"X": X, "Y": Y} | ({} if weights is None else {"weights": weights})
    data = {name: _readable(name, array) for name, array in data.items()}
    parts = {name: _some_rows(name, array) for name, array in data.items()}
    return [(name, data[name], _counted(name, part, parts.get("weights"))) for name, part in parts.items()]


def _readable(name, data):
    """Data as they are where they can be read by row number; lists, and pandas (which reads by label), as arrays."""
    lazily = hasattr(data, "shape") and hasattr(data, "dtype") and not hasattr(data, "iloc")
    return data if lazily else check.as_array(name, data)


def _some_rows(name, array):
    if array.shape and (len(array) > ROWS or type(array) is not np.ndarray):
        rows = np.arange(min(len(array), ROWS)) * (len(array) - 1) // max(min(len(array), ROWS) - 1, 1)
        array = array[devices.like(rows, array)]
    array = check.as_array(name, array if on_device(array) else np.asanyarray(array))
    return array.get() if on_device(array) else array


def _counted(name, array, weights):
    """X or Y with zeros for what counts 0 times. What does not fit together stays: the call refuses it."""
    fit = weights is not None and weights.shape and array.shape[:1] == weights.shape[:1] and name != "weights"
    if not fit or on_device(array) != on_device(weights):
        return array
    counts = weights > 0 if name == "Y" and weights.shape == array.shape else weighing.rows_that_count(weights)
    if type(counts) is np.ndarray and counts.all():
        return array
    return np.where(counts.reshape(*counts.shape, *(1,) * (array.ndim - counts.ndim)), array, 0)


def _of_part(shape, part):
    header = zlib.crc32(repr((tuple(map(int, shape)), part.dtype.name)).encode())
    return zlib.crc32(np.ascontiguousarray(part, part.dtype.newbyteorder("=")), header)
