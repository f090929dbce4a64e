"""Predictions as csv: of ``fastsvgp predict``, and of the rows of a fit that have no target."""

import contextlib
import os

from ... import DataFileError
from ..errors import UsageError
from .outputs import UNTARGETED, write_file


def levels_of(fitted, requested):
    """Levels of the quantiles to write.

    By default none for a Gaussian likelihood, and the ends of the 95 % interval for the others.
    """
    if fitted.classes is None:
        return (
            requested
            if requested is not None
            else []
            if fitted.likelihood == "gaussian"
            else [0.025, 0.975]
        )
    if requested:
        raise UsageError(
            "--quantiles: this model predicts classes, by their probabilities; leave --quantiles"
            " out"
        )
    return []


def as_csv(fitted, prediction, levels=(), **labels):
    """Format predictions: mean, sd and one quantile per level; or class and probabilities.

    Of several targets the names of the columns have that of the target: mean(a), sd(a), mean(b).
    ``labels``: a column to write before them, by its name.
    """
    if prediction.probabilities is None:
        quantiles = [] if prediction.quantiles is None else prediction.quantiles
        columns = [prediction.mean, prediction.sd, *quantiles]
        names = ["mean", "sd", *(f"q{level:.9g}" for level in levels)]
        if fitted.several:  # all columns of a target side by side
            names = [f"{name}({one})" for one in fitted.target_name for name in names]
            columns = [column[:, p] for p in range(columns[0].shape[1]) for column in columns]
        row = ",".join(["%.9g"] * len(columns))
        rows = [row % values for values in zip(*columns, strict=True)]
    else:
        names = ["class"] + [f"p({name})" for name in fitted.classes]
        classes = [_cell(name) for name in fitted.classes]
        rows = [
            ",".join([classes[values.argmax()], *map("{:.6g}".format, values)])
            for values in prediction.probabilities
        ]
    for name, column in labels.items():
        names = [name, *names]
        rows = [f"{label},{row}" for label, row in zip(column, rows, strict=True)]
    return "\n".join([",".join(map(_cell, names)), *rows, ""])


def _cell(text):
    """Quote a csv cell if necessary."""
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def write_untargeted(say, folder, fitted, task):
    """Write predictions of the rows without a target; return the paths of the files, one or none.

    Each prediction has the line of the file, or the row of an array.
    """
    path, table = os.path.join(folder, UNTARGETED), task.untargeted
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of an earlier fit
    if table is None:
        return []
    try:
        X = fitted.inputs(table, task.columns["inputs"])
    except (UsageError, DataFileError) as error:
        say(f"  note       the rows without a target are not predicted: {error}")
        return []
    levels = levels_of(fitted, None)
    lines = {"row" if table.layout is None else "line": table.line_numbers()}
    text = as_csv(fitted, fitted.predict(X, levels), levels, **lines)
    write_file(path, text.encode())
    return [path]
