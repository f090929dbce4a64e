"""Protocol of a group of ranks: comparison of arguments, all-reduces, and reports of failures.

Ranks meet in an all-reduce of five numbers: how many of them failed, and a 32-bit checksum of what
they must agree on, in halves c with c^2. sum c^2 = (sum c)^2 / R holds, exactly, if and only if all
halves agree. If not all is well, the ranks exchange texts, and all raise. Every call, every sum of
values and every broadcast in a training begins with a meeting. So a failing rank need not know what
the others do next: it joins the next meeting, and reports. A rank whose program ends joins once in
the same way, with a separate count: ``leaving``.
"""

import json
import weakref
import zlib

import numpy as np

from .. import check
from ..errors import InvalidSites, NotPositiveDefinite, RemoteError
from ..runtime import deferred_checks
from .buffers import Buffer, Pinned, packing_of, sums_on_device, to_current_device

LONGEST = 4000  # characters of an error that is sent to other ranks
LEAVING = 2.0**20  # error count of a rank whose program ends
NUMBERS = "digest of "  # prefix of the name of a fact that is a digest of an argument
PARAMETERS = "parameters"  # name of the fact that a sum compares
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


def is_reported(error):
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
        self.gone = None  # the rank that left, and its message

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
                    communicator._try_out(to_current_device)
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
        buffer = made([1.0, r, r * r, 0.0, 0.0])  # as long as the numbers of a meeting
        self.group.sum(buffer)
        found, expected = buffer[:3].tolist(), [n, n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6]
        if found[0] >= LEAVING:
            self._explain({})
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

    def agree(self, facts=None, error=None):
        """Meet the other ranks; all raise if one has an ``error`` or other facts than rank 0.

        Facts are JSON values by name; those whose names begin with "_" are not compared.
        """
        public = {name: value for name, value in (facts or {}).items() if not name.startswith("_")}
        code = zlib.crc32(json.dumps(public).encode())
        low, high = code & 0xFFFF, code >> 16
        header = np.array([error is not None, low, low**2, high, high**2], float)
        try:
            self.group.sum(header)
        except Exception as failure:  # of the engine: nothing more can be reported
            raise mark_reported(failure if error is None else error) from None
        failed, *bits = header
        if failed or any(
            self.size * squares != c * c for c, squares in zip(bits[::2], bits[1::2], strict=True)
        ):
            self._explain(public, error)

    def exchange(self, function, buffer, facts=None):
        """Meet, and call ``function(buffer)``, a sum or a broadcast of the group."""
        interrupt = None
        try:
            self.agree(facts)
        except KeyboardInterrupt as failure:
            interrupt = failure  # raised as the meeting ends, so the others exchange
        try:
            function(buffer)
        except Exception as failure:
            raise mark_reported(failure) from None
        if interrupt is not None:
            raise interrupt

    def _explain(self, facts, error=None):
        """Exchange facts and errors, and raise on every rank."""
        said = self._exchange_json({"facts": facts} if error is None else _report(error))
        again = all(one.get("again", "error" not in one) for one in said)
        errors = [
            (rank, one["error"])
            for rank, one in enumerate(said)
            if "error" in one and one.get("again", False) == again
        ]
        if isinstance(error, NotPositiveDefinite) and not again:
            raise mark_reported(RemoteError(*errors[0])) from error
        if error is not None and not isinstance(error, Stopped):
            raise mark_reported(error)
        if errors:
            kind = RemoteNotPositiveDefinite if again else RemoteError
            raise mark_reported(kind(*errors[0])) from None
        if reasons := sum(one.get("stop", 0) for one in said):
            raise mark_reported(Stopped(reasons))
        everyone = [one["facts"] for one in said]
        for name in dict.fromkeys(name for facts in everyone for name in facts):
            here = everyone[0].get(name)
            if others := [rank for rank, one in enumerate(everyone) if one.get(name) != here]:
                raise disagreement(name, others, everyone[others[0]].get(name), here)

    def _exchange_json(self, own):
        """Return the JSON values of all ranks, in their order; remember a rank that has left."""
        own = json.dumps(own).encode("utf-8", "replace")
        lengths = np.zeros(self.size)
        lengths[self.rank] = len(own)
        self.group.sum(lengths)
        ends = np.cumsum(lengths).astype(int)
        letters = np.zeros(ends[-1])
        letters[ends[self.rank] - len(own) : ends[self.rank]] = np.frombuffer(own, np.uint8)
        self.group.sum(letters)
        parts = np.split(letters.astype(np.uint8), ends[:-1])
        said = [json.loads(part.tobytes()) for part in parts]
        for rank, one in enumerate(said):
            if "left" in one and self.gone is None:
                self.gone = rank, one["error"]
        return said

    def leaving(self, why):
        """Join one more meeting; a generator that is exhausted when it is over.

        If the programs of other ranks continue, these ranks are sent ``why``. If all programs end,
        nothing more happens.
        """
        if self.gone is not None or self.size == 1:
            return
        header = np.array([LEAVING, 0, 0, 0, 0])
        if hasattr(self.group, "begin_sum"):
            done = self.group.begin_sum(header)
            while not done():
                yield
        else:
            self.group.sum(header)
        if header[0] < self.size * LEAVING:
            self._exchange_json({"error": why, "left": True})

    def gather(self, facts):
        """Compare facts, as ``agree``; return those of all ranks, in their order."""
        self.agree(facts)
        return self._exchange_json(facts)

    def run(self, compute):
        """Return ``compute()``; an error that other ranks do not know is reported to them.

        After Ctrl-C, which ends the program, ``leaving`` tells them.
        """
        try:
            return compute()
        except BaseException as failure:
            if not is_reported(failure) and not isinstance(failure, KeyboardInterrupt):
                self.agree(None, failure)
            raise

    def all_reduce(self, kinds, values, parameters=None):
        """Return the sums of values over the ranks, as ``Packing.unpack`` does.

        kinds : kind of each value, as of a leaf
        parameters : fingerprint of parameters and arguments that must agree
        """
        if checks := deferred_checks.pending():
            # now, because a call can be repeated only before its first all-reduce
            check.report_clamped(checks.read(0.0)[1])
        packing, buffer = packing_of(kinds, values), self._buffer_for(values)
        facts = {} if parameters is None else {PARAMETERS: parameters}
        self.exchange(self.group.sum, buffer.write(packing, values), facts)
        return buffer.read(packing, values)

    def _buffer_for(self, values):
        """Return the buffer on the device of these values; its memory is reused."""
        there = next((value for value in values if deferred_checks.on_device(value)), None)
        place = None if there is None else there.device.id
        if place not in self._buffers:
            near = there is None or sums_on_device(self.group)
            self._buffers[place] = (Buffer if near else Pinned)(there)
        return self._buffers[place]


def _report(error):
    """Return what a rank says about its error."""
    if isinstance(error, Stopped):
        return {"stop": error.reasons, "facts": {}}
    again = isinstance(error, NotPositiveDefinite) and not isinstance(error, InvalidSites)
    return {"error": describe(error), "again": again}


def disagreement(name, ranks, there=None, here=None):
    """Return the error for a fact, or for a digest of an argument, that differs from rank 0."""
    if name == PARAMETERS:
        return mark_reported(
            Disagreement(
                "the ranks hold different parameters, or gave different arguments: each must have"
                " the same model, and the same jitter, rng, num_data and step size. Send those of"
                " rank 0 to all with group.broadcast"
            )
        )
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


def describe(error):
    """Return an error as one line of text."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:LONGEST]


class TrainingGroup:
    """A group during a training: X and Y of a call are this rank's rows.

    scale : factor of the data term of these rows
    partition : the ``RowPartition`` of the rows of a call
    pending : error that this rank reports at the next call, in place of computing, or None
    fingerprint : fingerprint of the state at the start of the step
    locate : function that makes a ``BadEntry`` name the row of the data
    """

    rows = "placed"

    def __init__(self, group):
        self.communicator, self.group = Communicator.of(group), group
        self.scale, self.partition = 1.0, None
        self.pending = self.fingerprint = self.locate = None

    def report(self, error=None):
        """Meet the other ranks; if there is an ``error``, the training ends on all of them."""
        self.communicator.agree(None, error)

    def call(self, compute):
        """Return ``compute()``, as ``Communicator.run``, or report a pending error instead.

        Arguments are not compared: the ranks have agreed on them at the start of the training.
        """

        def unless_pending():
            if self.pending is not None:
                raise self.pending
            return compute()

        return self.communicator.run(unless_pending)

    def total(self, value):
        """Return the sum of a number over the ranks."""
        return self.communicator.all_reduce(("real",), [value])[0]
