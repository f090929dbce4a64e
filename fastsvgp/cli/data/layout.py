"""The layout of a text file: its delimiter, its header, and its rows of cells."""

import csv
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ... import DataFileError
from ..errors import UsageError, shown
from .cells import is_missing, is_name, is_number

log = logging.getLogger("fastsvgp")
DELIMITERS = {"tab": "\t", "semicolon": ";", "pipe": "|", "comma": ",", "space": None}


@dataclass
class Layout:
    """Layout of a text file.

    ``delimiter``: None for runs of white space. ``skip``: number of leading lines. ``header``: its
    cells, or None.
    """

    delimiter: str | None
    skip: int
    header: list | None


def delimiter_of(delimiter, head):
    """Return the delimiter given by the user, or the one on which the first lines agree best."""
    if delimiter in DELIMITERS:
        return DELIMITERS[delimiter]
    if delimiter != "auto":
        if len(delimiter) != 1 or delimiter in "\r\n":
            raise UsageError(
                f"--delimiter: expected auto, one character, or {shown(DELIMITERS)}, got"
                f" {delimiter!r}"
            )
        return delimiter
    sample = [line for line in head if line.strip() and not line.startswith("#")][:20]

    def agreement(candidate):
        widths = [len(cells) for _, cells in split_lines(sample, candidate)]
        # one name above cells of several words, or above dates with times
        if candidate is None and widths and widths[0] == 1:
            return 0
        width, count = max(Counter(widths).items(), key=lambda item: item[1], default=(1, 0))
        return count if width > 1 else 0

    # ties go to the first: a tab or semicolon beats commas inside cells
    best = max(DELIMITERS.values(), key=agreement)
    return best if sample and agreement(best) else ","


def split_lines(lines, delimiter):
    """Yield ``(line number from 1, cells)`` for each row; skip blank lines and # lines."""
    if delimiter is None:
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                yield number, line.split()
        return
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    start = 1
    for cells in reader:
        if (
            cells
            and not (len(cells) == 1 and not cells[0].strip())
            and not cells[0].startswith("#")
        ):
            yield start, [cell.strip() for cell in cells]
        start = reader.line_num + 1


def layout_of(path, head, delimiter, header):
    """Find the ``Layout`` of a text that begins with the lines ``head``."""
    rows = list(split_lines(head, delimiter))
    comments = [
        line
        for line in itertools.takewhile(lambda text: text.startswith("#") or not text.strip(), head)
    ]
    if not rows:
        raise DataFileError(f"{path} is empty: it holds no rows of data")
    first_line, first = rows[0]
    if header == "yes" or (
        header == "auto" and _is_header(path, first, [cells for _, cells in rows[1:]])
    ):
        skip = rows[1][0] - 1 if len(rows) > 1 else first_line
        return Layout(delimiter, skip, first)
    return Layout(
        delimiter,
        first_line - 1,
        _commented_header(comments, delimiter, len(first)) if header == "auto" else None,
    )


# --- whether the first row is a header ------------------------------------------------------------
#
# It is a header if all cells are text, or if some are above a number in the next row. The counts 0,
# 1, 2... are names written by pandas, but data if all following numbers are whole as well. A rule
# takes the cells of the first row, of the row ``below``, and of all ``following`` rows.


def _all_names(first, below, following):
    return all(map(is_name, first))


def _some_name_above_a_number(first, below, following):
    return any(
        is_name(cell) and is_number(under) for cell, under in zip(first, below, strict=False)
    )


def _names_without_numbers(first, below, following):
    return not any(map(is_number, first)) and _some_name_above_a_number(first, below, following)


def _names_and_empty_cells(first, below, following):
    return any(first) and all(is_name(cell) or not cell for cell in first)


def _counts(first, below, following):
    return len(first) > 2 and first == [str(i) for i in range(len(first))]


def _counts_above_fractions(first, below, following):
    return _counts(first, below, following) and not all(
        cell.lstrip("+-").isdigit() or is_missing(cell) for row in following for cell in row
    )


def _anything(first, below, following):
    return True


@dataclass(frozen=True)
class HeaderRule:
    """Decision about a first row to which ``holds`` applies: ``names`` or data.

    ``ambiguous``: whether it can be either, so that the decision is logged. ``example``: the first
    two lines of a table for which this is the first rule that applies.
    """

    holds: Callable
    names: bool
    ambiguous: bool
    example: tuple


HEADER_RULES = (
    HeaderRule(_all_names, True, False, ("a,b", "1,2")),
    HeaderRule(_names_without_numbers, True, False, ("a,na", "1,2")),
    HeaderRule(_some_name_above_a_number, True, True, ("a,2020", "1,2")),
    HeaderRule(_names_and_empty_cells, True, True, ("a,", "x,2")),
    HeaderRule(_counts_above_fractions, True, True, ("0,1,2", "0.5,1,2")),
    HeaderRule(_counts, False, True, ("0,1,2", "5,1,2")),
    HeaderRule(_anything, False, False, ("1,2", "3,4")),
)


def _is_header(path, first, following):
    """Whether the first row is a header; an ambiguous decision is logged."""
    below = following[0] if following else []
    rule = next(rule for rule in HEADER_RULES if rule.holds(first, below, following))
    if rule.ambiguous:
        decision = (
            "column names; give --header no if it is data"
            if rule.names
            else "data; give --header yes if it is column names"
        )
        log.warning("%s: the first line (%s) is read as %s", path, shown(first), decision)
    return rule.names


def _commented_header(comments, delimiter, width):
    """Return column names from a # line directly above the data, as numpy.savetxt writes them."""
    cells = next(
        (cells for _, cells in split_lines([c.lstrip("# ") for c in comments[-1:]], delimiter)), []
    )
    return cells if len(cells) == width and not any(map(is_number, cells)) else None


def rows_of(source, layout):
    """Yield ``(line, cells)`` for the data rows of a text."""
    with source.open_text() as file:
        for _ in range(layout.skip):
            next(file)
        try:
            for number, cells in split_lines(file, layout.delimiter):
                yield number + layout.skip, cells
        except csv.Error as error:
            raise DataFileError(f"{source.name}: {error}") from error
