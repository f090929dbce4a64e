"""Read csv, csv.gz, npy and npz files as a ``Table`` of numbers and text columns.

NumPy's C reader reads a csv of plain numbers. A file that it refuses (quotes, text columns, missing
cells, ragged rows) is read again cell by cell, which is slower but records the line of every row.
"""

import itertools
import logging
import os
import re
import shlex
import zlib
from dataclasses import dataclass, field, replace

import numpy as np

from ... import DataFileError
from ...names import did_you_mean
from ...recipes.scaling import LARGEST
from ..errors import UsageError, join
from . import arrays, forms
from .body import note_left_out, read_rows
from .cells import Codes, is_missing, is_name, number_of
from .layout import Layout, delimiter_of, head_of, is_comment, layout_of, lines_of
from .source import Source

COMMAS = "1.234,5"  # the form of numbers with decimal commas
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})*|0")  # digits in groups of three
log = logging.getLogger("fastsvgp")


@dataclass
class Table:
    """Rows and columns of a file.

    ``numbers`` (N, C) float64 is NaN where a cell is missing or text. ``text`` maps columns with
    text to their N cells, and ``forms`` columns of text that were read as numbers to their form.
    ``named``: whether the column names come from the file. ``target`` is the ``y`` of an npz file,
    or None. ``lines`` are the lines of the rows, or their numbers in an array; None if they are all
    of the file. ``image_shape`` is (H, W, C) if the rows are images, from an array (N, H, W) or
    (N, H, W, C), with pixels row by row and channels last. ``commas``: whether decimals are written
    with a comma.
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
    commas: bool = False

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

        If numbers with either decimal mark fit, they have that of the other columns.
        """
        form, odd = forms.find(self.text[column])
        if self.commas and form is not None and form.other == COMMAS:
            form = replace(form, name=COMMAS, other=form.name)
        return form, odd

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


def read_table(path, delimiter="auto", header="auto", images=False, skip=0, na=(), whole=False):
    """Read a table of data.

    Parameters
    ----------
    path : path-like
        .npy (a 2-D array), .npz (``X`` and optionally ``y``), or delimited text, gzipped or not. A
        pipe can deliver any of these; "-" is standard input.
    delimiter : str
        "auto", a name of ``DELIMITERS``, or one character.
    header : str
        "auto", "yes" or "no": whether the first line holds column names. If the line is ambiguous
        because it holds numbers, the decision of "auto" is logged as a warning.
    images : bool
        Whether an array can hold images, (N, H, W) or (N, H, W, C).
    skip : int
        Number of lines of text to leave out at the top.
    na : sequence of str
        Codes that mark missing values, in addition to those that are always known.
    whole : bool
        Whether every line below the header must be a row. Otherwise lines of delimiters, footers
        and the like are left out, which is logged as a warning.

    Returns
    -------
    Table

    Raises
    ------
    DataFileError
        The file cannot be read as a table; the message has its name, and the line if known.
    """
    name, codes = os.fspath(path), Codes(na)
    try:
        source = Source(path)
        name = source.name
        with source.open() as file:
            magic = file.read(6)
        if magic.startswith(b"PK\x03\x04") or magic.startswith(b"PK\x05\x06"):
            return _make_table(name, codes, *arrays.read_npz(source, images))
        if magic == b"\x93NUMPY":
            return _make_table(name, codes, *arrays.read_npy(source, images))
        return _read_any_text(source, delimiter, header, skip, codes, whole)
    except (OSError, EOFError, zlib.error) as error:
        raise DataFileError(
            f"cannot read {name}: {getattr(error, 'strerror', None) or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"{name} is not a text table (byte {error.start} is not {error.encoding.upper()}); give"
            " a csv, csv.gz, npy or npz file, with text in UTF-8"
        ) from error


def _make_table(path, codes, numbers, shape, y=None):
    if y is not None and y.dtype.kind in "fiu":
        y = codes.holes(y)
    names = [f"x{i}" for i in range(numbers.shape[1])]
    return Table(path, names, False, codes.holes(numbers), target=y, image_shape=shape)


# --- text -----------------------------------------------------------------------------------------


def _read_any_text(source, *how):
    """Read a text; one that is no UTF-8, but text, is read as Windows-1252."""
    try:
        return _read_text(source, *how)
    except UnicodeDecodeError as error:
        if not source.fall_back():
            raise
        table = _read_text(source, *how)
        log.warning(
            "%s: byte %d is not UTF-8; the text is read as Windows-1252", source.name, error.start
        )
        return table


def _read_text(source, delimiter, header, skip, codes, whole):
    path = source.name
    with source.open_text() as file:
        head = head_of(itertools.islice(file, skip, None))
    if any("\0" in line for line in head):
        raise DataFileError(
            f"{path} is not a text table (it holds NUL bytes); give a csv, csv.gz, npy or npz file,"
            " with text in UTF-8"
        )
    layout = layout_of(path, head, delimiter_of(delimiter, head), header, skip, codes)
    for line, cells in layout.above:
        if whole and is_comment(cells) and len(cells) == layout.width:
            raise DataFileError(
                f"{path}, line {line}: it begins with #, but has the cells of a row; remove it, or"
                " its #"
            )
    try:
        with source.open_text() as file:
            for _ in range(layout.skip):
                next(file)
            numbers = np.loadtxt(
                _nonempty(path, file), delimiter=layout.delimiter, comments=None, ndmin=2
            )
        if numbers.shape[1] != layout.width:
            raise ValueError("ragged")
        numbers, lines, text, left_out = codes.holes(numbers[:, layout.columns]), None, {}, []
        commas = False
    except ValueError as error:
        if isinstance(error, (DataFileError, UnicodeDecodeError)):
            raise
        rows, lines, left_out = read_rows(source, layout, whole)
        rows = _drop_empty_columns(layout, rows, whole)
        numbers, text = _numbers(rows)
        commas = not whole and _set_apart_groups(rows, numbers, text)
    note_left_out(path, layout, left_out)
    names = layout.header
    names = (
        [n or f"column {i}" for i, n in enumerate(names)]
        if names
        else [f"x{i}" for i in range(numbers.shape[1])]
    )
    return Table(
        *(path, names, layout.header is not None, numbers, text, None, lines, layout, source),
        commas=commas,
    )


def _nonempty(path, file):
    first = next((line for line in file if line.strip()), None)
    if first is None:
        raise DataFileError(f"{path} holds no rows of data")
    return itertools.chain([first], file)


def _drop_empty_columns(layout, rows, whole):
    """Leave out columns without a name or any cell, where delimiters begin or end the lines.

    Without a header, columns at the end are left out, unless positions must not change.
    """
    empty = [not any(cells) for cells in zip(*rows, strict=True)]
    names, last = layout.header, len(empty) - 1
    if names is None:
        while not whole and last > 0 and empty[last]:
            last -= 1
        kept = range(last + 1)
    else:
        kept = [j for j, none in enumerate(empty) if names[j] or not none]
        layout.header = [names[j] for j in kept]
    if len(kept) == len(empty):
        return rows
    layout.columns = [layout.columns[j] for j in kept]
    return [[row[j] for j in kept] for row in rows]


def _set_apart_groups(rows, numbers, text):
    """Return whether decimals are written with a comma; move numbers of thousands to ``text``.

    A column shows it, unless a point in another one does not group three digits.
    """
    found = (forms.find(cells[: forms.SAMPLE]) for cells in text.values())
    if all(odd or form is None or form.name != COMMAS for form, odd in found):
        return False
    points = {
        j: list(cells)
        for j, cells in enumerate(zip(*rows, strict=True))
        if j not in text and any("." in cell for cell in cells if not is_missing(cell))
    }
    cells = [cell for cells in points.values() for cell in cells if not is_missing(cell)]
    if not all(map(GROUPED.fullmatch, cells)):
        return False
    numbers[:, list(points)] = np.nan
    text |= points
    return True


def _numbers(rows):
    """Return numbers (N, C), NaN where a cell is missing or text, and the columns of text."""
    columns = [list(cells) for cells in zip(*rows, strict=True)]
    numbers, text = np.full((len(rows), len(columns)), np.nan), {}
    for j, cells in enumerate(columns):
        if any(map(is_name, cells)):
            text[j] = cells
        else:
            numbers[:, j] = [np.nan if is_missing(cell) else number_of(cell) for cell in cells]
    return numbers, text
