"""Read csv, csv.gz, npy and npz files as a ``Table`` of numbers and text columns.

NumPy's C reader reads a csv of plain numbers. A file that it refuses (quotes, text columns, missing
cells, ragged rows) is read again cell by cell, which is slower but records the line of every row.
"""

import itertools
import logging
import os
import re
import zlib
from dataclasses import dataclass

import numpy as np

from ... import DataFileError
from ..errors import UsageError
from . import arrays, forms
from .body import note_left_out, read_rows
from .cells import Codes, is_missing, is_name, number_of
from .layout import delimiter_of, head_of, is_comment, layout_of
from .source import Source
from .table import STYLES, Table

GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})*|0")  # digits in groups of three
OTHERS = {  # texts that are no tables, by how they begin
    "JSON": ("[{", "[[", '{"', "[\n", "{\n"),
    "HTML or XML": ("<!doctype", "<html", "<?xml", "<table"),
}
log = logging.getLogger("fastsvgp")


@dataclass(frozen=True)
class FileFormat:
    """How to read files.

    Parameters
    ----------
    delimiter : str
        "auto", a name of ``DELIMITERS``, or one character.
    header : str
        "auto", "yes" or "no": whether the first line holds column names. If the line is ambiguous
        because it holds numbers, the decision of "auto" is logged as a warning.
    images : bool
        Whether arrays of inputs can be images, (N, H, W) or (N, H, W, C), whose columns are pixels:
        neither text nor missing.
    skip : int
        Number of lines of text to leave out at the top.
    na : sequence of str
        Codes that mark missing values, in addition to those that are always known.
    decimal : str
        "," or ".": the decimal mark of all numbers; "auto": that which a column shows.
    encoding : str, optional
        Default: that of the mark at the beginning, or UTF-8, or else Windows-1252.
    """

    delimiter: str = "auto"
    header: str = "auto"
    images: bool = False
    skip: int = 0
    na: tuple = ()
    decimal: str = "auto"
    encoding: str | None = None

    @classmethod
    def of(cls, args, **known):
        """Return the format that arguments give, with what else is ``known``."""
        given = ("delimiter", "header", "skip", "decimal", "encoding")
        return cls(**{name: getattr(args, name) for name in given} | known)

    def read(self, path, images=False, whole=False):
        """Read a table of data.

        Parameters
        ----------
        path : path-like
            .npy (a 2-D array), .npz (``X`` and optionally ``y``), or delimited text, gzipped or
            not. A pipe can deliver any of these; "-" is standard input.
        images : bool
            Whether an array can hold images.
        whole : bool
            Whether every line below the header must be a row. Otherwise lines of delimiters,
            footers and the like are left out, which is logged as a warning.

        Returns
        -------
        Table

        Raises
        ------
        DataFileError
            The file cannot be read as a table; the message has its name, and the line if known.
        """
        name, codes = os.fspath(path), Codes(self.na)
        try:
            source = Source(path, self.encoding)
            name = source.name
            with source.open() as file:
                magic = file.read(6)
            if magic.startswith((b"PK\x03\x04", b"PK\x05\x06")):
                return _make_table(name, codes, *arrays.read_npz(source, images))
            if magic == b"\x93NUMPY":
                return _make_table(name, codes, *arrays.read_npy(source, images))
            return _read_any_text(source, self, codes, whole)
        except (OSError, EOFError, zlib.error) as error:
            raise DataFileError(
                f"cannot read {name}: {getattr(error, 'strerror', None) or error}"
            ) from error
        except UnicodeDecodeError as error:
            raise DataFileError(
                f"{name} is not a text table (byte {error.start} is not {error.encoding.upper()});"
                " give a csv, csv.gz, npy or npz file, or the --encoding of its text: iso-8859-1,"
                " cp1252, utf-16"
            ) from error


def read_table(path, whole=False, **how):
    """Read a table with the fields of a ``FileFormat``."""
    return FileFormat(**how).read(path, how.get("images", False), whole)


def _make_table(path, codes, numbers, shape, y=None):
    if y is not None and y.dtype.kind in "fiu":
        y = codes.holes(y)
    names = [f"x{i}" for i in range(numbers.shape[1])]
    return Table(path, names, False, codes.holes(numbers), target=y, image_shape=shape)


# --- text -----------------------------------------------------------------------------------------


def _read_any_text(source, how, codes, whole):
    """Read a text; one that is no UTF-8, but text, is read as Windows-1252."""
    try:
        return _read_text(source, how, codes, whole)
    except UnicodeDecodeError as error:
        if not source.fall_back():
            raise
        table = _read_text(source, how, codes, whole)
        log.warning(
            "%s: byte %d is not UTF-8; the text is read as Windows-1252 (--encoding names another"
            " one, such as iso-8859-1)",
            *(source.name, error.start),
        )
        return table


def _read_text(source, how, codes, whole):
    path = source.name
    with source.open_text() as file:
        head = head_of(itertools.islice(file, how.skip, None))
    if any("\0" in line for line in head):
        raise DataFileError(
            f"{path} is not a text table (it holds NUL bytes); give a csv, csv.gz, npy or npz file,"
            " or --encoding utf-16-le for such a text without a mark"
        )
    for other, marks in OTHERS.items():
        if head and head[0].lstrip().lower().startswith(marks):
            raise DataFileError(f"{path} is {other}, not a table; save it as csv")
    delimiter = delimiter_of(how.delimiter, head, how.decimal)
    layout = layout_of(path, head, delimiter, how.header, how.skip, codes)
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
        if numbers.shape[1] != layout.width or how.decimal == ",":
            raise ValueError("ragged, or other numbers")
        numbers, lines, text, left_out = codes.holes(numbers[:, layout.columns]), None, {}, []
        decimal = how.decimal if how.decimal in STYLES else None
    except ValueError as error:
        if isinstance(error, (DataFileError, UnicodeDecodeError)):
            raise
        rows, lines, left_out = read_rows(source, layout, whole)
        rows = _drop_empty_columns(layout, rows, whole)
        numbers, text = _numbers(rows)
        decimal = _decimal(how, layout, rows, numbers, text, whole)
    note_left_out(path, layout, left_out)
    names = layout.header
    names = (
        [n or f"column {i}" for i, n in enumerate(names)]
        if names
        else [f"x{i}" for i in range(numbers.shape[1])]
    )
    table = Table(
        *(path, names, layout.header is not None, numbers, text, None, lines, layout, source),
        decimal=decimal,
        asked=how.decimal != "auto",
    )
    if table.asked:
        table.read_numbers()
    return table


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


def _decimal(how, layout, rows, numbers, text, whole):
    """Return the decimal mark if it is known; with commas, move numbers of thousands to ``text``.

    A column shows the comma, or a file with semicolons has it, unless a point in another column
    does not group three digits.
    """
    points = {
        j: list(cells)
        for j, cells in enumerate(zip(*rows, strict=True))
        if j not in text and any("." in cell for cell in cells if not is_missing(cell))
    }
    cells = [cell for cells in points.values() for cell in cells if not is_missing(cell)]
    point = next((cell for cell in cells if not GROUPED.fullmatch(cell)), None)
    if how.decimal == "," and point is not None:
        raise UsageError(f"--decimal ,: {point!r} has a decimal point; leave the option out")
    if (
        how.decimal == "."
        or how.decimal == "auto"
        and (whole or point is not None or not _shows_commas(text, layout.delimiter == ";"))
    ):
        return how.decimal if how.decimal == "." else None
    numbers[:, list(points)] = np.nan
    text |= points
    return ","


def _shows_commas(text, semicolons):
    """Whether a column has decimal commas, or with semicolons around its cells can have them."""
    for cells in text.values():
        form, odd = forms.find(cells[: forms.SAMPLE])
        if form is not None and not odd:
            if STYLES[","] in (form.name, form.other if semicolons else ""):
                return True
    return False


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
