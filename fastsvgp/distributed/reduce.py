"""A bound on several ranks: each takes its rows, and one sum over all of them makes value and gradient whole.

A rank runs the pass of one process on its rows, with 1 / R of the KL term, and its data term scaled
as that of the whole batch; so value and gradient of the bound are the sums of those of the ranks.
"""

import copy
import functools
import numbers
import zlib
from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..errors import BadEntry
from ..records import is_record, leaves, restricted
from ..runtime.deferred_checks import on_device
from ..runtime.devices import home_of
from . import same_data
from .packing import Packing
from .protocol import NUMBERS, Share, Team, told

NUMBER = Packing([("real", ())])


def bounds(count, rank, size):
    """Which of ``count`` rows are those of a rank: ``(start, stop)``."""
    return count * rank // size, count * (rank + 1) // size


# --- what bounds ask ----------------------------------------------------------------------------------------------------


def data_scale(num_data, batch):
    """The factor of the data term, as ``check.data_scale``."""
    return num_data.scale if isinstance(num_data, Share) else check.data_scale(num_data, batch)


def kl_part(num_data):
    """How much of the KL term is this rank's."""
    return num_data.kl if isinstance(num_data, Share) else 1.0


def summed(num_data, value):
    """A value over all ranks: as it is, without a group."""
    return num_data.exchange([value])[0] if isinstance(num_data, Share) else value


def summed_gradient(share, value, grad):
    """Value and gradient over all ranks: as they are, without a group."""
    if not isinstance(share, Share):
        return value, grad
    found = [(path, leaf) for path, _, leaf in leaves(grad) if leaf is not None]
    value, *numbers_ = share.exchange([value, *(leaf for _, leaf in found)])
    return value, put(
        grad, {path: number for (path, _), number in zip(found, numbers_, strict=True)}
    )


def summed_natural(share, layer, value, negative):
    """The bound and the count over all ranks; the sums of the pass take in those of the others."""
    sums = layer.natural_sums()
    value, negative, *totals = share.exchange([value, float(negative), *sums])
    for ours, total in zip(sums, totals, strict=True):
        ours[...] = total
    return value, int(negative)


def put(tree, values, prefix=""):
    """A record with other leaves at these paths."""
    if isinstance(tree, tuple):
        return tuple(put(part, values, f"{prefix}{i}.") for i, part in enumerate(tree))
    changed = {}
    for name, _ in tree._record_fields:
        value = getattr(tree, name)
        nested = is_record(value) or isinstance(value, tuple) and all(map(is_record, value))
        changed[name] = (
            put(value, values, f"{prefix}{name}.") if nested else values.get(prefix + name, value)
        )
    return type(tree)(**changed)


def of_gradient(model, wrt):
    """The ``Packing`` of a value and of the gradient in these fields."""
    found = leaves(restricted(model, check.names(wrt, model)))
    shapes = ((kind, np.shape(value)) for _, kind, value in found if value is not None)
    return _packing_of((("real", ()), *shapes))


def of_collapsed(sgpr, Y):
    """That of the first sum of a collapsed bound: N, beta Lam Lam' (M, M), Lam y (M, P), |y|^2 and sum kff.

    Numbers of the host come first, so that they are copied there with the words, and nothing else
    is.
    """
    M, P = sum(sgpr.covariance.num_inducing(sgpr.inducing)), np.shape(Y)[1] if np.ndim(Y) > 1 else 1
    return Packing([("real", ()), ("tril", (M, M)), ("real", (M, P)), *[("real", ())] * 2])


def of_natural_step(q):
    """That of what a natural step sums: the bound, a count, Lam a (P, M), and the lower triangles of G (P, M, M)."""
    fields = [np.shape(getattr(q, name)) for name in q.natural_fields]
    least = min(map(len, fields))
    M = sum(shape[-1] for shape in fields if len(shape) == least)
    P = fields[0][0] if least > 1 else 1
    return Packing([("real", ()), ("real", ()), ("real", (P, M)), ("tril", (P, M, M))])


class Place(NamedTuple):
    """Which rows a rank has in a call: ``rows``, a slice or increasing numbers, among ``count`` of all ranks.

    own : whether what is given by rows is of these alone
    """

    count: int
    rows: Any
    own: bool = False


def place(num_data):
    """The ``Place`` of the rows of a call; None where they are all."""
    return num_data.place if isinstance(num_data, Share) else None


# --- calls with a group -------------------------------------------------------------------------------------------------


class Placed:
    """A group amid a training: X and Y of a call are this rank's rows, and ``scale`` is the factor of their data term.

    pending : what this rank has to tell the others at the next sum, in place of computing; None for nothing
    fingerprint : of the state that the step began with
    locate : function of a ``BadEntry``, which has it name the row of the data
    place : the ``Place`` of the rows of a call

    All steps of a training make the same calls, each with the same sums. So a rank that fails
    between two of them knows how long the others' next sum is, and where: that of the call which
    would be next, or the first one of a step, which the sum at the end is like. The first two steps
    teach the sums; there each call begins with one of the five words alone.
    """

    rows = "placed"

    def __init__(self, group):
        self.team = Team.of(group)
        self.group, self.scale, self.pending, self.fingerprint, self.locate = (
            group,
            1.0,
            None,
            None,
            None,
        )
        self.place = None
        # steps begun, calls summed in this one, their first sums and homes
        self._step, self._call, self._sums = -1, 0, []
        # whether the sum of words alone, with which the next call may begin, is done
        self._opened = False

    def afresh(self):
        """The same group for calls of another kind, after the last step: their sums are taught from the first."""
        other = copy.copy(self)
        other.pending, other._step, other._call, other._sums, other._opened = None, -1, 0, [], False
        other.begin_step()
        return other

    def begin_step(self):
        """The calls to come are those of a new step."""
        self._step, self._call, self._opened = self._step + 1, 0, False

    @property
    def awaited(self):
        """Whether this step's first sum is still to come."""
        return self._call == 0

    def tell(self, error=None):
        """Take part in the others' next sum, whatever it is for, with what this rank has met; on all ranks: end a training."""
        step, call = self._step, self._call
        if step > 0 and call == len(self._sums):
            step, call = step + 1, 0
        packing, home = self._sums[call] if step > 1 or self._opened else (Packing([]), None)

        def opened():
            self._opened = True

        Share(self.team, [packing], home, opened).exchange(None, error)

    def _begin_call(self, due, home):
        """Which call of the step this is, with these sums."""
        at = self._call
        self._sums[at : at + 1] = [(due[0], home)]
        if self._step in (0, 1):
            self._opened = False
            try:
                self.team.reserve(due, home)
            except Exception as error:
                self.pending = self.pending or error
            self.tell(self.pending)
        return at

    def call(self, sums, compute):
        """``compute(share)``, as ``Team.call``, where ranks have agreed at the start; tells what is pending."""
        due, home = sums()
        at = self._begin_call(due, home)

        def unless_pending(share):
            if self.pending is not None:
                raise self.pending
            return compute(share)

        def summed():
            self._call, self._opened = at + 1, False

        return self.team.run((due, home), unless_pending, summed)

    def looks(self, compute):
        """``compute()``, amid which all ranks call ``total`` as often as they decide alike.

        A last sum as long as those lets a rank fail in what follows the last of them. It is a call
        of the step, but for one before the first bound of a training, which no other step has.
        """
        at = self._begin_call([NUMBER], None)
        result = compute()
        self.tell()
        self._call, self._opened = at + (at > 0), False
        return result

    def total(self, value):
        """The sum of a number over the ranks."""
        return Share(self.team, [NUMBER]).exchange([value])[0]


def bound(
    group, function, model, X, Y, wrt=None, *, packings, role="num_data", num_data=None, weights=None, rng=None, drawing=False,
    draws=None, **options,
):  # fmt: skip
    """``function(model, X, Y, ...)``, a public one that takes a ``Share`` for the argument ``role``, on all ranks of a group.

    packings : function without arguments: those of the sums that are due
    drawing : whether the function draws numbers for each row, unless they are given as ``draws``
    """
    placed = isinstance(group, Placed)
    team = group.team if placed else Team.of(group)  # which refuses a group amid a training
    drawing = drawing and draws is None
    own = not placed and group.rows == "own" and (num_data is not None or drawing)
    more = {name: value for name, value in options.items() if value is not None}

    def facts():
        found = {
            "function": function.__name__,
            "model": type(model).__name__,
            "wrt": None if wrt is None else list(wrt),
        }
        found |= {
            path: [kind, list(np.shape(value))]
            for path, kind, value in leaves(model)
            if value is not None
        }
        found["posterior"] = type(getattr(model, "posterior", None)).__name__
        found["likelihood"] = type(getattr(model, "likelihood", None)).__name__
        found["place of the model"] = lives_on(model)
        found |= _of_data(group, X, Y, weights) | {"counts": own, "draws": draws is not None}
        return found | {"rng": seed_of(rng)}

    def compute(share):
        seed = rng
        quantities = getattr(getattr(model, "posterior", None), "random_quantities", ())
        if not placed and (
            drawing or seed_of(rng) == "drawn" or any(name in more for name in quantities)
        ):
            seed = common_seed(team, rng)
        share.fingerprint = _fingerprint(
            group.fingerprint if placed else None, model, (num_data, seed, options)
        )
        if placed:
            share.scale, share.place = group.scale, group.place
            try:
                return run(share, X, Y, weights, seed)
            except BadEntry as error:
                if group.locate is not None and not told(error):
                    group.locate(error)
                raise
        rows, locate, x, y, w = rows_of(group, X, Y, weights, options.get("inputs", False))
        share.place = Place(len(X), rows, own=group.rows == "own")
        if own:
            ends = np.cumsum(
                [0, *share.exchange([np.eye(team.size)[team.rank] * len(x)])[0].astype(int)]
            )
            share.place = Place(ends[-1], slice(*ends[team.rank : team.rank + 2]), own=True)
        share.scale = check.data_scale(num_data, int(share.place.count))
        try:
            return run(share, x, y, w, seed)
        except BadEntry as error:
            if not told(error):
                locate(error)
            raise

    def run(share, X, Y, weights, seed):
        named = {role: share, "weights": weights, **options}
        named |= {"rng": seed} if role == "num_data" else {}
        named |= {
            name: value for name, value in (("draws", draws), ("wrt", wrt)) if value is not None
        }
        return function(model, X, Y, **named)

    def sums():
        return ([Packing([("real", (team.size,))])] if own else []) + packings(), home_of(model)

    return group.call(sums, compute) if placed else team.call(facts, sums, compute)


def seed_of(rng):
    """What ranks must have alike of an argument ``rng``: a seed, None, or that rank 0 draws one from it."""
    check.generator(rng)  # raises where it is none, and draws nothing
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
        return int(rng)
    return None if rng is None else "drawn"


def common_seed(team, rng):
    """A seed that all ranks have: an integer as it came, else one that rank 0 draws.

    They agree which, by ``seed_of``.
    """
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
        return rng
    seed = np.array([float(check.generator(rng).integers(2**53))])
    team.group.broadcast(seed)
    return int(seed[0])


def _of_data(group, X, Y, weights):
    """What ranks must have alike about their data."""
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
    """``(rows, locate, X, Y, weights)`` of this rank: all that came, or the part of it that is this rank's.

    ``rows`` are a slice of what came, or row numbers; ``locate`` has a ``BadEntry`` name the row of
    what came. Where some part holds no row that counts, and nobody wants the gradient in
    ``inputs``, the rows that count are parted.
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
    """A copy of what lives on a device; all else as an array."""
    return array.get() if on_device(array) else np.asarray(array)


def _fingerprint(begun, model, *arguments):
    return (fingerprint(model) if begun is None else begun) ^ _of_text(
        repr(arguments) if begun is None else ""
    )


def _of_text(text):
    return zlib.crc32(text.encode()) & 0xFFFF


def fingerprint(model):
    """16 bits of all numbers of a record that count: those above the diagonals of factors do not."""
    found = [(kind, value) for _, kind, value in leaves(model) if value is not None]
    packing = _packing_of(tuple((kind, np.shape(value)) for kind, value in found))
    home = home_of(model)
    buffer = np.empty(packing.size) if home is None else np.empty(packing.size, like=home)
    packing.pack([value for _, value in found], buffer)
    return zlib.crc32(kernels.fold_bits(buffer).tobytes()) & 0xFFFF


def lives_on(model):
    """Where the numbers of a record are, in words: on all ranks alike, for they are packed there."""
    return "the host" if home_of(model) is None else "a device"


@functools.cache
def _packing_of(items):
    return Packing(items)
