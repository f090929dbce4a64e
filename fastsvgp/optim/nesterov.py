"""Nesterov's accelerated ascent for gradients that have only some rows.

With the velocity v, the momentum beta and the step size s, the gradient g is taken ahead, at theta
= x + beta v:

    v' = beta v + s g,    x' = x + v',    theta' = x' + beta v'.

The model that steps return holds theta, so that the next gradient is that at the model. In theta,

    theta' = theta - beta v + (1 + beta) (beta v + s g) = theta + beta^2 v + (1 + beta) s g.

*A row without a gradient* has g = 0 but keeps moving. After n such steps, by the geometric series,

    v = beta^n v_0,    theta = theta_0 + beta^2 v_0 (1 - beta^n) / (1 - beta).

So a step moves only the rows of its gradient, and counts for each row the steps since. ``catch_up``
brings rows up to date before a gradient is taken there; ``settled`` returns x. Whatever is linear
in theta, such as the values of a function at some points, moves by the same recurrence, with the
function of s g in place of s g: ``moved``.

*The step size* of a quadratic objective with the curvature lambda must be below (2 + 2 beta) / (1 +
2 beta) / lambda: 1.36 / lambda with beta = 0.9. A larger one makes the objective fall without end.
After a fall that the noise of the objective does not explain, rows go back to where they were kept
last, and all further step sizes are halved: the error of directions of little curvature, which the
noise of a fall would leave behind, would stay for long. Source:
Nesterov 1983, and Sutskever et al. 2013, "On the importance of initialization and momentum in deep
learning", section 2.
"""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from ..errors import names_options
from ..records import leaf, leaves, record, replace, replaced, static
from ..records.typed import Names, Record, RecordT
from ..runtime import devices
from ..runtime.deferred_checks import on_device
from .base import Fixing
from .first_order import fraction
from .flat import as_names
from .moving_average import Falls
from .row_moves import dtype_of, home_of, moves_of, zeros
from .schedules import Schedule, Size, Timed, as_schedule, with_schedules

SMALLEST = 1e-20  # power of the momentum that is as good as zero
KEEP = 100  # steps after which the model is kept, if it is at its best
RUN, RUN_ON_DEVICE = 2**16, 2**26  # rows at a time, where all rows move


@dataclasses.dataclass(frozen=True)
class Estimated(Timed):
    """Fall along a cosine, to zero, from a step size that ``fit`` estimates from the data."""

    steps: Any
    start: float | None = None

    def size(self, count, state):
        if self.start is None:
            raise ValueError(
                "a `step_size` of None is estimated by `fit` for the mean of a QSGP with random"
                " features and Gaussian noise; give a number here"
            )
        self._known()
        done = min(1.0, count / max(1, self.steps - 1))
        return self.start * 0.5 * (1 + math.cos(math.pi * done))


def starting(value, start):
    """Return an optimiser with this start of its ``Estimated`` schedules; itself if it has none."""
    return with_schedules(
        value, Estimated, lambda schedule: dataclasses.replace(schedule, start=start)
    )


@record
class NesterovState:
    """State: velocities, the step up to which each row has moved, and a factor of step sizes.

    ``velocity`` and ``kept``, to go back to, are like the model. ``seen`` has a number per row.
    ``factor`` is halved where the objective falls, which ``falls`` watches.
    """

    count: int = static()
    velocity: Record
    kept: Record
    seen: Record
    factor: float = leaf(default=1.0)
    falls: Falls = Falls()
    schedule: tuple[Record, ...] = ()


@dataclasses.dataclass(frozen=True)
class Nesterov(Fixing):
    """Settings of Nesterov's ascent; ``nesterov`` makes them."""

    step_size: Schedule
    momentum: float
    fixed: tuple[str, ...]

    def step_size_at(self, state: NesterovState) -> float:
        """Return the step size of the next step."""
        return state.factor * self.step_size.size(state.count, state.schedule[0])

    def init(self, model: Record) -> NesterovState:
        """Return the state before the first step: a velocity of zero.

        ``ValueError`` if a named field does not exist, ``TypeError`` for fields that are not plain
        arrays.
        """
        velocity = dict.fromkeys([path for path, _, _ in leaves(model)])
        seen = dict(velocity)
        for path, kind, value in self._free(model):
            if kind != "real" or np.ndim(value) == 0:
                kind = "one number" if kind == "real" else kind
                raise TypeError(
                    f"nesterov moves arrays of any numbers, but field {path!r} is {kind}: fix it,"
                    " or give it another optimiser by fs.by_field(...)"
                )
            velocity[path] = zeros(value)
            rows = value.size // (value.shape[-1] if value.ndim > 1 else 1)
            seen[path] = np.zeros(rows, np.int32, like=home_of(value))
        return NesterovState(
            velocity=replaced(model, velocity),
            kept=self._of_free(model),
            seen=replaced(model, seen),
            schedule=(self.step_size.init(),),
            count=0,
        )

    def step(
        self, model: RecordT, grad: RecordT, state: NesterovState, value: float | None = None
    ) -> tuple[RecordT, NesterovState]:
        """Take one step uphill, in place. Arguments, results and errors are those of ``adagrad``.

        Parameters
        ----------
        model : record
            The point ahead, as the step before returned it.
        grad : record of the same type
            Gradient there, after ``catch_up`` of its rows; leaves are arrays or ``SparseRows``.
        state : NesterovState
        value : float, optional
            The objective. Where it falls, the result is the model as it was some time before, and
            ``state.factor``, a factor of all further step sizes, is halved.

        Returns
        -------
        model, state
        """
        size, values = self.step_size_at(state), {}
        bars, found = {path: bar for path, _, bar in leaves(grad)}, self._free(model)
        for path, _, array, rows, bar in moves_of(found, bars, state.count):
            home = home_of(array)
            if state.count == 0:
                array = np.array(array, dtype_of(array), order="C", like=home)
            array = np.ascontiguousarray(array, like=home)
            if bar.size:
                if on_device(rows):  # the last row can be repeated with zeros
                    bar = bar[np.searchsorted(rows, rows)]
                velocity, seen = _of(state, path)
                self._move(array, velocity, seen, rows, size * bar, state.count)
            values[path] = array
        model = replaced(model, values)
        schedule = (self.step_size.observe(state.schedule[0], value),)
        falls, fell = (state.falls, False) if value is None else state.falls.observe(value)
        moved = NesterovState(
            velocity=state.velocity,
            kept=state.kept,
            seen=state.seen,
            factor=state.factor * (0.5 if fell else 1.0),
            falls=falls,
            schedule=schedule,
            count=state.count + 1,
        )
        if fell:
            self._go_back(model, moved)
        elif moved.count % KEEP == 0 and falls.at_its_best():
            moved = replace(moved, kept=self._of_free(self.settled(model, moved)))
        return model, moved

    def _go_back(self, model, state):
        """Move all rows to where they were kept, without a velocity, in place."""
        kept = {path: value for path, _, value in leaves(state.kept)}
        for path, _, array in self._free(model):
            velocity, seen = _of(state, path)
            array[...] = kept[path]
            velocity[...] = 0
            seen[...] = state.count

    def _of_free(self, model):
        """Return a record like the model with the leaves that steps move."""
        values = dict.fromkeys([path for path, _, _ in leaves(model)])
        return replaced(model, values | {path: value for path, _, value in self._free(model)})

    def _move(self, array, velocity, seen, rows, change, count):
        """Move rows by all steps that they missed, and by this one with ``change`` = s g."""
        lines, velocities = (a.reshape(-1, change.shape[1]) for a in (array, velocity))
        v, (decay, gone) = velocities[rows], self._missed(count + 1 - seen[rows], array.dtype)
        lines[rows] += gone * v + (1 + self.momentum) * change
        velocities[rows] = decay * v + change
        seen[rows] = count + 1

    def _missed(self, steps, dtype):
        """Return ``(beta^n, beta^2 (1 - beta^n) / (1 - beta))`` (r, 1) of numbers of steps n."""
        beta, powers = self.momentum, _powers(self.momentum)
        decay = devices.like(powers, steps)[np.minimum(steps, len(powers) - 1)][:, None]
        gone = beta**2 / (1 - beta) * (1 - decay)
        return decay.astype(dtype), gone.astype(dtype)

    def catch_up(self, model: Record, state: NesterovState, rows: Any = None) -> None:
        """Bring rows up to date, in place: the steps that they did not take part in.

        Call it before a gradient at these rows is computed, with the model and the state that the
        last step returned.

        Parameters
        ----------
        model : record
        state : NesterovState
        rows : (r,) array of int, optional
            Numbers of rows, repeats allowed; default all.
        """
        if state.count == 0:
            return
        for path, _, array in self._free(model):
            velocity, seen = _of(state, path)
            some = np.arange(len(seen), like=seen) if rows is None else rows
            lines, velocities = (a.reshape(len(seen), -1) for a in (array, velocity))
            v, (decay, gone) = (
                velocities[some],
                self._missed(state.count - seen[some], array.dtype),
            )
            lines[some] = lines[some] + gone * v
            velocities[some] = decay * v
            seen[some] = state.count

    def settled(self, model: RecordT, state: NesterovState) -> RecordT:
        """Return the model at x, with all rows up to date; the arguments are not modified.

        This is the model to use after the last step.
        """
        values, run = {}, RUN_ON_DEVICE if on_device(*_seen(state)) else RUN
        for path, _, array in self._free(model):
            velocity, seen = _of(state, path)
            out = array.copy()
            lines, velocities = (a.reshape(len(seen), -1) for a in (out, velocity))
            for at in range(0, len(seen), run):
                some = slice(at, at + run)
                decay, gone = self._missed(state.count - seen[some], array.dtype)
                lines[some] += (gone - self.momentum * decay) * velocities[some]
            values[path] = out
        return replaced(model, values)

    def moved(self, values: Any, velocity: Any, change: Any) -> tuple[Any, Any]:
        """Return ``(values, velocity)`` after a step, of what is linear in the model.

        ``change`` is the same function of s g.
        """
        beta = self.momentum
        return values + beta**2 * velocity + (1 + beta) * change, beta * velocity + change

    def _free(self, model):
        """Return the leaves that steps move; ``fixed`` need not name empty ones."""
        free = set(self.paths(model))
        return [one for one in leaves(model) if one[0] in free and getattr(one[2], "size", 1)]


@names_options
def nesterov(step_size: Size | None = None, momentum: float = 0.9, fixed: Names = ()) -> Nesterov:
    """Nesterov's accelerated ascent, in place, for dense and sparse gradients.

    It is for the mean of a ``QSGP`` with Gaussian noise, whose bound is quadratic. There it reaches
    better scores than ``adagrad`` in as many steps on two of three data sets, at the same cost:
    bench/results/qsgp_mean.md. Give other fields another optimiser by ``by_field``.

    Parameters
    ----------
    step_size : float, schedule, or function ``count -> step size``, optional
        At most 1.36 over the largest curvature with the momentum 0.9. Default: falling along a
        cosine from 1 over the largest curvature, which ``fit`` estimates from 1,500 of the rows.
        Where the objective falls by more than its noise, steps go back to a model kept before, and
        all further step sizes are halved.
    momentum : float
        Decay of the velocity, in [0, 1).
    fixed : str or sequence of str
        Dotted paths of fields that are not moved.

    Returns
    -------
    Nesterov
        ``init(model) -> state`` and ``step(model, grad, state, value=None) -> (model, state)``. The
        model of a step is that at which the next gradient is taken. Before the gradient at some
        rows, ``catch_up(model, state, rows)`` moves them by the steps that they missed; after the
        last step ``settled(model, state)`` is the result. ``fit`` calls both.

    Raises
    ------
    ValueError, TypeError
        Numbers outside these ranges. Without ``step_size``, a step outside of ``fit``.

    Notes
    -----
    O(rows) per step; the first step copies the model, and every hundredth copies the parameters.
    The state has two numbers per parameter, in its dtype, and a count per row. Sources: Nesterov
    1983; Sutskever, Martens, Dahl and Hinton 2013.

    Examples
    --------
    >>> optimiser = fs.by_field(fs.adagrad(), {"posterior.mean": fs.nesterov()})
    >>> trained, info = fs.fit(weights, X, Y, steps=3, optimiser=optimiser, rng=0)
    >>> info.steps
    3
    """
    schedule = Estimated("all") if step_size is None else as_schedule(step_size)
    return Nesterov(schedule, fraction("nesterov", "momentum", momentum), as_names(fixed))


@functools.lru_cache(16)
def _powers(beta):
    """Return the powers of beta from 0 until they no longer count, or 2^16 of them."""
    count = 2 if beta == 0 else min(2**16, 2 + int(math.log(SMALLEST) / math.log(beta)))
    return beta ** np.arange(count)


def _seen(state):
    return [seen for _, _, seen in leaves(state.seen) if seen is not None]


def _of(state, path):
    """Return the velocity and the counts of a field."""
    velocity = {name: value for name, _, value in leaves(state.velocity)}
    seen = {name: value for name, _, value in leaves(state.seen)}
    return velocity[path], seen[path]
