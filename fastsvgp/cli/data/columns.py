"""Encode columns as inputs: text becomes one-hot, dates follow cycles; missing values are filled.

The facts learnt from the training rows (levels, medians, cycles, columns with missing values), and
the forms of columns, are an ``Encoding``. It is saved with the model, and encodes later files in
the same way.
"""

import logging
import shlex
from collections import Counter
from dataclasses import asdict, dataclass, field

import numpy as np

from ...recipes.scaling import LARGEST
from ..errors import UsageError, join
from ..settings.names import LEVELS, POLICIES
from . import dates
from .forms import NOUNS, Form
from .reading import Kinds, read_raw

log = logging.getLogger("fastsvgp")
OTHER, GAP = "(other)", "(missing)"
# names of the inputs of columns with a form
FIRST = {"date": "day number", "clock": "hours", "elapsed": "seconds", "angle": "degrees"}


@dataclass(frozen=True)
class Column:
    """The encoding of one column.

    A text column has ``levels``: one input per level, 1 in cells of that level, and one input for
    all other text. A column of numbers has a ``median``, which replaces missing values; None
    refuses them. ``gaps``: a further input is 1 where the value is missing.

    Numbers that are not written plainly have a ``form``. Dates have inputs for each of the
    ``cycles`` that they follow. The numbers of a column of clocks can be part of a date: the one in
    the column at position ``into``.
    """

    name: str
    levels: list | None
    median: float | None
    gaps: bool
    form: Form | None = None
    cycles: list = field(default_factory=list)
    into: int | None = None

    @property
    def input_names(self):
        if self.into is not None:
            return []
        names = (
            [self.name]
            if self.levels is None
            else [f"{self.name}={level}" for level in [*self.levels, OTHER]]
        )
        names += [f"{self.name}.{c}.{part}" for c in self.cycles for part in ("sin", "cos")]
        return names + [f"{self.name}={GAP}"] * self.gaps

    @property
    def kind(self):
        """The kind of a form, or None."""
        return None if self.form is None else self.form.kind

    @property
    def median_words(self):
        if self.kind == "date":
            return dates.format_date(self.median)
        return f"{24 * self.median:g} hours" if self.kind == "clock" else f"{self.median:g}"

    def inputs_of_numbers(self, values):
        """Encode numbers; clocks are in hours, and cycles points on circles."""
        if self.into is not None:
            return np.empty((len(values), 0))
        missing = np.isnan(values)
        filled = values if self.median is None else np.where(missing, self.median, values)
        of_cycles = [part for cycle in self.cycles for part in dates.parts(filled, cycle)]
        first = 24 * filled if self.kind == "clock" else filled
        return np.column_stack([first, *of_cycles, *[missing] * self.gaps]).astype(np.float64)

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
        pairs = list(zip(positions, self.columns, strict=True))
        kinds = Kinds(
            {i for i, column in pairs if column.levels is not None},
            {i: column.form for i, column in pairs if column.form is not None},
            {i: positions[column.into] for i, column in pairs if column.into is not None},
        )
        raw = read_raw(table, positions, kinds, self.missing, optional=False)
        for j, column in enumerate(self.columns):
            if column.levels is not None:
                _note_unseen(table, column, raw.text[j])
            elif column.into is None:
                _note_filled(table, column, np.isnan(raw.numbers[:, j]))
        return self.matrix(raw)

    def describe(self):
        """Yield one line per kind of encoding."""
        texts = [f"{c.name} ({len(c.levels)} levels)" for c in self.columns if c.levels is not None]
        gaps = [c.name for c in self.columns if c.gaps]
        if texts:
            yield f"text columns, one input per level and one for other text: {join(texts)}"
        for j, column in enumerate(self.columns):
            if column.form is not None and column.into is None:
                clock = next((other for other in self.columns if other.into == j), None)
                yield _describe(column, clock)
        if gaps:
            yield (
                "missing values filled in (--missing median), with an input that marks them:"
                f" {join(gaps)}"
            )

    def to_json(self):
        return asdict(self)

    @classmethod
    def from_json(cls, values):
        """Build an encoding from untrusted JSON; errors are ValueError, KeyError or TypeError."""
        if set(values) != {"columns", "missing"} or values["missing"] not in POLICIES:
            raise ValueError(f"encoding {values!r:.60}")
        columns = [_column(column) for column in values["columns"]]
        if not all(_is_possible(column, columns, values["missing"]) for column in columns):
            raise ValueError(f"encoding {values!r:.60}")
        return cls(columns, values["missing"])


def _describe(column, clock):
    """Describe a column with a form, and the column of clocks that it is joined with."""
    joined = "" if clock is None else f" with the time in column {clock.name!r} ({clock.form})"
    inputs = [FIRST[column.kind]] if column.kind in FIRST else []
    inputs += [f"place in the {cycle}" for cycle in column.cycles]
    read = f", read as {', '.join(inputs)}" if inputs else ""
    return f"column {column.name!r}: {NOUNS[column.kind]} ({column.form}){joined}{read}"


# --- files ----------------------------------------------------------------------------------------


def _column(values):
    """Build a ``Column`` from untrusted JSON."""
    form = None if values["form"] is None else Form(**values["form"])
    if form is not None and not form.is_possible:
        raise ValueError(f"form {form!r:.60}")
    return Column(**values | {"form": form})


def _is_possible(column, columns, missing):
    """Whether the fields of a column fit one another."""
    kind, into, median, levels = column.kind, column.into, column.median, column.levels
    texts = [column.name, *(levels or [])]
    right = all(isinstance(text, str) for text in texts) and type(column.gaps) is bool
    right = right and isinstance(column.cycles, list) and dates.DAYS.keys() >= {*column.cycles}
    right = right and (kind in ("date", "clock") or not column.cycles)
    if levels is not None:
        return right and isinstance(levels, list) and (kind, into, median) == (None, None, None)
    if into is not None:
        in_date = type(into) is int and 0 <= into < len(columns) and columns[into].kind == "date"
        return (
            right
            and in_date
            and (kind, median) == ("clock", None)
            and not (column.gaps or column.cycles)
        )
    return right and _is_median(median, kind, missing)


def _is_median(median, kind, missing):
    """Whether a median can be that of a column; Python must be able to represent a date."""
    if missing != "median":
        return median is None
    low, high = (dates.FIRST, dates.LAST) if kind == "date" else (-LARGEST, LARGEST)
    return type(median) in (int, float) and low <= median <= high


# --- learning -------------------------------------------------------------------------------------


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
        elif j in raw.joins:
            columns.append(Column(name, None, None, False, raw.forms[j], [], raw.joins[j]))
        else:
            values = raw.numbers[rows, j]
            present = values[~np.isnan(values)]
            _check_some(name, present, len(values))
            median = float(np.median(present)) if missing == "median" else None
            form = raw.forms.get(j)
            cycles = dates.find_cycles(present, form.name) if form is not None else []
            columns.append(Column(name, None, median, len(present) < len(values), form, cycles))
    return Encoding(columns, missing)


def _check_some(name, present, num_rows):
    if not len(present):
        raise UsageError(
            f"--missing median: column {name!r} is missing in all {num_rows} training rows; leave"
            f" it out with --ignore {shlex.quote(name)}"
        )


# --- notes ----------------------------------------------------------------------------------------


def _note_many(name, counts):
    if len(counts) > LEVELS:
        log.warning(
            "text column %r has %d levels in the training rows: the %d most frequent have an input"
            " each, the others share the input %s; --ignore %s leaves it out",
            *(name, len(counts), LEVELS, OTHER, shlex.quote(name)),
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
