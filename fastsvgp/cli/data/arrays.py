"""Read npy and npz files."""

import numpy as np

from ... import DataFileError
from ...records.persistence import DAMAGED
from ..errors import join


def read_npy(source, images):
    """Return the numbers (N, C) of an array, and the shape of its images or None."""
    path = source.name
    try:
        with source.open() as file:
            array = np.load(file, allow_pickle=False)
    except DAMAGED as error:
        raise DataFileError(
            f"{path}: {error}; an npy file of data must be a plain array of numbers"
        ) from error
    return _check_array(path, array, "the array", images)


def read_npz(source, images):
    """Return the numbers (N, C) of X, the shape of its images or None, and y or None."""
    path = source.name
    try:
        with source.open() as stream, np.load(stream, allow_pickle=False) as file:
            names = file.files
            keys = {name.lower(): name for name in names}
            X, y = (file[keys[key]] if key in keys else None for key in ("x", "y"))
            y = np.char.decode(y, "utf-8") if y is not None and y.dtype.kind == "S" else y
    except DAMAGED as error:
        raise DataFileError(
            f"{path}: {error}; an npz file of data must hold plain arrays of numbers or text, no"
            " pickled objects, and be undamaged"
        ) from error
    if "__fastsvgp__" in names:
        raise DataFileError(f"{path} is a fastsvgp model, not a table of data")
    if any(name in names for name in ("xl/workbook.xml", "content.xml")):
        raise DataFileError(f"{path} is a spreadsheet, not a table; save its sheet as csv")
    if X is None:
        raise DataFileError(
            f"{path} holds {join(names) or 'nothing'}; an npz file of data needs X (rows, columns)"
            " and y"
        )
    numbers, shape = _check_array(path, X, "X", images)
    if y is not None:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != (len(numbers),):
            raise DataFileError(
                f"{path}: y has shape {y.shape}, but X has {len(numbers)} rows; y must have one"
                " value per row"
            )
        if y.dtype.kind not in "fiubU":
            raise DataFileError(f"{path}: y must be numbers, booleans or text, got dtype {y.dtype}")
    return numbers, shape, y


def _check_array(path, array, name, images):
    array, of_images = array[:, None] if array.ndim == 1 else array, array.ndim in (3, 4)
    right = array.ndim == 2 or images and of_images
    if not right or array.dtype.kind not in "fiub" or 0 in array.shape:
        expected = "(rows, columns)" + ", (N, H, W) or (N, H, W, C)" * images
        hint = "; for images, give --patch-shape" if of_images and not images else ""
        raise DataFileError(
            f"{path}: {name} must be numbers of shape {expected}, got {array.dtype} of shape"
            f" {array.shape}{hint}"
        )
    shape = (*array.shape[1:], 1)[:3] if of_images else None
    return np.asarray(array.reshape(len(array), -1), np.float64), shape
