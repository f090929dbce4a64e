"""``--trials``, ``--exposure``, ``--noise`` and ``--side``: the second column of a target."""

from dataclasses import dataclass

import numpy as np

from ... import DataFileError
from ..errors import UsageError, shown
from ..settings.names import COLUMNS, NEEDED


@dataclass(frozen=True)
class Second:
    """The second column of a target: its option, name, position in the file, and values (N,)."""

    option: str
    name: str
    position: int
    values: np.ndarray

    @property
    def layout(self):
        """Describe it in the layout of the training file."""
        return {"option": self.option, "name": self.name, "position": self.position}


def requested(args):
    """Return ``(option, column)`` of the arguments; None without one."""
    given = [(name, getattr(args, name)) for name in COLUMNS if getattr(args, name) is not None]
    if len(given) > 1:
        options = shown(f"--{name}" for name, _ in given)
        raise UsageError(f"{options}: a target has one such column; give one of these options")
    return given[0] if given else None


def likelihood_for(second, likelihood):
    """Return the likelihood that reads this column; refuse another one, or one without its column.

    second : ``(option, column)``, or None; likelihood : str, or None if not given
    """
    if second is None:
        needed = NEEDED.get(likelihood)
        if needed is not None:
            raise UsageError(
                f"--likelihood {likelihood} needs a second column of the target: give --{needed}"
                " COLUMN"
            )
        return likelihood
    option, fitting = second[0], COLUMNS[second[0]]
    if likelihood not in (None, *fitting):
        raise UsageError(
            f"--{option} is for --likelihood {' or '.join(fitting)}, not {likelihood}; leave one of"
            " them out"
        )
    return likelihood or fitting[0]


def position_of(table, second, target, ignored):
    """Return the position of the column; refuse the target, and columns that are ignored.

    target : list of positions
    """
    if second is None:
        return None
    option, column = second
    if len(target) > 1:
        raise UsageError(
            f"--{option} is for one target, and here are several; leave it out, or give one"
            " --target"
        )
    position = table.index_of(column, f"--{option}")
    if position in target or position in ignored:
        what = "the target" if position in target else "ignored"
        raise UsageError(f"--{option}: column {column!r} is {what}; give another column")
    return position


def read(table, option, position, y):
    """Read and check the column of a target ``y`` (N,)."""
    name = table.names[position]
    if position in table.text:
        cell, place = table.first_text(position)
        raise UsageError(
            f"{table.path}: --{option} {name!r} must hold numbers, but {place} has {cell!r}"
        )
    values = np.asarray(table.numbers[:, position], np.float64)
    for bad, what in _rules(option, values, y):
        if bad.any():
            row = int(np.argmax(bad))
            raise DataFileError(
                f"{table.path}, {table.place(row)}, column {name!r} of --{option}: {what}, got"
                f" {values[row]:g}"
            )
    return Second(option, name, position, values)


def in_units(scale, y, second, likelihood):
    """Convert targets to the units of the model, (N, 2) with a second column.

    The variance of known noise is in squared units of y; trials, exposures and sides have no units.
    """
    scaled = scale.target(y)
    if second is None:
        return scaled
    units = np.square(scale.y_scale) if likelihood == "known-noise" else 1.0
    return np.stack([scaled, second / units], axis=-1)


def _rules(option, values, y):
    """Yield masks of the rows that break a rule, and the rules."""
    yield ~np.isfinite(values), "a number is needed in every row; fill it in or remove the row"
    if option == "trials":
        yield (values < 1) | (values != np.round(values)), "trials are whole numbers from 1"
        yield y > values, "a target has at least as many trials as successes"
    elif option == "side":
        what = "sides are 0 (the target was seen), 1 (it is at least that) or -1 (at most that)"
        yield ~np.isin(values, (-1, 0, 1)), what
    else:
        noun = "variances of the noise" if option == "noise" else "exposures"
        yield values <= 0, f"{noun} are positive"
