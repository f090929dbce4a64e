"""Records of natural-gradient steps, and their backtracking."""

from typing import NamedTuple

import numpy as np

from ... import check
from ...errors import Diverged, NotPositiveDefinite
from ...runtime import deferred_checks

MAX_HALVINGS = 30


class NaturalStepInfo(NamedTuple):
    """Report of a natural-gradient step.

    ``value``: the bound before the step. ``step_size``: the size taken. ``backed_off``: whether
    that is less than the size requested. ``negative``: how many sites of the batch had negative
    precision, because their log likelihood curves upwards there. ``in_turn``: whether the latent
    functions of a ``MultiGP`` moved one after the other.
    """

    value: float
    step_size: float
    backed_off: bool
    negative: int = 0
    in_turn: bool = False


def check_size(step_size):
    """Return a step size as a float; ``ValueError`` unless it is positive."""
    requested = check.scalar("step_size", step_size)
    if requested <= 0:
        raise ValueError(f"`step_size` must be positive, got {requested:g}")
    return requested


def check_value(function, value, where="at this posterior"):
    """Raise ``Diverged`` unless the bound before a step, at ``where``, is finite."""
    if not np.isfinite(value):
        raise Diverged(f"{function}: the bound is {value} {where}; start closer to the prior")


def non_decreasing(value, before, dtype):
    """Return whether a bound has not fallen, up to rounding.

    At the optimum no step raises the bound any more.
    """
    return value >= before - 10 * np.finfo(dtype).eps * abs(before)


def backtrack(step, size, negative, model, X, accepted=None, invalid=NotPositiveDefinite):
    """Return ``(step(size), size, negative)`` for the first of size, size / 2, ... that is valid.

    A step is valid if it stays in the cone of positive definite precisions and is ``accepted``.
    Outside the cone ``step`` raises ``invalid``.
    ``negative`` is a count, on a device too: the copy of the count to the host also reports whether
    the step left the cone, in one synchronisation for all matrices.
    """
    for halvings in range(MAX_HALVINGS + 1):
        try:
            with check.deferral(model, X) as checks:
                stepped = step(size)
                count, _ = checks.read(negative)
            if accepted is None or halvings == MAX_HALVINGS or accepted(stepped):
                return stepped, size, int(count)
        except (invalid, deferred_checks.CheckFailed):
            if halvings == MAX_HALVINGS:
                raise
        size /= 2
    raise AssertionError("not reached")
