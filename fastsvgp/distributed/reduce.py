"""A bound on several ranks: each rank takes its rows, and one all-reduce sums value and gradient.

A rank runs the pass of a single process on its rows, with 1 / R of the KL term, and its data term
scaled as that of the whole batch. Value and gradient of the bound are therefore sums over the
ranks.
"""

import numbers
import zlib
from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..check.scale import DataScale
from ..errors import BadEntry
from ..records import leaves, replace_leaves
from ..runtime.deferred_checks import on_device
from ..runtime.devices import device_array
from ..runtime.edge import run as run_as_public
from . import same_data
from .buffers import packing_of
from .protocol import NUMBERS, Communicator, TrainingGroup, is_reported

NOT_COMPARED = "rng", "draws", "wrt"  # not in the fingerprint: compared elsewhere, or not at all


def bounds(count, rank, size):
    """Return the range ``(start, stop)`` of a rank among ``count`` rows."""
    return count * rank // size, count * (rank + 1) // size


class RowPartition(NamedTuple):
    """The rows of a rank in a call: ``rows``, a slice or increasing numbers, of ``count`` in total.

    own : whether per-row arguments hold only these rows
    """

    count: int  # type: ignore[assignment]  # a tuple's method has this name
    rows: Any
    own: bool = False


class RankScale(DataScale):
    """The scale of one rank: the same object as that of a single process, with sums over the ranks.

    fingerprint : fingerprint of parameters and arguments, compared in every sum
    """

    alone = False

    def __init__(self, communicator, fingerprint, factor, partition):
        self.communicator, self.fingerprint = communicator, fingerprint
        self._factor, self.partition = factor, partition
        self.rank, self.size = communicator.rank, communicator.size
        self.kl = 1.0 / communicator.size

    def factor(self, batch):
        return self._factor

    def all_reduce(self, *values, lower=()):
        kinds = ["tril" if at in lower else "real" for at in range(len(values))]
        return self.communicator.all_reduce(kinds, values, self.fingerprint)

    def gather_rows(self, X, V):
        counts = np.eye(self.size)[self.rank] * len(X)
        ends = np.cumsum(self.all_reduce(counts)[0]).astype(int)
        ours = slice(ends[self.rank] - len(X), ends[self.rank])
        all_X = np.zeros((ends[-1], X.shape[1]), X.dtype, like=X)
        all_V = np.zeros((len(V), ends[-1]), V.dtype, like=V)
        all_X[ours], all_V[:, ours] = X, V
        return self.all_reduce(all_X, all_V)

    def all_reduce_gradient(self, value, grad):
        paths, kinds, found = present(grad)
        value, *sums = self.communicator.all_reduce(
            ("real", *kinds), (value, *found), self.fingerprint
        )
        return value, replace_leaves(grad, dict(zip(paths, sums, strict=True)))

    def all_reduce_natural(self, layer, value, negative):
        sums = layer.natural_sums()
        lower = [at + 2 for at, one in enumerate(sums) if one.ndim == 3]
        value, negative, *totals = self.all_reduce(value, float(negative), *sums, lower=lower)
        for ours, total in zip(sums, totals, strict=True):
            ours[...] = total
        return value, int(negative)


def present(record):
    """Return paths, kinds and values of the leaves of a record that are not None."""
    found = [leaf for leaf in leaves(record) if leaf[2] is not None]
    return zip(*found, strict=True) if found else ((), (), ())


def call_on_ranks(name, function, model, X, Y, group, num_data, options):
    """Call a bound on all ranks of a group: ``function(model, X, Y, scale, **options)``.

    name : name of the public function
    num_data : that of the public function; None if it has no such option
    options : all other options of the function; ``wrt`` and ``draws`` are left out if None
    """
    call = BoundCall.of(name, function, model, num_data, options)
    if isinstance(group, TrainingGroup):
        return group.call(lambda: call.run_in_training(group, X, Y))
    communicator = Communicator.of(group)  # refuses a group in a training
    return communicator.run(lambda: call.run_on_part(communicator, group, X, Y))


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

    def run_in_training(self, group, X, Y):
        """Run the call in a training: X and Y are this rank's part of a batch."""
        fingerprint = group.fingerprint
        if fingerprint is None:
            fingerprint = self._fingerprint(self.rng)
        scale = RankScale(group.communicator, fingerprint, group.scale, group.partition)
        return self._run(scale, X, Y, self.weights, self.rng, group.locate)

    def run_on_part(self, communicator, group, X, Y):
        """Run the call on this rank's part of X and Y, or on all of them with rows="own"."""
        # whether the ranks exchange their numbers of rows
        counts = group.rows == "own" and (self.num_data is not None or self.drawing)
        wrt = list(self.options["wrt"]) if "wrt" in self.options else None
        facts = {"function": self.name, "wrt": wrt} | facts_of(group, self.model, X, Y)
        facts |= {"weights": self.weights is not None, "counts": counts}
        facts |= {"draws": "draws" in self.options, "rng": seed_of(self.rng)}
        if group.rows == "all" and group.size > 1:
            digests = same_data.digest_rows(X, Y, self.weights)
            facts |= {NUMBERS + name: digest for name, digest in digests.items()}
        communicator.agree(facts)
        seed = self._seed(communicator)
        rows, locate, x, y, w = rows_of(
            group, X, Y, self.weights, self.options.get("inputs", False)
        )
        partition = RowPartition(len(X), rows, own=group.rows == "own")
        if counts:
            own = np.eye(communicator.size)[communicator.rank] * len(x)
            ends = np.cumsum([0, *communicator.all_reduce(("real",), [own])[0].astype(int)])
            partition = RowPartition(
                ends[-1], slice(*ends[communicator.rank : communicator.rank + 2]), own=True
            )
        factor = check.data_scale(self.num_data, int(partition.count))
        scale = RankScale(communicator, self._fingerprint(seed), factor, partition)
        return self._run(scale, x, y, w, seed, locate)

    def _fingerprint(self, seed):
        """Return the fingerprint of the model and of the arguments."""
        more = {name: value for name, value in self.options.items() if name not in NOT_COMPARED}
        arguments = self.num_data, seed, more
        return fingerprint(self.model) ^ zlib.crc32(repr(arguments).encode())

    def _seed(self, communicator):
        quantities = getattr(getattr(self.model, "posterior", None), "random_quantities", ())
        given = any(self.options.get(name) is not None for name in quantities)
        if self.drawing or seed_of(self.rng) == "drawn" or given:
            return common_seed(communicator, self.rng)
        return self.rng

    def _run(self, scale, X, Y, weights, seed, locate):
        options = self.options | ({"rng": seed} if "rng" in self.options else {})
        try:
            return run_as_public(self.function, self.model, X, Y, scale, weights=weights, **options)
        except BadEntry as error:
            if locate is not None and not is_reported(error):
                locate(error)
            raise


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


def facts_of(group, model, X, Y):
    """Return the facts about model and data on which ranks must agree."""
    found = {"model": type(model).__name__}
    for name in ("posterior", "likelihood"):
        found[name] = type(getattr(model, name, None)).__name__
    found["place of the model"] = "the host" if device_array(model) is None else "a device"
    for path, _, value in leaves(model):
        found[f"shape of {path}"] = None if value is None else _shape_of(value)
    for name, value in (("X", X), ("Y", Y)):
        if not np.shape(value):  # of an attribute, if there is one: reads no rows
            raise ValueError(f"`{name}` must have rows, got a single value")
        found[f"shape of {name}"] = list(np.shape(value)[1:])
        found[f"dtype of {name}"] = str(getattr(value, "dtype", None))
    found["rows"] = group.rows
    if group.rows == "all":
        found["rows of X"] = len(X)
    return found


def _shape_of(value):
    return [*np.shape(value), str(getattr(value, "dtype", np.dtype(type(value))))]


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


def fingerprint(model):
    """Return a 32-bit fingerprint of a record, without numbers above the diagonals of factors."""
    _, kinds, values = present(model)
    packing, device_like = packing_of(kinds, values), device_array(model)
    buffer = np.empty(packing.size, like=device_like)
    packing.pack(values, buffer)
    return zlib.crc32(kernels.fold_bits(buffer).tobytes())
