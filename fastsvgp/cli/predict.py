"""``fastsvgp predict``: predictions of a fitted model for a table, as csv."""

import io
import sys

import numpy as np

from ..files import write_atomically
from ..recipes.beyond_range import rows_outside
from .data.tables import read_table
from .errors import UsageError
from .fitted import Fitted
from .mpi import refuse_copies
from .report import metrics, numbers
from .report.outputs import writing


def run(args):
    """Predict every row of a file. If the file holds the target, report scores on stderr."""
    refuse_copies("start one copy, without the launcher")
    fitted = Fitted.load(args.model)
    levels = _levels(fitted, args.quantiles)
    table = read_table(
        args.file, args.delimiter, args.header, images=fitted.image_shape is not None
    )
    columns, target = fitted.find_columns(table)
    X = fitted.inputs(table, columns)
    fitted.read_targets(table, target)
    prediction = fitted.predict(X, levels)
    text = as_csv(fitted, prediction, levels)
    if args.out is None:
        sys.stdout.write(text)
    else:
        with writing(args.out):
            write_atomically(args.out, lambda file: file.write(text.encode()))
        print(f"wrote {table.num_rows} predictions to {args.out}", file=sys.stderr)
    outside = rows_outside(fitted.model, fitted.standardised_inputs(X), fitted.input_names)
    if outside is not None:
        print(f"{outside}: the model is unsure there (see fit --extrapolate)", file=sys.stderr)
    report = _score(fitted, table, target, X, prediction)
    if report:
        print(report, file=sys.stderr)
    return 0


def _levels(fitted, requested):
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


def as_csv(fitted, prediction, levels=()):
    """Format predictions: mean, sd and one quantile per level; or class and probabilities.

    Of several targets the names of the columns have that of the target: mean(a), sd(a), mean(b).
    """
    out = io.StringIO()
    if prediction.probabilities is None:
        quantiles = [] if prediction.quantiles is None else prediction.quantiles
        columns = [prediction.mean, prediction.sd, *quantiles]
        names = ["mean", "sd", *(f"q{level:.9g}" for level in levels)]
        if fitted.several:  # all columns of a target side by side
            names = [_cell(f"{name}({one})") for one in fitted.target_name for name in names]
            columns = [column[:, p] for p in range(columns[0].shape[1]) for column in columns]
        out.write(",".join(names) + "\n")
        np.savetxt(
            out,
            np.column_stack(columns),
            fmt="%.9g",
            delimiter=",",
        )
    else:
        names = [_cell(name) for name in fitted.classes]
        out.write(",".join(["class"] + [_cell(f"p({name})") for name in fitted.classes]) + "\n")
        for row, code in zip(
            prediction.probabilities, prediction.probabilities.argmax(axis=1), strict=True
        ):
            out.write(",".join([names[code]] + [f"{p:.6g}" for p in row]) + "\n")
    return out.getvalue()


def _cell(text):
    """Quote a csv cell if necessary."""
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def _score(fitted, table, target, X, prediction):
    """One line of metrics if the file holds a usable target, else None."""
    if fitted.several:
        return _score_of_several(fitted, table, target, X, prediction)
    values = table.target if table.target is not None else None
    if values is None and target is not None:
        values = np.array(table.text[target]) if target in table.text else table.numbers[:, target]
    if values is None:
        return None
    if fitted.classes is None:
        if values.dtype.kind in "US" or not np.isfinite(values.astype(np.float64)).all():
            return None
        y, second = values.astype(np.float64), fitted.find_second(table)
        if "second" in fitted.columns and (second is None or not np.isfinite(second).all()):
            return None
        density = fitted.log_density(X, y, second)
        rmse, nlpd = numbers.score(fitted, y, second, prediction.mean, density)
        return (
            f"target {fitted.target_name!r} is in the file: RMSE {rmse:.4g}, NLPD {nlpd:.4g}"
            " (original scale)"
        )
    codes = fitted.codes(values)
    if (codes < 0).any():
        return None
    accuracy = float(np.mean(prediction.probabilities.argmax(axis=1) == codes))
    return (
        f"target {fitted.target_name!r} is in the file: accuracy {accuracy:.4g}, "
        f"NLPD {-float(np.mean(fitted.log_density(X, codes))):.4g}"
    )


def _score_of_several(fitted, table, positions, X, prediction):
    """Metrics of each target over its rows that are not missing; None without the targets."""
    if positions is None or any(i in table.text for i in positions):
        return None
    y = table.numbers[:, positions]
    if np.isinf(y).any():
        return None
    nlpd, lines = -fitted.log_densities(X, y) + np.log(fitted.scale.y_scale), []
    for p, name in enumerate(fitted.target_name):
        there = ~np.isnan(y[:, p])
        if there.any():
            rmse = metrics.rms((y[:, p] - prediction.mean[:, p])[there])
            score = float(np.mean(nlpd[there, p]))
            lines.append(
                f"target {name!r} is in the file: RMSE {rmse:.4g}, NLPD {score:.4g}"
                " (original scale)"
            )
    return "\n".join(lines)
