"""In-place steps of quadruply stochastic training, on samples of data and basis functions."""

import math
from typing import NamedTuple

import numpy as np

from ... import check
from ...errors import BadEntry
from ...qsgp.bases.samples import SparseRows, draw_basis_sample
from ...qsgp.closed_form import optimal_diagonal
from ...qsgp.control_changes import update_control_variate
from ...qsgp.posterior import ChevronWeights
from ...qsgp.relevance import optimal_precision
from ...qsgp.sampled_bound import sampled_bound_and_grad
from ...records import tree_map
from ...runtime import devices
from ...runtime.deferred_checks import on_device
from ..batches import locate_inputs
from .base import Snapshot, Steps

# closed forms take this number of rows, or fewer, to compute at most this number of features
ROWS, LOOKS = 4096, 2**32
NEWEST = 0.5  # weight of the newest variance in its running mean
LEAST = 1e-6  # smallest running mean, relative to the prior variance
RENEWAL = 1000  # least number of steps after which a control variate is recomputed
SHARE = 20  # recomputing costs at most 1 / SHARE of the steps


class Choices(NamedTuple):
    """Constants of a training.

    units : units of the basis on each side of a step; pair : whether there are two sides;
    closed_form_every, renewal : steps between closed forms, and between exact control variates;
    precision : whether precisions have a closed form
    """

    units: int
    pair: bool
    closed_form_every: int | None
    precision: bool
    renewal: int


class SampledSteps(Steps):
    """Steps from ``state``, a ``TrainingState``; from the second step on they write to its arrays.

    A step takes a batch, draws basis functions, moves along the sampled gradient, and updates the
    control variate by what has moved. The draws depend only on the seed and the step.
    """

    def __init__(self, state, batches, optimiser, choices, jitter):
        self._batches, self._optimiser, self._choices, self._jitter = (
            batches,
            optimiser,
            choices,
            jitter,
        )
        self._seed, self._step, self._torn = state.seed, state.step, []
        self._spread = state.spread
        self._move_to(state.model, state.optimiser, state.control)

    def _move_to(self, model, optimised, control):
        self._model, self._optimised, self._control = model, optimised, control
        torn = self._torn
        fields = {"optimiser": optimised, "control": control, "spread": self._spread}

        def view():
            if torn:
                raise RuntimeError(
                    "fit: interrupted during an in-place step; resume from the last checkpoint"
                )
            return model

        self.snapshot = Snapshot(
            lambda: tree_map(lambda value: value.copy() if np.ndim(value) else value, view()),
            lambda: fields,
            view,
        )

    def run(self, count, record):
        for _ in range(count):
            value, step_size = self._take()
            self._step += 1
            epoch = self._step * self._batches.size / self._batches.num_data
            record(
                value,
                False,
                step_size=step_size,
                natural_step_size=None,
                jitter=self._jitter,
                epoch=epoch,
            )

    def _take(self):
        """Take one step; return its objective, and the step size."""
        step, choices, num_data = self._step, self._choices, self._batches.num_data
        model, control = self._renewed()
        rows, (X, Y) = self._batches.rows(step), self._batches.at(step)
        sample = draw_basis_sample(
            model.basis, choices.units, rng=(self._seed, step), pair=choices.pair
        )
        paths, tangent = self._optimiser.moving(model, self._optimised), None
        if self._spread is not None:
            prior = model.basis.covariance.kff(X)
            seen = self._spread[devices.like(rows, self._spread)]
            tangent = np.sqrt(np.where(seen > 0, seen, prior))
        try:
            value, grad, info = sampled_bound_and_grad(
                model,
                X,
                Y,
                sample,
                num_data=num_data,
                jitter=self._jitter,
                wrt=paths,
                control=control,
                tangent=tangent,
            )
        except BadEntry as error:
            self._batches.locate(error, step)
            raise
        if not math.isfinite(value):
            what = f"fit: the bound is {value} at step {step + 1}, though what it sampled is finite"
            raise check.diverged(what, step=step + 1)
        step_size = self._optimiser.step_size_at(self._optimised)
        before = _sampled_rows(model.posterior, grad.posterior) if control is not None else None
        self._torn.append(step)
        try:
            model, optimised = self._optimiser.step(model, grad, self._optimised, value)
        except ValueError:  # of the gradient, before anything was written
            self._torn.clear()
            raise
        if before is not None:
            control = update_control_variate(model, info.control, _change(before, model.posterior))
        if self._spread is not None:
            var = np.maximum(info.var, LEAST * prior)
            _put(self._spread, rows, np.where(seen > 0, (1 - NEWEST) * seen + NEWEST * var, var))
        self._torn.clear()
        self._move_to(model, optimised, control)
        return value, step_size

    def _renewed(self):
        """Return ``(model, control)`` for the next step, after closed forms and renewals.

        A renewed control variate is free of the rounding of many updates.
        """
        model, control = self._model, self._control
        every, renewal = self._choices.closed_form_every, self._choices.renewal
        if every is not None and self._step % every == 0:
            model = self._in_closed_form(model)
        if control is not None and self._step and self._step % renewal == 0:
            control = control.refit(model, self._jitter)
        return model, control

    def _in_closed_form(self, model):
        """Return the model with the optimal diagonal, and precisions."""
        few = max(1, min(ROWS, LOOKS // model.basis.num_functions()))
        count = min(max(few, self._batches.size), self._batches.num_data)
        rows = np.sort(self._rng(3).choice(self._batches.num_data, count, replace=False))
        try:
            model = optimal_diagonal(
                model,
                self._batches.inputs(rows),
                num_data=self._batches.num_data,
                jitter=self._jitter,
            )
        except BadEntry as error:
            locate_inputs(error, "X", rows)
            raise
        if self._choices.precision:
            model = optimal_precision(model)
        return model

    def _rng(self, stream):
        return np.random.default_rng([self._seed, stream, self._step])


def _put(array, rows, values):
    """Set ``array[rows] = values``.

    If an epoch ends within a batch a row can come twice; the last value is kept.
    """
    if on_device(array):
        last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
        rows, values = devices.like(rows[last], array), values[devices.like(last, array)]
    array[rows] = values


def renewal(functions, sampled):
    """Return the steps between exact control variates.

    Computing one costs as much as ``functions / sampled`` updates of it.
    """
    return max(RENEWAL, SHARE * functions // sampled)


def _sampled_rows(q, q_bar):
    """Return the rows of q that a step will change: those of its sparse gradient."""
    # there is no q_bar if q is fixed
    parts = {name: getattr(q_bar, name, None) for name in ("mean", "columns")}
    return {
        name: SparseRows(bar.rows, getattr(q, name)[bar.rows])
        for name, bar in parts.items()
        if bar is not None
    }


def _change(before, q):
    """Return the change of these rows of q."""
    moved = {
        name: SparseRows(old.rows, getattr(q, name)[old.rows] - old.values)
        for name, old in before.items()
    }
    return ChevronWeights(moved.get("mean"), moved.get("columns"), None)
