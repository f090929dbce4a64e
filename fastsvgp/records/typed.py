"""The types that signatures name, for readers and type checkers."""

from collections.abc import Sequence
from dataclasses import Field
from typing import Any, ClassVar, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike as ArrayLike

# on a device CuPy's, which has no types
Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.float64]]
Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Number: TypeAlias = float | np.float32 | Array  # a leaf of a record
Seed: TypeAlias = int | np.random.Generator | None
Names: TypeAlias = str | Sequence[str]  # dotted paths of fields


class Record(Protocol):
    """Any class under ``fastsvgp.record``."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


RecordT = TypeVar("RecordT", bound=Record)


class AnyRecord(Record, Protocol):
    """A record whose fields are not known to type checkers: what inner functions pass on."""

    def __getattr__(self, name: str, /) -> Any: ...


class Rows(Protocol):
    """What ``fit`` reads by row number, such as a data set of h5py."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any, /) -> Any: ...


class Group(Protocol):
    """What several ranks compute with; see ``fastsvgp.distributed``."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> str: ...
    def sum(self, buffer: Any, /) -> Any: ...
    def broadcast(self, buffer: Any, /) -> Any: ...


class Moves(Protocol):
    """What ``fit`` takes for an optimiser; see ``fastsvgp.optim.base``."""

    def init(self, model: Any, /) -> Any: ...
    def step(self, model: Any, grad: Any, state: Any, /, value: Any = None) -> Any: ...
    def paths(self, model: Any, /) -> Any: ...
    def moving(self, model: Any, state: Any, /) -> Any: ...
    def fixing(self, names: Any, /) -> Any: ...
    @property
    def fixed(self) -> Any: ...
    def step_size_at(self, state: Any, /) -> Any: ...


class Random(TypedDict, total=False):
    """Random quantities of posteriors: how many are drawn, or which ones."""

    probes: int | ArrayLike | None
    sampled: int | ArrayLike | None


class RandomCounts(TypedDict, total=False):
    """Of the same, how many are drawn at each step."""

    probes: int | None
    sampled: int | None


# Options of functions that serve several kinds of model: those of all kinds. Which of them a kind
# takes is checked at run time.
class OfDraws(Random, total=False):
    """And those of draws of the hidden layers of a deep GP."""

    draws: Sequence[ArrayLike] | None
    num_samples: int


class OfBound(OfDraws, total=False):
    """Of a bound with its gradient."""

    num_data: float | None
    jitter: float | None
    rng: Seed
    weights: ArrayLike | None
    wrt: Names | None


class OfGroupedBound(OfBound, total=False):
    """Of one that several ranks may compute."""

    group: Group | None


class OfSteps(OfDraws, total=False):
    """Of a natural-gradient step, where sites are some rows of the data."""

    rows: ArrayLike | None


class OfQuantiles(TypedDict, total=False):
    """Of a prediction, where the model is a deep GP."""

    num_samples: int
    rng: Seed


class OfFunctions(OfQuantiles, total=False):
    """And where it is a QSGP."""

    augmented: bool | ArrayLike


class OfTargets(OfFunctions, total=False):
    """Of predictions of targets."""

    median: bool
