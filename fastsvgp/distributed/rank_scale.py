"""Scaling and all-reduce of a bound on one rank: the same object as that of a single process."""

from ..check.scale import DataScale
from ..records import leaves, replaced


class RankScale(DataScale):
    """The scale of one rank, which all-reduces by a ``Share`` of the call."""

    repeatable = alone = False

    def __init__(self, share, factor, partition):
        self.share, self._factor, self.partition = share, factor, partition
        self.kl = 1.0 / share.communicator.size

    def factor(self, batch):
        return self._factor

    def number(self, value):
        return float(value)  # a number of the host travels with the header

    def all_reduce(self, *values):
        return self.share.all_reduce(list(values))

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
        self.share.expected.insert(0, packing)
