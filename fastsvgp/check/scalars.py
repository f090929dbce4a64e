"""Checks of single values: numbers, whole numbers, truth values, generators, the jitter."""

import math
import numbers
from typing import Any

import numpy as np

from ..errors import not_a_generator
from ..records.dtypes import DEFAULT_JITTER

LARGEST_SIZE = 2**62  # of an array: a number of bytes fits into 63 bits


def scalar(name: str, value: Any) -> float:
    """A finite real number as a Python float."""
    if not _is_number(value):
        raise TypeError(f"`{name}` must be a number, got {_shown(value)}")
    number = as_float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be finite, got {number}")
    return number


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least ``least``, and one that can be a size, as an int."""
    if not _is_number(value):
        raise TypeError(f"`{name}` must be a whole number of at least {least}, got {_shown(value)}")
    if not least <= value <= LARGEST_SIZE or not float(value).is_integer():
        limit = f", at most {LARGEST_SIZE}" if LARGEST_SIZE < value < math.inf else ""
        raise ValueError(
            f"`{name}` must be a whole number of at least {least}{limit}, got {_shown(value)}"
        )
    return int(value)


def flag(name: str, value: Any) -> bool:
    """A truth value."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"`{name}` must be True or False, got {_shown(value)}")
    return bool(value)


def mapping(name, value, example):
    """A dict whose keys are names of fields; empty for None."""
    if not isinstance(value, dict | None) or not all(isinstance(key, str) for key in value or ()):
        raise TypeError(
            f"`{name}` must be a dict from names of fields, such as {example}, got {_shown(value)}"
        )
    return value or {}


def generator(rng: Any) -> np.random.Generator:
    """The random generator that an argument ``rng`` stands for."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise not_a_generator(rng) from None


def jitter_amount(jitter, dtype):
    """The jitter to use: the default of the dtype for ``None``."""
    if jitter is None:
        return DEFAULT_JITTER[dtype]
    jitter = scalar("jitter", jitter)
    if jitter < 0:
        raise ValueError(f"`jitter` must be zero or positive, got {jitter:g}")
    return jitter


def data_scale(num_data, batch):
    """num_data / batch, the factor of the data term (which is 0 for an empty batch, whatever the factor)."""
    if num_data is None:
        return 1.0
    num_data = scalar("num_data", num_data)
    if num_data < batch:
        raise ValueError(
            f"`num_data` is {num_data:g}, smaller than the batch of {batch}; give the size of the"
            " whole data set"
        )
    return num_data / max(batch, 1)


def _is_number(value):
    """Whether this is one real number: of Python's, of NumPy's, or an array of no dimensions.

    Text and truth values are none.
    """
    if getattr(value, "shape", None) == ():
        return value.dtype.kind in "fiu"
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def as_float(number):
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _shown(value):
    """What came, in a few words."""
    return (
        f"an array of shape {value.shape}"
        if getattr(value, "shape", ()) != ()
        else f"{value!r:.200}"
    )
