"""Target columns: where they are, their values and checks, and the cells that are missing.

``--trials``, ``--exposure``, ``--noise`` and ``--side`` name a second column of a target.
"""

import logging
from dataclasses import dataclass, replace

import numpy as np

from ... import DataFileError
from ..errors import UsageError, join
from ..settings.names import COLUMNS, NEEDED
from .cells import is_missing

log = logging.getLogger("fastsvgp")


def find(table, target, target_file, columns, file_format):
    """Return the values, name and column of the target; the column is None outside ``table``.

    Of several targets the names and the columns are lists. By default the target is the last one of
    ``columns``, which are not ignored.
    """
    if target_file is not None:
        other = file_format.read(target_file, whole=True)
        return *_read_target(other, target, table), None
    if table.target is not None:
        if target is not None:
            raise UsageError(f"--target: the target is y of {table.path}; leave --target out")
        return table.target, "y", None
    if table.image_shape is not None:
        raise UsageError(
            f"{table.path} holds images X, but no y; give the target with --target-file"
        )
    if target is None:
        positions = [_last_column(table, columns)]
    else:
        positions = positions_of(table, target)
    names = [table.names[i] if table.named else f"column {i}" for i in positions]
    return values_of(table, positions), _one_or_all(names), _one_or_all(positions)


def _read_target(other, target, table):
    """Return the values and the name of the target in a file of its own, ``other``."""
    if other.target is not None:
        if target is not None:
            raise UsageError(f"--target: the target is y of {other.path}; leave --target out")
        places, values = [0], other.target
    else:
        if target is None and other.num_columns > 1:
            raise UsageError(
                f"--target-file: {other.path} has {other.num_columns} columns; choose one with"
                " --target"
            )
        places = positions_of(other, target or "0")
        values = values_of(other, places)
    if len(values) != table.num_rows:
        raise DataFileError(
            f"--target-file: {other.path} has {len(values)} rows, but {table.path} has"
            f" {table.num_rows}"
        )
    several = len(places) > 1
    return values, _one_or_all([other.names[i] if other.named or several else "y" for i in places])


def _last_column(table, columns):
    """Return the last column that is not ignored; the last one of all if all of them are."""
    if table.num_columns == 1:
        raise UsageError(
            f"{table.path} has only one column, so there is no target; give it with"
            " --target-file, or give the right --delimiter"
        )
    return columns[-1] if columns else table.num_columns - 1


def _one_or_all(found):
    return found if len(found) > 1 else found[0]


def refuse_ignored(name, positions, ignored):
    """Refuse a target among the columns of ``--ignore``."""
    if not ignored.isdisjoint(positions):
        named = zip(as_list(name), positions, strict=True)
        both = join([repr(one) for one, i in named if i in ignored])
        raise UsageError(
            f"--ignore: {both} is the target; ignore only inputs, or choose another --target"
        )


def positions_of(table, target, option="--target"):
    """Return the positions of the columns that ``target`` names, separated by commas.

    A column whose whole name is ``target`` is one column, even if the name has commas.
    """
    if "," not in target or target in table.names:
        return [table.index_of(target, option)]
    found = [table.index_of(part.strip(), option) for part in target.split(",") if part.strip()]
    twice = sorted({table.names[i] for i in found if found.count(i) > 1})
    if twice:
        raise UsageError(f"{option}: {join(twice)} is named twice; give each target once")
    if not found:
        raise UsageError(f"{option}: {target!r} names no column")
    return found


def values_of(table, positions):
    """Return the values of one target (N,), or of several (N, P), NaN where a number is missing.

    A target of text can have cells that are missing.
    """
    for i in positions:
        _read_units(table, i)
    if len(positions) == 1:
        return table.target_column(positions[0])
    text = next((i for i in positions if i in table.text), None)
    if text is not None:
        cell, place = table.first_text(text)
        raise UsageError(
            f"{table.path}: several targets must be numbers, but {table.names[text]!r} holds text"
            f" ({cell!r}, {place}); fit that target by itself"
        )
    return table.numbers[:, positions]


def _read_units(table, i):
    """Read a target of text as numbers if all its cells are numbers with a unit; this is logged."""
    form, odd = table.form_of(i) if i in table.text else (None, None)
    if form is not None and form.kind == "number" and odd is None:
        table.read_as(i, form)
        log.warning("the target %r is read as numbers (%s)", table.names[i], form)


def present(values):
    """Return which rows (N,) have a target, or at least one of several."""
    if values.dtype.kind in "US":
        return np.array([not is_missing(cell) for cell in values.tolist()])
    if values.dtype.kind != "f":
        return np.ones(len(values), bool)
    return ~np.isnan(values.reshape(len(values), -1)).all(axis=1)


def as_list(position):
    """Return a position or a name, several of them, or None as a list."""
    if position is None:
        return []
    return position if isinstance(position, list) else [position]


def interpret_targets(values, names, likelihood, interpret):
    """Check several targets (N, P); return ``(y, likelihood, reason, None)``.

    interpret : ``interpret_target``, for the numbers that a column has
    """
    reason = "as asked" if likelihood else "several targets"
    likelihood = likelihood or "gaussian"
    for name, column in zip(names, values.T, strict=True):
        there = column[~np.isnan(column)]
        if not len(there):
            raise UsageError(f"the target {name!r} is missing in every row; leave it out")
        *_, classes = interpret(there, name, likelihood)
        if classes is not None:
            raise UsageError(
                f"--likelihood {likelihood} is for classes, and several targets must be numbers;"
                " choose another likelihood, or one --target"
            )
    return values.astype(np.float64), likelihood, reason, None


def weights_of(y):
    """Return weights (N, P), 0 for missing targets; None if none is missing."""
    missing = np.isnan(y) if y.dtype.kind == "f" else np.zeros(1, bool)
    return (~missing).astype(np.float64) if missing.any() else None


def fill_missing(y):
    """Return targets with the mean of its column for each one that is missing."""
    if weights_of(y) is None:
        return y
    return np.where(np.isnan(y), np.nanmean(y, axis=0), y)


def check_split(task):
    """Refuse a target without two different values among the training rows."""
    columns = task.y[~task.test].reshape(int((~task.test).sum()), -1).T
    for name, column in zip(as_list(task.target_name), columns, strict=True):
        if len(np.unique(column[column == column])) < 2:  # NaN is not equal to itself
            raise UsageError(
                f"the target {name!r} is constant over the training rows; choose another split"
                " (--seed, --test-mask) or another --target"
            )


def select_target(scale, number):
    """Return the scaling of one of several targets."""
    mean, spread = (np.ravel(v) for v in (scale.y_mean, scale.y_scale))
    at = min(number, len(mean) - 1)  # targets that are not scaled have one number
    return replace(scale, y_mean=float(mean[at]), y_scale=float(spread[at]))


# --- a second column ---


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


def second_requested(args):
    """Return ``(option, column)`` of the arguments; None without one."""
    given = [(name, getattr(args, name)) for name in COLUMNS if getattr(args, name) is not None]
    if len(given) > 1:
        options = join(f"--{name}" for name, _ in given)
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


def position_of_second(table, second, target, ignored):
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


def read_second(table, option, position, y):
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


def scale_targets(scale, y, second, likelihood):
    """Convert targets to the units of the model, (N, 2) with a second column.

    The variance of known noise is in squared units of y; trials, exposures and sides have no units.
    """
    scaled = scale.y(y)
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
