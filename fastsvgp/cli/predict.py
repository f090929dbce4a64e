"""``fastsvgp predict``: predictions of a fitted model for a table, as csv."""

import logging
import sys

import numpy as np

from .. import DataFileError
from ..recipes.beyond_range import rows_outside
from .fitted import Fitted
from .mpi import refuse_copies
from .report import metrics
from .report.outputs import write_file
from .report.predictions import as_csv, levels_of

log = logging.getLogger("fastsvgp")


def run(args):
    """Predict every row of a file. If the file holds the target, report scores on stderr."""
    refuse_copies("start one copy, without the launcher")
    fitted = Fitted.load(args.model)
    levels = levels_of(fitted, args.quantiles)
    table = fitted.table(args.file, args.delimiter, args.header, args.skip)
    columns, target = fitted.find_columns(table)
    X = fitted.inputs(table, columns)
    fitted.read_targets(table, target)
    prediction = fitted.predict(X, levels)
    _check_rows(table, prediction)
    text = as_csv(fitted, prediction, levels)
    if args.out is None:
        sys.stdout.write(text)
    else:
        write_file(args.out, text.encode())
        print(f"wrote {table.num_rows} predictions to {args.out}", file=sys.stderr)
    outside = rows_outside(fitted.model, fitted.standardise_inputs(X), fitted.input_names)
    if outside is not None:
        print(f"{outside}: the model is unsure there (see fit --extrapolate)", file=sys.stderr)
    report = score(fitted, table, target, X, prediction)
    if report:
        print(report, file=sys.stderr)
    return 0


def _check_rows(table, prediction):
    """Check that each line of the file below its header has a prediction."""
    lines, blank = table.count_lines()
    if blank and table.num_columns == 1:
        raise DataFileError(
            f"{table.path}: {blank} of the lines of one column are blank; write NA for a missing"
            " value, or remove them"
        )
    if blank:
        log.warning("%s: %d blank lines between rows have no prediction", table.path, blank)
    found = prediction.mean if prediction.probabilities is None else prediction.probabilities
    if len(found) != lines:
        raise DataFileError(
            f"{table.path}: {len(found)} predictions for {lines} lines below the header, so they"
            " do not belong together; give a file with one row per line"
        )


def score(fitted, table, target, X, prediction):
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
        rmse, nlpd = metrics.score(fitted, y, second, prediction.mean, density)
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
            loss = float(np.mean(nlpd[there, p]))
            lines.append(
                f"target {name!r} is in the file: RMSE {rmse:.4g}, NLPD {loss:.4g} (original scale)"
            )
    return "\n".join(lines)
