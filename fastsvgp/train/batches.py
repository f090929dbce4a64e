"""Minibatches of data that can exceed the memory of the host or of a device, also of ranks."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from .. import check
from ..check import weights as weighing
from ..distributed.reduce import RowPartition, bounds
from ..errors import BadEntry
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

    group = None  # set if each rank of a group has a part of the rows: see ``batches_of``

    def __init__(self, X, Y, size, seed, weights=None):
        self._data, self.seed = {"X": X, "Y": Y}, seed
        if weights is not None:
            self._data["weights"] = weights
        # row numbers with a positive weight; None: all rows
        self._counting = None if weights is None else _counting(weights)
        self.num_data = len(X) if self._counting is None else len(self._counting)
        self.size = min(size, self.num_data)
        self._orders, self._all = {}, None

    def reseed(self, seed):
        """Take the order of another seed."""
        self.seed, self._orders = seed, {}

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
            read_rows(name, data, rows)[devices.copy_to(back, data)]
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
        locate_rows(error, self._data, self.rows(step))

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


@contextlib.contextmanager
def locating(locate, *where):
    """Call ``locate(error, *where)`` on a ``BadEntry``, so that it names the row of the data."""
    try:
        yield
    except BadEntry as error:
        locate(error, *where)
        raise


def locate_rows(error, names, rows):
    """Have a ``BadEntry`` about one of these names, which hold these rows, name the row of all."""
    if error.name in names:
        error.index = (int(rows[error.index[0]]), *error.index[1:])


def locate_inputs(error, name, rows):
    """Rewrite a ``BadEntry`` about ``name``, which holds these rows of X, as one about X."""
    locate_rows(error, (name,), rows)
    if error.name == name:
        error.args, error.name = ("X", *error.args[1:]), "X"


def read_rows(name, data, rows):
    """Return the rows with these increasing numbers, checked as by ``whole``."""
    return whole(name, data[devices.copy_to(rows, data)])


class OnDevice:
    """The batches of a ``Batches`` on the device of ``device_like``.

    Data on the host are read one step ahead, while the device works, and copied asynchronously.
    Only one batch is on the device at a time; a batch of all rows stays there. All work on the
    device is done by the calling thread, because CuPy's current stream and device are per thread.
    Data on the device are therefore not read ahead.
    """

    def __init__(self, batches, device_like):
        self._batches, self._device_like = batches, device_like
        self.num_data, self.size, self.per_epoch = batches.num_data, batches.size, batches.per_epoch
        self.group = batches.group
        self._reader = None if batches.on_device else ThreadPoolExecutor(1)
        self._step = self._ahead = self._cached = None

    def at(self, step):
        """As ``Batches.at``, on the device."""
        if self._cached is not None:
            return self._cached
        batch = tuple(devices.copy_to(array, self._device_like) for array in self._read(step))
        if self.size == self.num_data:
            self._cached = batch
        return batch

    def rows(self, step):
        """As ``Batches.rows``, on the host."""
        return self._call_between_reads(self._batches.rows, step)

    def inputs(self, rows):
        """As ``Batches.inputs``, on the device."""
        inputs = self._call_between_reads(self._batches.inputs, rows)
        return devices.copy_to(inputs, self._device_like)

    def _call_between_reads(self, function, *args):
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
        self._call_between_reads(self._batches.locate, error, step)


def batches_of(session, X, Y, size, seed, weights):
    """Make the batches of one process or, in a session, of this rank."""
    if session is None:
        return Batches(X, Y, size, seed, weights)
    batches = (OwnBatches if session.own else PartOfBatches)(X, Y, size, seed, weights, session)
    session.scale, session.partition = batches.scale, batches.partition
    return batches


def _check_shares(size, session):
    if size < session.size:
        raise ValueError(
            f"fit: there are {session.size} ranks and {size} rows in a batch: each rank needs at"
            " least one; use fewer ranks, or larger batches"
        )


class PartOfBatches(Batches):
    """This rank's part of the batches of a single process; no other rows are read."""

    def __init__(self, X, Y, size, seed, weights, session):
        super().__init__(X, Y, size, seed, weights)
        self.group = session
        _check_shares(self.size, session)

    @property
    def scale(self):
        """Factor of the data term."""
        return self.num_data / self.size

    @property
    def partition(self):
        """Rows of a batch that belong to this rank."""
        return RowPartition(self.size, self._own(self.size))

    def rows(self, step):
        rows = super().rows(step)  # those of a part already, unless a batch is all rows
        return rows if self.size < self.num_data else rows[self._own(self.num_data)]

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
        self.group, self.seed = session, seed
        ends = np.cumsum([0, *session.counts])
        self.num_data = int(ends[-1])
        self.size = min(size, self.num_data)
        _check_shares(self.size, session)
        # of each rank's part of a batch
        sizes = np.maximum(1, np.diff(self.size * ends // self.num_data))
        self._shard = _Shard(X, Y, int(sizes[session.rank]), seed, weights, session.rank)
        before = int(sizes[: session.rank].sum())
        self.partition = RowPartition(
            int(sizes.sum()), slice(before, before + self._shard.size), own=True
        )
        shard = self._shard
        self.at, self.rows, self.inputs = shard.at, shard.rows, shard.inputs
        self.locate, self.reseed = shard.locate, shard.reseed

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


class _Shard(Batches):
    """Rows of one rank, shuffled with a seed that depends on the rank."""

    def __init__(self, X, Y, size, seed, weights, rank):
        super().__init__(X, Y, size, seed, weights)
        self._rank = rank

    def _permutation(self, epoch):
        key = [self.seed, 0, epoch, self._rank] if self._rank else [self.seed, 0, epoch]
        return np.random.default_rng(key).permutation(self.num_data)
