"""Batches of one rank of a group."""

import numpy as np

from ..distributed.reduce import RowPartition, bounds
from .batches import Batches, read_rows, whole


def batches_of(session, X, Y, size, seed, weights):
    """Make ``Batches``, or in a session those of this rank."""
    if session is None:
        return Batches(X, Y, size, seed, weights)
    batches = (OwnBatches if session.own else PartOfBatches)(X, Y, size, seed, weights, session)
    session.scale, session.partition = batches.scale, batches.partition
    return batches


class PartOfBatches(Batches):
    """This rank's part of the batches of a single process; no other rows are read."""

    def __init__(self, X, Y, size, seed, weights, session):
        super().__init__(X, Y, size, seed, weights)
        self.group = session
        if self.size < session.size:
            raise ValueError(
                f"fit: there are {session.size} ranks and {self.size} rows in a batch: each rank"
                " needs at least one; use fewer ranks, or larger batches"
            )

    @property
    def scale(self):
        """Factor of the data term."""
        return self.num_data / self.size

    @property
    def partition(self):
        """Rows of a batch that belong to this rank."""
        return RowPartition(self.size, self._own(self.size))

    def reseeded(self, seed):
        data = self._data
        return PartOfBatches(data["X"], data["Y"], self.size, seed, data.get("weights"), self.group)

    def rows(self, step):
        return (
            super().rows(step)
            if self.size < self.num_data
            else super().rows(step)[self._own(self.num_data)]
        )

    def _own(self, count):
        return slice(*bounds(count, self.group.rank, self.group.size))

    def _rows(self, step):
        rows, seam = super()._rows(step)
        return rows[self._own(len(rows))], seam

    def _whole(self):
        if self._all is None:
            if self._counting is None:
                own = self._own(self.num_data)
                self._all = tuple(whole(name, data[own]) for name, data in self._data.items())
            else:
                rows = self._counting[self._own(self.num_data)]
                self._all = tuple(read_rows(name, data, rows) for name, data in self._data.items())
        return self._all


class OwnBatches:
    """Batches of this rank's shard, which it shuffles by itself.

    ``size`` and ``num_data`` are totals over all ranks.
    """

    def __init__(self, X, Y, size, seed, weights, session):
        self.group, self.seed, self._given = session, seed, (X, Y, size, weights)
        ends = np.cumsum([0, *session.counts])
        self.num_data = int(ends[-1])
        self.size = min(size, self.num_data)
        if self.size < session.size:
            raise ValueError(
                f"fit: there are {session.size} ranks and {self.size} rows in a batch: each rank"
                " needs at least one"
            )
        sizes = np.maximum(
            1, np.diff(self.size * ends // self.num_data)
        )  # of each rank's part of a batch
        self._shard = _Shard(X, Y, int(sizes[session.rank]), seed, weights, session.rank)
        before = int(sizes[: session.rank].sum())
        self.partition = RowPartition(
            int(sizes.sum()), slice(before, before + self._shard.size), own=True
        )
        self.at, self.rows, self.inputs, self.locate = (
            self._shard.at, self._shard.rows, self._shard.inputs, self._shard.locate,
        )  # fmt: skip

    @property
    def scale(self):
        """Factor of this rank's data term: rows of the shard over rows of its batch."""
        return self._shard.num_data / self._shard.size

    @property
    def on_device(self):
        return self._shard.on_device

    @property
    def per_epoch(self):
        return -(-self.num_data // self.size)

    def reseeded(self, seed):
        X, Y, size, weights = self._given
        return OwnBatches(X, Y, size, seed, weights, self.group)


class _Shard(Batches):
    """Rows of one rank, shuffled with a seed that depends on the rank."""

    def __init__(self, X, Y, size, seed, weights, rank):
        super().__init__(X, Y, size, seed, weights)
        self._rank = rank

    def _permutation(self, epoch):
        key = [self.seed, 0, epoch, self._rank] if self._rank else [self.seed, 0, epoch]
        return np.random.default_rng(key).permutation(self.num_data)
