"""The training loop: values, validation, checkpoints, callbacks and stopping."""

import logging
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Diverged
from ..records import replace
from ..runtime.signals import stop_after_step
from .checkpoints import Checkpoints
from .info import FitInfo, StepInfo

log = logging.getLogger("fastsvgp")


@dataclass(frozen=True)
class LoopOptions:
    """Options of the training loop: arguments of ``fit`` with the same names."""

    steps: int
    checkpoints: Checkpoints
    callback: Any = None
    patience: int | None = None
    tolerance: float = 0.0
    smoothing: float = 0.0
    validate: Any = None
    validate_every: int | None = None
    group: Any = None  # a ``Session``
    until: float | None = None  # of ``time.perf_counter``


class StopTraining(Exception):
    """Raised to end the training; its text is the reason."""


class Recorder:
    """The training loop of one call of ``fit``: drives a step object and does everything else.

    A function that serves ``fit`` for a kind of model returns one.

    Parameters
    ----------
    state : TrainingState
        State to begin with, as ``started`` returns it.
    steps : Steps
    plan : LoopOptions
        Options of the loop, as ``fit`` passes them.

    Examples
    --------
    >>> def searching(request):
    ...     state = started(fs.optim.TrainingState(request.model, **request.about), request.resume)
    ...     # Searches: a Steps, as on the page on kinds of model
    ...     return Recorder(state, Searches(state, request.X, request.Y), request.plan)
    """

    # All that has been recorded is one attribute, which is replaced in one assignment. After an
    # interrupt between any two instructions a step is therefore recorded completely or not at all.

    def __init__(self, state, steps, plan):
        if plan.steps is None:
            raise ValueError("fit: give the length of the training as `steps`")
        self._steps, self._plan = steps, replace(plan, validate_every=plan.validate_every or 1)
        # the step object owns the model and the optimiser state; a reference here would hold memory
        self._recorded = replace(state, model=None, optimiser=None, natural=None), steps.snapshot
        self._values = [] if state.values is None else list(state.values)
        self._start_step, self._started = state.step, time.perf_counter() - state.seconds
        self._start_retries = state.retries
        self._signals = []

    def run(self):
        """Train until the plan, the steps or a signal end it: ``(model, FitInfo)``."""
        with stop_after_step(ending=self._plan.checkpoints.path is not None) as self._signals:
            reason = self._train()
            # without a new step an older checkpoint stays
            if reason != "interrupted" or self._state.step > self._start_step:
                self._save()
            if reason != "interrupted" and not self._signals:
                # After the checkpoint, which holds only the regular validations: a resumed training
                # must not depend on where the first one ended.
                try:
                    self._validate(at_end=True)
                except KeyboardInterrupt:
                    reason = "interrupted"
        end, reason = self._whole_state(), "interrupted" if self._signals else reason
        model, more = end.model if end.best is None else end.best, {}
        try:  # the checkpoint is written, and a signal that ends the process has ended it
            more = self._steps.at_end(model)
        except KeyboardInterrupt:
            reason = "interrupted"
        self._say_retries(end)
        return model, info_of(end, reason, more)

    def _say_retries(self, end):
        retried, steps = end.retries - self._start_retries, end.step - self._start_step
        if retried > 1:
            log.info("%d of %d steps needed more jitter than requested", retried, steps)

    def _train(self):
        """Take steps until the training ends; return the reason."""
        total, checkpoints = self._plan.steps, self._plan.checkpoints
        try:
            self._validate()  # due if an interrupt hit the last validation
            self._check_stop()
            if self._state.step < total:
                self._steps.run(total - self._state.step, self._record)
        except StopTraining as end:
            return str(end)
        except KeyboardInterrupt:
            return "interrupted"
        except BaseException as error:  # also sys.exit() in a callback or a handler of a signal
            # a state that led to NaN must not replace an earlier checkpoint; any other state may
            if not isinstance(error, Diverged) and self._state.step > self._start_step:
                self._save_after(error)
            error.add_note(checkpoints.whereabouts(self._steps.unit, self._state.step, total))
            raise
        return "steps" if self._state.step >= total else "converged"

    def _record(self, value, retried, **step_info):
        """Record a step, call back, and raise ``StopTraining`` if the training ends with it."""
        state, plan = self._state, self._plan
        self._values.append(value)
        trend = state.trend.observe(value, plan.smoothing, plan.tolerance)
        state = replace(state, trend=trend, step=state.step + 1, retries=state.retries + retried)
        self._recorded = state, self._steps.snapshot
        self._validate()
        if plan.checkpoints.due(state.step):
            self._save()
        if plan.callback is not None:
            seconds = time.perf_counter() - self._started
            info = StepInfo(self._steps.snapshot.seen(), trend.smoothed, seconds, **step_info)
            if plan.callback(state.step, value, info):
                raise StopTraining("callback")
        self._check_stop()

    def _check_stop(self):
        """Raise ``StopTraining`` after a signal, when the time is over, or when patience is."""
        state, plan = self._state, self._plan
        if self._signals:
            raise StopTraining("interrupted")
        if plan.until is not None and time.perf_counter() > plan.until and state.step < plan.steps:
            raise StopTraining("seconds")
        trend = state.trend if plan.validate is None else state.validation
        if plan.patience is not None and trend.waited >= plan.patience and state.step < plan.steps:
            raise StopTraining("patience")

    def _validate(self, at_end=False):
        """Validate the model if that is due and not done yet."""
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
        trend = state.validation.observe(score, 0.0, plan.tolerance)
        scores = np.vstack([_scores(state), [state.step, score]])
        best = snapshot.model() if trend.waited == 0 else state.best
        self._recorded = replace(state, validation=trend, best=best, scores=scores), snapshot

    @property
    def _state(self):
        return self._recorded[0]

    def _save_after(self, error):
        """Save the state after the last whole step; if this fails, add a note to ``error``."""
        try:
            self._save()
        except Exception as other:
            error.add_note(f"the state could not be saved: {other}")

    def _save(self):
        self._plan.checkpoints.write(self._whole_state)

    def _whole_state(self):
        """The state as a checkpoint holds it."""
        state, snapshot = self._recorded
        return replace(
            state,
            model=snapshot.seen(),
            **snapshot.fields(),
            values=np.array(self._values[: state.step], np.float64),
            scores=_scores(state),
            seconds=time.perf_counter() - self._started,
        )


def info_of(end, reason, more):
    """Return the ``FitInfo`` of a final state; ``more`` are fields of the kind of step."""
    return FitInfo(
        end.values,
        end.trend.smoothed,
        end.scores,
        end.step,
        end.seconds,
        reason,
        end.retries,
        **more,
    )


def _scores(state):
    return np.empty((0, 2)) if state.scores is None else state.scores
