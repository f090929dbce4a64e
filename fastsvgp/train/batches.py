"""Minibatches of data that may be larger than memory, or than the memory of a device."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .. import check
from ..check import weights as weighing
from ..runtime import devices
from ..runtime.deferred_checks import on_device


class Batches:
    """Rows of X (N, D) and Y (N, ...), and of weights where there are any, in shuffled epochs without replacement.

    Epochs follow each other without a gap, so that all batches have the same size: one may hold the
    end of one epoch and the beginning of the next. Which rows step k gets is a function of (seed,
    k) alone, so training can resume anywhere.

    X and Y may be ``numpy.memmap``, or anything that takes a sorted array of row numbers (h5py,
    zarr): only the rows of a batch are read, in the order of the file. The order of one epoch takes
    8 N bytes. A batch of all rows is the data as they are.

    Weights (N,) or (N, P) are at hand. Rows that count nowhere are never drawn, as if they were no
    data.
    """

    group = None  # of whose ranks each has a part of the rows: see ``shares``

    def __init__(self, X, Y, size, seed, weights=None):
        self._data, self.seed = (
            {"X": X, "Y": Y} | ({} if weights is None else {"weights": weights}),
            seed,
        )
        # row numbers; None: all count
        self._counting = None if weights is None else _counting(weights)
        self.num_data = len(X) if self._counting is None else len(self._counting)
        self.size = min(size, self.num_data)
        self._orders, self._all = {}, None

    def reseeded(self, seed):
        """The same data in the order of another seed."""
        return Batches(self._data["X"], self._data["Y"], self.size, seed, self._data.get("weights"))

    @property
    def on_device(self):
        """Whether the data, or some of them, live on a device."""
        return on_device(*self._data.values())

    @property
    def per_epoch(self):
        """Steps until every row has been seen once, rounded up."""
        return -(-self.num_data // self.size)

    def at(self, step):
        """(X, Y), or (X, Y, weights), of a step, from 0."""
        if self.size == self.num_data:
            return self._whole()
        rows, seam = self._rows(step)
        if not seam:
            return tuple(read_rows(name, data, rows) for name, data in self._data.items())
        # across the seam a row may come twice; h5py wants row numbers that increase, so it is read
        # once
        rows, back = np.unique(rows, return_inverse=True)
        return tuple(
            read_rows(name, data, rows)[devices.like(back, data)]
            for name, data in self._data.items()
        )

    def _whole(self):
        if self._counting is None:
            return tuple(whole(name, data) for name, data in self._data.items())
        if self._all is None:
            self._all = tuple(
                read_rows(name, data, self._counting) for name, data in self._data.items()
            )
        return self._all

    def rows(self, step):
        """Row numbers of a step, in the order of its batch."""
        if self.size < self.num_data:
            return self._rows(step)[0]
        return np.arange(self.num_data) if self._counting is None else self._counting

    def inputs(self, rows):
        """X of these increasing row numbers."""
        return read_rows("X", self._data["X"], rows)

    def locate(self, error, step):
        """Have a ``BadEntry`` about the data of a step name the row of the data, in place of the row of the batch."""
        if error.name in self._data:
            rows = self.rows(step)
            error.index = (int(rows[error.index[0]]), *error.index[1:])

    def _rows(self, step):
        """Row numbers of a batch that is not all rows, in its order, and whether an epoch ends within it; else they increase."""
        epoch, position = divmod(step * self.size, self.num_data)
        rows = self._order(epoch)[position : position + self.size]
        if len(rows) == self.size:
            return np.sort(rows), False
        return np.concatenate([rows, self._order(epoch + 1)[: self.size - len(rows)]]), True

    def _order(self, epoch):
        if epoch not in self._orders:
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            order = self._permutation(epoch)
            self._orders[epoch] = order if self._counting is None else self._counting[order]
        return self._orders[epoch]

    def _permutation(self, epoch):
        return np.random.default_rng([self.seed, 0, epoch]).permutation(self.num_data)


def _counting(weights):
    """The numbers of the rows that count somewhere; None where all do."""
    counting = weighing.rows_that_count(weights)
    rows = np.flatnonzero(counting.get() if on_device(counting) else counting)
    return None if len(rows) == len(weights) else rows


def whole(name, data) -> np.ndarray:
    """All of the data as an array; text, objects and masked values are refused as bounds refuse them."""
    # a container may give masked arrays, as those of netCDF4 do: ``asarray`` would drop the mask
    # before anyone saw it
    return check.as_array(name, data if on_device(data) else np.asanyarray(data))


def locate_inputs(error, name, rows):
    """Have a ``BadEntry`` about ``name``, which are these rows of X, say so."""
    if error.name == name:
        error.args, error.name = ("X", *error.args[1:]), "X"
        error.index = (int(rows[error.index[0]]), *error.index[1:])


def read_rows(name, data, rows):
    """The rows with these increasing numbers, as ``whole`` gives all of them."""
    return whole(name, data[devices.like(rows, data)])


NAMES = "X", "Y", "weights"  # of what a batch holds


class OnDevice:
    """The batches of ``Batches`` on the device of ``home``.

    Data that live on the host are read one step ahead, while the device works, and copied without a
    wait. Only a batch is on the device at a time; a batch of all rows stays there. Whatever touches
    the device is done by the thread that asks for a batch: the current stream and the current
    device of CuPy are those of a thread. So data that live there are not read ahead.
    """

    def __init__(self, batches, home):
        self._batches, self._home, self.seed = batches, home, batches.seed
        self.num_data, self.size, self.per_epoch = batches.num_data, batches.size, batches.per_epoch
        self.group = batches.group
        self._reader = None if batches.on_device else ThreadPoolExecutor(1)
        self._step = self._ahead = self._kept = None

    def reseeded(self, seed):
        """The same data in the order of another seed."""
        return OnDevice(self._batches.reseeded(seed), self._home)

    def at(self, step):
        """As ``Batches.at``, on the device."""
        if self._kept is not None:
            return self._kept
        batch = devices.all_like(self._home, **dict(zip(NAMES, self._read(step), strict=False)))
        if self.size == self.num_data:
            self._kept = batch
        return batch

    def rows(self, step):
        """As ``Batches.rows``, on the host."""
        return self._asked(self._batches.rows, step)

    def inputs(self, rows):
        """As ``Batches.inputs``, on the device."""
        return devices.all_like(self._home, X=self._asked(self._batches.inputs, rows))[0]

    def _asked(self, function, *args):
        """What a function of the batches says, not while one is read."""
        return (
            function(*args)
            if self._reader is None
            else self._reader.submit(function, *args).result()
        )

    def _read(self, step):
        if self._reader is None or self.size == self.num_data:
            return self._batches.at(step)
        if self._step != step:
            # after what may still be read
            self._ahead = self._reader.submit(self._batches.at, step)
        self._step, ahead = None, self._ahead  # where it fails, the next call reads again
        data = ahead.result()
        self._step, self._ahead = step + 1, self._reader.submit(self._batches.at, step + 1)
        return data

    def locate(self, error, step):
        """As ``Batches.locate``."""
        self._asked(self._batches.locate, error, step)
