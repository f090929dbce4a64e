"""How the model depends on its inputs: shares of the variance, and mean effects."""

from typing import NamedTuple

import numpy as np

import fastsvgp as fs

from ..data.columns import GAP, OTHER
from . import plots

MOST = 200  # inputs that have shares
DRAWN, WORTH = 6, 0.005  # inputs that have pictures, and the least share of one but the first
CLASSES = 5  # in a picture
POINTS, ROWS, DRAWS = 25, 100, 50  # of the bands
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


def _labels(fitted, found):
    """Return labels of curves, that of their axis, and which functions are drawn."""
    if fitted.several:
        keep = np.arange(len(fitted.target_name))[: 2 * CLASSES]
        return [fitted.target_name[p] for p in keep], "targets (standardised, 95 % band)", keep
    if fitted.classes is None:
        return [None], f"{fitted.target_name} (95 % band)", np.arange(1)
    if found[0].mean.ndim == 1:
        grades = fitted.kind == "ordered"
        what = "number of the grade" if grades else f"probability of {fitted.classes[1]!r}"
        return [None], f"{what} (95 % band)", np.arange(1)
    moves = sum(np.ptp(effect.mean, axis=0) for effect in found)
    keep = np.sort(np.argsort(-moves, kind="stable")[:CLASSES])
    return [fitted.classes[c] for c in keep], "probability of each class (95 % band)", keep


def _by_targets(fitted):
    """Whether E[y | f] is described: not the function itself, or one of several per target."""
    return fitted.kind != "regression" or fitted.model.likelihood.latents_per_output > 1
