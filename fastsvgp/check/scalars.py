"""Checks of single values: numbers, whole numbers, truth values, generators, the jitter."""

import math
import numbers
from typing import Any

import numpy as np

from ..errors import not_a_generator
from ..records.dtypes import DEFAULT_JITTER

LARGEST_SIZE = 2**62  # of an array: its number of bytes must fit into 63 bits


def scalar(name: str, value: Any) -> float:
    """Check a finite real number and return it as a float."""
    if not _is_number(value):
        raise TypeError(f"`{name}` must be a number, got {_show(value)}")
    number = as_float(value)
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be finite, got {number}")
    return number


def whole(name: str, value: Any, least: int = 1) -> int:
    """Check a whole number from ``least`` to ``LARGEST_SIZE`` and return it as an int."""
    if not _is_number(value):
        raise TypeError(f"`{name}` must be a whole number of at least {least}, got {_show(value)}")
    if not least <= value <= LARGEST_SIZE or not float(value).is_integer():
        limit = f", at most {LARGEST_SIZE}" if LARGEST_SIZE < value < math.inf else ""
        raise ValueError(
            f"`{name}` must be a whole number of at least {least}{limit}, got {_show(value)}"
        )
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Check a truth value and return it as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"`{name}` must be True or False, got {_show(value)}")
    return bool(value)


def mapping(name, value, example):
    """Check a dict whose keys are names of fields; None gives an empty one."""
    if not isinstance(value, dict | None) or not all(isinstance(key, str) for key in value or ()):
        raise TypeError(
            f"`{name}` must be a dict from names of fields, such as {example}, got {_show(value)}"
        )
    return value or {}


def generator(rng: Any) -> np.random.Generator:
    """Return the random generator for an argument ``rng``."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise not_a_generator(rng) from None


def jitter_amount(jitter, dtype):
    """Check a jitter; ``None`` gives the default of the dtype."""
    if jitter is None:
        return DEFAULT_JITTER[dtype]
    jitter = scalar("jitter", jitter)
    if jitter < 0:
        raise ValueError(f"`jitter` must be zero or positive, got {jitter:g}")
    return jitter


def data_scale(num_data, batch):
    """Return num_data / batch, the factor of the data term; any factor does for an empty batch."""
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
    """Test for one real number: of Python, of NumPy, or an array of no dimensions.

    Text and truth values are not numbers.
    """
    if getattr(value, "shape", None) == ():
        return value.dtype.kind in "fiu"
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def as_float(number):
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _show(value):
    """Describe a value briefly."""
    return (
        f"an array of shape {value.shape}"
        if getattr(value, "shape", ()) != ()
        else f"{value!r:.200}"
    )
