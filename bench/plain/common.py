"""A case of a plain twin, and how far both results are apart."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

FAST = {"contract", "reassoc", "nsz", "arcp"}
plain = njit(nogil=True, fastmath=FAST, error_model="numpy")


class Case(NamedTuple):
    """One operation at one size: ``name`` is "kernel, sizes".

    Both functions run once on prepared arguments and return what to compare: an array, a number,
    or a tuple of these. Results may differ by ``tolerance`` times their largest entry (or 1).
    """

    name: str
    tuned: Callable[[], object]
    plain: Callable[[], object]
    tolerance: float


class Lower(NamedTuple):
    """A result of which only the lower triangle counts."""

    matrix: np.ndarray


def in_place(name, tuned, plain, array, tolerance, result=np.asarray):
    """Return a case of two functions that change an array in place."""
    work = array.copy()

    def run(operation):
        np.copyto(work, array)
        operation(work)
        return result(work)

    return Case(name, lambda: run(tuned), lambda: run(plain), tolerance)


def difference(case):
    """Return the largest difference of both results, each scaled by its largest entry (or 1)."""
    tuned = _arrays(case.tuned())  # copies: both may write to the same arrays
    pairs = zip(tuned, _arrays(case.plain()), strict=True)
    return max(_scaled(a.astype(float), b.astype(float)) for a, b in pairs)


def _arrays(result):
    if isinstance(result, Lower):
        return [np.tril(result.matrix)]
    if isinstance(result, tuple | list):
        return [array for part in result for array in _arrays(part)]
    return [np.array(result)]


def _scaled(a, b):
    if a.shape != b.shape:
        raise ValueError(f"shapes {a.shape} and {b.shape} differ")
    return np.abs(a - b).max(initial=0) / max(1.0, np.abs(b).max(initial=0))
