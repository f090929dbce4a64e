"""Protocol of a group of ranks: comparison of arguments, all-reduces, and reports of failures.

Values travel in one flat buffer, triangular factors packed, behind a header of five numbers: the
number of ranks that failed, the number of these that met a matrix that is not positive definite,
the number that want to stop, and a 16-bit fingerprint c of parameters and arguments with c^2.
sum c^2 = (sum c)^2 / R holds, exactly, if and only if all fingerprints agree.

A failing rank still joins the next all-reduce, contributing zeros and an error count, so every rank
learns of the failure and raises. It must know the shape of that all-reduce. Within a call the
shapes are fixed. Every call and every training begins with a header of the same form, so ranks that
begin different calls detect this. In a training ``training_group.TrainingGroup`` counts the
all-reduces. A rank whose program ends joins once in the same way, with a separate count:
``leaving``.
"""

import json
import weakref
import zlib

import numpy as np

from .. import check
from ..errors import InvalidSites, NotPositiveDefinite, RemoteError
from ..runtime import deferred_checks
from .buffers import buffer_of, on_current_device, sums_on_device

LONGEST = 4000  # characters of an error that is sent to other ranks
LEAVING = 2.0**20  # error count of a rank whose program ends
NUMBERS = "digest of "  # prefix of the name of a fact that is a digest of an argument
# by the ``id`` of a group, because a group may not be hashable, or may equal other groups
_COMMUNICATORS: dict = {}


class Stopped(Exception):
    """Some rank wants the training to end; ``reasons`` is the sum of the reasons of all ranks."""

    def __init__(self, reasons):
        super().__init__(reasons)
        self.reasons = reasons


class Disagreement(ValueError):
    """The ranks hold different parameters, or were given different arguments."""


class RemoteNotPositiveDefinite(RemoteError, NotPositiveDefinite):
    """Every rank that failed met a matrix that is not positive definite; this rank did not.

    It must repeat the call together with them.
    """

    batch, pivot, jitter, size = (), -1, float("nan"), 0


def reported(error):
    """Return whether all ranks know of an error or of one of its causes."""
    while error is not None and not getattr(error, "_reported_to_all_ranks", False):
        error = error.__cause__
    return error is not None


def mark_reported(error):
    """Mark an error as known to all ranks, and return it."""
    error._reported_to_all_ranks = True
    return error


def mark_unreported(error):
    """Mark an error and its causes, possibly known from an earlier call, as unknown; return it."""
    part = error
    while part is not None:
        part._reported_to_all_ranks, part = False, part.__cause__
    return error


def leaving(group, why):
    """Call ``Communicator.leaving``, whether or not the group has been used."""
    return (_COMMUNICATORS.get(id(group)) or Communicator(group)).leaving(why)


class Communicator:
    """Communicator of a group: compares arguments, sums, and reports failures.

    There is one for each group, with the lifetime of the group.
    """

    def __init__(self, group):
        # a weak reference, so that the group can be freed
        self._group, self.rank, self.size = weakref.ref(group), group.rank, group.size
        self.training, self._buffers = False, {}
        # a ``Share`` whose sum the others wait for; the rank that left, and its message
        self.owed, self.gone = None, None

    @property
    def group(self):
        """The group. The caller holds it; a reference here would keep both alive."""
        return self._group()

    @classmethod
    def of(cls, group):
        """Return the communicator of a group; test its ``sum`` and ``broadcast`` on first use."""
        lacking = [
            name
            for name in ("rank", "size", "rows", "sum", "broadcast")
            if not hasattr(group, name)
        ]
        if lacking:
            raise TypeError(
                "`group` must be one of fs.distributed.mpi() or .threads(n), or offer what they"
                f" do; this {type(group).__name__} lacks {', '.join(lacking)}"
            )
        try:
            weakref.ref(group)
        except TypeError:
            raise TypeError(
                f'`group`: `__slots__` of {type(group).__name__} must hold "__weakref__"'
            ) from None
        if id(group) not in _COMMUNICATORS:
            if group.rows not in ("all", "own"):
                raise ValueError(f'`group.rows` must be "all" or "own", got {group.rows!r}')
            communicator = _COMMUNICATORS[id(group)] = cls(group)
            # not at exit, when ``leaving`` needs it
            weakref.finalize(group, _COMMUNICATORS.pop, id(group), None).atexit = False
            try:
                communicator._try_out(np.array)
                if sums_on_device(group):
                    communicator._try_out(on_current_device)
            except BaseException:
                if communicator.gone is None:
                    del _COMMUNICATORS[id(group)]
                raise
        communicator = _COMMUNICATORS[id(group)]
        if communicator.gone is not None:
            raise mark_reported(RemoteError(*communicator.gone))
        if communicator.training:
            raise RuntimeError(
                "this group is in a training: callbacks and validation run on rank 0 only, so a"
                " call with `group` inside them would deadlock; leave `group` out"
            )
        return communicator

    def _try_out(self, made):
        """Refuse a group whose ``sum`` or ``broadcast`` gives wrong results for known numbers.

        made : function that makes a buffer of a list
        """
        n, r = self.size, self.rank
        buffer = made([1.0, r, r * r, 0.0, 0.0])  # as long as the header with which any call begins
        self.group.sum(buffer)
        found, expected = buffer[:3].tolist(), [n, n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6]
        if found[0] >= LEAVING:
            self.raise_reported((found[0], 0, 0, 0, 0))
        if found != expected:
            raise ValueError(
                f"`group.sum` does not sum over the ranks: of 1, rank and rank^2 on {n} ranks it"
                f" made {found}, where {expected} is right. It must add float64 buffers in"
                " place, on every rank"
            )
        buffer = made([r + 1.0])
        self.group.broadcast(buffer)
        if buffer.tolist() != [1]:
            raise ValueError(
                f"`group.broadcast` must give each rank the buffer of rank 0; rank {r} has"
                f" {buffer.tolist()}, not 1"
            )

    def texts(self, own):
        """Return the texts of all ranks, in their order."""
        own = own.encode("utf-8", "replace")
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
        """Compare facts by name; all ranks raise if one has an ``error`` or differs from rank 0.

        Facts are JSON values; those whose names begin with "_" are not compared. One header is
        enough if all is well: the number of failures, and 32 bits of a checksum of the facts.
        """
        self.owed = None
        public = {name: value for name, value in (facts or {}).items() if not name.startswith("_")}
        code = zlib.crc32(json.dumps(public).encode())
        low, high = code & 0xFFFF, code >> 16
        header = np.array([error is not None, low, low**2, high, high**2], float)
        self.group.sum(header)
        failed, *bits = header
        if not failed and all(
            self.size * squares == c * c for c, squares in zip(bits[::2], bits[1::2], strict=True)
        ):
            return
        said = self._said({"facts": public} if error is None else {"error": described(error)})
        for rank, one in enumerate(said):
            if "error" in one:
                raise mark_reported(
                    error if error is not None else RemoteError(rank, one["error"])
                ) from None
        first = said[0]["facts"]
        for one in said:
            for name in [*first, *(name for name in one["facts"] if name not in first)]:
                if one["facts"].get(name) != first.get(name):
                    others = [
                        at
                        for at, each in enumerate(said)
                        if each["facts"].get(name) != first.get(name)
                    ]
                    raise disagreement(name, others, one["facts"].get(name), first.get(name))

    def _said(self, own):
        """Return the JSON values of all ranks; remember a rank that has left."""
        said = [json.loads(text) for text in self.texts(json.dumps(own))]
        for rank, one in enumerate(said):
            if "left" in one and self.gone is None:
                self.gone = rank, one["error"]
        return said

    def leaving(self, why):
        """Join one more sum; a generator that is exhausted when the sum is done.

        If the programs of other ranks continue, these ranks are sent ``why``. If all programs end,
        nothing more happens.
        """
        if self.gone is not None or self.size == 1:
            return
        header = np.array([LEAVING, 0, 0, 0, 0])
        if self.owed is not None:
            header = self.owed.answer(header)
        elif hasattr(self.group, "begin_sum"):
            done = self.group.begin_sum(header)
            while not done():
                yield
        else:
            self.group.sum(header)
        if header[0] < self.size * LEAVING:
            self._said({"error": why, "left": True})

    def gathered(self, facts, error=None):
        """Compare facts, as ``agree``; return those of all ranks, in their order."""
        self.agree(facts, error)
        return [json.loads(text) for text in self.texts(json.dumps(facts))]

    def call(self, facts, sums, compute):
        """Check that all ranks make the same call; return ``compute(share)``, for a ``Share``.

        facts, sums : functions without arguments, which return the facts to compare, and the
        expected all-reduces, as in ``run``
        """
        found, expected, error = None, None, None
        try:
            found, expected = facts(), sums()
            self.reserve(*expected)
        except Exception as failure:
            error = failure
        self.agree(found, error)
        return self.run(expected, compute)

    def run(self, sums, compute, finished=lambda: None):
        """Return ``compute(share)``; report an error before the last all-reduce in the next one.

        sums : the ``Packing`` of each all-reduce, and an array on the device where values are
        packed, or None; finished : called after the last all-reduce
        """
        share = Share(self, *sums, finished)
        try:
            return compute(share)
        except BaseException as failure:
            if not reported(failure) and share.expected:
                if isinstance(failure, KeyboardInterrupt):
                    self.owed = share
                else:
                    share.all_reduce(None, failure)
            raise

    def buffer(self, packing, device_like):
        """Return the buffer for values on the device of ``device_like``; its memory is reused.

        Single numbers use a host buffer for any model, to avoid a copy to the device.
        """
        device_like = None if packing.single else device_like
        place = None if device_like is None else device_like.device.id
        if place not in self._buffers:
            self._buffers[place] = buffer_of(self.group, device_like)
        return self._buffers[place]

    def reserve(self, packings, device_like):
        """Allocate memory for these all-reduces, which a failing rank needs as well."""
        for packing in packings:
            self.buffer(packing, device_like).reserve(packing.size)

    def raise_reported(self, header, error=None):
        """Raise, on every rank, the error that the header of a sum reports."""
        failed, not_positive_definite, stop, c, squares = header
        if failed:
            said = self._said(
                {} if error is None or isinstance(error, Stopped) else {"error": described(error)}
            )
            rank, message = next(
                (rank, one["error"]) for rank, one in enumerate(said) if "error" in one
            )
            again = failed == not_positive_definite
            if isinstance(error, NotPositiveDefinite) and not again:
                raise mark_reported(RemoteError(rank, message)) from error
            if error is not None and not isinstance(error, Stopped):
                raise mark_reported(error)
            raise mark_reported(
                (RemoteNotPositiveDefinite if again else RemoteError)(rank, message)
            )
        if stop:
            raise mark_reported(Stopped(int(stop)))
        if self.size * squares != c * c:
            raise mark_reported(
                Disagreement(
                    "the ranks hold different parameters, or gave different arguments: each must"
                    " have the same model, and the same jitter, rng, num_data and step size. Send"
                    " those of rank 0 to all with group.broadcast"
                )
            )


def disagreement(name, ranks, there=None, here=None):
    """Return the error for a fact, or for a digest of an argument, that differs from rank 0."""
    if not name.startswith(NUMBERS):
        return mark_reported(
            Disagreement(
                f"rank {ranks[0]} has other arguments than rank 0: `{name}` is {there!r} there, and"
                f" {here!r} on rank 0. All ranks must make the same call"
            )
        )
    *some, last = ranks if len(ranks) < 5 else (*ranks[:3], f"{len(ranks) - 3} more")
    listed = f"ranks {', '.join(map(str, some))} and {last}" if some else f"rank {last}"
    return mark_reported(
        Disagreement(
            f"`{name.removeprefix(NUMBERS)}` holds other numbers on {listed} than on rank 0: give"
            " all ranks the same rows in the same order, or each its own by a group with"
            ' rows="own"'
        )
    )


def described(error):
    """Return an error as one line of text."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:LONGEST]


class Share:
    """The all-reduces of one rank in a call.

    expected : the ``Packing`` of each all-reduce to come
    device_like : an array on the device where values are packed, or None
    finished : called after the last all-reduce
    fingerprint : fingerprint of parameters and arguments that must agree
    """

    def __init__(self, communicator, expected, device_like=None, finished=lambda: None):
        self.communicator, self.expected, self.device_like, self.finished = (
            communicator,
            expected,
            device_like,
            finished,
        )
        self.fingerprint = 0

    def all_reduce(self, values, error=None):
        """Return the sum of ``values`` over the ranks, as ``Packing.unpack`` does.

        None, or an ``error``, contributes zeros; an error is reported to all ranks.
        """
        if error is None and len(self.expected) > 1 and (checks := deferred_checks.pending()):
            # now, because a call can be repeated only before its first all-reduce
            check.report_clamped(checks.read(0.0)[1])
        packing, self.communicator.owed = self.expected[0], None
        buffer = self.communicator.buffer(packing, self.device_like)
        buffer.reserve(packing.size)
        del self.expected[0]
        if error is None:
            try:
                header = 0, 0, 0, self.fingerprint, self.fingerprint**2
                (
                    buffer.zero(packing, header)
                    if values is None
                    else buffer.write(packing, header, values)
                )
            except Exception as failure:
                error = failure
        if error is not None:
            stop = error.reasons if isinstance(error, Stopped) else 0
            not_positive_definite = isinstance(error, NotPositiveDefinite) and not isinstance(
                error, InvalidSites
            )
            buffer.zero(packing, (not stop, not_positive_definite, stop, 0, 0))
        self.communicator.raise_reported(buffer.sum(self.communicator.group), error)
        if not self.expected:
            self.finished()
        return None if values is None else buffer.read(packing, values)

    def answer(self, header):
        """Join the expected sum with this header and zeros; return the header of the sum."""
        buffer = self.communicator.buffer(self.expected[0], self.device_like)
        buffer.zero(self.expected[0], header)
        return buffer.sum(self.communicator.group)
