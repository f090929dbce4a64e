"""The error of a bound or gradient that is NaN or infinite."""

import numpy as np

from ..errors import Diverged
from ..records import leaves
from ..records.decorator import is_ours, is_record
from .arrays import on_host

LARGE, SMALL = 1e2, 1e-4  # numbers of a model between these do not explain an overflow


def diverged_error(problem, model=None, step=None):
    """Return a ``Diverged`` with its likely causes; a number of the model far from 1 is named.

    ``step`` counts from 1: before the first, no step can have been too large.
    """
    causes = ["a step size that is too large"] * (step is None or step > 1)
    if model is not None and (path_and_number := most_extreme(model)):
        causes.append("`{}` of the model, which holds {:.3g}".format(*path_and_number))
    likelihood = getattr(model, "likelihood", None)
    if is_record(likelihood) and not is_ours(type(likelihood)):
        causes.append(f"formulas of {type(likelihood).__name__} that return -inf or NaN")
    causes += ["targets or inputs on a wild scale (standardise them)"]
    causes += ["float32 where float64 is needed"]
    return Diverged(f"{problem}. Likely causes, in order: {'; '.join(causes)}")


def most_extreme(model):
    """Return ``(path, number)`` of the number of a finite model farthest from 1, or None."""
    found, most = None, 0.0
    for path, kind, array in leaves(model):
        if array is None:
            continue
        array = on_host(array)
        numbers = np.abs(np.ravel(np.tril(array) if kind == "tril" else array))
        if not numbers.size:
            continue
        ends = [numbers.max()] + [numbers.min()] * (kind == "positive")
        for number in map(float, ends):
            if (number > LARGE or 0 < number < SMALL) and abs(np.log10(number)) > most:
                found, most = (path, number), abs(np.log10(number))
    return found
