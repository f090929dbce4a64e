"""The rows of a text file, without what is no row: footers, lines of delimiters, comments."""

import logging
import re

from ... import DataFileError
from . import forms
from .cells import is_figure, is_missing, is_word
from .layout import is_comment, lines_of, row_error

log = logging.getLogger("fastsvgp")
FEW = 3  # rows above a footer, at least
WORD = re.compile(r"[^\W\d_]{3}")  # codes of missing values are shorter, or have no letters
BELOW, EMPTY, COMMENTS, NAMES = "below the table", "of delimiters", "of comments", "of names"
TOTALS = set("total totals subtotal sum mean average median min max sd std se".split())


def read_rows(source, layout, whole):
    """Return rows, the line of each row, and what is left out, as ``(what, [(line, cells)])``.

    whole : whether a line that is no row is an error
    """
    rows, lines, found = [], [], {what: [] for what in (BELOW, EMPTY, COMMENTS, NAMES)}
    odd = found[BELOW]
    for line, cells in lines_of(source, layout):
        row = layout.row(cells)
        what = _no_row(layout, cells, row, whole)
        if odd and row is not None:
            raise _ragged_error(source, layout, lines, *odd[0])
        if what is None:
            rows.append(row)
            lines.append(line)
        else:
            found[what].append((line, cells))
    of_text = odd and 2 * sum(is_word(row[0]) for row in rows) > len(rows)
    for line, cells in odd:
        text = is_word(next(filter(None, cells), ""))
        if whole or not text or len(cells) > 1 and of_text:
            raise _ragged_error(source, layout, lines, line, cells)
    if not rows:
        name = f"{source.name} has column names but" if layout.header else f"{source.name} holds"
        raise DataFileError(f"{name} no rows of data")
    while not whole and len(rows) > FEW and _is_footer(rows):
        odd.insert(0, (lines.pop(), rows.pop()))
    return rows, lines, list(found.items())


def _no_row(layout, cells, row, whole):
    """Return what a line is that is no row of the table, else None."""
    if row is None:
        return COMMENTS if is_comment(cells) and not whole else BELOW
    if whole:
        return None
    if len(cells) > 1 and not any(cells):
        return EMPTY
    return NAMES if row == layout.header else None


def _is_footer(rows):
    """Whether the last row is no row of the table, such as its total.

    Its first cell is a word where all other rows have figures or none, or alone says total; or it
    is the only cell of three and more, and occurs in no other row.
    """
    j = next((j for j, cell in enumerate(rows[-1]) if cell), 0)
    cell = rows[-1][j]
    if not is_word(cell):
        return False
    above = [row[j] for row in rows[:-1] if not is_missing(row[j])]
    total = cell.lower().rstrip(":") in TOTALS and cell not in above
    alone = len(rows[-1]) > 2 and "".join(rows[-1]) == cell and cell not in above
    figures = bool(above) and all(map(is_figure, above)) or _have_form(above, cell)
    return total or (alone or figures) and WORD.search(cell) is not None


def _have_form(above, cell):
    """Whether all cells above have a form, and ``cell`` has not."""
    form, odd = forms.find(above[-forms.SAMPLE :])
    return form is not None and odd is None and form.number(cell) is None


def _ragged_error(source, layout, lines, line, cells):
    if layout.header:
        reference = f"the header names {layout.width} columns"
    elif lines:
        reference = f"line {lines[0]} has {layout.width}"
    else:
        reference = f"most lines have {layout.width}"
    return row_error(source.name, line, cells, reference)


def note_left_out(path, layout, left_out):
    """Say which lines are no rows, and which cells no columns."""
    parts = [
        f"{len(found)} line{'s'[: len(found) != 1]} {what} (line {found[0][0]}: {_quote(found)})"
        for what, found in [("above the rows", layout.above), *left_out]
        if found
    ]
    if layout.row_names:
        parts.append("the names of rows in the first column, which the header does not name")
    empty = layout.width - len(layout.columns) - layout.row_names
    if empty:
        parts.append(f"{empty} column{'s'[: empty != 1]} without a name or cells")
    if parts:
        log.warning("%s: left out of the table: %s", path, "; ".join(parts))


def _quote(found):
    text = ", ".join(cell for cell in found[0][1] if cell)
    return repr(text if len(text) < 50 else f"{text[:47]}...") if text else "no text"
