"""Types for the signatures of public functions."""

from collections.abc import Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypedDict, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as ArrayLike

    # on a device a CuPy array, which has no static type
    Array: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.float64]]
else:  # short in signatures

    class ArrayLike:
        """Anything that ``numpy.asarray`` takes, or an array on a device."""

    class Array:
        """An array of float32 or float64."""


Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Number: TypeAlias = float | np.float32 | Array  # a leaf of a record
Seed: TypeAlias = int | np.random.Generator | None
Names: TypeAlias = str | Sequence[str]  # dotted paths of fields


class Record(Protocol):
    """Any class decorated with ``fastsvgp.records.record``."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


RecordT = TypeVar("RecordT", bound=Record)


class AnyRecord(Record, Protocol):
    """A record whose fields are unknown to type checkers, for inner functions."""

    def __getattr__(self, name: str, /) -> Any: ...


class Rows(Protocol):
    """Data that ``fit`` reads by row number, for example an h5py data set."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any, /) -> Any: ...


class Group(Protocol):
    """A communicator of several ranks; see ``fastsvgp.distributed``."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> str: ...
    def sum(self, buffer: Any, /) -> Any: ...
    def broadcast(self, buffer: Any, /) -> Any: ...


class Moves(Protocol):
    """An optimiser for ``fit``; see ``fastsvgp.optim.base``."""

    def init(self, model: Any, /) -> Any: ...
    def step(self, model: Any, grad: Any, state: Any, /, value: Any = None) -> Any: ...
    def paths(self, model: Any, /) -> Any: ...
    def moving(self, model: Any, state: Any, /) -> Any: ...
    def fixing(self, names: Any, /) -> Any: ...
    @property
    def fixed(self) -> Any: ...
    def step_size_at(self, state: Any, /) -> Any: ...


class Random(TypedDict, total=False):
    """Random quantities of posteriors: their number, or the values themselves."""

    probes: int | ArrayLike | None
    sampled: int | ArrayLike | None


class RandomCounts(TypedDict, total=False):
    """Numbers of random quantities drawn per step."""

    probes: int | None
    sampled: int | None


# Options of functions that serve several types of model: the union over all types. Each call checks
# which of them its type takes.
class OfRows(Random, total=False):
    """``Random``, and the numbers of the rows of a VIF."""

    rows: ArrayLike | None


class OfDraws(OfRows, total=False):
    """``OfRows``, and the samples of the hidden layers of a deep GP."""

    draws: Sequence[ArrayLike] | None
    num_samples: int


class OfBound(OfDraws, total=False):
    """Options of a bound with its gradient."""

    num_data: float | None
    jitter: float | None
    rng: Seed
    weights: ArrayLike | None
    wrt: Names | None


class OfGroupedBound(OfBound, total=False):
    """``OfBound`` for a bound that several ranks can compute."""

    group: Group | None


class OfSteps(OfDraws, total=False):
    """Options of a natural-gradient step; ``rows`` also of models with one site per data row."""


class OfQuantiles(TypedDict, total=False):
    """Options of predictions of a deep GP."""

    num_samples: int
    rng: Seed


class OfWeights(OfQuantiles, total=False):
    """``OfQuantiles``, and the options of a QSGP."""

    augmented: bool | ArrayLike


class OfFunctions(OfWeights, total=False):
    """Options of predictions of functions: ``OfWeights``, and that of a ``MultiGP``."""

    full_output_cov: bool


class OfPaths(TypedDict, total=False):
    """Option of functions drawn from models with a site per datum."""

    site_inputs: ArrayLike


class OfTargets(OfWeights, total=False):
    """Options of predictions of targets."""

    median: bool
