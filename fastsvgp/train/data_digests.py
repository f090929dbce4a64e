"""Digests of training data: of all numbers, or of some rows of large or lazily read data."""

import hashlib

import numpy as np

from ..runtime.deferred_checks import on_device
from .batches import read_rows, whole

WHOLE = 2**26  # bytes: largest array in memory, or on a device, that is digested as a whole
ROWS = 256  # evenly spread, including the first and the last


def compute(**data):
    """Return digests of arrays by name, as JSON can hold them.

    Each has the shape, the dtype, a digest of 256 rows, and, for arrays in memory or on a device of
    at most 64 MiB, a digest of all rows (0.2 s for the largest). Data that are read lazily
    (``numpy.memmap``, h5py) are not read as a whole: two such data sets compare equal if they agree
    in shape, dtype and the 256 rows. Byte order and device do not affect a digest.
    """
    return {name: _one(name, array) for name, array in data.items()}


def _one(name, array):
    count = len(array)
    rows = np.arange(min(count, ROWS)) * (count - 1) // max(min(count, ROWS) - 1, 1)
    some = _on_host(read_rows(name, array, rows))
    found = {
        "shape": [int(n) for n in array.shape],
        "dtype": some.dtype.name,
        "some": _hash(some),
        "all": None,
    }
    at_hand = on_device(array) or isinstance(array, np.ndarray) and not isinstance(array, np.memmap)
    if at_hand and array.nbytes <= WHOLE:
        found["all"] = _hash(_on_host(whole(name, array)))
    return found


def _on_host(array):
    return array.get() if on_device(array) else array


def digest_text(array):
    """Return dtype, shape and digest of an array as text."""
    array = _on_host(array)
    return f"{array.dtype.name} {array.shape} {_hash(array)}"


def _hash(array):
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return hashlib.blake2b(native, digest_size=16).hexdigest()


def differences(then, now):
    """List in words how the data differ ``now`` from ``then``; empty if they agree."""
    words = [f"there were `{name}` then, there are none now" for name in then if name not in now]
    for name, new in now.items():
        if name not in then:
            words.append(f"there were no `{name}` then, there are now")
            continue
        old = then[name]
        for what in ("shape", "dtype"):
            if old[what] != new[what]:
                words.append(
                    f"`{name}` had {what} {_describe(old[what])} then, {_describe(new[what])} now"
                )
                break
        else:
            if (
                old["some"] != new["some"]
                or None not in (old["all"], new["all"])
                and old["all"] != new["all"]
            ):
                words.append(f"the numbers in `{name}` are others")
    return words


def _describe(value):
    return tuple(value) if isinstance(value, list) else value
