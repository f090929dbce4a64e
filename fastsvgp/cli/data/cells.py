"""Classify cells of text files: numbers, marks of missing values, and names."""

import re

import numpy as np

MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-", "."}
# errors of spreadsheets, and NaN as C libraries of several systems write it
MISSING |= {"#n/a", "#n/a n/a", "#na", "#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!"}
MISSING |= {"<na>", "nat", "-nan", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind"}
DECIMAL_COMMAS = "these look like decimal commas: write the numbers with decimal points"
THOUSANDS = (
    "these look like thousands separators: write 1012 for 1,012 (or 1.012, if they are decimal"
    " commas)"
)


def number_of(cell):
    """Return the number of a cell; None if it is none."""
    try:
        return float(cell)
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


def commas(cells):
    """Advice about text that is numbers except for commas; None if commas do not explain it."""
    odd = [cell for cell in cells if is_name(cell)]
    if odd and all(re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", cell) for cell in odd):
        return THOUSANDS
    if odd and all(cell.count(",") == 1 and is_number(cell.replace(",", ".")) for cell in odd):
        return DECIMAL_COMMAS
    return None


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
