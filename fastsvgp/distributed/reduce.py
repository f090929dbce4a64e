"""A bound on several ranks: each rank takes its rows, and one all-reduce sums value and gradient.

A rank runs the pass of a single process on its rows, with 1 / R of the KL term, and its data term
scaled as that of the whole batch. Value and gradient of the bound are therefore sums over the
ranks.
"""

import functools
import numbers
import zlib
from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..errors import BadEntry
from ..records import leaves, restricted
from ..runtime.deferred_checks import on_device
from ..runtime.devices import home_of
from ..runtime.edge import run as run_as_public
from . import same_data
from .packing import NUMBER as NUMBER, Packing
from .protocol import NUMBERS, Communicator, reported
from .rank_scale import RankScale
from .training_group import TrainingGroup

REAL = "real", ()  # a single number in a packing


def bounds(count, rank, size):
    """Return the range ``(start, stop)`` of a rank among ``count`` rows."""
    return count * rank // size, count * (rank + 1) // size


# --- packings of the all-reduces ------------------------------------------------------------------


def of_gradient(model, wrt):
    """Return the ``Packing`` of a value and of the gradient in these fields."""
    found = leaves(restricted(model, check.names(wrt, model)))
    shapes = ((kind, np.shape(value)) for _, kind, value in found if value is not None)
    return _packing_of((("real", ()), *shapes))


def of_collapsed(sgpr, Y):
    """Return the ``Packing`` of the first all-reduce of a collapsed bound.

    Its items are N, beta Lam Lam' (M, M), Lam y (M, P), |y|^2 and sum kff. Numbers of the host come
    first, so that only they are copied to the host, with the header.
    """
    M, P = sum(sgpr.covariance.num_inducing(sgpr.inducing)), np.shape(Y)[1] if np.ndim(Y) > 1 else 1
    return Packing([("real", ()), ("tril", (M, M)), ("real", (M, P)), *[("real", ())] * 2])


def of_natural_step(shapes_of_turns):
    """Return the ``Packing`` of each all-reduce of a natural step: the bound, a count, sums."""
    return [Packing([REAL, REAL, *shapes]) for shapes in shapes_of_turns]


NOT_COMPARED = "rng", "draws", "wrt"  # not in the fingerprint: compared elsewhere, or not at all


class RowPartition(NamedTuple):
    """The rows of a rank in a call: ``rows``, a slice or increasing numbers, of ``count`` in total.

    own : whether per-row arguments hold only these rows
    """

    count: int  # type: ignore[assignment]  # a tuple's method has this name
    rows: Any
    own: bool = False


# --- calls with a group ---------------------------------------------------------------------------


def on_ranks(name, function, model, X, Y, sums, group, num_data, options):
    """Call a bound on all ranks of a group: ``function(model, X, Y, scale, **options)``.

    name : name of the public function
    sums : function without arguments, which returns the ``Packing`` of each all-reduce
    num_data : that of the public function; None if it has no such option
    options : all other options of the function; ``wrt`` and ``draws`` are left out if None
    """
    call = BoundCall.of(name, function, model, num_data, options)
    if isinstance(group, TrainingGroup):
        return group.call(
            lambda: (sums(), home_of(model)), lambda share: call.placed(share, group, X, Y)
        )
    communicator = Communicator.of(group)  # refuses a group in a training
    counts = group.rows == "own" and (num_data is not None or call.drawing)
    first = [Packing([("real", (communicator.size,))])] if counts else []
    return communicator.call(
        lambda: call.facts() | _of_data(group, X, Y, call.weights) | call.more_facts(counts),
        lambda: (first + sums(), home_of(model)),
        lambda share: call.shared_out(share, group, X, Y, counts),
    )


class BoundCall(NamedTuple):
    """One call of a bound on one rank of a group.

    drawing : whether the function draws numbers for each row, which ``draws`` do not give
    options : the options of the function besides ``weights``
    """

    name: str
    function: Any
    model: Any
    num_data: float | None
    weights: Any
    drawing: bool
    options: dict[str, Any]

    @classmethod
    def of(cls, name, function, model, num_data, options):
        """Make a call; ``wrt`` and ``draws`` are left out if None."""
        options = {
            key: value
            for key, value in options.items()
            if value is not None or key not in ("wrt", "draws")
        }
        weights = options.pop("weights", None)
        drawing = getattr(model, "draws_rows", False) and "draws" not in options
        return cls(name, function, model, num_data, weights, drawing, options)

    @property
    def rng(self):
        """The option ``rng``; None for a function that takes none."""
        return self.options.get("rng")

    def facts(self):
        """Return the facts about the model on which ranks must agree."""
        found = {
            "function": self.name,
            "model": type(self.model).__name__,
            "wrt": list(self.options["wrt"]) if "wrt" in self.options else None,
        }
        found |= {
            path: [kind, list(np.shape(value))]
            for path, kind, value in leaves(self.model)
            if value is not None
        }
        found["posterior"] = type(getattr(self.model, "posterior", None)).__name__
        found["likelihood"] = type(getattr(self.model, "likelihood", None)).__name__
        return found | {"place of the model": lives_on(self.model)}

    def more_facts(self, counts):
        return {"counts": counts, "draws": "draws" in self.options, "rng": seed_of(self.rng)}

    def placed(self, share, group, X, Y):
        """Run the call in a training: X and Y are this rank's part of a batch."""
        share.fingerprint = _fingerprint(group.fingerprint, self.model, self._compared(self.rng))
        scale = RankScale(share, group.scale, group.partition)
        try:
            return self._run(scale, X, Y, self.weights, self.rng)
        except BadEntry as error:
            if group.locate is not None and not reported(error):
                group.locate(error)
            raise

    def shared_out(self, share, group, X, Y, counts):
        """Run the call on this rank's part of X and Y, or on all of them with rows="own".

        counts : whether the ranks exchange their numbers of rows
        """
        communicator, seed = share.communicator, self._seed(share.communicator)
        share.fingerprint = _fingerprint(None, self.model, self._compared(seed))
        rows, locate, x, y, w = rows_of(
            group, X, Y, self.weights, self.options.get("inputs", False)
        )
        partition = RowPartition(len(X), rows, own=group.rows == "own")
        if counts:
            numbers_of_rows = share.all_reduce(
                [np.eye(communicator.size)[communicator.rank] * len(x)]
            )[0]
            ends = np.cumsum([0, *numbers_of_rows.astype(int)])
            partition = RowPartition(
                ends[-1], slice(*ends[communicator.rank : communicator.rank + 2]), own=True
            )
        scale = RankScale(share, check.data_scale(self.num_data, int(partition.count)), partition)
        try:
            return self._run(scale, x, y, w, seed)
        except BadEntry as error:
            if not reported(error):
                locate(error)
            raise

    def _compared(self, seed):
        more = {name: value for name, value in self.options.items() if name not in NOT_COMPARED}
        return self.num_data, seed, more

    def _seed(self, communicator):
        quantities = getattr(getattr(self.model, "posterior", None), "random_quantities", ())
        given = any(self.options.get(name) is not None for name in quantities)
        if self.drawing or seed_of(self.rng) == "drawn" or given:
            return common_seed(communicator, self.rng)
        return self.rng

    def _run(self, scale, X, Y, weights, seed):
        options = self.options | ({"rng": seed} if "rng" in self.options else {})
        return run_as_public(self.function, self.model, X, Y, scale, weights=weights, **options)


def seed_of(rng):
    """Return the fact about ``rng`` to compare: a seed, None, or "drawn" if rank 0 draws one."""
    check.generator(rng)  # raises if invalid; draws nothing
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
        return int(rng)
    return None if rng is None else "drawn"


def common_seed(communicator, rng):
    """Return a seed common to all ranks: an integer ``rng``, else a seed drawn by rank 0.

    ``seed_of`` makes sure that all ranks take the same branch.
    """
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
        return rng
    seed = np.array([float(check.generator(rng).integers(2**53))])
    communicator.group.broadcast(seed)
    return int(seed[0])


def _of_data(group, X, Y, weights):
    """Return the facts about the data on which ranks must agree."""
    x, y = np.shape(X), np.shape(Y)
    for name, shape in (("X", x), ("Y", y)):
        if not shape:
            raise ValueError(f"`{name}` must have rows, got a single value")
    found = {
        "columns of X": list(x[1:]),
        "shape of a row of Y": list(y[1:]),
        "rows": group.rows,
        "weights": weights is not None,
    }
    found |= {
        f"dtype of {name}": str(getattr(value, "dtype", None))
        for name, value in (("X", X), ("Y", Y))
    }
    if group.rows == "all":
        found["rows of X"] = x[0]
    if group.rows == "all" and group.size > 1:
        found |= {
            NUMBERS + name: digest for name, digest in same_data.of_rows(X, Y, weights).items()
        }
    return found


def rows_of(group, X, Y, weights, inputs=False):
    """Return ``(rows, locate, X, Y, weights)`` of this rank.

    ``rows`` are a slice of the given rows, or row numbers. ``locate`` makes a ``BadEntry`` name the
    row of the given arrays. If some rank would have no row of positive weight, and the gradient in
    ``inputs`` is not requested, only the rows of positive weight are divided among the ranks.
    """
    if group.rows == "own":
        if len(X) == 0:
            raise ValueError(
                f'rank {group.rank} has no rows: with rows="own" each rank needs at least one; use'
                " fewer ranks"
            )
        return slice(None), lambda error: None, X, Y, weights
    if len(X) != len(Y):
        raise ValueError(
            f"`X` and `Y` must have the same number of rows, got {len(X)} and {len(Y)}"
        )
    if len(X) < group.size:
        raise ValueError(
            f"there are {group.size} ranks and {len(X)} rows: each rank needs at least one; use"
            " fewer ranks"
        )
    start, stop = bounds(len(X), group.rank, group.size)
    rows = slice(start, stop)
    if weights is not None and len(weights) != len(X):
        raise ValueError(
            f"`X` and `weights` must have the same number of rows, got {len(X)} and {len(weights)}"
        )
    if weights is not None and not inputs:
        counts = (on_host(weights) > 0).reshape(len(X), -1).any(axis=1)
        counting = np.flatnonzero(counts)
        parts = [counts[slice(*bounds(len(X), rank, group.size))] for rank in range(group.size)]
        if 0 < len(counting) < group.size:
            raise ValueError(
                f"{group.size} ranks, and {len(counting)} rows that count: each rank needs one; use"
                " fewer ranks"
            )
        if len(counting) and not all(part.any() for part in parts):
            rows = counting[slice(*bounds(len(counting), group.rank, group.size))]

    def locate(error):
        if error.name in ("X", "Y", "weights") and error.index:
            row = error.index[0]
            error.index = (
                int(start + row if isinstance(rows, slice) else rows[row]),
                *error.index[1:],
            )

    return rows, locate, X[rows], Y[rows], None if weights is None else weights[rows]


def on_host(array):
    """Copy an array on a device to the host; convert anything else to an array."""
    return array.get() if on_device(array) else np.asarray(array)


def _fingerprint(at_start, model, arguments):
    """Return the fingerprint at the start of a step, if any, else that of model and arguments."""
    if at_start is not None:
        return at_start
    return fingerprint(model) ^ zlib.crc32(repr(arguments).encode()) & 0xFFFF


def fingerprint(model):
    """Return a 16-bit fingerprint of a record, without numbers above the diagonals of factors."""
    found = [(kind, value) for _, kind, value in leaves(model) if value is not None]
    packing = _packing_of(tuple((kind, np.shape(value)) for kind, value in found))
    device_like = home_of(model)
    buffer = (
        np.empty(packing.size) if device_like is None else np.empty(packing.size, like=device_like)
    )
    packing.pack([value for _, value in found], buffer)
    return zlib.crc32(kernels.fold_bits(buffer).tobytes()) & 0xFFFF


def lives_on(model):
    """Return in words where the numbers of a record are; it must agree on all ranks."""
    return "the host" if home_of(model) is None else "a device"


@functools.cache
def _packing_of(items):
    return Packing(items)
