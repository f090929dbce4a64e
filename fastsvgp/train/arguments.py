"""Arguments of ``fit``, and what the function that trains a kind of model gets of them."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .. import check
from ..files import Path
from ..optim.inverse.updates import InverseUpdates
from ..optim.schedules import Size
from ..records import replace
from ..records.typed import ArrayLike, RandomCounts, Record, Rows, Seed
from .info import StepInfo

Data: TypeAlias = ArrayLike | Rows
Callback: TypeAlias = Callable[[int, float, StepInfo], object]

# largest count of steps, or of anything else: at a microsecond each they take thirty years
MOST = 10**15


class KindArguments(RandomCounts, total=False):
    """Options of ``fit`` for one kind of model or another: the fields of the options records."""

    natural_step_size: Size | None
    inverse_updates: InverseUpdates | Literal[False] | None
    e_steps: int | None
    m_steps: int | None
    num_samples: int | None
    graph: Literal["auto"] | bool
    collapsed: bool
    within: float | None
    basis_size: int | None
    control: int | Record | None
    closed_form_every: int | None


def count(name, value, least=1):
    """Check a whole number, as ``check.whole``, or None; refuse one above 10**15."""
    if isinstance(value, numbers.Real) and value > MOST:
        raise ValueError(f"fit: `{name}` must be at most 10**15")
    return None if value is None else check.whole(name, value, least)


def given_seed(rng):
    """Return ``rng`` if it is an integer seed; None if it is None or a generator."""
    return int(rng) if isinstance(rng, numbers.Integral) else None


def rows(name, data) -> Rows:
    """Return data that can be indexed by row number.

    Containers with ``shape`` and ``dtype`` are returned as they are. Lists are converted to arrays,
    and pandas objects too, because they are indexed by label.
    """
    readable = hasattr(data, "shape") and hasattr(data, "dtype") and not hasattr(data, "iloc")
    data = data if readable else check.as_array(name, data)
    if not data.shape:
        raise ValueError(f"`{name}` must have rows, got a single value")
    return data


def rows_of_both(function, X, Y):
    """Return X and Y, as ``rows`` does; refuse different numbers of them, and none."""
    X, Y = rows("X", X), rows("Y", Y)
    if len(X) != len(Y) or len(X) == 0:
        raise ValueError(
            f"{function}: `X` and `Y` must have the same number of rows, at least one, got"
            f" {len(X)} and {len(Y)}"
        )
    return X, Y


@dataclass(frozen=True)
class Request:
    """One call of ``fit``: the argument of the function that trains a kind of model.

    Parameters
    ----------
    model, X, Y, weights, epochs, batch_size, optimiser, jitter, rng
        As passed to ``fit``; ``weights`` are checked.
    fixed : tuple of str, or None
    priors : dict of str to Prior, or None
        By the path of a leaf. Steps add them by ``plus_log_prior``.
    options : record
        Options of the kind of model, of the class that ``models.with_options`` gave the function.
    random : dict of int
        Numbers of draws of random quantities of a posterior, by name.
    plan : LoopOptions
        Options of the training loop; its ``steps`` and ``validate_every`` can be None.
    about : dict
        Fields of ``TrainingState``.
    resume : path or None

    Examples
    --------
    >>> def searching(request):
    ...     request.refuse("a Projected is trained by line searches", "weights", "batch_size")
    ...     return Recorder(..., request.plan)  # see ``Recorder``
    """

    model: Record
    X: Rows
    Y: Rows
    weights: Any
    epochs: float | None
    batch_size: int | None
    optimiser: Any
    fixed: tuple[str, ...] | None
    priors: Any
    jitter: float | None
    rng: Seed
    options: Any
    random: dict[str, Any]
    plan: Any
    about: dict[str, Any]
    resume: Path | None

    def refuse(self, trained, *names, more=()):
        """Raise ``ValueError`` if arguments of these names, or random quantities, are given.

        ``trained`` says how this kind is trained; ``more`` are names of given options.
        """
        values = vars(self.plan) | vars(self)
        given = [name for name in names if values[name] is not None]
        if given := [*given, *more, *self.random]:
            listed = ", ".join(f"`{name}`" for name in given)
            raise ValueError(f"fit: {trained}; {listed} would have no effect")

    def make_plan(self, batches, per_round=1):
        """Return the plan of a training whose steps take ``per_round`` of these batches each."""
        every = self.plan.validate_every or -(-batches.per_epoch // per_round)
        steps = self._total(batches.num_data / batches.size / per_round)
        return replace(self.plan, steps=steps, validate_every=every)

    def _total(self, per_epoch):
        steps, epochs = self.plan.steps, self.epochs
        if self.plan.until is not None and steps is None:
            return MOST
        if (steps is None) == (epochs is None):
            came = "none" if steps is None else "both `steps` and `epochs`"
            raise ValueError(
                "fit: give the length of the training as one of `steps`, `epochs` and `seconds`,"
                f" got {came}"
            )
        if steps is not None:
            return steps
        epochs = check.scalar("epochs", epochs)
        if epochs < 0:
            raise ValueError(f"fit: `epochs` must be zero or more, got {epochs:g}")
        steps = epochs * per_epoch
        if steps > MOST:
            raise ValueError(
                f"fit: `epochs` of {epochs:g} are {steps:.3g} steps; at most 10**15 can be counted"
            )
        return math.ceil(steps)


def seed_of(rng):
    """Return the seed given by ``rng``, or one drawn from it."""
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
        if rng < 0:
            raise ValueError(f"fit: the seed `rng` must be zero or more, got {rng}")
        return int(rng)
    return int(check.generator(rng).integers(2**63))
