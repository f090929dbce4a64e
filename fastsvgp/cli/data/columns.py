"""Encode columns as inputs: text becomes one-hot, dates three numbers; missing values are filled.

The facts learnt from the training rows (levels, medians, formats of dates, columns with missing
values) are an ``Encoding``. It is saved with the model, and encodes later files in the same way.
"""

import logging
from collections import Counter
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from ... import DataFileError
from ...recipes.scaling import LARGEST
from ..errors import UsageError, shown
from ..settings.names import LEVELS, POLICIES
from . import dates
from .cells import commas, is_missing, is_number

log = logging.getLogger("fastsvgp")
OTHER, GAP = "(other)", "(missing)"


@dataclass
class Raw:
    """Columns before encoding.

    ``numbers`` (N, C) is NaN where a value is missing. ``text`` maps positions to the cells of text
    columns, None where missing. ``dates`` maps positions to the ``Dates`` of columns of days.
    """

    names: list
    numbers: np.ndarray
    text: dict
    dates: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """The encoding of one column.

    A text column has ``levels``: one input per level, 1 in cells of that level, and one input for
    all other text. A column of numbers has a ``median``, which replaces missing values; None
    refuses them. ``date`` is the format of a date column, whose inputs are day number, month and
    weekday. ``gaps``: a further input is 1 where the value is missing.
    """

    name: str
    levels: list | None
    median: float | None
    gaps: bool
    date: dates.Dates | None = None

    @property
    def input_names(self):
        names = (
            [self.name]
            if self.levels is None
            else [f"{self.name}={level}" for level in [*self.levels, OTHER]]
        )
        names += [f"{self.name}.month", f"{self.name}.weekday"] * (self.date is not None)
        return names + [f"{self.name}={GAP}"] * self.gaps

    @property
    def median_words(self):
        return f"{self.median:g}" if self.date is None else dates.shown(self.median)

    def inputs_of_numbers(self, values):
        missing = np.isnan(values)
        filled = values if self.median is None else np.where(missing, self.median, values)
        of_day = [] if self.date is None else [dates.months(filled), dates.weekdays(filled)]
        return np.column_stack([filled, *of_day, *[missing] * self.gaps]).astype(np.float64)

    def inputs_of_text(self, cells):
        """Encode cells of text; without ``gaps``, a missing cell is other text."""
        number = {level: k for k, level in enumerate(self.levels)}
        last = len(self.levels)
        at = [last + self.gaps if cell is None else number.get(cell, last) for cell in cells]
        return np.eye(last + 1 + self.gaps)[at]


@dataclass(frozen=True)
class Encoding:
    """The encoding of all columns, in order; ``missing`` is one of ``POLICIES``."""

    columns: list
    missing: str

    @property
    def names(self):
        """Names of the columns in a file."""
        return [column.name for column in self.columns]

    @property
    def input_names(self):
        return [name for column in self.columns for name in column.input_names]

    @property
    def other(self):
        """Names of the inputs for other text, which are often 0 in all training rows."""
        return [f"{column.name}={OTHER}" for column in self.columns if column.levels is not None]

    def matrix(self, raw):
        """Return inputs (N, D) float64."""
        parts = [
            (
                column.inputs_of_numbers(raw.numbers[:, j])
                if column.levels is None
                else column.inputs_of_text(raw.text[j])
            )
            for j, column in enumerate(self.columns)
        ]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def read(self, table, positions):
        """Return inputs (N, D) of a later file with columns at ``positions``.

        Differences from the training file are logged.
        """
        text = {
            i
            for i, column in zip(positions, self.columns, strict=True)
            if column.levels is not None
        }
        known = {
            i: column.date
            for i, column in zip(positions, self.columns, strict=True)
            if column.date is not None
        }
        raw = read_raw(table, positions, text, known, self.missing, optional=False)
        for j, column in enumerate(self.columns):
            if column.levels is None:
                _note_filled(table, column, np.isnan(raw.numbers[:, j]))
            else:
                _note_unseen(table, column, raw.text[j])
        return self.matrix(raw)

    def describe(self):
        """Yield one line per kind of encoding."""
        texts = [f"{c.name} ({len(c.levels)} levels)" for c in self.columns if c.levels is not None]
        gaps = [c.name for c in self.columns if c.gaps]
        if texts:
            yield f"text columns, one input per level and one for other text: {shown(texts)}"
        for column in self.columns:
            if column.date is not None:
                yield (
                    f"column {column.name!r}: dates ({column.date}), read as day number, month,"
                    " weekday"
                )
        if gaps:
            yield (
                "missing values filled in (--missing median), with an input that marks them:"
                f" {shown(gaps)}"
            )

    def to_json(self):
        return asdict(self)

    @classmethod
    def from_json(cls, values):
        """Build an encoding from untrusted JSON; errors are ValueError, KeyError or TypeError."""
        if set(values) != {"columns", "missing"} or values["missing"] not in POLICIES:
            raise ValueError(f"encoding {values!r:.60}")
        columns = [Column(**column) for column in values["columns"]]
        columns = [replace(column, date=_dates(column.date)) for column in columns]
        for column in columns:
            texts = isinstance(column.levels, list) and all(
                isinstance(level, str) for level in [column.name, *column.levels]
            )
            number = type(column.median) in (int, float) and abs(column.median) < LARGEST
            fills = number if values["missing"] == "median" else column.median is None
            if column.date is not None:  # Python must be able to represent the date
                fills = fills and (
                    column.median is None or dates.FIRST <= column.median <= dates.LAST
                )
                texts = False
            right = (
                texts and column.median is None
                if column.levels is not None
                else isinstance(column.name, str) and fills
            )
            if not right or type(column.gaps) is not bool:
                raise ValueError(f"encoding of {column.name!r:.60}")
        return cls(columns, values["missing"])


def _dates(values):
    """Build ``Dates`` from untrusted JSON."""
    found = None if values is None else dates.Dates(**values)
    if found is not None and (found.form not in dates.FORMS or type(found.assumed) is not bool):
        raise ValueError(f"dates {values!r:.60}")
    return found


def learn(raw, rows, missing):
    """Learn the encoding of columns from the training ``rows``, an array of bool (N,)."""
    columns = []
    for j, name in enumerate(raw.names):
        if j in raw.text:
            cells = [cell for cell, used in zip(raw.text[j], rows, strict=True) if used]
            counts = Counter(cell for cell in cells if cell is not None)
            _check_some(name, counts, len(cells))
            _note_many(name, counts)
            frequent = sorted(counts, key=lambda level: (-counts[level], level))[:LEVELS]
            columns.append(Column(name, sorted(frequent), None, None in cells))
        else:
            values = raw.numbers[rows, j]
            present = values[~np.isnan(values)]
            _check_some(name, present, len(values))
            median = float(np.median(present)) if missing == "median" else None
            columns.append(Column(name, None, median, len(present) < len(values), raw.dates.get(j)))
    return Encoding(columns, missing)


def _check_some(name, present, num_rows):
    if not len(present):
        raise UsageError(
            f"--missing median: column {name!r} is missing in all {num_rows} training rows; leave"
            f" it out with --ignore {name}"
        )


# --- reading --------------------------------------------------------------------------------------


def read_raw(table, positions, text, known, missing, optional=True):
    """Read the columns at ``positions``; those in ``text`` are read as text in any case.

    ``known``: the ``Dates`` of date columns. ``optional``: as in ``Table.inputs``.
    """
    plain = [j for j, i in enumerate(positions) if i not in text and i not in known]
    numbers = np.full((table.num_rows, len(positions)), np.nan)
    numbers[:, plain] = table.inputs([positions[j] for j in plain], optional, missing)
    cells = {j: _present(table, i) for j, i in enumerate(positions) if i in text}
    for j, column in cells.items():
        _check_there(
            table,
            positions[j],
            column,
            missing,
            "give --missing median to make them a level",
            optional,
        )
    of_dates = {j: known[i] for j, i in enumerate(positions) if i in known}
    for j, form in of_dates.items():
        numbers[:, j] = _days(table, positions[j], form, missing, optional)
    return Raw([table.names[i] for i in positions], numbers, cells, of_dates)


def _present(table, i):
    """Return the cells of a column, None where missing."""
    return [None if is_missing(cell) else cell for cell in table.cells(i)]


def _check_there(table, i, cells, missing, todo, optional):
    if missing == "error" and None in cells:
        name, row = table.names[i], cells.index(None)
        raise DataFileError(
            f"{table.path}, {table.place(row)}, column {name!r}: the value is missing; fill in"
            " these cells or remove their rows, or"
            f" {todo if optional else 'fit again with --missing median'}"
        )


def _days(table, i, form, missing, optional):
    """Return a column of dates as days.

    If values can be missing, a few cells that are not dates count as missing.
    """
    cells, name = _present(table, i), table.names[i]
    _check_there(table, i, cells, missing, "fill them in with --missing median", optional)
    days = dates.numbers(cells, form)
    there = np.array([cell is not None for cell in cells])
    odd = there & np.isnan(days)
    if not odd.any():
        return days
    row, count = int(odd.argmax()), int(odd.sum())
    where = (
        f"{table.path}, {table.place(row)}, column {name!r}: {cells[row]!r} is not a date ({form})"
    )
    more = f" (the first of {count} such cells)" if count > 1 else ""
    if missing == "error" or count > (1 - dates.SHARE) * there.sum():
        todo = (
            f", empty them and give --missing median, or leave out the column with --ignore {name}"
            if optional
            else ""
        )
        raise DataFileError(f"{where}{more}; correct such cells{todo}")
    log.warning("%s%s; it counts as missing", where, more)
    return days


def text_columns(table, positions):
    """Return which columns are text; refuse columns of numbers with a few cells of text."""
    text = {i for i in positions if i in table.text}
    for i in sorted(text):
        name, cells = table.names[i], table.text[i]
        first, place = table.first_text(i)
        if commas(cells):
            raise UsageError(
                f"{table.path}: text is in column {name!r} ({first!r}, {place}); {commas(cells)}"
            )
        present = [cell for cell in cells if not is_missing(cell)]
        values = {float(cell) for cell in present if is_number(cell)}
        count = sum(map(is_number, present))
        codes = len(values) <= LEVELS and all(value == np.round(value) for value in values)
        if 2 * count > len(present) and not codes:
            raise UsageError(
                f"{table.path}: {count} cells of column {name!r} are numbers, but {first!r}"
                f" ({place}) is not; correct such cells, give --na {first} if they mark missing"
                f" values (see --missing), or leave out the column with --ignore {name}"
            )
    return text


def date_columns(table, text):
    """Return ``{position: Dates}`` of the text columns that are dates.

    A column in which days and months change places remains text; this is logged.
    """
    known = {}
    for i in sorted(text):
        found, odd = dates.find(table.text[i])
        if found is not None:
            known[i] = found
        elif odd is not None:
            log.warning(
                "%s, column %r: %r and %r are dates of different formats, so the column remains"
                " text; write all dates as YYYY-MM-DD",
                *(table.path, table.names[i], *odd),
            )
    return known


# --- notes ----------------------------------------------------------------------------------------


def _note_many(name, counts):
    if len(counts) > LEVELS:
        log.warning(
            "text column %r has %d levels in the training rows: the %d most frequent have an input"
            " each, the others share the input %s; --ignore %s leaves it out",
            *(name, len(counts), LEVELS, OTHER, name),
        )


def _note_filled(table, column, missing):
    count = int(missing.sum())
    if count and not column.gaps:
        log.warning(
            "%s, column %r: %d missing value%s (the first in %s), but none in the training rows:"
            " filled in with the training median, %s",
            *(
                table.path,
                column.name,
                count,
                "s"[: count != 1],
                table.place(int(missing.argmax())),
                column.median_words,
            ),
        )


def _note_unseen(table, column, cells):
    known = {*column.levels, None} if column.gaps else set(column.levels)
    rows = [row for row, cell in enumerate(cells) if cell not in known]
    if rows:
        cell = GAP if cells[rows[0]] is None else repr(cells[rows[0]])
        log.warning(
            "%s, column %r: %d of %d rows hold a level without an input (first %s, %s); they count"
            " as %s",
            *(table.path, column.name, len(rows), len(cells), cell, table.place(rows[0]), OTHER),
        )
