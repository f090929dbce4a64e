"""Classify cells of text files: numbers, marks of missing values, and names."""

import re

import numpy as np

MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-", "."}
# errors of spreadsheets, and NaN as C libraries of several systems write it
MISSING |= {"#n/a", "#n/a n/a", "#na", "#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!"}
MISSING |= {"<na>", "nat", "-nan", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind"}
_FORTRAN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))[dD]([+-]\d{1,3})")


def number_of(cell):
    """Return the number of a cell; None if it is none.

    A typographic minus, and Fortran's exponents of double precision (1.2D+03), are understood.
    Digits with underscores are names, although Python reads them.
    """
    if "_" in cell:
        return None
    try:
        return float(cell)
    except ValueError:
        pass
    try:
        return float(_FORTRAN.sub(r"\1e\2", cell.replace("\u2212", "-")))
    except ValueError:
        return None


def is_number(cell):
    return number_of(cell) is not None


def is_missing(cell):
    return cell.strip().lower() in MISSING


def is_name(cell):
    return not is_number(cell) and not is_missing(cell)


def is_figure(cell):
    """Whether a cell is digits and signs: a number, an amount, a date, a clock."""
    return is_number(cell) or bool(re.search(r"\d", cell)) and not re.search(r"[^\W\d_]", cell)


def is_word(cell):
    return is_name(cell) and not is_figure(cell)


class Codes:
    """Codes that mark missing values: text as it is, numbers in any notation.

    ``words`` : sequence of str, as in ``--na``
    """

    def __init__(self, words):
        self.text = set(words)
        self.numbers = [number_of(word) for word in words if is_number(word)]

    def blank(self, cells):
        """Return cells, empty where one holds a code."""
        return ["" if self._marks(cell) else cell for cell in cells] if self.text else cells

    def _marks(self, cell):
        return cell in self.text or number_of(cell) in self.numbers

    def holes(self, values):
        """Return an array of numbers, NaN where it holds a code."""
        return np.where(np.isin(values, self.numbers), np.nan, values) if self.numbers else values
