"""``fit`` with a time limit."""

import logging
import math
import time

from .. import check
from ..optim import schedules

log = logging.getLogger("fastsvgp")

TIMED = 20  # steps that are timed to predict the number of steps, if a schedule needs it
# arguments that the discarded steps do without
PILOT = "callback", "patience", "validate", "checkpoint", "checkpoint_every", "resume", "note"


def run(fit, model, X, Y, seconds, given):
    """Run ``fit(model, X, Y, given)`` for ``seconds``, compilation not counted.

    A first step, whose result is discarded, compiles everything that steps need. If a schedule of
    "all" steps needs their number, it is predicted from ``TIMED`` further steps, also discarded.
    """
    seconds = check.scalar("seconds", seconds)
    if not 0 < seconds < math.inf:
        raise ValueError(f"fit: `seconds` must be positive and finite, got {seconds:g}")
    for name in ("steps", "epochs"):
        if given[name] is not None:
            raise ValueError(f"fit: `seconds` and `{name}` both say how long; give one of them")
    pilot = given | dict.fromkeys(PILOT)
    if given["callback"] is not None:
        pilot["callback"] = lambda *_: None
    began = time.perf_counter()
    fit(model, X, Y, pilot | {"steps": 1}, until=math.inf)
    log.info(
        "fit: a first step, with all that had to be compiled, took %.1f s",
        time.perf_counter() - began,
    )
    began = time.perf_counter()
    steps = None
    values = tuple(given.values())
    if schedules.lasting(values, 1) is not values:  # some schedule lasts for "all" steps
        fit(model, X, Y, pilot | {"steps": TIMED}, until=math.inf)
        each = (time.perf_counter() - began) / TIMED
        steps = max(int((seconds - TIMED * each) / each), 1)
    return fit(model, X, Y, given | {"steps": steps}, until=began + seconds)
