"""What the ranks of a group tell each other: facts that must agree, sums, and failures.

Numbers travel in one flat buffer, triangular factors packed, behind five words: how many ranks
failed, how many of them for want of positive definiteness, how many want to stop, and a 16-bit
fingerprint c of parameters and arguments with c^2: sum c^2 = (sum c)^2 / R says, exactly, that all
agree.

A rank that fails takes part in the sum all the same, with zeros and a count. Then all of them know,
tell each other what it was, and raise: no rank is left waiting. It must know how long the others'
next sum is. Within a call it does. Whatever begins, a call or a training, begins with five words of
the same form, so that ranks which begin different things find out. In a training, ``training_group.Placed``
keeps count. A rank whose program ends takes part in the same way, once, with a count of its own:
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

LONGEST = 4000  # letters of an error that others are told
LEAVING = 2.0**20  # in the place of one failure: the program of this rank ends
NUMBERS = "digest of "  # begins the name of a fact that is a digest of an argument
# of the ``id`` of a group, which may be neither hashable nor alike with itself alone
_TEAMS: dict = {}


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


def unheard(error):
    """The error, which nobody has heard of, though it, or what it was caused by, may have been known in an earlier call."""
    part = error
    while part is not None:
        part._told_to_all_ranks, part = False, part.__cause__
    return error


def leaving(group, why):
    """``Team.leaving``, whether or not the group has been used."""
    return (_TEAMS.get(id(group)) or Team(group)).leaving(why)


class Team:
    """A group, and what its ranks have agreed on.

    One for each group, and for as long as that lives.
    """

    def __init__(self, group):
        # the team must not keep it alive
        self._group, self.rank, self.size = weakref.ref(group), group.rank, group.size
        self.training, self._buffers = False, {}
        # a ``Share`` with a sum that the others wait in; who left, and why
        self.owed, self.gone = None, None

    @property
    def group(self):
        """Whose team it is; who calls has it: held here, neither would ever be freed."""
        return self._group()

    @classmethod
    def of(cls, group):
        """The team of a group, whose ``sum`` and ``broadcast`` are tried the first time."""
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
        if id(group) not in _TEAMS:
            if group.rows not in ("all", "own"):
                raise ValueError(f'`group.rows` must be "all" or "own", got {group.rows!r}')
            team = _TEAMS[id(group)] = cls(group)
            # ``leaving`` needs it then
            weakref.finalize(group, _TEAMS.pop, id(group), None).atexit = False
            try:
                team._try_out(np.array)
                if sums_on_device(group):
                    team._try_out(on_current_device)
            except BaseException:
                if team.gone is None:
                    del _TEAMS[id(group)]
                raise
        team = _TEAMS[id(group)]
        if team.gone is not None:
            raise known(RemoteError(*team.gone))
        if team.training:
            raise RuntimeError(
                "this group is amid a training: what `callback` and `validate` do, rank 0 does"
                " alone, so a call with `group` would wait there for ranks that never come; leave"
                " `group` out"
            )
        return team

    def _try_out(self, made):
        """Refuse a group whose ``sum`` does not sum, or whose ``broadcast`` is not of rank 0: numbers of the ranks tell.

        made : function of a list, which makes the buffers
        """
        n, r = self.size, self.rank
        buffer = made([1.0, r, r * r, 0.0, 0.0])  # as many numbers as whatever begins
        self.group.sum(buffer)
        found, due = buffer[:3].tolist(), [n, n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6]
        if found[0] >= LEAVING:
            self.judge((found[0], 0, 0, 0, 0))
        if found != due:
            raise ValueError(
                f"`group.sum` does not sum over the ranks: of 1, rank and rank^2 on {n} ranks it"
                f" made {found}, where {due} is right. It must add float64 buffers in place, on"
                " every rank"
            )
        buffer = made([r + 1.0])
        self.group.broadcast(buffer)
        if buffer.tolist() != [1]:
            raise ValueError(
                f"`group.broadcast` must give each rank the buffer of rank 0; rank {r} has"
                f" {buffer.tolist()}, not 1"
            )

    def texts(self, own):
        """What all ranks say, in their order."""
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
        """Compare facts by name, which JSON can hold: all raise where some rank has an ``error``, or other facts than rank 0.

        Names that begin with "_" may differ. Five words are enough where all is well: how many
        failed, and 32 bits of facts.
        """
        self.owed = None
        public = {name: value for name, value in (facts or {}).items() if not name.startswith("_")}
        code = zlib.crc32(json.dumps(public).encode())
        low, high = code & 0xFFFF, code >> 16
        words = np.array([error is not None, low, low**2, high, high**2], float)
        self.group.sum(words)
        failed, *bits = words
        if not failed and all(
            self.size * squares == c * c for c, squares in zip(bits[::2], bits[1::2], strict=True)
        ):
            return
        said = self._said({"facts": public} if error is None else {"error": described(error)})
        for rank, one in enumerate(said):
            if "error" in one:
                raise known(
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
        """What all ranks say, as JSON; it is kept if one of them has left."""
        said = [json.loads(text) for text in self.texts(json.dumps(own))]
        for rank, one in enumerate(said):
            if "left" in one and self.gone is None:
                self.gone = rank, one["error"]
        return said

    def leaving(self, why):
        """Take part in one more sum, for ranks whose programs continue; a generator, exhausted when the sum is done.

        Silent if all programs end. Otherwise the other ranks learn ``why``.
        """
        if self.gone is not None or self.size == 1:
            return
        words = np.array([LEAVING, 0, 0, 0, 0])
        if self.owed is not None:
            words = self.owed.answered(words)
        elif hasattr(self.group, "begin_sum"):
            done = self.group.begin_sum(words)
            while not done():
                yield
        else:
            self.group.sum(words)
        if words[0] < self.size * LEAVING:
            self._said({"error": why, "left": True})

    def gathered(self, facts, error=None):
        """The facts of all ranks, in their order, once they agree."""
        self.agree(facts, error)
        return [json.loads(text) for text in self.texts(json.dumps(facts))]

    def call(self, facts, sums, compute):
        """``compute(share)`` on each rank, where ``share`` is a ``Share``, once all have said that they make the same call.

        facts, sums : functions without arguments: what all ranks must have alike, and the sums that are due, as in ``run``
        """
        found, due, error = None, None, None
        try:
            found, due = facts(), sums()
            self.reserve(*due)
        except Exception as failure:
            error = failure
        self.agree(found, error)
        return self.run(due, compute)

    def run(self, sums, compute, summed=lambda: None):
        """``compute(share)``; where it raises before the last sum that is due, it takes part in the next one and tells it.

        sums : the ``Packing`` of each, and an array on the device where they are packed, or None; summed : called after the last
        """
        share = Share(self, *sums, summed)
        try:
            return compute(share)
        except BaseException as failure:
            if not told(failure) and share.due:
                if isinstance(failure, KeyboardInterrupt):
                    self.owed = share
                else:
                    share.exchange(None, failure)
            raise

    def buffer(self, packing, home):
        """What to send numbers in that live where ``home`` does; its memory stays for the next call.

        Single numbers are on the host, wherever the model is: alone they are not worth a copy.
        """
        home = None if packing.single else home
        place = None if home is None else home.device.id
        if place not in self._buffers:
            self._buffers[place] = buffer_of(self.group, home)
        return self._buffers[place]

    def reserve(self, packings, home):
        """Have memory for these sums: a rank that fails sends as many numbers as the others."""
        for packing in packings:
            self.buffer(packing, home).reserve(packing.size)

    def judge(self, words, error=None):
        """Raise, on every rank, what the words of a sum say."""
        failed, indefinite, stop, c, squares = words
        if failed:
            said = self._said(
                {} if error is None or isinstance(error, Stopped) else {"error": described(error)}
            )
            rank, message = next(
                (rank, one["error"]) for rank, one in enumerate(said) if "error" in one
            )
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
                    "the ranks hold different parameters, or gave different arguments: each must"
                    " have the same model, and the same jitter, rng, num_data and step size. Send"
                    " those of rank 0 to all with group.broadcast"
                )
            )


def disagreement(name, ranks, there=None, here=None):
    """The error for a fact, or for digests of an argument, that these ranks have other than rank 0."""
    if not name.startswith(NUMBERS):
        return known(
            Disagreement(
                f"rank {ranks[0]} has other arguments than rank 0: `{name}` is {there!r} there, and"
                f" {here!r} on rank 0. All ranks must make the same call"
            )
        )
    *some, last = ranks if len(ranks) < 5 else (*ranks[:3], f"{len(ranks) - 3} more")
    listed = f"ranks {', '.join(map(str, some))} and {last}" if some else f"rank {last}"
    return known(
        Disagreement(
            f"`{name.removeprefix(NUMBERS)}` holds other numbers on {listed} than on rank 0: give"
            " all ranks the same rows in the same order, or each its own by a group with"
            ' rows="own"'
        )
    )


def described(error):
    """An error in one line."""
    return f"{type(error).__name__}: {error}".rstrip(": ")[:LONGEST]


class Share:
    """The part that a rank has in the sums of a call.

    due : the ``Packing`` of each sum to come; home : an array on the device where they are packed, or None; summed : called when
    none is left; fingerprint : of what all ranks must have alike
    """

    def __init__(self, team, due, home=None, summed=lambda: None):
        self.team, self.due, self.home, self.summed = team, due, home, summed
        self.fingerprint = 0

    def exchange(self, values, error=None):
        """The sum of ``values`` over the ranks, as ``Packing.unpack`` gives them.

        Zeros in place of None, and where there is an ``error``, which is told.
        """
        if error is None and len(self.due) > 1 and (checks := deferred_checks.pending()):
            # now, because a call can be run again only up to its first sum
            check.report_clamped(checks.read(0.0)[1])
        packing, self.team.owed = self.due[0], None
        buffer = self.team.buffer(packing, self.home)
        buffer.reserve(packing.size)
        del self.due[0]
        if error is None:
            try:
                words = 0, 0, 0, self.fingerprint, self.fingerprint**2
                (
                    buffer.zero(packing, words)
                    if values is None
                    else buffer.write(packing, words, values)
                )
            except Exception as failure:
                error = failure
        if error is not None:
            stop = error.words if isinstance(error, Stopped) else 0
            indefinite = isinstance(error, NotPositiveDefinite) and not isinstance(
                error, InvalidSites
            )
            buffer.zero(packing, (not stop, indefinite, stop, 0, 0))
        self.team.judge(buffer.sum(self.team.group), error)
        if not self.due:
            self.summed()
        return None if values is None else buffer.read(packing, values)

    def answered(self, words):
        """The words of the sum that is due, in which this rank has no more than these."""
        buffer = self.team.buffer(self.due[0], self.home)
        buffer.zero(self.due[0], words)
        return buffer.sum(self.team.group)
