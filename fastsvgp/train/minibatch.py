"""Steps of stochastic training: a first-order optimiser on minibatches, with natural-gradient steps for q(u) where asked."""

import functools
import logging
import math

import numpy as np

from ..bounds.elbo import elbo_and_grad, likelihood_direction
from ..errors import BadEntry, Diverged
from ..optim.natural import natural_step
from ..records import replace
from .jitter import with_more_jitter
from .steps import Snapshot, Steps

log = logging.getLogger("fastsvgp")


class MinibatchSteps(Steps):
    """Steps from ``state``, a ``TrainingState``; ``natural`` and ``inverse`` may be None. Nothing is updated in place."""

    def __init__(self, state, batches, optimiser, natural, inverse, random, jitter, dtype):
        self._batches, self._optimiser, self._natural, self._inverse = batches, optimiser, natural, inverse
        self._random, self._jitter, self._dtype, self._warned = random, jitter, dtype, False
        self._seed, self._step = state.seed, state.step
        self._move_to(state.model, state.optimiser, state.natural)

    def _move_to(self, model, optimised, scheduled):
        self._model, self._optimised, self._scheduled = model, optimised, scheduled
        self.snapshot = Snapshot(lambda: model, lambda: {"optimiser": optimised, "natural": scheduled})

    def run(self, count, record):
        for _ in range(count):
            value, told = self._take()
            self._step += 1
            record(value, told["jitter"] > self._jitter, epoch=self._step * self._batches.size / self._batches.num_data, **told)

    def _take(self):
        """One step: its objective, and what ``StepInfo`` tells of it."""
        model, optimised, scheduled, step = self._model, self._optimised, self._scheduled, self._step
        X, Y = self._batches.at(step)
        shared = {"num_data": self._batches.num_data, "rng": self._draws(step)}
        value = natural_size = step_size = inverse = None
        if step == 0:
            model, _ = self._refreshed(model, X)
        paths = self._optimiser.moving(model, optimised)
        used = self._jitter
        if self._natural is not None:
            asked = self._natural.size(step, scheduled)
            (stepped, taken), used = self._safely(natural_step, model, X, Y, step_size=asked, **shared, **self._random)
            model = replace(model, posterior=stepped.posterior)
            value, natural_size = taken.value, taken.step_size
            if taken.backed_off:
                log.info("step %d: the natural step of %g would leave the cone; took %g", step + 1, asked, taken.step_size)
        if paths or value is None:
            exact = self._inverse is None or self._inverse.direction == "exact"
            uphill = functools.partial(elbo_and_grad, **self._random) if exact else likelihood_direction
            (value, grad), also_used = self._safely(uphill, model, X, Y, wrt=paths, **shared)
            used = max(used, also_used)
        if not math.isfinite(value):
            raise Diverged(
                f"fit: the bound is {value} at step {step + 1}, though all parameters are finite. Likely causes, in order: "
                "a step size that is too large; targets on a wild scale (standardise them); float32 where float64 is needed"
            )
        if self._optimiser.paths(model):
            step_size = self._optimiser.step_size_at(optimised)
            model, optimised = self._optimiser.step(model, grad, optimised, value)
            model, inverse = self._refreshed(model, X)
        if self._natural is not None:
            scheduled = self._natural.observe(scheduled, value)
        self._move_to(model, optimised, scheduled)
        return value, {"step_size": step_size, "natural_step_size": natural_size, "jitter": used, "inverse": inverse}

    def _draws(self, step):
        """The seed of what the bound samples at a step."""
        # likelihoods that sample get new points every 16 steps: to make them costs more than a small step; others are cheap
        epoch_of_draws = step // (1 if self._random else 16)
        return int(np.random.SeedSequence([self._seed, 1, epoch_of_draws]).generate_state(1)[0])

    def _refreshed(self, model, X):
        """The model with its factor of an inverse up to date, and how that went; None where there is none to update."""
        if self._inverse is None:
            return model, None
        model, outcome = self._inverse.refreshed(model, self._jitter, X, self._batches.num_data)
        if not outcome.converged:
            log.log(
                logging.DEBUG if self._warned else logging.WARNING,
                "step %d: the factor of the inverse is not as near as asked for: %s after %d updates, normalised residual %.2g%s",
                self._step + 1, outcome.reason, outcome.steps, outcome.residual,
                "" if self._warned else " (further such steps are logged at level DEBUG)",
            )  # fmt: skip
            self._warned = True
        return model, outcome

    def _safely(self, function, *args, **kwargs):
        def compute(jitter):
            try:
                return function(*args, jitter=jitter, **kwargs)
            except BadEntry as error:
                self._batches.locate(error, self._step)
                raise

        return with_more_jitter(compute, self._jitter, self._dtype, self._step + 1)
