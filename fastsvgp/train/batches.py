"""Minibatches of data that may be larger than memory."""

import numpy as np


class Batches:
    """Rows of X (N, D) and Y (N, ...) in shuffled epochs without replacement.

    Epochs follow each other without a gap, so that all batches have the same size: one may hold the end of one epoch and the
    beginning of the next. Which rows step k gets is a function of (seed, k) alone, so training can resume anywhere.

    X and Y may be ``numpy.memmap``, or anything that takes a sorted array of row numbers (h5py, zarr): only the rows of a batch
    are read, in the order of the file. The order of one epoch takes 8 N bytes. A batch of all rows is the data as they are.
    """

    def __init__(self, X, Y, size, seed):
        self._X, self._Y, self.seed = X, Y, seed
        self.num_data, self.size = len(X), min(size, len(X))
        self._orders = {}

    def reseeded(self, seed):
        """The same data in the order of another seed."""
        return Batches(self._X, self._Y, self.size, seed)

    @property
    def per_epoch(self):
        """Steps until every row has been seen once, rounded up."""
        return -(-self.num_data // self.size)

    def at(self, step):
        """(X, Y) of a step, from 0."""
        if self.size == self.num_data:
            return np.asarray(self._X), np.asarray(self._Y)
        first = step * self.size
        epoch, position = divmod(first, self.num_data)
        rows = self._order(epoch)[position : position + self.size]
        if len(rows) == self.size:
            rows = np.sort(rows)
            return np.asarray(self._X[rows]), np.asarray(self._Y[rows])
        # across the seam a row may come twice; h5py wants row numbers that increase, so it is read once
        rows = np.concatenate([rows, self._order(epoch + 1)[: self.size - len(rows)]])
        rows, back = np.unique(rows, return_inverse=True)
        return np.asarray(self._X[rows])[back], np.asarray(self._Y[rows])[back]

    def _order(self, epoch):
        if epoch not in self._orders:
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            self._orders[epoch] = np.random.default_rng([self.seed, 0, epoch]).permutation(self.num_data)
        return self._orders[epoch]
