"""Another try with more jitter where a factorisation fails; never in silence."""

import logging

from ..check import DEFAULT_JITTER
from ..errors import NotPositiveDefinite

log = logging.getLogger("fastsvgp")
RETRIES = 3


def with_more_jitter(compute, jitter, dtype, step):
    """``compute(jitter)``, and where it raises ``NotPositiveDefinite`` again with ten times as much, at most three times.

    Each retry is logged as a warning. Returns ``(result, jitter that did)``; the last
    ``NotPositiveDefinite`` is raised on. From no jitter at all the first retry takes the default of
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
