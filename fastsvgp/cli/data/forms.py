"""The form of a column that is no plain numbers: dates, clocks, elapsed times, angles, units.

All cells of a column decide. A form is saved with the model, and later files are read by it.
"""

from collections import Counter
from dataclasses import asdict, dataclass, replace

import numpy as np

from . import dates, quantities
from .cells import is_missing

SAMPLE = 200  # different cells that decide which forms are tried
CHANCE = 1e-6  # of numbers at random whose digits all are dates
KINDS = {
    "date": dates.DATES.keys() | dates.CODES.keys(),
    "clock": dates.CLOCKS.keys(),
    "number": quantities.NUMBERS.keys(),
    "elapsed": quantities.ELAPSED.keys(),
    "angle": quantities.ANGLES.keys(),
}
ARTICLES = {
    "date": "a date",
    "clock": "a time of day",
    "number": "a number",
    "elapsed": "an elapsed time",
    "angle": "an angle",
}
NOUNS = {
    "date": "dates",
    "clock": "times of day",
    "number": "numbers",
    "elapsed": "elapsed times",
    "angle": "angles",
}
FORMS = {name: kind for kind, names in KINDS.items() for name in names}


@dataclass(frozen=True)
class Form:
    """The form of the cells of a column.

    ``name`` is one of ``FORMS``. ``other``: another form that all cells had too, or "". A number
    has a unit ``before`` or ``after`` it.
    """

    name: str
    other: str = ""
    before: str = ""
    after: str = ""

    @property
    def kind(self):
        return FORMS[self.name]

    @property
    def of_digits(self):
        """Whether the cells are numbers whose digits are a date."""
        return self.name in dates.CODES

    @property
    def is_possible(self):
        """Whether the fields, of untrusted JSON, can be read."""
        return all(isinstance(value, str) for value in asdict(self).values()) and self.name in FORMS

    def to_json(self):
        return asdict(self)

    def number(self, cell):
        """Return the number of a cell; None if it has another form."""
        if self.kind == "number":
            return quantities.number(cell, self.name, (self.before, self.after))
        if self.kind == "elapsed":
            return quantities.parse_elapsed(cell, self.name)
        if self.kind == "angle":
            return quantities.angle(cell, self.name)
        return dates.days_of(cell, self.name)

    def numbers(self, cells):
        """Return numbers (N,) of cells; NaN where one is missing (None) or has another form."""
        known = {cell: self.number(cell) for cell in set(cells) if cell is not None}
        return np.array([known.get(cell) for cell in cells], np.float64)

    @property
    def of_days(self):
        """Whether the cells are days, without or with the time."""
        return self.kind == "date" and "day" in dates.CYCLES[self.name]

    def __str__(self):
        """Describe the form, for example "YYYY-MM-DD", with what was assumed."""
        short = self.name in dates.DATES and "S" in dates.DATES[self.name].layout
        last = dates.CENTURY + 99
        before = f"{self.before} " if self.before.isalpha() else self.before
        words = [f"{before}{self.name} {self.after}".strip()]  # "$1,234.5", "1,234.5 mm"
        words += [f"two-digit years are {dates.CENTURY} to {last}"] * short
        mark = quantities.NUMBERS.get(self.other, "")[1:]
        option = f": --decimal {mark[0]}" if mark else ""
        words += [f"assumed, because {self.other} fits too{option}"] * bool(self.other)
        return ", ".join(words)


PLAIN = Form("1,234.5")


def find(cells):
    """Find the form of a column of text.

    Returns
    -------
    form : Form or None
        The form that most cells have, more than half of those that are not missing.
    odd : str or None
        The first cell that does not have this form.

    Of several forms that all cells have, dates come before clocks, numbers, elapsed times and
    angles; of several dates the one with the fewest different years, and the first in the list.
    """
    counts = Counter(cell for cell in cells if not is_missing(cell))
    found = _able(counts)
    if not found:
        return None, None
    best = max(count for *_, count in found)
    able = [(form, values) for form, values, count in found if count == best]
    form, values = min(able, key=lambda pair: _rank(*pair))
    if best < counts.total():
        return form, list(counts)[int(np.isnan(values).argmax())]
    others = (
        other.name
        for other, numbers in able
        if other.kind == form.kind and not np.array_equal(numbers, values)
    )
    return replace(form, other=next(others, "")), None


def _able(counts):
    """Return the forms that most cells have, with the numbers of the different cells.

    counts : Counter of cells

    Returns
    -------
    list of (form, (C,) array, number of cells)
    """
    some, each = list(counts)[:SAMPLE], np.array(list(counts.values()))
    unit = quantities.unit_of(some)
    units = [] if unit is None else [Form(name, "", *unit) for name in quantities.NUMBERS]
    forms = [Form(name) for name in (*dates.DATES, *dates.CLOCKS)]
    forms += units + [Form(name) for name in (*quantities.ELAPSED, *quantities.ANGLES)]
    able = []
    for form in forms:
        if any(form.number(cell) is not None for cell in some):
            values = form.numbers(counts)
            able.append((form, values, int(each[~np.isnan(values)].sum())))
    return [one for one in able if 2 * one[2] > counts.total()]


def _rank(form, values):
    """Return what is least for the form that counts."""
    kind = list(KINDS).index(form.kind)
    return kind, dates.years(values[~np.isnan(values)]) if kind == 0 else 0


def find_code(values):
    """Return ``(form, odd)`` as ``find`` does, for numbers (N,) whose digits can be dates."""
    values = values[~np.isnan(values)]
    for name, (*_, share) in dates.CODES.items() if _are_years(values) else ():
        form, some = Form(name), np.unique(values[:SAMPLE])
        if 2 * np.isfinite(form.numbers(as_cells(some))).sum() > len(some):
            cells = as_cells(np.unique(values))
            there = np.isfinite(form.numbers(cells))
            if share ** there.sum() < CHANCE:
                return form, None if there.all() else cells[int(there.argmin())]
    return None, None


def _are_years(values):
    """Whether numbers can begin with a year."""
    return len(values) > 0 and 1500 < values.min() <= values.max() < 2.6e13


def as_cells(values):
    """Return numbers (N,) as cells of text, None where one is missing."""
    return [None if v != v else repr(v).removesuffix(".0") for v in values.tolist()]
