"""``fastsvgp update``: new rows in a fitted model, without the old ones."""

import logging
import sys

import numpy as np

from .. import DataFileError
from ..recipes.new_data import take_in
from .data.targets import as_list, present, weights_of
from .errors import UsageError, join
from .fitted import Fitted
from .fitted_files import file_of
from .mpi import refuse_copies
from .predict import score

log = logging.getLogger("fastsvgp")


def run(args):
    """Condition the model on all rows of a file, and write it. Scores of before go to stderr."""
    refuse_copies("start one copy, without the launcher")
    path = file_of(args.model)
    fitted = Fitted.load(path)
    table = fitted.table(args.file, args.delimiter, args.header, args.skip)
    columns, position = fitted.find_columns(table)
    fitted.read_targets(table, position)
    values = _values(fitted, table, position)
    there = present(values)
    if not there.all():
        if not there.any():
            raise DataFileError(f"{table.path}: the target is missing in every row")
        log.warning("%s: %d rows without a target are left out", table.path, np.sum(~there))
        table, values = table.part(there), values[there]
    X = fitted.inputs(table, columns)
    y = fitted.model_targets(_numbers(fitted, table, values), _second(fitted, table))
    before = score(fitted, table, position, X, fitted.predict(X))
    given = {"weights": weights_of(y) if fitted.several else None, "jitter": fitted.jitter}
    Xs = fitted.standardise_inputs(X)
    try:
        fitted.model = take_in(fitted.model, Xs, y, fitted.scale, fitted.input_names, **given)
    except TypeError as error:
        raise UsageError(
            f"{path} cannot take new rows ({error}); fit old and new rows together"
        ) from None
    if before:
        print(f"before the update: {before}", file=sys.stderr)
    out = path if args.out is None else file_of(args.out)
    fitted.save(out)
    print(f"wrote the model with {len(X)} more rows to {out}", file=sys.stderr)
    return 0


def _values(fitted, table, position):
    """Return the targets (N,) or (N, P) of a table; refuse one without them."""
    if table.target is not None:
        return table.target
    positions = as_list(position)
    if not positions:
        names = join(map(repr, as_list(fitted.target_name)))
        raise UsageError(f"{table.path} lacks the target {names}, from which the model learns")
    if fitted.several or fitted.classes is None:
        text = next((i for i in positions if i in table.text), None)
        if text is not None:
            cell, place = table.first_text(text)
            raise DataFileError(
                f"{table.path}: the target {table.names[text]!r} must hold numbers, but {place} has"
                f" {cell!r}"
            )
    if fitted.several:
        return table.numbers[:, positions]
    i = positions[0]
    return np.array(table.text[i]) if i in table.text else table.numbers[:, i]


def _numbers(fitted, table, values):
    """Return the codes of classes, or the numbers."""
    if fitted.classes is None:
        return values.astype(np.float64)
    codes = fitted.codes(values)
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise DataFileError(
            f"{table.path}, {table.place(row)}: the class {values[row]!s:.40} is none of those of"
            f" the model ({join(fitted.classes)}); fit old and new rows together"
        )
    return codes


def _second(fitted, table):
    """Return the second column of the target, if the likelihood reads one."""
    second = fitted.find_second(table)
    if "second" in fitted.columns and second is None:
        name = fitted.columns["second"]["name"]
        raise UsageError(f"{table.path} lacks the column {name!r} of the target, as numbers")
    return second
