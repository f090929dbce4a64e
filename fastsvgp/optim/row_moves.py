"""Gradients that can have only some rows, as optimisers in place take them."""

import math

import numpy as np

from .. import check
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from ..weight_space.bases.samples import SparseRows, within


def dtype_of(value):
    """Return the dtype of a leaf, float64 for Python numbers."""
    dtype = getattr(value, "dtype", np.dtype(np.float64))
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def home_of(value):
    """Return a leaf that is on a device, or None."""
    return value if deferred_checks.on_device(value) else None


def zeros(value):
    """Return zeros like a leaf."""
    return np.zeros(np.shape(value), dtype_of(value), like=home_of(value))


@public_call()
def moves_of(found, bars, count):
    """Return ``[(path, kind, array, rows, bar (r, k))]`` of the leaves ``found``.

    On a device all checks are read in one synchronisation.
    """
    deferred_checks.defer(*(array for _, _, array in found))
    moves = []
    for path, kind, array in found:
        bar = bars.get(path)
        if bar is None:
            raise ValueError(
                f"field {path!r} is free here, but None came for it: fix it, or request its"
                " gradient in `wrt=`"
            )
        rows, bar = (bar.rows, bar.values) if isinstance(bar, SparseRows) else (None, bar)
        if not _all_finite(bar):
            what = f"the gradient has NaN or infinity in {path!r} at step {count + 1}"
            raise check.diverged(what, step=count + 1)
        moves.append((path, kind, array, *_lines(path, array, rows, bar)))
    if checks := deferred_checks.pending():
        checks.read(0.0)
    return moves


def _all_finite(bar):
    if deferred_checks.on_device(bar):
        return deferred_checks.within(bar)
    return bool(np.isfinite(np.sum(bar))) or bool(np.isfinite(bar).all())


def _lines(path, array, rows, bar):
    """Return ``(rows, bar (r, k))``, checked: lines of an array (..., k), and their gradient."""
    shape, dtype = np.shape(array), dtype_of(array)
    if rows is not None:
        if len(rows) and not within(rows, shape[0]):
            named = f"rows {int(rows.min())} to {int(rows.max())}"
            raise IndexError(
                f"the gradient in {path!r} names {named}, but there are {shape[0]}, from 0"
            )
        shape = (len(rows), *shape[1:])
    one_device((path, array), (f"gradient of {path}", bar))
    bar = np.ascontiguousarray(np.broadcast_to(bar, shape), dtype, like=home_of(bar))
    columns = shape[-1] if len(shape) > 1 else 1
    bar = bar.reshape(math.prod(shape) // max(1, columns), columns)
    return np.arange(len(bar), like=bar) if rows is None else rows, bar
