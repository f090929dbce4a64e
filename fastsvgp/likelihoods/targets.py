"""Checks of targets, in the words of the likelihood."""

import numpy as np

from ..errors import BadEntry
from ..runtime import deferred_checks


def refuse(name, Y, bad, what, advice):
    """Raise ``ValueError`` if any entry of a mask is set, quoting that target and its index.

    Parameters
    ----------
    name : str
        Name of the targets in the message.
    Y : array
    bad : bool array
        Mask of invalid targets, in a shape that broadcasts to that of Y.
    what : str
        Description of valid targets, such as "positive numbers".
    advice : str
        What to do: a sentence without its full stop.

    Examples
    --------
    >>> Y = np.array([1.0, -2.0])
    >>> refuse("Y", Y, Y <= 0, "positive numbers", "Shift them")
    Traceback (most recent call last):
    fastsvgp.errors.BadEntry: `Y` must hold positive numbers; got -2.0 at index 1. Shift them
    """
    if not deferred_checks.none(bad):
        bad, Y = (a.get() if deferred_checks.on_device(a) else a for a in (bad, Y))
        at = tuple(np.argwhere(np.broadcast_to(bad, Y.shape))[0])
        raise BadEntry(name, f"must hold {what}; got {Y[at]!s}", at, f". {advice}")


def refuse_all_but_counts(name, Y, kind, column=None):
    """Raise ``ValueError`` if targets of a likelihood ``kind`` are not 0, 1, 2, ...

    ``column`` is (number, name) of the column that holds them, if there are several.
    """
    Y, said = as_targets(Y), ("counts", f"{kind} targets are whole numbers 0, 1, 2, ...")
    y = Y if column is None else Y[column[0]]
    for bad in (lambda: not_whole(y), lambda: y < 0, lambda: ~np.isfinite(y)):
        refuse_in_column(name, Y, column, bad(), *said)


def refuse_in_column(name, Y, column, bad, what, advice):
    """Refuse as ``refuse`` does, by a mask of one column (number, name); None: of all of Y."""
    if column is not None:
        number, title = column
        mask = np.zeros(Y.shape, bool, like=Y)
        mask[number] = bad
        bad, what = mask, f"{what} in its column {title}"
    refuse(name, Y, bad, what, advice)


def as_targets(Y, dtype=None):
    """Convert targets to an array on the device where they are; of ``dtype``, if given."""
    Y = Y if hasattr(Y, "astype") else np.asarray(Y)
    return Y if dtype is None else Y.astype(dtype, copy=False)


def not_whole(Y):
    """Mask of the targets that are not whole numbers: fractions, NaN, anything not a number."""
    return Y != np.floor(Y) if Y.dtype.kind in "iuf" else np.array(Y.dtype.kind != "b")
