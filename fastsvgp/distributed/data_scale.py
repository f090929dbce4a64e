"""What a bound is scaled and summed by: made once at the edge, from ``num_data`` or from a group.

The bound of a process, or of one rank, is the data term of its rows times a factor, less its part
of the KL term. Summed over the ranks that is the bound of all rows.
"""

from .. import check
from ..records import leaves, replaced


class DataScale:
    """That of a process that has all rows of the call.

    kl : how much of the KL term is taken here; place : a ``Place``, which rows of those of all
    ranks these are, or None; repeatable : whether a call can be run again after its first sum
    """

    kl, place, repeatable = 1.0, None, True

    def __init__(self, num_data=None):
        self._num_data = num_data

    def factor(self, batch):
        """The factor of the data term of a batch of so many rows."""
        return check.data_scale(self._num_data, batch)

    def number(self, value):
        """A number as ``all_reduce`` takes it."""
        return value

    def all_reduce(self, *values):
        """The sums of these over the ranks, in a list."""
        return list(values)

    def all_reduce_gradient(self, value, grad):
        """Value and gradient, summed over the ranks."""
        return value, grad

    def all_reduce_natural(self, layer, value, negative):
        """The bound and a count, summed over the ranks; the sums of the pass take in those of the others."""
        return value, negative

    def expect(self, packing):
        """Announce one more sum, before those that are due."""


ALL_ROWS = DataScale()


class RankScale(DataScale):
    """That of one rank, which sums by a ``Share`` of the call."""

    repeatable = False

    def __init__(self, share, factor, place):
        self.share, self._factor, self.place = share, factor, place
        self.kl = 1.0 / share.team.size

    def factor(self, batch):
        return self._factor

    def number(self, value):
        return float(value)  # on the host it is copied with the header of the sum

    def all_reduce(self, *values):
        return self.share.exchange(list(values))

    def all_reduce_gradient(self, value, grad):
        found = [(path, leaf) for path, _, leaf in leaves(grad) if leaf is not None]
        value, *numbers = self.all_reduce(value, *(leaf for _, leaf in found))
        sums = {path: number for (path, _), number in zip(found, numbers, strict=True)}
        return value, replaced(grad, sums)

    def all_reduce_natural(self, layer, value, negative):
        sums = layer.natural_sums()
        value, negative, *totals = self.all_reduce(value, float(negative), *sums)
        for ours, total in zip(sums, totals, strict=True):
            ours[...] = total
        return value, int(negative)

    def expect(self, packing):
        self.share.due.insert(0, packing)
