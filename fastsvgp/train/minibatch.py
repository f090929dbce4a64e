"""Stochastic training of an SVGP: a first-order optimiser, with natural-gradient steps for q(u) where asked."""

import logging
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bounds.elbo import elbo_and_grad
from ..errors import BadEntry, Diverged
from ..interrupts import obeyed
from ..optim.natural import natural_step
from ..records import replace
from .checkpoints import Checkpoints
from .info import FitInfo, StepInfo
from .jitter import with_more_jitter

log = logging.getLogger("fastsvgp")


@dataclass(frozen=True)
class Plan:
    """What to do besides stepping; the arguments of ``fit`` with the same names."""

    steps: int
    callback: Any
    patience: int | None
    tolerance: float
    smoothing: float
    validate: Any
    validate_every: int
    checkpoints: Checkpoints
    probes: int | None = None


class Trainer:
    """One call of ``fit``.

    ``state`` is what has been reached. Each step replaces it as a whole, so that an interrupt between any two instructions
    leaves a state that is true: a step either happened or did not.
    """

    def __init__(self, state, batches, optimiser, natural, inverse, plan, jitter, dtype):
        self.state, self._batches, self._plan = state, batches, plan
        self._optimiser, self._natural, self._jitter, self._dtype = optimiser, natural, jitter, dtype
        self._inverse, self._warned = inverse, False
        self._values = [] if state.values is None else list(state.values)
        self._started = time.perf_counter() - state.seconds
        self._begun = state.step

    def run(self):
        """Train until the plan ends it: ``(model, FitInfo)``."""
        with obeyed(ending=self._plan.checkpoints.path is not None) as asked:
            reason = self._loop(asked)
            if reason != "interrupted" or self.state.step > self._begun:  # nothing reached is nothing to write over an older one
                self._save()
            if reason != "interrupted":
                self._validate_at_end()
            return self._result(reason)

    def _loop(self, asked):
        """Step until the plan, or a signal in ``asked``, ends it; returns the reason."""
        plan = self._plan
        try:
            while self.state.step < plan.steps:
                if asked:
                    return "interrupted"
                if self._out_of_patience():
                    return "patience"
                step_info = self._step()
                step = self.state.step
                if plan.checkpoints.due(step):
                    self._save()
                if plan.callback is not None and plan.callback(step, self._values[step - 1], step_info()):
                    return "callback"
        except KeyboardInterrupt:
            return "interrupted"
        except BaseException as error:  # that of sys.exit() in a callback or in another's handler of a signal too
            # a state that led to NaN is no good to go on from, and must not replace an earlier checkpoint; any other is
            if not isinstance(error, Diverged) and self.state.step > self._begun:
                self._save()
            error.add_note(plan.checkpoints.whereabouts("step", self.state.step, plan.steps))
            raise
        return "steps"

    def snapshot(self):
        """The state as a checkpoint holds it."""
        state = self.state
        return replace(
            state,
            values=np.array(self._values[: state.step], np.float64),
            scores=_scores(state),
            seconds=time.perf_counter() - self._started,
        )

    def _save(self):
        self._plan.checkpoints.write(self.snapshot)

    def _step(self):
        """One step; returns a function that makes its ``StepInfo``."""
        state, batches = self.state, self._batches
        X, Y = batches.at(state.step)
        # likelihoods that sample get new points every 16 steps: to make them costs more than a small step; probes are cheap
        epoch_of_draws = state.step // (1 if self._plan.probes else 16)
        rng = int(np.random.SeedSequence([state.seed, 1, epoch_of_draws]).generate_state(1)[0])
        shared = {"num_data": batches.num_data, "rng": rng}
        model, natural, optimised = state.model, state.natural, state.optimiser
        value = natural_size = step_size = inverse = None
        if state.step == 0:
            model, _ = self._refreshed(model, X)
        paths = self._optimiser.moving(model, optimised)
        used = self._jitter
        if self._natural is not None:
            asked = self._natural.size(state.step, natural)
            (stepped, taken), used = self._safely(natural_step, model, X, Y, step_size=asked, **shared)
            model = replace(model, posterior=stepped.posterior)
            value, natural_size = taken.value, taken.step_size
            if taken.backed_off:
                log.info("step %d: the natural step of %g would leave the cone; took %g", state.step + 1, asked, taken.step_size)
        if paths or value is None:
            (value, grad), also_used = self._safely(elbo_and_grad, model, X, Y, wrt=paths, probes=self._plan.probes, **shared)
            used = max(used, also_used)
        if not math.isfinite(value):
            raise Diverged(
                f"fit: the bound is {value} at step {state.step + 1}, though all parameters are finite. Likely causes, in order: "
                "a step size that is too large; targets on a wild scale (standardise them); float32 where float64 is needed"
            )
        if self._optimiser.paths(model):
            step_size = self._optimiser.step_size_at(optimised)
            model, optimised = self._optimiser.step(model, grad, optimised, value)
            model, inverse = self._refreshed(model, X)
        if self._natural is not None:
            natural = self._natural.observe(natural, value)
        self._values.append(value)
        step, trend = state.step + 1, state.trend.observe(value, self._plan.smoothing, self._plan.tolerance)
        validation, best, scores = state.validation, state.best, state.scores
        if self._plan.validate is not None and step % self._plan.validate_every == 0:
            validation, best, scores = self._validated(model, step)
        self.state = replace(
            state, model=model, optimiser=optimised, natural=natural, trend=trend, validation=validation, best=best,
            scores=scores, step=step, retries=state.retries + (used > self._jitter),
        )  # fmt: skip

        def info():
            epoch = step * batches.size / batches.num_data
            seconds = time.perf_counter() - self._started
            return StepInfo(model, trend.smoothed, seconds, epoch, step_size, natural_size, used, inverse)

        return info

    def _refreshed(self, model, X):
        """The model with its factor of an inverse up to date, and how that went; None where there is none to update."""
        if self._inverse is None:
            return model, None
        model, outcome = self._inverse.refreshed(model, self._jitter, X, self._batches.num_data)
        if not outcome.converged:
            log.log(
                logging.DEBUG if self._warned else logging.WARNING,
                "step %d: the factor of the inverse is not as near as asked for: %s after %d updates, normalised residual %.2g%s",
                self.state.step + 1, outcome.reason, outcome.steps, outcome.residual,
                "" if self._warned else " (further such steps are logged at level DEBUG)",
            )  # fmt: skip
            self._warned = True
        return model, outcome

    def _safely(self, function, *args, **kwargs):
        def compute(jitter):
            try:
                return function(*args, jitter=jitter, **kwargs)
            except BadEntry as error:
                self._batches.locate(error, self.state.step)
                raise

        return with_more_jitter(compute, self._jitter, self._dtype, self.state.step + 1)

    # --- validation and early stop ------------------------------------------------------------------------------------------

    def _validated(self, model, step):
        """(trend, best model, scores) after one more validation."""
        state = self.state
        score = float(self._plan.validate(model))
        if math.isnan(score):
            raise ValueError(f"fit: `validate` returned NaN at step {step}")
        trend = state.validation.observe(score, 0.0, self._plan.tolerance)
        scores = np.vstack([_scores(state), [step, score]])
        return trend, model if trend.waited == 0 else state.best, scores

    def _validate_at_end(self):
        """After the checkpoint, which knows of regular validations only: where a training ends must not change a longer one."""
        scores = _scores(self.state)
        if self._plan.validate is not None and not (scores[:, 0] == self.state.step).any():
            validation, best, scores = self._validated(self.state.model, self.state.step)
            self.state = replace(self.state, validation=validation, best=best, scores=scores)

    def _out_of_patience(self):
        if self._plan.patience is None:
            return False
        trend = self.state.trend if self._plan.validate is None else self.state.validation
        return trend.waited >= self._plan.patience

    # --- the end --------------------------------------------------------------------------------------------------------------

    def _result(self, reason):
        end = self.snapshot()
        info = FitInfo(end.values, end.trend.smoothed, end.scores, end.step, end.seconds, reason, end.retries)
        return end.model if end.best is None else end.best, info


def _scores(state):
    return np.empty((0, 2)) if state.scores is None else state.scores
