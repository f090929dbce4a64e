"""``fastsvgp predict``: a fitted model and a table in, a csv of predictions out."""

import io
import sys

import numpy as np

from ..records import write_atomically
from . import metrics
from .fitted import Fitted
from .outputs import writing
from .tables import read_table


def run(args):
    """Predict every row of a file; where the target is there too, report how well on stderr."""
    fitted = Fitted.load(args.model)
    table = read_table(args.file, args.delimiter, args.header)
    columns, target = fitted.find_columns(table)
    X = table.inputs(columns, optional=False)
    prediction = fitted.predict(X)
    text = as_csv(fitted, prediction)
    if args.out is None:
        sys.stdout.write(text)
    else:
        with writing(args.out):
            write_atomically(args.out, lambda file: file.write(text.encode()))
        print(f"wrote {table.num_rows} predictions to {args.out}", file=sys.stderr)
    report = _score(fitted, table, target, X, prediction)
    if report:
        print(report, file=sys.stderr)
    return 0


def as_csv(fitted, prediction):
    """Predictions as text: ``mean,sd``, or ``class`` and one probability per class."""
    out = io.StringIO()
    if prediction.probabilities is None:
        out.write("mean,sd\n")
        np.savetxt(out, np.column_stack([prediction.mean, prediction.sd]), fmt="%.9g", delimiter=",")
    else:
        names = [_cell(name) for name in fitted.classes]
        out.write(",".join(["class"] + [_cell(f"p({name})") for name in fitted.classes]) + "\n")
        for row, code in zip(prediction.probabilities, prediction.probabilities.argmax(axis=1), strict=True):
            out.write(",".join([names[code]] + [f"{p:.6g}" for p in row]) + "\n")
    return out.getvalue()


def _cell(text):
    """A csv cell, quoted where it must be."""
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def _score(fitted, table, target, X, prediction):
    """One line of metrics where the file holds a usable target, else None."""
    values = table.target if table.target is not None else None
    if values is None and target is not None:
        values = np.array(table.text[target]) if target in table.text else table.numbers[:, target]
    if values is None:
        return None
    if fitted.classes is None:
        if values.dtype.kind in "US" or not np.isfinite(values.astype(np.float64)).all():
            return None
        y = values.astype(np.float64)
        nlpd = np.log(fitted.scale.y_scale) - float(np.mean(fitted.log_density(X, y)))
        rmse = metrics.rms(y - prediction.mean)
        return f"target {fitted.target_name!r} is in the file: RMSE {rmse:.4g}, NLPD {nlpd:.4g} (original scale)"
    codes = fitted.codes(values)
    if (codes < 0).any():
        return None
    accuracy = float(np.mean(prediction.probabilities.argmax(axis=1) == codes))
    return (
        f"target {fitted.target_name!r} is in the file: accuracy {accuracy:.4g}, "
        f"NLPD {-float(np.mean(fitted.log_density(X, codes))):.4g}"
    )
