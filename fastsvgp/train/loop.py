"""What every training keeps, tells and heeds, whatever its steps do."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Diverged
from ..records import replace
from ..runtime.signals import obeyed
from .checkpoints import Checkpoints
from .info import FitInfo, StepInfo


@dataclass(frozen=True)
class Plan:
    """What to do besides stepping; the arguments of ``fit`` with the same names."""

    steps: int
    callback: Any
    patience: int | None
    tolerance: float
    smoothing: float
    validate: Any
    validate_every: int | None
    checkpoints: Checkpoints
    group: Any = None  # a ``Session``
    until: float | None = None  # of ``time.perf_counter``


class Ended(Exception):
    """The training is to end here, for the reason that this says."""


class Recorder:
    """One call of ``fit``: drives a step object, and keeps, tells and heeds the rest.

    What serves ``fit`` for a kind returns one.

    Parameters
    ----------
    state : TrainingState
        What the training begins with, as ``started`` gives it.
    steps : Steps
    plan : Plan
        What to do besides stepping, as ``fit`` hands it on.

    Examples
    --------
    >>> def searching(model, X, Y, plan, about, resume, fixed, jitter, rng, **others):
    ...     state = started(fs.TrainingState(model, num_data=len(X), batch_size=len(X), **about), resume)
    ...     return Recorder(state, Searches(state, X, Y), plan)    # Searches: a Steps, as on the page on kinds of model
    """

    # What has been recorded is one attribute, replaced as a whole: an interrupt between any two
    # instructions leaves a true record, for a step either happened or did not.

    def __init__(self, state, steps, plan):
        if plan.steps is None:
            raise ValueError("fit: give the length of the training as `steps`")
        self._steps, self._plan = steps, replace(plan, validate_every=plan.validate_every or 1)
        # the model and what moves it are the step object's: here they would only take up memory
        self._recorded = replace(state, model=None, optimiser=None, natural=None), steps.snapshot
        self._values = [] if state.values is None else list(state.values)
        self._begun, self._started = state.step, time.perf_counter() - state.seconds
        self._asked = []

    def run(self):
        """Train until the plan, the steps or a signal end it: ``(model, FitInfo)``."""
        with obeyed(ending=self._plan.checkpoints.path is not None) as self._asked:
            reason = self._train()
            # nothing reached is nothing to write over an older one
            if reason != "interrupted" or self._state.step > self._begun:
                self._save()
            if reason != "interrupted" and not self._asked:
                # after the checkpoint, which knows of regular ones only: where a training ends must
                # not change a longer one
                try:
                    self._validate(at_end=True)
                except KeyboardInterrupt:
                    reason = "interrupted"
        end, reason = self._whole_state(), "interrupted" if self._asked else reason
        model, more = end.model if end.best is None else end.best, {}
        try:  # the checkpoint is written; a signal that ends the process has done so
            more = self._steps.at_end(model)
        except KeyboardInterrupt:
            reason = "interrupted"
        return model, FitInfo(
            end.values,
            end.trend.smoothed,
            end.scores,
            end.step,
            end.seconds,
            reason,
            end.retries,
            **more,
        )

    def _train(self):
        """Have steps taken until something ends it; returns the reason."""
        total, checkpoints = self._plan.steps, self._plan.checkpoints
        try:
            self._validate()  # what an interrupt amid the last validation left to do
            self._heed()
            if self._state.step < total:
                self._steps.run(total - self._state.step, self._record)
        except Ended as end:
            return str(end)
        except KeyboardInterrupt:
            return "interrupted"
        except (
            BaseException
        ) as error:  # that of sys.exit() in a callback or in another's handler of a signal too
            # a state that led to NaN is no good to go on from, and must not replace an earlier
            # checkpoint; any other is
            if not isinstance(error, Diverged) and self._state.step > self._begun:
                self._save_after(error)
            error.add_note(checkpoints.whereabouts(self._steps.unit, self._state.step, total))
            raise
        return "steps" if self._state.step >= total else "converged"

    def _record(self, value, retried, **told):
        """Take note of a step that is done, tell of it, and raise ``Ended`` where it was the last."""
        state, plan = self._state, self._plan
        self._values.append(value)
        trend = state.trend.observe(value, plan.smoothing, plan.tolerance)
        state = replace(state, trend=trend, step=state.step + 1, retries=state.retries + retried)
        self._recorded = state, self._steps.snapshot
        self._validate()
        if plan.checkpoints.due(state.step):
            self._save()
        if plan.callback is not None:
            info = StepInfo(
                self._steps.snapshot.seen(),
                trend.smoothed,
                time.perf_counter() - self._started,
                **told,
            )
            if plan.callback(state.step, value, info):
                raise Ended("callback")
        self._heed()

    def _heed(self):
        """End the training where a signal asks for it, or nothing has improved for too long."""
        state, plan = self._state, self._plan
        if self._asked:
            raise Ended("interrupted")
        if plan.until is not None and time.perf_counter() > plan.until and state.step < plan.steps:
            raise Ended("seconds")
        trend = state.trend if plan.validate is None else state.validation
        if plan.patience is not None and trend.waited >= plan.patience and state.step < plan.steps:
            raise Ended("patience")

    def _validate(self, at_end=False):
        """Validate the model where that is due, and not done yet."""
        (state, snapshot), plan = self._recorded, self._plan
        if plan.validate is None or not (
            at_end or state.step > 0 and state.step % plan.validate_every == 0
        ):
            return
        if (_scores(state)[:, 0] == state.step).any():
            return
        score = float(plan.validate(snapshot.seen()))
        if math.isnan(score):
            raise ValueError(f"fit: `validate` returned NaN at step {state.step}")
        trend, scores = (
            state.validation.observe(score, 0.0, plan.tolerance),
            np.vstack([_scores(state), [state.step, score]]),
        )
        best = snapshot.model() if trend.waited == 0 else state.best
        self._recorded = replace(state, validation=trend, best=best, scores=scores), snapshot

    @property
    def _state(self):
        return self._recorded[0]

    def _save_after(self, error):
        """Save the last whole step; where that is lost too, the first error says so."""
        try:
            self._save()
        except Exception as other:
            error.add_note(f"the state could not be saved: {other}")

    def _save(self):
        self._plan.checkpoints.write(self._whole_state)

    def _whole_state(self):
        """The state as a checkpoint holds it."""
        state, snapshot = self._recorded
        values, seconds = (
            np.array(self._values[: state.step], np.float64),
            time.perf_counter() - self._started,
        )
        return replace(
            state,
            model=snapshot.seen(),
            **snapshot.fields(),
            values=values,
            scores=_scores(state),
            seconds=seconds,
        )


def _scores(state):
    return np.empty((0, 2)) if state.scores is None else state.scores
