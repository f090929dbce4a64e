"""A ``Table``: the rows and columns of a file, as numbers and text."""

import itertools
import re
import shlex
from dataclasses import dataclass, field, replace

import numpy as np

from ... import DataFileError
from ...names import did_you_mean
from ...recipes.scaling import LARGEST
from ..errors import UsageError, join
from . import forms
from .cells import is_missing, is_name
from .layout import Layout, lines_of
from .source import Source

STYLES = {",": "1.234,5", ".": "1,234.5"}  # the form of numbers with a decimal mark


@dataclass
class Table:
    """Rows and columns of a file.

    ``numbers`` (N, C) float64 is NaN where a cell is missing or text. ``text`` maps columns with
    text to their N cells, and ``forms`` columns of text that were read as numbers to their form.
    ``named``: whether the column names come from the file. ``target`` is the ``y`` of an npz file,
    or None. ``lines`` are the lines of the rows, or their numbers in an array; None if they are all
    of the file. ``image_shape`` is (H, W, C) if the rows are images, from an array (N, H, W) or
    (N, H, W, C), with pixels row by row and channels last. ``decimal``: the decimal mark, "," or
    ".", if it is known; ``asked``: whether the user gave it.
    """

    path: str
    names: list
    named: bool
    numbers: np.ndarray
    text: dict = field(default_factory=dict)
    target: np.ndarray | None = None
    lines: list | None = None
    layout: Layout | None = None
    source: Source | None = None
    image_shape: tuple | None = None
    forms: dict = field(default_factory=dict)
    decimal: str | None = None
    asked: bool = False

    @property
    def num_rows(self):
        return self.numbers.shape[0]

    @property
    def num_columns(self):
        return self.numbers.shape[1]

    def index_of(self, column, option):
        """Return the position of a column, given by name or index (negative: from the end)."""
        matching = [i for i, name in enumerate(self.names) if name == column] if self.named else []
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise UsageError(
                f"{option}: {self.path} has {len(matching)} columns named {column!r}; give an"
                " index, counted from 0"
            )
        if not re.fullmatch(r"[+-]?\d+", column.strip()):
            problem = f"{option}: no column {column!r} in {self.path}"
            if not self.named:
                raise UsageError(f"{problem} (no header, columns 0 to {self.num_columns - 1})")
            meant = did_you_mean(column, self.names, "'", most=1)
            raise UsageError(f"{problem} (columns {join(self.names)}){meant}")
        index = int(column)
        if not -self.num_columns <= index < self.num_columns:
            raise UsageError(
                f"{option}: no column {index} in {self.path}; its columns are 0 to"
                f" {self.num_columns - 1}"
            )
        return index % self.num_columns

    def place(self, row):
        """Describe the place of a row in the file."""
        return f"{'row' if self.layout is None else 'line'} {self.line_numbers()[row]}"

    def line_numbers(self):
        """Return the line of each row in a text, or its number in an array."""
        if self.lines is not None:
            return self.lines
        if self.layout is None:
            return range(self.num_rows)
        return [line for line, _ in lines_of(self.source, self.layout)]

    def drop_empty_end(self, widths):
        """Return the table without empty columns at its end, if it then has one of ``widths``."""
        last = self.num_columns
        while last > 1 and last not in widths and np.isnan(self.numbers[:, last - 1]).all():
            last -= 1
        if last not in widths or any(i >= last for i in self.text):
            return self
        return replace(self, numbers=self.numbers[:, :last], names=self.names[:last])

    def count_lines(self):
        """Return the numbers of lines below the header, and of blank ones between them."""
        if self.layout is None:
            return self.num_rows, 0
        blank = before = 0
        with self.source.open_text() as file:
            for text in itertools.islice(file, self.layout.skip, None):
                blank, before = (blank, before + 1) if not text.strip() else (blank + before, 0)
        return sum(1 for _ in lines_of(self.source, self.layout)), blank

    def part(self, rows):
        """Return the table of some ``rows``, an array of bool (N,)."""
        kept = np.flatnonzero(rows).tolist()
        numbers = self.line_numbers()
        return replace(
            self,
            numbers=self.numbers[rows],
            text={i: [cells[row] for row in kept] for i, cells in self.text.items()},
            target=None if self.target is None else self.target[rows],
            lines=[numbers[row] for row in kept],
        )

    def inputs(self, columns, optional=True, missing="error"):
        """Return columns as a finite (N, len(columns)) float64 array, or raise with advice.

        ``optional``: whether the error can advise to leave a column out. ``missing``: "median" if
        values can be missing, as NaN; None if they cannot and the error must not advise it.
        """
        texts = [i for i in columns if i in self.text]
        if texts:
            cells = [self.first_text(i) for i in texts]
            pairs = list(zip(texts, cells, strict=True))
            named = ", ".join(
                f"{self.names[i]!r} ({cell!r}, {place})" for i, (cell, place) in pairs[:6]
            )
            more = f" and {len(texts) - 6} more" if len(texts) > 6 else ""
            ignored = shlex.quote(",".join(self.names[i] for i in texts[:6]))
            todo = "write them as numbers" + (
                f", or leave them out with --ignore {ignored}" if optional else ""
            )
            raise UsageError(
                f"{self.path}: inputs must be numbers, but text is in column{'s'[: len(texts) > 1]}"
                f" {named}{more}; {todo}"
            )
        X = np.ascontiguousarray(self.numbers[:, columns])
        advice = ", or leave the column out with --ignore" if optional else ""
        filling = (
            ", or fill them in with --missing median"
            if optional
            else ", or fit again with --missing median"
        )
        self._check_finite(
            X, columns, advice, filling if missing == "error" else "", holes=missing == "median"
        )
        return X

    def cells(self, column):
        """Return one column as text; the cells of a text file are unchanged."""
        if column in self.text:
            return self.text[column]
        if self.layout is not None:
            known = None if self.lines is None else set(self.lines)
            return [
                self.layout.row(cells)[column]
                for line, cells in lines_of(self.source, self.layout)
                if known is None or line in known
            ]
        return [np.format_float_positional(value, trim="-") for value in self.numbers[:, column]]

    def present(self, column, form=None):
        """Return the cells of a column, perhaps with a ``Form``; None where one is missing."""
        cells = [None if is_missing(cell) else cell for cell in self.cells(column)]
        codes = self.layout.codes.numbers if self.layout is not None else []
        if codes and form is not None and form.kind == "number":
            return [None if cell and form.number(cell) in codes else cell for cell in cells]
        return cells

    def form_of(self, column):
        """Return ``(form, odd)`` of a column of text, as ``forms.find`` does.

        If numbers with either decimal mark fit, they have the one that is known.
        """
        form, odd = forms.find(self.text[column])
        if form is not None and STYLES.get(self.decimal) == form.other:
            form = replace(form, name=form.other, other=form.name)
        return (replace(form, other="") if form is not None and self.asked else form), odd

    def read_numbers(self):
        """Read columns of text that are numbers with the decimal mark that the user gave."""
        for i in list(self.text):
            form, odd = self.form_of(i)
            if form is None or form.kind != "number":
                continue
            own = replace(form, name=STYLES[self.decimal])
            cells = (one for one in self.text[i] if form.number(one) is not None)
            other = next((cell for cell in cells if own.number(cell) is None), None)
            if other is not None:
                raise UsageError(
                    f"--decimal {self.decimal}: {self.path}, column {self.names[i]!r} has"
                    f" {other!r}; leave the option out"
                )
            if odd is None and not (form.before or form.after):
                self.read_as(i, own)

    def read_as(self, column, form):
        """Read a column of a text file as numbers of a ``Form``, if all cells there have it."""
        cells = self.present(column, form)
        values = form.numbers(cells)
        if not any(
            value != value and cell is not None for value, cell in zip(values, cells, strict=True)
        ):
            self.numbers[:, column], self.forms[column] = values, form
            self.text.pop(column, None)

    def first_text(self, column):
        """Return the first cell of a text column that is not a number, and its place."""
        row = next(r for r, cell in enumerate(self.text[column]) if is_name(cell))
        return self.text[column][row], self.place(row)

    def _check_finite(self, X, columns, advice="", filling="", holes=False):
        finite = (np.abs(X) < LARGEST) | (holes & np.isnan(X))
        if finite.all():
            return
        row, j = np.unravel_index(np.argmin(finite), X.shape)
        last = columns[j] == self.num_columns - 1 and self.names[-1] in (
            f"x{columns[j]}",
            f"column {columns[j]}",
        )
        if last and self.layout is not None and np.isnan(X[:, j]).all():
            raise DataFileError(
                f"{self.path}: the last column has no name and is empty in all rows; if the lines"
                " end with a delimiter, remove it from all lines"
            )
        value, bad = X[row, j], int(finite.size - finite.sum())
        what = (
            "missing or NaN"
            if np.isnan(value)
            else "infinite"
            if np.isinf(value)
            else f"{value:g}, too large to be squared"
        )
        raise DataFileError(
            f"{self.path}, {self.place(row)}, column {self.names[columns[j]]!r}: the value is"
            f" {what}{f' (the first of {bad} such cells)' if bad > 1 else ''}; fill in these cells"
            f" or remove their rows{advice}" + (filling if np.isnan(value) else "")
        )

    def target_column(self, column):
        """Return one column unchanged: float64 numbers, NaN if missing, or an array of text."""
        if column in self.text:
            return np.array(self.text[column])
        values = self.numbers[:, column]
        self._check_finite(values[:, None], [column], holes=True)
        return values
