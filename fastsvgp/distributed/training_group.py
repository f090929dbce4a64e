"""A group in a training: which sum of which step comes next, so that a rank which fails can take part in it."""

import copy

from .packing import NUMBER, Packing
from .protocol import Share, Team


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
