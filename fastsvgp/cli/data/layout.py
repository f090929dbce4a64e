"""The layout of a text file: its delimiter, and where its table, its header and its rows begin."""

import csv
import re
from collections import Counter
from dataclasses import dataclass

from ... import DataFileError
from ..errors import UsageError, join
from . import forms
from .cells import Codes, is_figure, is_missing, is_name, is_number, is_word
from .headers import is_header, years

DELIMITERS = {"tab": "\t", "semicolon": ";", "pipe": "|", "comma": ",", "space": None}
# lines looked at, without comments: at least, at most, and characters in between
HEAD = 60, 1000, 200_000
SOME = 20  # rows that decide whether the cells of a column have a form
ALIGNED = re.compile(r"[-+.\d]+  +[-+.\d]")  # numbers in columns, in one cell
DRAWN = re.compile(r"[\s|+=:_-]*(---|===|___|:-)[\s|+=:_-]*")  # such as |---|---|


@dataclass
class Layout:
    """Layout of a text file.

    ``delimiter``: None for runs of white space. ``skip``: number of lines above the rows.
    ``header``: the names of the columns, or None. ``width``: number of cells of a line.
    ``columns``: positions of the cells that are columns. ``codes``: marks of missing values.
    ``above``: ``(line, cells)`` of the lines that are left out above the rows. ``row_names``:
    whether the first cells are names of rows, without a name in the header.
    """

    delimiter: str | None
    skip: int
    header: list | None
    width: int
    columns: list
    codes: Codes
    above: list
    row_names: bool

    def row(self, cells):
        """Return the cells of the columns; None if the number of cells is not that of a row."""
        found = fit_width(cells, self.width)
        if found is not None and len(self.columns) < self.width:
            found = [found[j] for j in self.columns]
        return found and self.codes.blank(found)


def fit_width(cells, width):
    """Return cells without surplus empty ones at the end; None if there are not ``width``."""
    if len(cells) == width:
        return cells
    return cells[:width] if len(cells) > width and not any(cells[width:]) else None


def is_comment(cells):
    return cells[0].startswith("#") and not is_missing(cells[0])


def head_of(file):
    """Return the first lines of a text."""
    lines, count, size = [], 0, 0
    least, most, enough = HEAD
    for line in file:
        lines.append(line)
        if not line.startswith("#"):
            count, size = count + 1, size + len(line)
        if count >= most or count >= least and size > enough:
            break
    return lines


def delimiter_of(delimiter, head, decimal="auto"):
    """Return the delimiter given by the user, or the one on which most lines agree.

    It is no comma if ``decimal`` is.
    """
    if delimiter in DELIMITERS:
        return DELIMITERS[delimiter]
    if delimiter != "auto":
        if len(delimiter) != 1 or delimiter in "\r\n":
            raise UsageError(
                f"--delimiter: expected auto, one character, or {join(DELIMITERS)}, got"
                f" {delimiter!r}"
            )
        return delimiter
    sample = [line for line in head if not line.startswith("#")] or head

    def agreement(candidate):
        lines = [cells for _, cells in split_lines(sample, candidate)]
        width = _width(lines)
        rows = [cells for cells in lines if len(cells) == width]
        # one name above cells of several words, or above dates with times
        if candidate is None and len(lines[0]) == 1 and not all(map(is_number, rows[-1])):
            return 0
        if candidate is not None:
            rows = [cells for cells in rows if not any(map(ALIGNED.match, cells))]
        return len(rows) if width > 1 else 0

    # ties go to the first: a tab or semicolon beats commas inside cells
    others = [one for one in DELIMITERS.values() if one != decimal]
    best = max(others, key=agreement) if any(map(str.strip, sample)) else others[0]
    return best if sample and agreement(best) else "," if "," in others else ";"


def _width(lines):
    """Return the commonest number of cells of the lines of a table.

    Text around it does not count: lines of one cell without a number, and those of a width that
    fewer than half of the other lines from its first on have. Of equal counts the larger one is
    chosen.
    """
    widths = [len(cells) for cells in lines if len(cells) > 1 or is_number(cells[0])]
    counts = Counter(widths)
    lasting = [width for width in counts if 2 * counts[width] >= len(widths) - widths.index(width)]
    return max(lasting, key=lambda width: (counts[width], width), default=1)


def split_lines(lines, delimiter):
    """Yield ``(line number from 1, cells)`` for each line that is not blank."""
    if delimiter is None:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, _words(line)
        return
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    start = 1
    for cells in reader:
        if cells and not (len(cells) == 1 and not cells[0].strip()):
            yield start, [_unquote(cell.strip()) for cell in cells]
        start = reader.line_num + 1


def _unquote(cell):
    """Return a cell without single quotes around it."""
    return cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == "'" else cell


def _words(line):
    """Split a line at white space; words in quotes are one cell."""
    if '"' not in line:
        return line.split()
    return next(csv.reader([" ".join(line.split())], delimiter=" "))


def layout_of(path, head, delimiter, header, skip, codes):
    """Find the ``Layout`` of a text.

    ``head``: its first lines, after ``skip`` lines that the user leaves out. ``header`` is "auto",
    "yes" or "no".
    """
    lines = [(number + skip, cells) for number, cells in split_lines(head, delimiter)]
    plain = [cells for _, cells in lines if not is_comment(cells)]
    if not plain:
        why = " (all of its lines begin with #)" if lines else ""
        raise DataFileError(f"{path} is empty: it holds no rows of data{why}")
    top = _Top(path, lines, _width(plain), codes)
    names, first = top.names(header)
    if names is None and header == "auto":
        names = _commented_names(head, top.line(first) - 1 - skip, delimiter, top.width)
    columns, above, row_names = list(range(top.width)), top.left_out(first), False
    if names is not None and len(names) < top.width:
        names, row_names = top.lengthen(names)
        columns = columns[row_names:]
    return Layout(
        *(delimiter, top.line(first) - 1, names, top.width, columns, codes, above, row_names)
    )


class _Top:
    """The upper part of a table: text above it, its header, lines of units, and first rows.

    Parts are found by the columns of figures: those whose cells are figures, or have another form
    that can be read, in the later of the first lines.
    """

    def __init__(self, path, lines, width, codes):
        self.path, self.lines, self.width, self.codes = path, lines, width, codes
        self.rows = [fit_width(cells, width) for _, cells in lines]
        self.plain = [codes.blank(row) for row in self.rows if row and not is_comment(row)]
        self.later = self.plain[len(self.plain) // 2 :]
        plain = [j for j in range(width) if self._has_figures(j)]
        self.forms = {j: form for j in range(width) if (form := self._form(j)) is not None}
        self.figures = sorted({*plain, *self.forms})
        self.later = [self._seen(row) for row in self.later]
        for k, row in enumerate(self.rows):
            # below a name, text such as #ff0000 is no comment
            if row and is_comment(row) and 0 in self.figures:
                self.rows[k] = None
        self.used = set()
        self.padded = self._count_padded()

    def _has_figures(self, j):
        present = [row[j] for row in self.later if not is_missing(row[j])]
        return bool(present) and 2 * sum(map(is_figure, present)) >= len(present)

    def _form(self, j):
        cells = [row[j] for row in self.later[:SOME]]
        return forms.find(cells)[0] if any(map(is_name, cells)) else None

    def _seen(self, row):
        """Return cells, with numbers for those that have the form of their column."""
        numbers = {j: f.number(row[j]) for j, f in self.forms.items() if not is_number(row[j])}
        return [cell if numbers.get(j) is None else repr(numbers[j]) for j, cell in enumerate(row)]

    def _count_padded(self):
        """Return the number of lines that a spreadsheet has padded, above a line of names."""
        for k, row in enumerate(self.rows):
            if row and row[-1]:
                names = len({*row}) == self.width and all(map(is_word, self._seen(row)))
                return k if names and self.figures else 0
        return 0

    def line(self, k):
        """Return the line number of row ``k``; beyond the last row, that of the line after it."""
        return self.lines[k][0] if k < len(self.lines) else self.lines[-1][0] + 1

    def first_row(self):
        """Return the first row with a figure in a column of figures, below padded lines."""
        for k, row in enumerate(self.rows):
            if k >= self.padded and row and (not self.figures or self._has_figure(row)):
                return k
        return len(self.rows)

    def _has_figure(self, row):
        row = self._seen(row)
        return any(is_figure(row[j]) for j in self.figures)

    def names(self, header):
        """Return the header, None if there is none, and the number of the first row."""
        if header == "no":
            return None, next(k for k, row in enumerate(self.rows) if row)
        first = self.first_row()
        of_years = self._is_of_years(first)
        run = [] if of_years else self._run_above(first)
        if not run and not of_years and (names := self._short_names(first)):
            self.used.add(first - 1)
            return names, first
        if not run and not of_years:
            run = [k for k in range(first) if self.rows[k] and self._goodness(k)[0]][-1:]
        at = max(run, key=self._goodness) if run else first
        if not self._is_header(at, first if run else first + 1, header):
            return None, run[0] if run else first
        self.used.add(at)
        first = at + 1
        while first < len(self.rows) and not self._is_row(first):
            first += 1
        row = self.rows[at]
        return [row[0].lstrip("# ") if is_comment(row) else row[0], *row[1:]], first

    def _is_header(self, at, first, header):
        """Whether row ``at`` is a header of the rows from ``first`` on."""
        if at >= len(self.rows):
            return False
        return header == "yes" or is_header(self.path, *self._parts(at, first))

    def _is_of_years(self, first):
        """Whether the first row is a header of years."""
        if first + 1 >= len(self.rows):
            return False
        row, following = self._parts(first, first + 1)
        return years(row, None, following)

    def _parts(self, at, first):
        following = [self._seen(row) for row in self.rows[first:] if row]
        return self._seen(self.codes.blank(self.rows[at])), following

    def _run_above(self, first):
        """Return the lines of text directly above the first row that have its width."""
        run, k = [], first - 1
        while k >= 0 and (self.rows[k] or self._is_drawn(k) or is_comment(self.lines[k][1])):
            if self.rows[k] and any(self.rows[k]) and not self._is_drawn(k):
                run.insert(0, k)
            k -= 1
        return run

    def _is_drawn(self, k):
        longest, together = max(self.lines[k][1], key=len), " ".join(self.lines[k][1])
        return DRAWN.fullmatch(longest) is not None and DRAWN.fullmatch(together) is not None

    def _goodness(self, k):
        """Rank lines of text as a header: different names for all columns, or for most."""
        there = [cell for cell in self.codes.blank(self.rows[k]) if cell]
        return len({*there}) == self.width, len(there)

    def _is_row(self, k):
        """Whether a line below the header is a row, not units or a drawn line."""
        row = self.rows[k]
        if row is None or self._is_drawn(k):
            return False
        row = self._seen(self.codes.blank(row))
        over = [(j, row[j]) for j in self.figures if not is_missing(row[j])]
        recurring = any(cell == other[j] for j, cell in over for other in self.later)
        later = k < len(self.rows) - 1
        return not (later and over and all(is_word(cell) for _, cell in over)) or recurring

    def _short_names(self, first):
        """Return the names in the line above the first row if they are too few by their nature.

        They are one fewer than the columns if rows have names, as R writes them, and fewer if only
        the rows end with delimiters. Other names, too few or too many, are refused; one name can be
        a title, except above two columns, which may be numbers with decimal commas.
        """
        number, names = self.lines[first - 1] if 0 < first < len(self.rows) else (0, [])
        title = len(names) == 1 and (self.width != 2 or self.lines[first][0] > number + 1)
        if len(names) in (0, self.width) or title:
            return None
        if not all(map(is_word, names)) or is_comment(names):
            return None
        firsts = [row[0] for row in self.plain]
        of_rows = len({*firsts}) == len(firsts) and not any("." in cell for cell in firsts)
        of_rows = of_rows or self._begins_with_times()
        ends = not any(any(row[len(names) :]) for row in self.later)
        of_rows = of_rows and 1 < len(names) == self.width - 1
        if len(names) > self.width or not ends and not of_rows:
            raise row_error(self.path, *self.lines[first], f"line {number} has {len(names)} names")
        return names

    def _begins_with_times(self):
        """Whether the first cells are dates or clocks."""
        return 0 in self.forms and self.forms[0].kind in ("date", "clock")

    def lengthen(self, names):
        """Return too few names, and whether the rows have names; else "" for columns at the end.

        Names of rows that are dates or clocks are a column without a name.
        """
        if len(names) == self.width - 1 and any(row[-1] for row in self.later):
            return (["", *names], False) if self._begins_with_times() else (names, True)
        return names + [""] * (self.width - len(names)), False

    def left_out(self, first):
        """Return ``(line, cells)`` of the lines above the first row other than the header.

        Comments at the very top are not listed.
        """
        found = []
        for k in range(min(first, len(self.lines))):
            (number, cells), below = self.lines[k], any(j < k for j in self.used)
            if k in self.used or is_comment(cells) and not below:
                continue
            cut = below and any(map(is_figure, cells)) and not is_comment(cells)
            if len(cells) > 1 and (cut or all(map(is_number, cells))):
                row = self.lines[min(first, len(self.lines) - 1)]
                raise row_error(self.path, *row, f"line {number} has {len(cells)}")
            found.append((number, cells))
        return found


def _commented_names(head, line, delimiter, width):
    """Return column names from a # line directly above the data, as numpy.savetxt writes them."""
    above = [text for text in head[: max(line, 0)] if text.strip("# \t\r\n")][-1:]
    comments = [text.lstrip("# ") for text in above if text.startswith("#")]
    cells = next((cells for _, cells in split_lines(comments, delimiter)), [])
    return cells if len(cells) == width and not any(map(is_number, cells)) else None


def row_error(path, line, cells, reference):
    """Return the error of a line without the number of cells of a row."""
    return DataFileError(
        f"{path}, line {line}: {len(cells)} cell{'s'[: len(cells) != 1]}, but {reference}; all rows"
        " must have the same number of cells (see --delimiter, --decimal, --skip)"
    )


def lines_of(source, layout):
    """Yield ``(line, cells)`` for each line below the header that is not blank."""
    with source.open_text() as file:
        for _ in range(layout.skip):
            next(file)
        try:
            for number, cells in split_lines(file, layout.delimiter):
                yield number + layout.skip, cells
        except csv.Error as error:
            raise DataFileError(f"{source.name}: {error}") from error
