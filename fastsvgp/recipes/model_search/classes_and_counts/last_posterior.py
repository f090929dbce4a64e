"""From the best look to a model of all rows.

The first candidate or the winner is chosen, and its posterior takes natural steps on all rows.
"""

import numpy as np

from ..mapped_inputs import scaled_rows
from ..minibatches import natural_steps
from ..plan import PlanMismatch
from ..race import FAILURES, reason
from .looks import densities
from .temperature import tempered

BATCH, STEP, LAST = 1024, 0.2, 0.02  # natural step sizes fall from STEP to LAST
TIMED, FEWEST, MOST = 3, 10, 300  # steps: those timed to predict the cost, at least, at most
SEED = 4
ROUNDING = 0.01  # nats per row by which jitter may change densities


class LastTargetPosterior:
    """The end of a search after ``TargetStages``; ``rows`` are all rows, with unscaled inputs."""

    def __init__(self, stages, rows, plan):
        self._stages, self._rows, self._plan = stages, rows, plan

    def answer(self, interrupted):
        """Return ``(svgp, look)``: the model of all rows, and the look with its hyperparameters."""
        stages, look = self._stages, self._stages.best
        if not stages.looks:
            return self._at_temperature(look.model, look), look
        if not interrupted and stages.first is not None:
            look = self._last_word(look)
        model = look.model
        if not interrupted:
            model = self._on_all(look)
        model = self._at_temperature(model, look)
        stages.say(f"model: {look.candidate}, {len(model.inducing)} inducing inputs, all rows")
        return model, look

    def _last_word(self, look):
        """Choose between the winner and the first candidate."""
        first, last = self._stages.first, self._stages.last
        if look.candidate == first.candidate:
            return look
        both = [densities(one.model, one.scale, last, *one.factors) for one in (look, first)]
        return self._stages.last_word(look, both)

    def _on_all(self, look):
        """Train the posterior of the look on all rows; return it unchanged if a step fails."""
        rows = scaled_rows(self._rows, look.scale)
        rng, began = np.random.default_rng(SEED), self._plan.spent
        try:
            model = self._steps(look.model, rows, rng, TIMED, (1.0, 1.0))
            each = max((self._plan.spent - began) / TIMED, 1e-6)
            left = self._plan.left / each
            count = self._plan.count("last natural steps", np.clip(left, FEWEST, MOST))
            return self._steps(model, rows, rng, count, (1.0, LAST / STEP))
        except PlanMismatch:
            raise
        except FAILURES as error:
            self._stages.say(f"posterior of all rows: failed ({reason(error)})")
            return look.model

    def _steps(self, model, rows, rng, count, sizes):
        """Take ``count`` natural steps on minibatches.

        Step sizes go log-linearly from ``sizes[0]`` to ``sizes[1]`` times ``STEP``.
        """
        batch, M = min(BATCH, len(rows)), len(model.inducing)
        flops = 8 * M * model.posterior.mean.size * (batch + M)
        first, last = sizes
        falling = [
            STEP * first * (last / first) ** (step / max(count - 1, 1)) for step in range(count)
        ]
        return natural_steps(model, rows, falling, batch, rng, self._plan, flops)

    def _at_temperature(self, model, look):
        """Put the temperature into the model, unless its jitter then changes predictions."""
        stages, (T,) = self._stages, look.factors
        if T == 1.0:
            return model
        rows = stages.rows if stages.held is None else stages.held
        try:
            other = tempered(model, T)
            expected, found = (
                densities(model, look.scale, rows, T),
                densities(other, look.scale, rows),
            )
            if np.average(np.abs(found - expected), weights=rows.weights) < ROUNDING:
                who = (
                    "cross-validation multiplies"
                    if stages.held is None
                    else "held-out rows multiply"
                )
                stages.say(f"{who} the latent functions by {T:.2g}")
                return other
        except FAILURES as error:
            self._stages.say(f"temperature {T:.2g}: failed ({reason(error)})")
        return model
