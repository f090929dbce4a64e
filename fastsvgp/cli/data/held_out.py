"""Held-out rows of a task: random ones, whole groups, the future, or those of a mask."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import DataFileError
from ...recipes import Split
from ...recipes.model_search.rows import mark
from ...recipes.splits import signs
from ..errors import UsageError
from . import columns as encodings, dates, reading, targets
from .cells import number_of
from .tables import read_table

OF_ROWS, OF_GROUPS = 0.1, 0.2  # parts of the rows that are held out, and of groups


@dataclass(frozen=True)
class NewColumns:
    """Positions of the columns whose values, or whose future, will be new; or None."""

    group: Any
    time: Any

    @classmethod
    def find(cls, table, group, time, used):
        """Find the columns of --group and --time, which must not be ``used`` by the target."""
        found = []
        for option, name in (("--group", group), ("--time", time)):
            found.append(None if name is None else table.index_of(name, option))
            if found[-1] in used:
                raise UsageError(f"{option} {name}: this column is the target; give another one")
        return cls(*found)

    def split(self, table, columns, kinds):
        """Return the ``Split`` of all rows."""
        if self.group is not None:
            return Split(groups=table.target_column(self.group), name=table.names[self.group])
        if self.time is None:
            return Split()
        return Split(time=_times(table, self.time, columns, kinds), name=table.names[self.time])


def find_signs(table, columns, y, kinds):
    """Return notes on columns that look like groups or times, which may be new in use."""
    shown = [i for i in columns if kinds.forms.get(i) is None]
    codes = [
        np.unique(table.target_column(i), return_inverse=True)[1] if i in table.text else
        table.numbers[:, i] for i in shown
    ]  # fmt: skip
    notes = [
        f"column {table.names[i]!r} holds dates: if the model is for later ones, give --time"
        for i, form in kinds.forms.items()
        if form.kind == "date" and i in columns
    ][:1]
    if len(codes) > 1:
        for one in signs(np.column_stack(codes), y):
            option = "--group" if one.option == "groups" else "--time"
            new = "groups" if one.option == "groups" else "times"
            name = table.names[shown[one.column]]
            notes.append(f"column {name!r} {one.why}: if new {new} will come, give {option} {name}")
    return notes


def _times(table, column, columns, kinds):
    """Return the numbers (N,) of a column of times or dates, which is an input."""
    if column not in columns or column in kinds.text:
        raise UsageError(
            f"--time {table.names[column]}: this column must be an input of numbers or dates"
        )
    return reading.read_raw(table, [column], kinds.of(column), "error").numbers[:, 0]


def split(task, *, fraction=None, mask=None, seed=0):
    """Mark the held-out rows of ``task``.

    They are the rows of ``mask`` ("FILE:COLUMN"), or a ``fraction``: of whole groups, of the latest
    rows, or random. The encoding of raw inputs is learnt from the other rows.
    """
    num, grouped = len(task.y), task.new.groups is not None
    fraction = (OF_GROUPS if grouped else OF_ROWS) if fraction is None else fraction
    if mask is not None:
        task.test, task.split = _read_mask(mask, task.targeted), f"test mask {mask}"
    elif fraction and (grouped or task.new.time is not None):
        _hold_out_labels(task, fraction, seed)
    else:
        count = min(max(round(fraction * num), 1), num - 1) if fraction else 0
        order = np.random.default_rng([seed, num]).permutation(num)
        task.test = np.zeros(num, bool)
        task.test[order[:count]] = True
        task.split = (
            f"a random {100 * fraction:g} % held out, seed {seed}" if count else "nothing held out"
        )
    if num - task.test.sum() < 2:
        raise UsageError(
            f"only {num - task.test.sum()} rows are left for training; at least two are needed"
        )
    targets.check_split(task)
    if task.raw is not None:
        task.encoding = encodings.learn(task.raw, ~task.test, task.missing)
        task.X, task.input_names, task.raw = (
            task.encoding.matrix(task.raw),
            task.encoding.input_names,
            None,
        )
    return task


def _hold_out_labels(task, fraction, seed):
    """Hold out whole groups, or the latest rows; say for what the scores hold."""
    new, num = task.new, len(task.y)
    try:
        found = new.labels(np.empty((num, 1)))
    except ValueError as error:
        raise UsageError(f"column {new.name!r}: {error}") from None
    rng = np.random.default_rng([seed, num])
    task.test = mark(found.labels, found.later, max(round(fraction * num), 1), rng)
    if found.later:
        last, end = new.time[~task.test].max(), new.time.max()
        form = None if task.raw is None else task.raw.forms.get(task.raw.names.index(new.name))
        if form is not None and form.kind == "date":
            task.holds = f"for the {end - last:.0f} days after {dates.format_date(last)}"
        else:
            task.holds = f"for the next {end - last:.6g} of {new.name!r} after {last:.6g}"
        task.split = f"the last {100 * fraction:g} % by {new.name!r} held out"
        return
    task.holds = f"for {new.what}"
    held, everything = (len(np.unique(found.labels[rows])) for rows in (task.test, slice(None)))
    task.split = f"{held} of {everything} values of {new.name!r} held out, seed {seed}"


def _read_mask(argument, targeted):
    """Return the mask of the rows that have a target."""
    path, colon, column = argument.rpartition(":")
    path = path if colon else argument
    table = read_table(path, whole=True)
    if not (colon and column) and table.num_columns > 1:
        raise UsageError(
            f"--test-mask: {path} has {table.num_columns} columns; choose one, as in {path}:0"
        )
    column = column if colon and column else "0"
    values = table.target_column(table.index_of(column, "--test-mask"))
    if table.num_rows != len(targeted):
        raise DataFileError(
            f"--test-mask: {path} has {table.num_rows} rows, but the data have {len(targeted)}"
        )
    wrong = next(
        (value for value in values.tolist() if number_of(str(value)) not in (0, 1)),
        None,
    )
    if wrong is not None:
        raise DataFileError(
            f"--test-mask: column {column} of {path} must be 0 (train) or 1 (test), got {wrong}"
        )
    return values[targeted] == 1
