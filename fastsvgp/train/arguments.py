"""Arguments common to all kinds of training."""

import numbers
from collections.abc import Callable
from typing import Any, TypeAlias, TypedDict

from .. import check
from ..files import Path
from ..records.typed import ArrayLike, Group, Moves, Names, Rows, Seed
from .info import StepInfo

Data: TypeAlias = ArrayLike | Rows
Callback: TypeAlias = Callable[[int, float, StepInfo], object]

# largest count of steps, or of anything else: at a microsecond each they take thirty years
MOST = 10**15


class FitArguments(TypedDict, total=False):
    """The arguments that ``fit`` has for all kinds of model."""

    weights: Data | None
    steps: int | None
    epochs: float | None
    seconds: float | None
    batch_size: int | None
    optimiser: Moves | None
    fixed: Names | None
    jitter: float | None
    rng: Seed
    callback: Callback | None
    patience: int | None
    tolerance: float
    smoothing: float
    validate: Callable[[Any], float] | None
    validate_every: int | None
    checkpoint: Path | None
    checkpoint_every: int | None
    resume: Path | None
    note: object
    group: Group | None


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
