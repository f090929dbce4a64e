"""Repetition of a failed factorisation with more jitter, always logged."""

import logging

from ..check import DEFAULT_JITTER
from ..errors import NotPositiveDefinite

log = logging.getLogger("fastsvgp")
RETRIES = 3


def with_more_jitter(compute, jitter, dtype, step):
    """Call ``compute(jitter)``; after ``NotPositiveDefinite`` repeat it with ten times the jitter.

    Returns ``(result, jitter used)``. There are at most three retries, each logged as a warning;
    the last ``NotPositiveDefinite`` is raised. After jitter 0 the first retry takes the default of
    the dtype.
    """
    for attempt in range(RETRIES + 1):
        try:
            return compute(jitter), jitter
        except NotPositiveDefinite as error:
            if attempt == RETRIES:
                raise
            more = 10 * jitter or DEFAULT_JITTER[dtype]
            log.warning(
                "step %d: %s; trying it again with jitter %g",
                step,
                str(error).split(". Likely")[0],
                more,
            )
            jitter = more
