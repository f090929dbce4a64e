"""A bound on several ranks: each takes its rows, and one sum over all of them makes value and gradient whole.

A rank runs the pass of one process on its rows, with 1 / R of the KL term, and its data term scaled as that of the whole batch;
so value and gradient of the bound are the sums of those of the ranks. They travel in one flat buffer, triangular factors packed,
behind five words: how many ranks failed, how many of them for want of positive definiteness, how many want to stop, and a 16-bit
fingerprint c of parameters and arguments with c^2: sum c^2 = (sum c)^2 / R says, exactly, that all agree.

A rank that fails takes part in the sum all the same, with zeros and a count. Then all of them know, tell each other what it was,
and raise: nobody is left waiting.
"""

import functools
import json
import numbers
import weakref
import zlib

import numpy as np

from . import check
from .errors import BadEntry, InvalidSites, NotPositiveDefinite, RemoteError
from .kernels.verdicts import on_device
from .packing import Packing
from .records import is_record, leaves, restricted

WORDS = 5
LONGEST = 4000  # bytes of a message that others are told
NUMBER = Packing([("real", ())])
_TEAMS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Stopped(Exception):
    """Some rank wants the training to end; ``words`` is the sum of what they said."""

    def __init__(self, words):
        super().__init__(words)
        self.words = words


class Disagreement(ValueError):
    """The ranks hold different parameters, or gave different arguments."""


class RemoteNotPositiveDefinite(RemoteError, NotPositiveDefinite):
    """All ranks that failed met a matrix that is not positive definite, and this one did not: it has to try again with them."""

    batch, pivot, jitter, size = (), -1, float("nan"), 0


def told(error):
    """Whether all ranks know of an error, or of what caused it."""
    while error is not None and not getattr(error, "_told_to_all_ranks", False):
        error = error.__cause__
    return error is not None


def known(error):
    """The error, marked as one that all ranks know of."""
    error._told_to_all_ranks = True
    return error


def bounds(count, rank, size):
    """Which of ``count`` rows are those of a rank: ``(start, stop)``."""
    return count * rank // size, count * (rank + 1) // size


class Team:
    """A group, and what its ranks have agreed on. One for each group, and for as long as that lives."""

    def __init__(self, group):
        self.group, self.rank, self.size = group, group.rank, group.size
        self._agreed, self._lengths, self._buffers = None, [], {}

    @classmethod
    def of(cls, group):
        """The team of a group, whose ``sum`` and ``broadcast`` are tried the first time."""
        lacking = [name for name in ("rank", "size", "rows", "sum", "broadcast") if not hasattr(group, name)]
        if lacking:
            raise TypeError(
                f"`group` must be one of fs.distributed.mpi() or .threads(n), or offer what they do; this "
                f"{type(group).__name__} lacks {', '.join(lacking)}"
            )
        if group not in _TEAMS:
            if group.rows not in ("all", "own"):
                raise ValueError(f'`group.rows` must be "all" or "own", got {group.rows!r}')
            team = cls(group)
            team._try_out()
            _TEAMS[group] = team
        return _TEAMS[group]

    def _try_out(self):
        """Refuse a group whose ``sum`` does not sum, or whose ``broadcast`` is not of rank 0: numbers of the ranks tell."""
        n, r = self.size, self.rank
        found = np.array([1.0, r, r * r, 0.0])
        self.group.sum(found)
        due = [n, n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6]
        if not np.array_equal(found[:3], due):
            raise ValueError(
                f"`group.sum` does not sum over the ranks: of 1, rank and rank^2 on {n} ranks it made {found[:3].tolist()}, "
                f"where {due} is right. It must add float64 buffers in place, on every rank"
            )
        found = np.array([r + 1.0])
        self.group.broadcast(found)
        if found[0] != 1:
            raise ValueError(f"`group.broadcast` must give each rank the buffer of rank 0; rank {r} has {found[0]:g}, not 1")

    def texts(self, own):
        """What all ranks say, in their order."""
        own = own.encode("utf-8", "replace")[:LONGEST]
        lengths = np.zeros(self.size)
        lengths[self.rank] = len(own)
        self.group.sum(lengths)
        ends = np.cumsum(lengths).astype(int)
        letters = np.zeros(ends[-1])
        letters[ends[self.rank] - len(own) : ends[self.rank]] = np.frombuffer(own, np.uint8)
        if len(letters):
            self.group.sum(letters)
        parts = np.split(letters.astype(np.uint8), ends[:-1])
        return [part.tobytes().decode("utf-8", "replace") for part in parts]

    def agree(self, facts, error=None):
        """Compare facts by name, which JSON can hold: all raise where some rank has an ``error``, or other facts than rank 0.

        Returns the facts of all ranks.
        """
        said = self.texts(json.dumps({"error": described(error)} if error is not None else {"facts": facts}))
        said = [json.loads(text) for text in said]
        failed = [(rank, one["error"]) for rank, one in enumerate(said) if "error" in one]
        if failed:
            raise known(error if error is not None else RemoteError(*failed[0])) from None
        first, everyone = said[0]["facts"], [one["facts"] for one in said]
        for rank, facts in enumerate(everyone):
            for name in [*first, *(name for name in facts if name not in first)]:
                if facts.get(name) != first.get(name) and not name.startswith("_"):
                    raise known(
                        Disagreement(
                            f"rank {rank} has other arguments than rank 0: `{name}` is {facts.get(name)!r} there, and "
                            f"{first.get(name)!r} on rank 0. All ranks must make the same call"
                        )
                    )
        return everyone

    def call(self, facts, packings, compute, pending=None):
        """``compute(share)`` on each rank, where ``share`` is a ``Share``.

        facts, packings : functions without arguments: what all ranks must have alike, and the ``Packing`` of each sum that is due
        pending : what this rank has to tell the others in place of computing: an error, or a ``Stopped``
        """
        signature, due, error = None, [], None
        try:
            signature, due = facts(), packings()
        except Exception as failure:
            error = failure
        if error is not None and self._agreed is not None:
            due = [Packing([("real", (length,))]) for length in self._lengths]  # the others do what they did before
        elif signature != self._agreed:
            self.agree(signature, error)
        if error is None:
            self._agreed, self._lengths = signature, [packing.size for packing in due]
        share = Share(self, due)
        try:
            if pending is not None:
                raise pending
            if error is not None:
                raise error
            return compute(share)
        except BaseException as failure:
            if not told(failure) and share.due and not isinstance(failure, KeyboardInterrupt):
                share.exchange(None, failure)
            raise

    def buffer(self, size):
        """One to send, whose memory stays for the next call."""
        if size not in self._buffers:
            if len(self._buffers) > 3:
                self._buffers.clear()
            self._buffers[size] = np.empty(size)
        return self._buffers[size]

    def judge(self, words, error=None):
        """Raise, on every rank, what the words of a sum say."""
        failed, indefinite, stop, c, squares = words
        if failed:
            said = self.texts("" if error is None or isinstance(error, Stopped) else described(error))
            rank, message = next((rank, text) for rank, text in enumerate(said) if text)
            again = failed == indefinite
            if isinstance(error, NotPositiveDefinite) and not again:
                raise known(RemoteError(rank, message)) from error
            if error is not None and not isinstance(error, Stopped):
                raise known(error)
            raise known((RemoteNotPositiveDefinite if again else RemoteError)(rank, message))
        if stop:
            raise known(Stopped(int(stop)))
        if self.size * squares != c * c:
            raise known(
                Disagreement(
                    "the ranks hold different parameters, or gave different arguments: each must have the same model, and the "
                    "same jitter, rng, num_data and step size. Send those of rank 0 to all with group.broadcast"
                )
            )


def described(error):
    """An error in one line."""
    return f"{type(error).__name__}: {error}".strip()


class Share:
    """The part that a rank has in a call: stands where ``num_data`` does.

    scale : the factor of its data term; kl : its part of the KL term; due : the ``Packing`` of each sum to come; fingerprint : of
    what all ranks must have alike
    """

    def __init__(self, team, due):
        self.team, self.due, self.scale, self.kl, self.fingerprint = team, due, 1.0, 1.0 / team.size, 0

    def exchange(self, values, error=None):
        """The sum of ``values`` over the ranks, as ``Packing.unpack`` gives them; with an ``error`` zeros, and what it says."""
        packing = self.due.pop(0)
        buffer = self.team.buffer(WORDS + packing.size)
        words, numbers_ = buffer[:WORDS], buffer[WORDS:]
        if error is None:
            try:
                words[:] = 0, 0, 0, self.fingerprint, self.fingerprint**2
                packing.pack(values, numbers_)
            except Exception as failure:
                error = failure
        if error is not None:
            stop = error.words if isinstance(error, Stopped) else 0
            indefinite = isinstance(error, NotPositiveDefinite) and not isinstance(error, InvalidSites)
            words[:] = not stop, indefinite, stop, 0, 0
            numbers_[:] = 0
        self.team.group.sum(buffer)
        self.team.judge(words.copy(), error)
        return packing.unpack(numbers_, values)

    def together(self, *arrays):
        """Sums over the ranks; ``Packing`` as announced."""
        return self.exchange(list(arrays))

    def total(self, value):
        """The sum of one number, announced here."""
        self.due.insert(0, NUMBER)
        return self.exchange([value])[0]


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
    return value, put(grad, {path: number for (path, _), number in zip(found, numbers_, strict=True)})


def put(tree, values, prefix=""):
    """A record with other leaves at these paths."""
    if isinstance(tree, tuple):
        return tuple(put(part, values, f"{prefix}{i}.") for i, part in enumerate(tree))
    changed = {}
    for name, _ in tree._record_fields:
        value = getattr(tree, name)
        nested = is_record(value) or isinstance(value, tuple) and all(map(is_record, value))
        changed[name] = put(value, values, f"{prefix}{name}.") if nested else values.get(prefix + name, value)
    return type(tree)(**changed)


def of_gradient(model, wrt):
    """The ``Packing`` of a value and of the gradient in these fields."""
    found = leaves(restricted(model, check.names(wrt, model)))
    return Packing([("real", ()), *((kind, np.shape(value)) for _, kind, value in found if value is not None)])


def of_collapsed(sgpr, Y):
    """That of the first sum of a collapsed bound: beta Lam Lam' (M, M), Lam y (M, P), |y|^2, sum kff and N."""
    M, P = sum(sgpr.covariance.num_inducing(sgpr.inducing)), np.shape(Y)[1] if np.ndim(Y) > 1 else 1
    return Packing([("tril", (M, M)), ("real", (M, P)), *[("real", ())] * 3])


def of_natural_step(q):
    """That of what a natural step sums: the bound, a count, Lam a (P, M), and the lower triangles of G (P, M, M)."""
    fields = [np.shape(getattr(q, name)) for name in q.natural_fields]
    least = min(map(len, fields))
    M = sum(shape[-1] for shape in fields if len(shape) == least)
    P = fields[0][0] if least > 1 else 1
    return Packing([("real", ()), ("real", ()), ("real", (P, M)), ("tril", (P, M, M))])


# --- calls with a group -------------------------------------------------------------------------------------------------


class Placed:
    """A group amid a training: X and Y of a call are this rank's rows, and ``scale`` is the factor of their data term.

    pending : what this rank has to tell the others at the next sum, in place of computing; None for nothing
    fingerprint : of the state that the step began with
    locate : function of a ``BadEntry``, which has it name the row of the data
    """

    rows = "placed"

    def __init__(self, group):
        self.team = Team.of(group)
        self.group, self.scale, self.pending, self.fingerprint, self.locate = group, 1.0, None, None, None


def bound(group, function, model, X, Y, wrt=None, *, packings, role="num_data", num_data=None, weights=None, rng=None, **options):
    """``function(model, X, Y, ...)``, a public one that takes a ``Share`` for the argument ``role``, on all ranks of a group.

    packings : function without arguments: those of the sums that are due
    """
    placed = isinstance(group, Placed)
    team = group.team if placed else Team.of(group)
    own = not placed and group.rows == "own" and num_data is not None
    more = {name: value for name, value in options.items() if value is not None}

    def facts():
        found = {"function": function.__name__, "model": type(model).__name__, "wrt": None if wrt is None else list(wrt)}
        found |= {path: [kind, list(np.shape(value))] for path, kind, value in leaves(model) if value is not None}
        found["posterior"] = type(getattr(model, "posterior", None)).__name__
        found["likelihood"] = type(getattr(model, "likelihood", None)).__name__
        return found | ({} if placed else _of_data(group, X, Y, weights) | {"counts": own})

    def compute(share):
        seed = rng
        if not placed and any(name in more for name in getattr(getattr(model, "posterior", None), "random_quantities", ())):
            seed = common_seed(team, rng)
        share.fingerprint = _fingerprint(group.fingerprint if placed else None, model, (num_data, seed, options))
        if placed:
            share.scale = group.scale
            try:
                return function(model, X, Y, **named(share, weights, seed))
            except BadEntry as error:
                if group.locate is not None and not told(error):
                    group.locate(error)
                raise
        locate, x, y, w = rows_of(group, X, Y, weights, options.get("inputs", False))
        count = share.exchange([float(len(x))])[0] if own else len(X)
        share.scale = check.data_scale(num_data, int(count))
        try:
            return function(model, x, y, **named(share, w, seed))
        except BadEntry as error:
            if not told(error):
                locate(error)
            raise

    def named(share, w, seed):
        random = {"rng": seed} if role == "num_data" else {}
        return {role: share, "weights": w, **random, **({} if wrt is None else {"wrt": wrt}), **options}

    return team.call(facts, lambda: ([NUMBER] if own else []) + packings(), compute, group.pending if placed else None)


def common_seed(team, rng):
    """A seed that all ranks have: an integer as it came, else one that rank 0 draws."""
    if isinstance(rng, numbers.Integral) and not isinstance(rng, bool):
        return rng
    seed = np.array([float(check.generator(rng).integers(2**53))])
    team.group.broadcast(seed)
    return int(seed[0])


def _of_data(group, X, Y, weights):
    """What ranks must have alike about their data."""
    x, y = np.shape(X), np.shape(Y)
    found = {"columns of X": list(x[1:]), "shape of a row of Y": list(y[1:]), "rows": group.rows, "weights": weights is not None}
    found |= {f"dtype of {name}": str(getattr(value, "dtype", None)) for name, value in (("X", X), ("Y", Y))}
    return found | ({"rows of X": x[0]} if group.rows == "all" and x else {})


def rows_of(group, X, Y, weights, inputs=False):
    """``(locate, X, Y, weights)`` of this rank: all that came, or the part of it that is this rank's.

    ``locate`` has a ``BadEntry`` name the row of what came. Where some part holds no row that counts, and nobody wants the
    gradient in ``inputs``, the rows that count are parted.
    """
    if group.rows == "own":
        if len(X) == 0:
            raise ValueError(f'rank {group.rank} has no rows: with rows="own" each rank needs at least one; use fewer ranks')
        return lambda error: None, X, Y, weights
    if len(X) != len(Y):
        raise ValueError(f"`X` and `Y` must have the same number of rows, got {len(X)} and {len(Y)}")
    if len(X) < group.size:
        raise ValueError(f"there are {group.size} ranks and {len(X)} rows: each rank needs at least one; use fewer ranks")
    start, stop = bounds(len(X), group.rank, group.size)
    rows = slice(start, stop)
    if weights is not None and not inputs:
        counts = (on_host(weights) > 0).reshape(len(X), -1).any(axis=1)
        counting = np.flatnonzero(counts)
        parts = [counts[slice(*bounds(len(X), rank, group.size))] for rank in range(group.size)]
        if len(counting) >= group.size and not all(part.any() for part in parts):
            rows = counting[slice(*bounds(len(counting), group.rank, group.size))]

    def locate(error):
        if error.name in ("X", "Y", "weights") and error.index:
            row = error.index[0]
            error.index = (int(start + row if isinstance(rows, slice) else rows[row]), *error.index[1:])

    return locate, X[rows], Y[rows], None if weights is None else weights[rows]


def on_host(array):
    """A copy of what lives on a device; all else as an array."""
    return array.get() if on_device(array) else np.asarray(array)


def _fingerprint(begun, model, *arguments):
    return (fingerprint(model) if begun is None else begun) ^ _of_text(repr(arguments) if begun is None else "")


def _of_text(text):
    return zlib.crc32(text.encode()) & 0xFFFF


def fingerprint(model):
    """16 bits of all numbers of a record that count: those above the diagonals of factors do not."""
    found = [(kind, value) for _, kind, value in leaves(model) if value is not None]
    packing = _packing_of(tuple((kind, np.shape(value)) for kind, value in found))
    buffer = np.empty(packing.size)
    packing.pack([value for _, value in found], buffer)
    bits = buffer.view(np.uint64)
    return zlib.crc32(np.bitwise_xor.reduce(bits).tobytes() + np.add.reduce(bits).tobytes()) & 0xFFFF


@functools.cache
def _packing_of(items):
    return Packing(items)
