"""Steps of quadruply stochastic training: on samples of the data and of the basis functions, in place."""

import math
from typing import NamedTuple

import numpy as np

from ...errors import BadEntry, Diverged
from ...records import tree_map
from ...runtime import devices
from ...runtime.deferred_checks import on_device
from ...weight_space.bases.samples import SparseRows, draw_basis_sample
from ...weight_space.control_variates import advance_control
from ...weight_space.optimal_weights import optimal_diagonal
from ...weight_space.posterior import ChevronWeights
from ...weight_space.relevance import optimal_precision
from ...weight_space.sampled_bound import sampled_bound_and_grad
from ..batches import locate_inputs
from .base import Snapshot, Steps

ROWS, LOOKS = 4096, 2**32  # data that closed forms look at, or fewer: so many features are enough
NEWEST = 0.5  # weight of the last look at a variance in its running mean
LEAST = 1e-6  # of the prior's variance: what a running mean may fall to
RENEWAL = 1000  # steps after which a control is taken anew, or more,
SHARE = 20  # so that it costs this part of a step


class Choices(NamedTuple):
    """What does not change: ``units`` of the basis on each side of a step, whether there are two sides, how many steps there are
    from one closed form, and one exact control, to the next, and whether a ``precision`` has one.
    """

    units: int
    pair: bool
    closed_form_every: int | None
    precision: bool
    renewal: int


class SampledSteps(Steps):
    """Steps from ``state``, a ``TrainingState``, whose arrays they write to from the second one on.

    A step takes a batch, draws functions, moves along the sampled gradient, and has the control
    take in what has moved. What a step draws is a function of the seed and of its number.
    """

    def __init__(self, state, batches, optimiser, choices, jitter):
        self._batches, self._optimiser, self._choices, self._jitter = (
            batches,
            optimiser,
            choices,
            jitter,
        )
        self._seed, self._step, self._torn = state.seed, state.step, []
        self._move_to(state.model, state.optimiser, state.control, state.spread)

    def _move_to(self, model, optimised, control, spread):
        self._model, self._optimised, self._control, self._spread = (
            model,
            optimised,
            control,
            spread,
        )
        torn, fields = self._torn, {"optimiser": optimised, "control": control, "spread": spread}

        def view():
            if torn:
                raise RuntimeError(
                    "fit: interrupted amid a step that works in place; go on from the last"
                    " checkpoint"
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
        """One step: its objective, and the step size."""
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
            raise Diverged(
                f"fit: the bound is {value} at step {step + 1}, though what it sampled is finite."
                " Likely causes, in order: a step size that is too large; targets on a wild scale"
                " (standardise them); float32 where float64 is needed"
            )
        step_size = self._optimiser.step_size_at(self._optimised)
        before = _sampled_rows(model.posterior, grad.posterior) if control is not None else None
        self._torn.append(step)
        try:
            model, optimised = self._optimiser.step(model, grad, self._optimised, value)
        except ValueError:  # of the gradient, before anything was written
            self._torn.clear()
            raise
        if before is not None:
            control = advance_control(model, info.control, _change(before, model.posterior))
        if self._spread is not None:
            var = np.maximum(info.var, LEAST * prior)
            _put(self._spread, rows, np.where(seen > 0, (1 - NEWEST) * seen + NEWEST * var, var))
        self._torn.clear()
        self._move_to(model, optimised, control, self._spread)
        return value, step_size

    def _renewed(self):
        """``(model, control)`` at the beginning of a step: closed forms, and a control without the rounding of many steps."""
        model, control, every = self._model, self._control, self._choices.closed_form_every
        if every is not None and self._step % every == 0:
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
        if control is not None and self._step and self._step % self._choices.renewal == 0:
            control = control.refit(model, self._jitter)
        return model, control

    def _rng(self, stream):
        return np.random.default_rng([self._seed, stream, self._step])


def _put(array, rows, values):
    """``array[rows] = values``.

    Where an epoch ends within a batch a row may come twice: its last value stays.
    """
    if on_device(array):
        last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
        rows, values = devices.like(rows[last], array), values[devices.like(last, array)]
    array[rows] = values


def renewal(functions, sampled):
    """Steps from one control to the next that is taken anew, which costs what ``functions / sampled`` changes of it do."""
    return max(RENEWAL, SHARE * functions // sampled)


def _sampled_rows(q, q_bar):
    """The rows of q that a step is about to move: those of its sparse gradient."""
    # there is no q_bar where q stays as it is
    parts = {name: getattr(q_bar, name, None) for name in ("mean", "columns")}
    return {
        name: SparseRows(bar.rows, getattr(q, name)[bar.rows])
        for name, bar in parts.items()
        if bar is not None
    }


def _change(before, q):
    """What has been added to q since."""
    moved = {
        name: SparseRows(old.rows, getattr(q, name)[old.rows] - old.values)
        for name, old in before.items()
    }
    return ChevronWeights(moved.get("mean"), moved.get("columns"), None)
