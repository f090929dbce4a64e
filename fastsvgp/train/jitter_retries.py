"""Repetition of failed factorisations with more jitter, logged once per training."""

import logging

from ..check import DEFAULT_JITTER
from ..errors import NotPositiveDefinite

log = logging.getLogger("fastsvgp")
RETRIES = 3


class MoreJitter:
    """Computations of one training, repeated with more jitter if a factorisation fails.

    Parameters
    ----------
    jitter : float
        As requested.
    dtype : dtype
        After jitter 0 the first retry takes the default of the dtype.
    """

    def __init__(self, jitter, dtype):
        self._jitter, self._dtype, self._said = jitter, dtype, False

    def __call__(self, compute, step):
        """Call ``compute(jitter)``; after ``NotPositiveDefinite`` repeat it with ten times as much.

        Returns ``(result, jitter used)``. There are at most three retries; the last
        ``NotPositiveDefinite`` is raised. The first retry of the training is logged as a warning,
        others at level DEBUG; ``say_how_many`` counts them.
        """
        jitter = self._jitter
        for attempt in range(RETRIES + 1):
            try:
                return compute(jitter), jitter
            except NotPositiveDefinite as error:
                if attempt == RETRIES:
                    raise
                more = 10 * jitter or DEFAULT_JITTER[self._dtype]
                log.log(
                    logging.DEBUG if self._said else logging.WARNING,
                    "step %d: %s; trying it again with jitter %g%s",
                    step,
                    str(error).split(". Likely")[0],
                    more,
                    "" if self._said else " (further retries are logged at level DEBUG)",
                )
                jitter, self._said = more, True


def say_how_many(retried, steps):
    """Log how many of the steps of a training needed more jitter, unless one line said it."""
    if retried > 1:
        log.warning("%d of %d steps needed more jitter than requested", retried, steps)
