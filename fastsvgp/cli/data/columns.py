"""Inputs made of the columns of a file: text becomes one-hot, a date three numbers, missing values are filled in.

What is learnt of the training rows (levels, medians, forms of dates, which columns had gaps) is an
``Encoding``, kept beside the model: it makes the same inputs of any later file.
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
    """Columns as a file has them: ``numbers`` (N, C), NaN where missing; under their positions the cells of text columns, and the
    ``Dates`` of those whose numbers are days.

    A cell that is missing is None.
    """

    names: list
    numbers: np.ndarray
    text: dict
    dates: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """How a column becomes inputs.

    Text has ``levels``: an input for each, 1 where a cell is that level, and one for all other
    text. A number has a ``median``, which stands where it is missing, or None where that is
    refused. ``date`` says how a cell is written whose number is its day; its month and weekday are
    inputs too. ``gaps``: one more input is 1 where the value is missing.
    """

    name: str
    levels: list | None
    median: float | None
    gaps: bool
    date: dates.Dates | None = None

    @property
    def input_names(self):
        own = (
            [self.name]
            if self.levels is None
            else [f"{self.name}={level}" for level in [*self.levels, OTHER]]
        )
        own += [f"{self.name}.month", f"{self.name}.weekday"] * (self.date is not None)
        return own + [f"{self.name}={GAP}"] * self.gaps

    @property
    def median_words(self):
        return f"{self.median:g}" if self.date is None else dates.shown(self.median)

    def inputs_of_numbers(self, values):
        missing = np.isnan(values)
        filled = values if self.median is None else np.where(missing, self.median, values)
        of_day = [] if self.date is None else [dates.months(filled), dates.weekdays(filled)]
        return np.column_stack([filled, *of_day, *[missing] * self.gaps]).astype(np.float64)

    def inputs_of_text(self, cells):
        """A missing cell without an input of its own is other text."""
        number = {level: k for k, level in enumerate(self.levels)}
        last = len(self.levels)
        at = [last + self.gaps if cell is None else number.get(cell, last) for cell in cells]
        return np.eye(last + 1 + self.gaps)[at]


@dataclass(frozen=True)
class Encoding:
    """Of all columns, in their order; ``missing`` is one of ``POLICIES``."""

    columns: list
    missing: str

    @property
    def names(self):
        """Of the columns in a file."""
        return [column.name for column in self.columns]

    @property
    def input_names(self):
        return [name for column in self.columns for name in column.input_names]

    @property
    def other(self):
        """The inputs that stand for other text, and in training often for none."""
        return [f"{column.name}={OTHER}" for column in self.columns if column.levels is not None]

    def matrix(self, raw):
        """Inputs (N, D) float64."""
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
        """Inputs (N, D) of a later file, whose columns stand at ``positions``; what is other than in training is noted."""
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
        """What is done, a line for each thing."""
        texts = [f"{c.name} ({len(c.levels)} levels)" for c in self.columns if c.levels is not None]
        gaps = [c.name for c in self.columns if c.gaps]
        if texts:
            yield f"text columns, one input for each level and one for other text: {shown(texts)}"
        for column in self.columns:
            if column.date is not None:
                yield (
                    f"column {column.name!r}: dates ({column.date}), read as day number, month,"
                    " weekday"
                )
        if gaps:
            yield (
                "missing values filled in (--missing median), and an input that says where:"
                f" {shown(gaps)}"
            )

    def to_json(self):
        return asdict(self)

    @classmethod
    def from_json(cls, values):
        """Of what a file says, which may be anything: what is wrong raises ValueError, KeyError or TypeError."""
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
            if column.date is not None:  # of which Python must be able to tell the month
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
    """The ``Dates`` that a file says."""
    found = None if values is None else dates.Dates(**values)
    if found is not None and (found.form not in dates.FORMS or type(found.assumed) is not bool):
        raise ValueError(f"dates {values!r:.60}")
    return found


def learn(raw, rows, missing):
    """The encoding of columns by their training rows, an array of bool (N,)."""
    columns = []
    for j, name in enumerate(raw.names):
        if j in raw.text:
            cells = [cell for cell, used in zip(raw.text[j], rows, strict=True) if used]
            counts = Counter(cell for cell in cells if cell is not None)
            _check_some(name, counts, len(cells))
            _note_many(name, counts)
            kept = sorted(counts, key=lambda level: (-counts[level], level))[:LEVELS]
            columns.append(Column(name, sorted(kept), None, None in cells))
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


# --- reading -----------------------------------------------------------------------------------------------------------


def read_raw(table, positions, text, known, missing, optional=True):
    """The columns at ``positions``; those in ``text`` as text, whatever they look like.

    ``known``: the ``Dates`` of the columns that are dates. ``optional``: as in ``Table.inputs``.
    """
    plain = [j for j, i in enumerate(positions) if i not in text and i not in known]
    numbers = np.full((table.num_rows, len(positions)), np.nan)
    numbers[:, plain] = table.inputs([positions[j] for j in plain], optional, missing)
    cells = {j: _present(table, i) for j, i in enumerate(positions) if i in text}
    for j, column in cells.items():
        _check_there(
            table, positions[j], column, missing, "--missing median makes a level of them", optional
        )
    of_dates = {j: known[i] for j, i in enumerate(positions) if i in known}
    for j, form in of_dates.items():
        numbers[:, j] = _days(table, positions[j], form, missing, optional)
    return Raw([table.names[i] for i in positions], numbers, cells, of_dates)


def _present(table, i):
    """The cells of a column, those that are missing as None."""
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
    """A column of dates as days; a few cells that are none count as missing, where values may be."""
    cells, name = _present(table, i), table.names[i]
    _check_there(table, i, cells, missing, "fill them in with --missing median", optional)
    days = dates.numbers(cells, form)
    there = np.array([cell is not None for cell in cells])
    odd = there & np.isnan(days)
    if not odd.any():
        return days
    row, count = int(odd.argmax()), int(odd.sum())
    where = f"{table.path}, {table.place(row)}, column {name!r}: {cells[row]!r} is no date ({form})"
    more = f" (the first of {count} such cells)" if count > 1 else ""
    if missing == "error" or count > (1 - dates.SHARE) * there.sum():
        todo = (
            ", leave them empty and give --missing median, or leave out the column: --ignore"
            f" {name}"
            if optional
            else ""
        )
        raise DataFileError(f"{where}{more}; correct such cells{todo}")
    log.warning("%s%s; it counts as missing", where, more)
    return days


def text_columns(table, positions):
    """Which of some columns are text: not those that would be numbers but for a few cells, which are refused."""
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
                f" ({place}) is not; correct such cells, leave them empty where the value is"
                f" missing (see --missing), or leave out the column: --ignore {name}"
            )
    return text


def date_columns(table, text):
    """``{position: Dates}`` of the text columns that are dates; where days and months change places it is text, and said."""
    known = {}
    for i in sorted(text):
        found, odd = dates.find(table.text[i])
        if found is not None:
            known[i] = found
        elif odd is not None:
            log.warning(
                "%s, column %r: %r and %r are no dates of one form, so it stays text; write all of"
                " them as YYYY-MM-DD",
                *(table.path, table.names[i], *odd),
            )
    return known


# --- notes -------------------------------------------------------------------------------------------------------------


def _note_many(name, counts):
    if len(counts) > LEVELS:
        log.warning(
            "text column %r has %d levels in the training rows: the %d most frequent are inputs,"
            " the others one input %s; --ignore %s leaves it out",
            *(name, len(counts), LEVELS, OTHER, name),
        )


def _note_filled(table, column, missing):
    count = int(missing.sum())
    if count and not column.gaps:
        log.warning(
            "%s, column %r: %d missing value%s (the first in %s), as no training row had: filled in"
            " with the training median, %s",
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
            "%s, column %r: %d of %d rows hold none of the levels that are inputs (%s, %s); they"
            " count as %s",
            *(table.path, column.name, len(rows), len(cells), cell, table.place(rows[0]), OTHER),
        )
