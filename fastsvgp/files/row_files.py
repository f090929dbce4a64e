"""Several .npy files of rows as one array; only the requested rows are read."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import DataFileError
from .atomic import Path, as_path


class RowFiles:
    """Concatenated rows of several memory-mapped arrays.

    Indexed by row numbers, masks and slices; ``fit`` uses sorted row numbers and slices.

    shape, dtype : of the concatenated array
    """

    def __init__(self, parts):
        self._parts = parts
        self._ends = np.cumsum([0, *(len(part) for part in parts)])
        self.shape, self.dtype = (int(self._ends[-1]), *parts[0].shape[1:]), parts[0].dtype
        self.ndim = len(self.shape)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        """Return the rows of a slice, a mask or numbers as an array in memory."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._run(start, max(start, stop))
            rows = np.arange(start, stop, step)
        rows = np.asarray(rows)
        if rows.ndim == 0 and rows.dtype.kind in "iu":
            return self[rows[None]][0]
        if rows.ndim != 1 or len(rows) and rows.dtype.kind not in "biu":
            raise IndexError(
                "row_files: rows are taken by a slice, numbers, or a mask; for other parts use"
                " numpy.asarray of it"
            )
        if rows.dtype == bool:
            if len(rows) != len(self):
                raise IndexError(f"row_files: a mask of {len(rows)} rows for {len(self)}")
            rows = np.flatnonzero(rows)
        rows = rows.astype(np.int64)
        rows = np.where(rows < 0, rows + len(self), rows)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(
                f"row_files: there are {len(self)} rows; row numbers beyond them were requested"
            )
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        where = np.searchsorted(self._ends, rows, side="right") - 1
        for i in np.unique(where):
            at = where == i
            out[at] = self._parts[i][rows[at] - self._ends[i]]
        return out

    def _run(self, start, stop):
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for part, first in zip(self._parts, self._ends, strict=False):
            low, high = max(start, first), min(stop, first + len(part))
            if low < high:
                out[low - start : high - start] = part[low - first : high - first]
        return out

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._run(0, len(self)), dtype)


def row_files(paths: Path | Iterable[Path]) -> RowFiles:
    """Memory-map several .npy files as one array of rows: for ``fit``, with or without a group.

    Parameters
    ----------
    paths : sequence of path-like
        Files of arrays (N_i, ...) that agree in dtype and all axes but the first. Sort the names
        from ``glob``, which returns them in no particular order.

    Returns
    -------
    RowFiles
        With ``shape``, ``dtype``, and rows by number or slice; only the requested rows are read.
        Training on it gives bitwise the results of training on one file of all rows.

    Raises
    ------
    DataFileError
        A file is not a .npy file, or its columns or dtype differ from those of the first. Names the
        file.
    OSError
        A file cannot be opened.
    ValueError
        ``paths`` is empty.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = [pathlib.Path(folder, f"x{i}.npy") for i in range(2)]
    ...     for name in names:
    ...         np.save(name, X[:20])
    ...     rows = fs.records.row_files(names)
    ...     rows.shape, rows[[0, 25]].shape
    ((40, 1), (2, 1))
    """
    single = isinstance(paths, (str, bytes, os.PathLike)) or not np.iterable(paths)
    each: Any = [paths] if single else paths
    names = [as_path("row_files: `paths`", path) for path in each]
    if not names:
        raise ValueError("row_files: `paths` is empty; give at least one .npy file")
    parts = [_open(name) for name in names]
    for name, part in zip(names, parts, strict=True):
        for what, value, first in (
            ("dtype", part.dtype, parts[0].dtype),
            ("rows of shape", part.shape[1:], parts[0].shape[1:]),
        ):
            if value != first:
                raise DataFileError(
                    f"row_files: {name} has {what} {value}, and {names[0]} has {first}; write both"
                    " alike"
                )
    return RowFiles(parts)


def _open(name):
    try:
        part = np.load(name, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataFileError(f"row_files: {name} is not a .npy file of numbers ({error})") from error
    if not isinstance(part, np.memmap) or part.ndim == 0:
        raise DataFileError(f"row_files: {name} holds no array of rows; write it with numpy.save")
    return part
