"""A group in a training: counts all-reduces, so that a failing rank can join the next one."""

import copy

from .packing import NUMBER, Packing
from .protocol import Communicator, Share


class TrainingGroup:
    """A group during a training: X and Y of a call are this rank's rows.

    scale : factor of the data term of these rows
    pending : error that this rank reports in the next all-reduce, in place of computing, or None
    fingerprint : fingerprint of the state at the start of the step
    locate : function that makes a ``BadEntry`` name the row of the data
    partition : the ``RowPartition`` of the rows of a call

    All steps of a training make the same calls, each with the same all-reduces. A failing rank can
    therefore infer the shape of the next all-reduce of the others: that of the next call, or the
    first one of a step, whose shape the all-reduce at the end of a training has too. The shapes are
    recorded in the first two steps, in which each call begins with an all-reduce of a header alone.
    """

    rows = "placed"

    def __init__(self, group):
        self.communicator = Communicator.of(group)
        self.group, self.scale, self.pending, self.fingerprint, self.locate = (
            group,
            1.0,
            None,
            None,
            None,
        )
        self.partition = None
        # number of the step, calls of this step done, first packings and devices of its calls
        self._step, self._call, self._sums = -1, 0, []
        # whether the header-only all-reduce before the next call is done
        self._opened = False

    def restarted(self):
        """Return the same group for other calls, after the last step, with no shapes recorded."""
        other = copy.copy(self)
        other.pending, other._step, other._call, other._sums, other._opened = None, -1, 0, [], False
        other.begin_step()
        return other

    def begin_step(self):
        """Begin a new step."""
        self._step, self._call, self._opened = self._step + 1, 0, False

    @property
    def awaits_first_sum(self):
        """Whether the first all-reduce of this step is still to come."""
        return self._call == 0

    def report(self, error=None):
        """Join the next all-reduce of the others, and report ``error``.

        A training ends with this call on all ranks.
        """
        step, call = self._step, self._call
        if step > 0 and call == len(self._sums):
            step, call = step + 1, 0
        packing, device_like = self._sums[call] if step > 1 or self._opened else (Packing([]), None)

        def opened():
            self._opened = True

        Share(self.communicator, [packing], device_like, opened).all_reduce(None, error)

    def _begin_call(self, expected, device_like):
        """Record the expected all-reduces of a call; return its number in the step."""
        at = self._call
        self._sums[at : at + 1] = [(expected[0], device_like)]
        if self._step in (0, 1):
            self._opened = False
            try:
                self.communicator.reserve(expected, device_like)
            except Exception as error:
                self.pending = self.pending or error
            self.report(self.pending)
        return at

    def call(self, sums, compute):
        """Call ``compute(share)``, as ``Communicator.call``, and report a pending error instead.

        Arguments are not compared: the ranks have agreed on them at the start of the training.
        """
        expected, device_like = sums()
        at = self._begin_call(expected, device_like)

        def unless_pending(share):
            if self.pending is not None:
                raise self.pending
            return compute(share)

        def finished():
            self._call, self._opened = at + 1, False

        return self.communicator.run((expected, device_like), unless_pending, finished)

    def as_one_call(self, compute):
        """Call ``compute()``, in which all ranks call ``total`` the same number of times.

        A final all-reduce of the same shape lets a rank report a failure after its last ``total``.
        All this is one call of the step, except before the first bound of a training, because no
        other step begins with it.
        """
        at = self._begin_call([NUMBER], None)
        result = compute()
        self.report()
        self._call, self._opened = at + (at > 0), False
        return result

    def total(self, value):
        """Return the sum of a number over the ranks."""
        return Share(self.communicator, [NUMBER]).all_reduce([value])[0]
