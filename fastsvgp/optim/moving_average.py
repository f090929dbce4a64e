"""Exponential average of a noisy objective, with a count of values since it last improved."""

import math
from typing import Any

from ..records import leaf, record


@record
class Trend:
    """Exponential average with its best value. Start with ``Trend()``.

    The fields are Python floats, so a saved trend continues bit for bit.
    """

    total: Any = leaf(default=0.0)
    weight: Any = leaf(default=0.0)
    best: Any = leaf(default=-math.inf)
    waited: Any = leaf(default=0.0)

    @property
    def smoothed(self):
        """The average, corrected for the bias of its start at zero; NaN without values."""
        return self.total / self.weight if self.weight else math.nan

    def observe(self, value, smoothing, tolerance):
        """Return the trend after one more value.

        ``smoothing`` in [0, 1) is the weight of the past (0: each value counts unsmoothed). The
        average has improved when it exceeds the best so far by more than ``tolerance * max(1,
        |best|)``; ``waited`` counts values since it last did.
        """
        total = smoothing * self.total + (1 - smoothing) * float(value)
        weight = smoothing * self.weight + (1 - smoothing)
        now = total / weight
        margin = tolerance * max(1.0, abs(self.best)) if math.isfinite(self.best) else 0.0
        if now > self.best + margin:
            return Trend(total, weight, now, 0.0)
        return Trend(total, weight, self.best, self.waited + 1.0)
