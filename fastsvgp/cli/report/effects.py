"""How the model depends on its inputs: shares of the variance, and mean effects."""

import itertools
from typing import NamedTuple

import numpy as np

import fastsvgp as fs

from ..data.columns import GAP, OTHER
from . import plots

MOST = 200  # inputs that have shares
DRAWN, WORTH = 6, 0.005  # inputs that have pictures, and the least share of one but the first
CLASSES = 5  # in a picture
POINTS, ROWS, DRAWS = 25, 100, 50  # of the bands
PAIRED, SIDE, TOGETHER = 4, 7, 0.05  # inputs in pairs, quantiles of each, the least share
JOINT = 512  # points of a draw; of a model with near rows, whose joint draws take longer, 256


class Input(NamedTuple):
    """An input as the file has it: a column of numbers, or all levels of a column of text."""

    name: str
    columns: tuple
    levels: list | None = None


def inputs_of(fitted, task):
    """Return the inputs that vary over the training rows; none of images, nor of too many."""
    found = [Input(name, (d,)) for d, name in enumerate(fitted.input_names)]
    if fitted.encoding is not None:
        found, start = [], 0
        for column in fitted.encoding.columns:
            names = column.input_names
            places = range(start, start := start + len(names))
            if column.levels is None:
                found += [Input(name, (d,)) for d, name in zip(places, names, strict=True)]
            else:
                levels = [*column.levels, OTHER, GAP]
                found.append(Input(column.name, tuple(places), levels))
    X = task.X[~task.test]
    found = [one for one in found if np.ptp(X[:, one.columns], axis=0).any()]
    return found if len(found) <= MOST and fitted.image_shape is None else []


def shares_of(fitted, task, inputs):
    """Return name, share and its band of each input, the largest first; over all outputs."""
    if not inputs:
        return []
    found = fs.sobol(
        fitted.model,
        fitted.standardise_inputs(task.X[~task.test]),
        [one.columns for one in inputs],
        num_draws=DRAWS,
        num_points=JOINT // (2 if isinstance(fitted.model, fs.VIF) else 1),
        targets=_by_targets(fitted),
        jitter=fitted.jitter,
    )
    parts = np.stack([part.reshape(len(inputs), -1).mean(axis=1) for part in found], axis=1)
    order = np.argsort(-parts[:, 0], kind="stable")
    keys = "share", "low", "high"
    return [
        {"input": inputs[c].name, **dict(zip(keys, parts[c].tolist(), strict=True))} for c in order
    ]


def strongest(shares, inputs):
    """Return the inputs that have pictures; a single one is in fit.png."""
    by_name = {one.name: one for one in inputs}
    worth = [row["input"] for k, row in enumerate(shares) if not k or row["share"] > WORTH]
    return [by_name[name] for name in worth[:DRAWN]] if len(inputs) > 1 else []


def figure(fitted, task, inputs, title):
    """Draw the mean effects of inputs, in the units of the data."""
    X = task.X[~task.test]
    Xs, targets = fitted.standardise_inputs(X), _by_targets(fitted)
    found = fs.effects(
        fitted.model,
        Xs,
        [one.columns for one in inputs],
        num_points=POINTS,
        num_rows=ROWS,
        targets=targets,
        jitter=fitted.jitter,
    )
    labels, what, keep = _labels(fitted, found)
    shown, rows, named = [], [], []
    for effect, one in zip(found, inputs, strict=True):
        at = np.repeat(Xs[:1].astype(np.float64), len(effect.grid), axis=0)
        at[:, one.columns] = effect.grid.reshape(len(at), -1)
        grid = fitted.scale.X_back(at)[:, one.columns]
        if one.levels is not None:
            named.append(one._replace(levels=[one.levels[k] for k in grid.argmax(axis=1)]))
        else:
            named.append(one)
        parts = (part.reshape(len(at), -1)[:, keep] for part in effect[2:])
        if not (fitted.several or fitted.classes):
            parts = (fitted.scale.y_mean + fitted.scale.y_scale * part for part in parts)
        shown.append(fs.sensitivity.Effect(one.columns, grid[:, 0], *parts))
        rows.append(X[:, one.columns[0]])
    return plots.effects(shown, rows, named, labels, what, title)


class Interaction(NamedTuple):
    """Two inputs that act together: the share of the variance, and curves along the first.

    ``curves`` (L, G) are means of the predictions at ``levels`` (L,) of the second one.
    """

    share: float
    inputs: tuple
    grid: np.ndarray
    levels: np.ndarray
    curves: np.ndarray


def interaction(fitted, task, inputs):
    """Return the ``Interaction`` of the two numeric inputs that interact most, or None.

    With e(a, b) the mean of the predictions over rows of the other inputs, on quantiles of both,
    their interaction is what a sum leaves of it (Friedman and Popescu 2008):
    e(a, b) - e(a) - e(b) + e, whose mean square is the share of the variance.
    """
    numbers = [one for one in inputs if one.levels is None]
    if fitted.several or len(fitted.classes or "") > 2 and fitted.kind != "ordered":
        return None
    X = task.X[~task.test]
    some = X[np.linspace(0, len(X) - 1, min(ROWS, len(X))).astype(int)]
    total, best, pair = np.var(_values(fitted, some)), 0.0, None
    for two in itertools.combinations(_most_active(fitted, some, numbers), 2):
        table = _mean_over(fitted, some[::2], two, [_quantiles(X, one, SIDE) for one in two])
        left = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
        if np.mean(left**2) > best:
            best, pair = float(np.mean(left**2)), two
    if pair is None or best < TOGETHER * total:
        return None
    first, second = pair
    grid = np.linspace(*np.quantile(X[:, first.columns[0]], [0.01, 0.99]), POINTS)
    levels = np.unique(np.quantile(X[:, second.columns[0]], [0.1, 0.5, 0.9]))
    curves = _mean_over(fitted, some[::2], pair, [grid, levels]).T
    return Interaction(best / total, pair, grid, levels, curves)


def _most_active(fitted, rows, inputs):
    """Return the inputs that change predictions most if they take the values of other rows."""
    own, moves = _values(fitted, rows), []
    for one in inputs:
        at = rows.copy()
        at[:, one.columns] = np.roll(rows[:, one.columns], len(rows) // 2, axis=0)
        moves.append(np.mean(np.square(_values(fitted, at) - own)))
    return [inputs[k] for k in np.argsort(moves)[::-1][:PAIRED]]


def _quantiles(X, one, count):
    return np.quantile(X[:, one.columns[0]], (np.arange(count) + 0.5) / count)


def _mean_over(fitted, rows, two, grids):
    """Return the means (A, B) of predictions over rows, with two inputs on grids (A,) and (B,)."""
    at = np.broadcast_to(rows, (len(grids[0]), len(grids[1]), *rows.shape)).copy()
    for axis, (one, grid) in enumerate(zip(two, grids, strict=True)):
        at[..., one.columns[0]] = grid.reshape(-1, 1, 1) if axis == 0 else grid[:, None]
    return _values(fitted, at.reshape(-1, rows.shape[1])).reshape(at.shape[:3]).mean(axis=2)


def _values(fitted, X):
    """Return predictions (N,) as a picture of effects has them."""
    found = fitted.predict(X)
    if fitted.classes is None:
        return found.mean
    grades = np.arange(len(fitted.classes))
    return found.probabilities @ grades  # of two classes, the probability of the second


def _labels(fitted, found):
    """Return labels of curves, that of their axis, and which functions are drawn."""
    if fitted.several:
        keep = np.arange(len(fitted.target_name))[: 2 * CLASSES]
        return [fitted.target_name[p] for p in keep], "targets (standardised, 95 % band)", keep
    if fitted.classes is None or found[0].mean.ndim == 1:
        return [None], f"{axis_of(fitted)} (95 % band)", np.arange(1)
    moves = sum(np.ptp(effect.mean, axis=0) for effect in found)
    keep = np.sort(np.argsort(-moves, kind="stable")[:CLASSES])
    return [fitted.classes[c] for c in keep], "probability of each class (95 % band)", keep


def axis_of(fitted):
    """Return what the predictions of one function are."""
    if fitted.classes is None:
        return fitted.target_name
    grades = fitted.kind == "ordered"
    return "number of the grade" if grades else f"probability of {fitted.classes[1]!r}"


def _by_targets(fitted):
    """Whether E[y | f] is described: not the function itself, or one of several per target."""
    return fitted.kind != "regression" or fitted.model.likelihood.latents_per_output > 1
