"""Several target columns: their positions, values and checks, and the cells that are missing."""

from dataclasses import replace

import numpy as np

from ..errors import UsageError, shown


def positions_of(table, target, option="--target"):
    """Return the positions of the columns that ``target`` names, separated by commas.

    A column whose whole name is ``target`` is one column, even if the name has commas.
    """
    if "," not in target or target in table.names:
        return [table.index_of(target, option)]
    found = [table.index_of(part.strip(), option) for part in target.split(",") if part.strip()]
    twice = sorted({table.names[i] for i in found if found.count(i) > 1})
    if twice:
        raise UsageError(f"{option}: {shown(twice)} is named twice; give each target once")
    if not found:
        raise UsageError(f"{option}: {target!r} names no column")
    return found


def values_of(table, positions):
    """Return the values of one target (N,), or of several (N, P), NaN where a number is missing."""
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


def listed(position):
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


def filled(y):
    """Return targets with the mean of its column for each one that is missing."""
    if weights_of(y) is None:
        return y
    return np.where(np.isnan(y), np.nanmean(y, axis=0), y)


def check_split(task):
    """Refuse a target without two different values among the training rows."""
    columns = task.y[~task.test].reshape(int((~task.test).sum()), -1).T
    for name, column in zip(listed(task.target_name), columns, strict=True):
        if len(np.unique(column[column == column])) < 2:  # NaN is not equal to itself
            raise UsageError(
                f"the target {name!r} is constant over the training rows; choose another split"
                " (--seed, --test-mask) or another --target"
            )


def of_one(scale, number):
    """Return the scaling of one of several targets."""
    mean, spread = (np.ravel(v) for v in (scale.y_mean, scale.y_scale))
    at = min(number, len(mean) - 1)  # targets that are not scaled have one number
    return replace(scale, y_mean=float(mean[at]), y_scale=float(spread[at]))
