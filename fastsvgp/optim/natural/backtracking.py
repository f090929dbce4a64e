"""What natural-gradient steps tell, and how they back off where they would leave the cone."""

from typing import NamedTuple

import numpy as np

from ... import check
from ...errors import Diverged, NotPositiveDefinite
from ...runtime import deferred_checks

MAX_HALVINGS = 30


class NaturalStepInfo(NamedTuple):
    """``value``: the bound before the step; ``step_size``: the one taken; ``backed_off``: whether that is less than asked for.

    ``negative``: how many sites of the batch had negative precision, their log likelihood curving
    upwards there.
    """

    value: float
    step_size: float
    backed_off: bool
    negative: int = 0


def check_natural(function, posterior, step_size):
    """The step size as a float. ``TypeError`` for a posterior that takes no natural-gradient steps."""
    asked = check.scalar("step_size", step_size)
    if asked <= 0:
        raise ValueError(f"`step_size` must be positive, got {asked:g}")
    if not posterior.natural_fields:
        kind, why = type(posterior).__name__, posterior.no_natural_step
        raise TypeError(
            f"{function}: a {kind} posterior can not take natural-gradient steps, because {why};"
            " train it with a first-order optimiser (fastsvgp.adam), or use a Whitened posterior"
        )
    return asked


def check_value(function, value):
    """The bound before a step, which must be finite."""
    if not np.isfinite(value):
        raise Diverged(
            f"{function}: the bound is {value} at this posterior; start closer to the prior"
        )
    return value


def no_lower(value, before, dtype):
    """Whether a bound has not fallen, but for its rounding: at the optimum no step raises it any more."""
    return value >= before - 10 * np.finfo(dtype).eps * abs(before)


def halved(step, size, negative, model, X, accepted=None):
    """``(step(size), size, negative)`` with the largest of size, size / 2, ... that stays in the cone, and is ``accepted``.

    ``negative`` is a count, on the device perhaps: its copy is the one that tells of the cone,
    however many matrices there are.
    """
    for halvings in range(MAX_HALVINGS + 1):
        try:
            with check.deferred(model, X) as checks:
                stepped = step(size)
                count, _ = checks.read(negative)
            if accepted is None or halvings == MAX_HALVINGS or accepted(stepped):
                return stepped, size, int(count)
        except (NotPositiveDefinite, deferred_checks.CheckFailed):
            if halvings == MAX_HALVINGS:
                raise
        size /= 2
    raise AssertionError("not reached")
