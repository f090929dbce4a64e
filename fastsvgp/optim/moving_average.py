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


LEAST = 10  # values after which averages count
WEIGHT = 0.9  # of the past, in the average of ``Falls``
LONG = 0.98  # of the past, in its variance
MARGIN = 3.0  # standard deviations of single values by which an average falls beyond the noise
SUDDEN = 10.0  # the same for a single value, beside three times the first value


@record
class Falls:
    """Watch for falls of a noisy objective. Start with ``Falls()``.

    The first value; exponential averages of the objective and of its variance; the best average,
    with the standard deviation of values at that time; and the number of values.
    """

    first: Any = leaf(default=0.0)
    mean: Any = leaf(default=0.0)
    variance: Any = leaf(default=0.0)
    best: Any = leaf(default=-math.inf)
    spread: Any = leaf(default=0.0)
    count: Any = leaf(default=0.0)

    def at_its_best(self):
        """Return whether the average is within the noise of the best one."""
        return self.count >= LEAST and self.mean > self.best - 0.5 * self.spread

    def observe(self, value):
        """Return ``(falls, fell)`` after one more value; after a fall the watch starts again.

        The objective fell if its average is below the best one by ``MARGIN`` standard deviations,
        those at the best average, because the variance grows with a fall; or if this value alone is
        far below the first one.
        """
        value = float(value)
        if not self.count:
            return Falls(value, value, 0.0, -math.inf, 0.0, 1.0), False
        sudden = 3 * abs(self.first) + SUDDEN * math.sqrt(self.variance)
        count, gap = self.count + 1.0, value - self.mean
        mean, newest = self.mean + (1 - WEIGHT) * gap, max(1 - LONG, 1 / count)
        variance = (1 - newest) * (self.variance + newest * gap * gap)
        best, spread = self.best, self.spread
        if count >= LEAST and mean > best:
            best, spread = mean, math.sqrt(variance)
        if mean < best - MARGIN * spread or count > 2 and value < self.first - sudden:
            return Falls(), True
        return Falls(self.first, mean, variance, best, spread, count), False
