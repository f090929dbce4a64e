"""Step sizes that change over the steps.

A schedule is immutable. ``init()`` returns its state, a record. ``size(count, state)`` returns the
step size of step ``count`` (from 0). ``observe(state, value)`` returns the state after a step whose
objective was ``value``. Only ``plateau`` reads values; the state of the others is empty. An
argument that is a step size accepts a number, a schedule, or a function ``count -> step size``.
"""

import math
import numbers
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias

from .. import check
from ..errors import names_options
from ..records import leaf, record
from ..records.typed import Record


@record
class Trend:
    """Exponential average with its best value. Start with ``Trend()``.

    The fields are Python floats, so a saved trend continues bit for bit.
    """

    total: Any = leaf(default=0.0)
    weight: Any = leaf(default=0.0)
    best: Any = leaf(default=-math.inf)
    waited: Any = leaf(default=0.0)

    @property
    def smoothed(self):
        """The average, corrected for the bias of its start at zero; NaN without values."""
        return self.total / self.weight if self.weight else math.nan

    def observe(self, value, smoothing, tolerance):
        """Return the trend after one more value.

        ``smoothing`` in [0, 1) is the weight of the past (0: each value counts unsmoothed). The
        average has improved when it exceeds the best so far by more than ``tolerance * max(1,
        |best|)``; ``waited`` counts values since it last did.
        """
        total = smoothing * self.total + (1 - smoothing) * float(value)
        weight = smoothing * self.weight + (1 - smoothing)
        now = total / weight
        margin = tolerance * max(1.0, abs(self.best)) if math.isfinite(self.best) else 0.0
        if now > self.best + margin:
            return Trend(total, weight, now, 0.0)
        return Trend(total, weight, self.best, self.waited + 1.0)


@record
class NoState:
    """State of a schedule that depends only on the count."""


class Schedule:
    """Schedule that depends only on the count; the module describes the three methods."""

    needs_value = False

    def init(self) -> Record:
        return NoState()

    def size(self, count: int, state: Any) -> float:
        raise NotImplementedError

    def observe(self, state: Any, value: float | None) -> Record:
        return state


Size: TypeAlias = float | Schedule | Callable[[int], float]


@dataclass(frozen=True)
class _Constant(Schedule):
    value: float

    def size(self, count, state):
        return self.value


ALL = "all"  # `steps` for as many as the training takes


@dataclass(frozen=True)
class _Timed(Schedule):
    """From ``start`` to ``end`` over ``steps`` steps, or over all steps of a training."""

    start: float
    end: float
    steps: Any

    def size(self, count, state):
        if self.steps == ALL:
            raise ValueError(
                'a schedule of steps="all" belongs to `fit`, which knows their number; give a'
                " number here"
            )
        return self._value_at(count / (self.steps - 1)) if count < self.steps - 1 else self.end


class _LogLinear(_Timed):
    def _value_at(self, done):
        return self.start * (self.end / self.start) ** done


class _Cosine(_Timed):
    def _value_at(self, done):
        return self.end + (self.start - self.end) * 0.5 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True)
class _Exponential(Schedule):
    start: float
    rate: float
    steps: int
    smallest: float

    def size(self, count, state):
        return max(self.start * self.rate ** (count / self.steps), self.smallest)


@record
class PlateauState:
    """Step size now, and the average of the objective since the step size last changed."""

    now: Any = leaf()
    trend: Any = None


@dataclass(frozen=True)
class _Plateau(Schedule):
    start: float
    factor: float
    patience: int
    smoothing: float
    tolerance: float
    smallest: float

    needs_value = True

    def init(self):
        return PlateauState(self.start, Trend())

    def size(self, count, state):
        return state.now

    def observe(self, state, value):
        trend = state.trend.observe(value, self.smoothing, self.tolerance)
        if trend.waited < self.patience:
            return PlateauState(state.now, trend)
        rested = Trend(trend.total, trend.weight, trend.best, 0.0)
        return PlateauState(max(state.now * self.factor, self.smallest), rested)


@dataclass(frozen=True)
class _Function(Schedule):
    function: Any

    def size(self, count, state):
        value = float(self.function(count))
        if not 0 <= value < math.inf:
            raise ValueError(
                f"the step-size function returned {value} at step {count}; it must be finite and"
                " not negative"
            )
        return value


@names_options
def log_linear(start: float, end: float, steps: int | Literal["all"]) -> Schedule:
    """Go from ``start`` at the first of ``steps`` steps to ``end`` at the last, log-linearly.

    Later steps have the size ``end``, and ``steps=1`` is ``end`` at once. A ramp from about 1e-4 to
    0.1 or more keeps the first natural-gradient steps of non-conjugate models safe (Salimbeni,
    Eleftheriadis & Hensman 2018).

    Parameters
    ----------
    start, end : float
        Step sizes at the first of these steps, and at the last.
    steps : int or "all"
        "all" means the steps of the training, which ``fit`` knows, or predicts from its
        ``seconds``.

    Returns
    -------
    Schedule

    Raises
    ------
    ValueError, TypeError
        Step sizes that are not positive, finite numbers; ``steps`` that is neither "all" nor a
        whole number of at least 1.

    Examples
    --------
    >>> ramp = fs.optim.schedules.log_linear(1e-3, 0.1, 5)
    >>> [round(ramp.size(count, ramp.init()), 6) for count in range(6)]
    [0.001, 0.003162, 0.01, 0.031623, 0.1, 0.1]
    >>> trained, info = fs.fit(model, X, Y, steps=20, natural_step_size=ramp, rng=0)
    """
    return _LogLinear(
        _positive("log_linear", "start", start),
        _positive("log_linear", "end", end),
        _steps(steps),
    )


@names_options
def cosine(start: float, end: float, steps: int | Literal["all"]) -> Schedule:
    """Go from ``start`` at the first of ``steps`` steps to ``end`` at the last along half a cosine.

    Later steps have the size ``end``. The curve is nearly flat at both ends: large steps first, and
    small ones in the end, which average over batches. Source: Loshchilov & Hutter, "SGDR:
    Stochastic Gradient Descent with Warm Restarts" (2017), eq. (5), without restarts.

    Parameters
    ----------
    start, end : float
        Step sizes at the first of these steps, and at the last.
    steps : int or "all"
        As in ``log_linear``.

    Returns
    -------
    Schedule

    Raises
    ------
    ValueError, TypeError
        As ``log_linear``.

    Examples
    --------
    >>> falling = fs.optim.schedules.cosine(0.05, 0.001, 5)
    >>> [round(falling.size(count, falling.init()), 4) for count in range(6)]
    [0.05, 0.0428, 0.0255, 0.0082, 0.001, 0.001]
    >>> trained, info = fs.fit(model, X, Y, steps=5, optimiser=fs.adam(falling), rng=0)
    """
    return _Cosine(
        _positive("cosine", "start", start),
        _positive("cosine", "end", end),
        _steps(steps),
    )


@names_options
def exponential(start: float, rate: float, steps: int = 1, smallest: float = 0.0) -> Schedule:
    """Multiply the step size by ``rate`` every ``steps`` steps, smoothly.

    The size is ``start * rate ** (count / steps)``, and at least ``smallest``.

    Parameters
    ----------
    start : float
        The first step size.
    rate : float
        Factor per ``steps`` steps, from 0 to 1.
    steps : int
        Number of steps over which the step size is multiplied by ``rate``.
    smallest : float
        Lower limit of the step size, from 0 to ``start``.

    Returns
    -------
    Schedule

    Raises
    ------
    ValueError, TypeError
        Numbers outside these ranges, or values that are not numbers.

    Examples
    --------
    >>> falling = fs.optim.schedules.exponential(0.1, 0.5, steps=10, smallest=0.02)
    >>> [round(falling.size(count, falling.init()), 4) for count in (0, 5, 10, 20, 30)]
    [0.1, 0.0707, 0.05, 0.025, 0.02]
    """
    return _Exponential(
        _positive("exponential", "start", start),
        _check_within("exponential", "rate", rate, 0, 1),
        check.whole("steps", steps),
        _check_within("exponential", "smallest", smallest, 0, start),
    )


@names_options
def plateau(
    start: float,
    factor: float = 0.5,
    patience: int = 200,
    smoothing: float = 0.98,
    tolerance: float = 0.0,
    smallest: float = 0.0,
) -> Schedule:
    """Multiply by ``factor`` when the smoothed objective has not improved for ``patience`` steps.

    Parameters
    ----------
    start, factor, smallest : float
        First step size, factor in (0, 1), and lower limit of the step size.
    patience : int
        Steps without improvement before the step size falls; the count restarts after each fall.
    smoothing : float
        Weight of the past in the exponential average, in [0, 1): 0.98 averages over about 50 steps.
    tolerance : float
        An improvement counts when it exceeds ``tolerance * max(1, |best|)``.

    Returns
    -------
    Schedule
        It reads the objective, which ``fit`` passes to it.

    Raises
    ------
    ValueError, TypeError
        Numbers outside their ranges, or values that are not numbers.

    Examples
    --------
    >>> schedule = fs.optim.schedules.plateau(0.1, patience=2, smoothing=0.0)
    >>> state, sizes = schedule.init(), []
    >>> for count, value in enumerate([1.0, 2.0, 2.0, 2.0, 2.0]):
    ...     sizes.append(schedule.size(count, state))
    ...     state = schedule.observe(state, value)
    >>> sizes
    [0.1, 0.1, 0.1, 0.1, 0.05]
    """
    return _Plateau(
        _positive("plateau", "start", start),
        _check_within("plateau", "factor", factor, 0, 1),
        check.whole("patience", patience),
        fraction("plateau", "smoothing", smoothing),
        _check_within("plateau", "tolerance", tolerance, 0, math.inf),
        _check_within("plateau", "smallest", smallest, 0, start),
    )


def lasting(value, total):
    """Replace ``steps="all"`` by ``total`` in a schedule, or in an object that holds some."""

    if isinstance(value, _Timed):
        return replace(value, steps=max(total, 1)) if value.steps == ALL else value
    if isinstance(value, tuple) and type(value) is tuple:
        changed = tuple(lasting(one, total) for one in value)
        return value if all(map(operator.is_, changed, value)) else changed
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        new = {name: lasting(one, total) for name, one in held.items()}
        changed = any(new[name] is not held[name] for name in held)
        return replace(value, **new) if changed else value
    return value


def as_schedule(value, name="step_size"):
    """Return a schedule from a number, a schedule, or a function ``count -> step size``."""
    if isinstance(value, Schedule):
        return value
    if callable(value):
        return _Function(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        size = check.scalar(name, value)
        if size < 0:
            raise ValueError(f"`{name}` must not be negative, got {size:g}")
        return _Constant(size)
    raise TypeError(
        f"`{name}` must be a number, a schedule or a function of the step count, got"
        f" {type(value).__name__}"
    )


def fraction(function, name, value):
    """Return ``value`` as a float in [0, 1)."""
    value = check.scalar(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{function}: `{name}` must be at least 0 and less than 1, got {value:g}")
    return value


def _steps(steps):
    return ALL if isinstance(steps, str) and steps == ALL else check.whole("steps", steps)


def _positive(function, name, value):
    value = check.scalar(name, value)
    if value <= 0:
        raise ValueError(f"{function}: `{name}` must be positive and finite, got {value:g}")
    return value


def _check_within(function, name, value, low, high):
    value = check.scalar(name, value)
    if not low <= value <= high:
        raise ValueError(f"{function}: `{name}` must lie between {low} and {high}, got {value}")
    return value
