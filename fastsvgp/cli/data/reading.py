"""Read the columns of a table as numbers and text: what each one holds, by its cells.

A column of text is numbers if its cells have a form that can be read (``forms``); otherwise its
levels are inputs, or it is left out.
"""

import logging
import shlex
from dataclasses import dataclass, field

import numpy as np

from ... import DataFileError
from ..errors import UsageError
from ..settings.names import LEVELS
from . import forms
from .cells import is_missing, is_number

log = logging.getLogger("fastsvgp")
CODES = 3  # different cells that can be codes of missing values, at most
FEW = 0.1  # largest share of cells without the form of their column that can count as missing


@dataclass
class Raw:
    """Columns before encoding.

    ``numbers`` (N, C) is NaN where a value is missing. ``text`` maps positions to the cells of text
    columns, None where missing. ``forms`` maps positions to the ``Form`` of columns that have one,
    and ``joins`` those of clocks to those of their dates, whose numbers have the time.
    """

    names: list
    numbers: np.ndarray
    text: dict
    forms: dict = field(default_factory=dict)
    joins: dict = field(default_factory=dict)


@dataclass
class Kinds:
    """How columns are read, by their positions in the table; all others are numbers."""

    text: set = field(default_factory=set)
    forms: dict = field(default_factory=dict)
    joins: dict = field(default_factory=dict)

    def __bool__(self):
        return bool(self.text or self.forms)

    def of(self, column):
        """Return the kind of one column of numbers."""
        forms = {i: form for i, form in self.forms.items() if i == column}
        return Kinds(forms=forms)


def read_raw(table, positions, kinds, missing, optional=True):
    """Read the columns at ``positions`` in the way of ``kinds``.

    ``optional``: as in ``Table.inputs``.
    """
    plain = [j for j, i in enumerate(positions) if i not in kinds.text and i not in kinds.forms]
    numbers = np.full((table.num_rows, len(positions)), np.nan)
    numbers[:, plain] = table.inputs([positions[j] for j in plain], optional, missing)
    text = {j: _present(table, i) for j, i in enumerate(positions) if i in kinds.text}
    todo = "give --missing median to make them a level"
    for j, cells in text.items():
        _check_there(table, positions[j], cells, missing, todo, optional)
    of_forms = {j: kinds.forms[i] for j, i in enumerate(positions) if i in kinds.forms}
    for j, form in of_forms.items():
        numbers[:, j] = _read_form(table, positions[j], form, missing, optional)
    joins = {positions.index(i): positions.index(date) for i, date in kinds.joins.items()}
    for j, date in joins.items():
        numbers[:, date] += numbers[:, j]
    return Raw([table.names[i] for i in positions], numbers, text, of_forms, joins)


def _present(table, i, form=None):
    """Return the cells of a column, perhaps with a form; None where missing."""
    if form is not None and form.of_digits and i not in table.text:
        return forms.as_cells(table.numbers[:, i])
    return table.present(i, form)


def _check_there(table, i, cells, missing, todo, optional):
    if missing == "error" and None in cells:
        name, row = table.names[i], cells.index(None)
        raise DataFileError(
            f"{table.path}, {table.place(row)}, column {name!r}: the value is missing; fill in"
            " these cells or remove their rows, or"
            f" {todo if optional else 'fit again with --missing median'}"
        )


def _read_form(table, i, form, missing, optional):
    """Return a column as numbers.

    If values can be missing, a few cells without the form count as missing.
    """
    cells, name = _present(table, i, form), table.names[i]
    _check_there(table, i, cells, missing, "fill them in with --missing median", optional)
    values = form.numbers(cells)
    there = np.array([cell is not None for cell in cells])
    odd = there & np.isnan(values)
    if not odd.any():
        return values
    row, count = int(odd.argmax()), int(odd.sum())
    where = (
        f"{table.path}, {table.place(row)}, column {name!r}: {cells[row]!r} is not"
        f" {forms.ARTICLES[form.kind]}{'' if form == forms.PLAIN else f' ({form})'}"
    )
    more = f" (the first of {count} such cells)" if count > 1 else ""
    if missing == "error" or count > FEW * there.sum():
        raise DataFileError(
            f"{where}{more}; correct such cells{_instead(odd, cells, name, optional)}"
        )
    log.warning("%s%s; it counts as missing", where, more)
    return values


def _instead(odd, cells, name, optional):
    """Advice beside that to correct the cells that are ``odd``."""
    if not optional:
        return ""
    different = list(dict.fromkeys(cell for cell, one in zip(cells, odd, strict=True) if one))
    marks = (
        f"give --na {shlex.quote(','.join(different))} --missing median if they mark missing values"
        if len(different) <= CODES and all(map(can_be_code, different))
        else "empty them and give --missing median"
    )
    return f", {marks}, or leave out the column with --ignore {shlex.quote(name)}"


def can_be_code(cell):
    return is_number(cell) or not any(letter.isdigit() or letter == "," for letter in cell)


# --- what a column holds --------------------------------------------------------------------------


def choose(table, columns):
    """Return ``(columns, kinds)``: the columns that are inputs, and their ``Kinds``.

    Text with a level in more than half of the rows is no input; this is logged.
    """
    kinds, out = Kinds(), []
    for i in columns:
        if i not in table.text:
            _choose_code(table, i, kinds)
        elif not _choose_text(table, i, kinds):
            out.append(i)
    kept = [i for i in columns if i not in out]
    if not kept:
        raise UsageError(
            f"{table.path}: no input is left, because {_arbitrary(table, out[0])}; give numbers,"
            " dates, or text with fewer levels"
        )
    for i in out:
        log.warning("%s: %s, so it is left out", table.path, _arbitrary(table, i))
    kinds.joins = _joins(table, kept, kinds.forms)
    return kept, kinds


def _choose_text(table, i, kinds):
    """Choose how to read a column of text; return False if it has too many levels."""
    present = [cell for cell in table.text[i] if not is_missing(cell)]
    levels = set(present)
    repeated = 2 * len(levels) <= len(present)
    form, odd = table.form_of(i)
    if form is None:
        kinds.text |= {i} if repeated else set()
        return repeated
    if odd is not None and repeated and len(levels) <= LEVELS and _are_names(form, levels):
        kinds.text.add(i)
        if form != forms.PLAIN:
            log.warning(
                "%s, column %r: most cells are %s (%s), but %r is not, so the column remains text",
                *(table.path, table.names[i], forms.NOUNS[form.kind], form, odd),
            )
    else:
        kinds.forms[i] = form
    return True


def _are_names(form, levels):
    """Whether cells, not all of which have a form, can be names: no fractions are among them."""
    values = form.numbers(levels)
    return form.kind != "number" or np.array_equal(values, np.round(values), equal_nan=True)


def _choose_code(table, i, kinds):
    """Choose how to read a column of numbers, whose digits can be dates."""
    form, odd = forms.find_code(table.numbers[:, i])
    if form is not None and odd is None:
        kinds.forms[i] = form
    elif form is not None:
        log.warning(
            "%s, column %r: most numbers are dates (%s), but %s is not, so all are read as numbers",
            *(table.path, table.names[i], form, odd),
        )


def _arbitrary(table, i):
    cell, place = table.first_text(i)
    levels = len({cell for cell in table.text[i] if not is_missing(cell)})
    return (
        f"column {table.names[i]!r} holds text with {levels} levels in {table.num_rows} rows"
        f" ({cell!r}, {place})"
    )


def _joins(table, columns, known):
    """Return ``{clock: date}`` for clocks in a column beside their date, or the only two."""
    clocks = [i for i in columns if i in known and known[i].kind == "clock"]
    days = [i for i in columns if i in known and known[i].of_days] if clocks else []
    days = [i for i in days if not np.any(known[i].numbers(_present(table, i, known[i])) % 1 > 0)]
    joins = {}
    for clock in clocks:
        at = columns.index(clock)
        beside = [*columns[max(at - 1, 0) : at], *columns[at + 1 : at + 2]]
        alone = days if len(clocks) == len(days) == 1 else []
        free = [i for i in (*beside, *alone) if i in days and i not in joins.values()]
        if free:
            joins[clock] = free[0]
    return joins
