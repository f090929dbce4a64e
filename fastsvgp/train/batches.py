"""Minibatches of data that can exceed the memory of the host or of a device."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .. import check
from ..check import weights as weighing
from ..runtime import devices
from ..runtime.deferred_checks import on_device


class Batches:
    """Batches of rows of X (N, D), Y (N, ...) and optional weights, in shuffled epochs.

    Rows are drawn without replacement. Epochs follow each other without a gap, so all batches have
    the same size; one batch can hold the end of one epoch and the beginning of the next. The rows
    of step k depend only on (seed, k), so training can resume at any step.

    X and Y can be ``numpy.memmap``, or any container indexed by a sorted array of row numbers
    (h5py, zarr): only the rows of a batch are read, in the order of the file. The order of one
    epoch takes 8 N bytes. A batch of all rows is the data in their own order.

    Weights (N,) or (N, P) are in memory. Rows without a positive weight are never drawn.
    """

    group = None  # set if each rank of a group has a part of the rows: see ``rank_batches``

    def __init__(self, X, Y, size, seed, weights=None):
        self._data, self.seed = (
            {"X": X, "Y": Y} | ({} if weights is None else {"weights": weights}),
            seed,
        )
        # row numbers with a positive weight; None: all rows
        self._counting = None if weights is None else _counting(weights)
        self.num_data = len(X) if self._counting is None else len(self._counting)
        self.size = min(size, self.num_data)
        self._orders, self._all = {}, None

    def reseeded(self, seed):
        """Return the same data in the order of another seed."""
        return Batches(self._data["X"], self._data["Y"], self.size, seed, self._data.get("weights"))

    @property
    def on_device(self):
        """Whether some of the data are on a device."""
        return on_device(*self._data.values())

    @property
    def per_epoch(self):
        """Steps per epoch, rounded up."""
        return -(-self.num_data // self.size)

    def at(self, step):
        """Return (X, Y), or (X, Y, weights), of a step, counted from 0."""
        if self.size == self.num_data:
            return self._whole()
        rows, seam = self._rows(step)
        if not seam:
            return tuple(read_rows(name, data, rows) for name, data in self._data.items())
        # Across the seam of two epochs a row can come twice. h5py requires increasing row numbers,
        # so it is read once.
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
        """Return the row numbers of a step, in the order of its batch."""
        if self.size < self.num_data:
            return self._rows(step)[0]
        return np.arange(self.num_data) if self._counting is None else self._counting

    def inputs(self, rows):
        """Return the rows of X with these increasing numbers."""
        return read_rows("X", self._data["X"], rows)

    def locate(self, error, step):
        """Replace the row of the batch in a ``BadEntry`` by the row of the data."""
        if error.name in self._data:
            rows = self.rows(step)
            error.index = (int(rows[error.index[0]]), *error.index[1:])

    def _rows(self, step):
        """Return the row numbers of a batch, and whether an epoch ends within it.

        They increase unless an epoch ends within the batch. Not for a batch of all rows.
        """
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
    """Return the numbers of the rows with a positive weight; None if all have one."""
    counting = weighing.rows_that_count(weights)
    rows = np.flatnonzero(counting.get() if on_device(counting) else counting)
    return None if len(rows) == len(weights) else rows


def whole(name, data) -> np.ndarray:
    """Return all of the data as an array; refuse text, objects and masked values, as bounds do."""
    # ``asanyarray``, because containers such as those of netCDF4 return masked arrays, and
    # ``asarray`` would drop the mask before the check
    return check.as_array(name, data if on_device(data) else np.asanyarray(data))


def locate_inputs(error, name, rows):
    """Rewrite a ``BadEntry`` about ``name``, which holds these rows of X, as one about X."""
    if error.name == name:
        error.args, error.name = ("X", *error.args[1:]), "X"
        error.index = (int(rows[error.index[0]]), *error.index[1:])


def read_rows(name, data, rows):
    """Return the rows with these increasing numbers, checked as by ``whole``."""
    return whole(name, data[devices.like(rows, data)])


class OnDevice:
    """The batches of a ``Batches`` on the device of ``device_like``.

    Data on the host are read one step ahead, while the device works, and copied asynchronously.
    Only one batch is on the device at a time; a batch of all rows stays there. All work on the
    device is done by the calling thread, because CuPy's current stream and device are per thread.
    Data on the device are therefore not read ahead.
    """

    def __init__(self, batches, device_like):
        self._batches, self._device_like, self.seed = batches, device_like, batches.seed
        self.num_data, self.size, self.per_epoch = batches.num_data, batches.size, batches.per_epoch
        self.group = batches.group
        self._reader = None if batches.on_device else ThreadPoolExecutor(1)
        self._step = self._ahead = self._cached = None

    def reseeded(self, seed):
        """Return the same data in the order of another seed."""
        return OnDevice(self._batches.reseeded(seed), self._device_like)

    def at(self, step):
        """As ``Batches.at``, on the device."""
        if self._cached is not None:
            return self._cached
        batch = tuple(devices.like(array, self._device_like) for array in self._read(step))
        if self.size == self.num_data:
            self._cached = batch
        return batch

    def rows(self, step):
        """As ``Batches.rows``, on the host."""
        return self._between_reads(self._batches.rows, step)

    def inputs(self, rows):
        """As ``Batches.inputs``, on the device."""
        return devices.like(self._between_reads(self._batches.inputs, rows), self._device_like)

    def _between_reads(self, function, *args):
        """Call a function of the batches, after any read in progress."""
        return (
            function(*args)
            if self._reader is None
            else self._reader.submit(function, *args).result()
        )

    def _read(self, step):
        if self._reader is None or self.size == self.num_data:
            return self._batches.at(step)
        if self._step != step:
            # queued after a read in progress
            self._ahead = self._reader.submit(self._batches.at, step)
        self._step, ahead = None, self._ahead  # after a failed read the next call reads again
        data = ahead.result()
        self._step, self._ahead = step + 1, self._reader.submit(self._batches.at, step + 1)
        return data

    def locate(self, error, step):
        """As ``Batches.locate``."""
        self._between_reads(self._batches.locate, error, step)
