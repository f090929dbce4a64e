"""``fit`` with a time limit."""

import logging
import math
import time

from .. import check
from ..optim import schedules
from ..records import replace

log = logging.getLogger("fastsvgp")

TIMED = 20  # steps that are timed to predict the number of steps, if a schedule needs it
# arguments that the discarded steps do without
PILOT = "callback", "patience", "validate", "checkpoint", "checkpoint_every", "resume", "note"


def fitted(fit, model, X, Y, seconds, call):
    """Run ``fit(model, X, Y, call)`` for ``seconds``, compilation not counted.

    A first step, whose result is discarded, compiles everything that steps need. If a schedule of
    "all" steps needs their number, it is predicted from ``TIMED`` further steps, also discarded.
    """
    seconds = check.scalar("seconds", seconds)
    if not 0 < seconds < math.inf:
        raise ValueError(f"fit: `seconds` must be positive and finite, got {seconds:g}")
    for name in ("steps", "epochs"):
        if getattr(call, name) is not None:
            raise ValueError(f"fit: `seconds` and `{name}` both say how long; give one of them")
    pilot = replace(call, **dict.fromkeys(PILOT), until=math.inf)
    if call.callback is not None:
        pilot = replace(pilot, callback=lambda *_: None)
    began = time.perf_counter()
    fit(model, X, Y, replace(pilot, steps=1))
    log.info(
        "fit: a first step, with all that had to be compiled, took %.1f s",
        time.perf_counter() - began,
    )
    began = time.perf_counter()
    steps = None
    given = tuple(call.given().values())
    if schedules.lasting(given, 1) is not given:  # some schedule lasts for "all" steps
        fit(model, X, Y, replace(pilot, steps=TIMED))
        each = (time.perf_counter() - began) / TIMED
        steps = max(int((seconds - TIMED * each) / each), 1)
    return fit(model, X, Y, replace(call, steps=steps, until=began + seconds))
