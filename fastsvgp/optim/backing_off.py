"""What natural-gradient steps tell, and how they back off where they would leave the cone."""

from typing import NamedTuple

import numpy as np

from .. import check
from ..errors import NotPositiveDefinite
from ..kernels import verdicts

MAX_HALVINGS = 30


class NaturalStepInfo(NamedTuple):
    """``value``: the bound before the step; ``step_size``: the one taken; ``backed_off``: whether that is less than asked for.

    ``negative``: how many sites of the batch had negative precision, their log likelihood curving upwards there.
    """

    value: float
    step_size: float
    backed_off: bool
    negative: int = 0


def no_lower(value, before, dtype):
    """Whether a bound has not fallen, but for its rounding: at the optimum no step raises it any more."""
    return value >= before - 10 * np.finfo(dtype).eps * abs(before)


def halved(step, size, negative, model, X, accepted=None):
    """``(step(size), size, negative)`` with the largest of size, size / 2, ... that stays in the cone, and is ``accepted``.

    ``negative`` is a count, on the device perhaps: its copy is the one that tells of the cone, however many matrices there are.
    """
    for halvings in range(MAX_HALVINGS + 1):
        try:
            check.begin(model, X)
            stepped = step(size)
            count, _ = verdicts.settle(negative)
            if accepted is None or halvings == MAX_HALVINGS or accepted(stepped):
                return stepped, size, int(count)
        except (NotPositiveDefinite, verdicts.Fault):
            if halvings == MAX_HALVINGS:
                raise
        size /= 2
    raise AssertionError("not reached")
