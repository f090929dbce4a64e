"""Classify cells of text files: numbers, marks of missing values, and names."""

import re

MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-", "."}
_FORTRAN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))[dD]([+-]\d{1,3})")


def number_of(cell):
    """Return the number of a cell; None if it is none.

    A typographic minus, and Fortran's exponents of double precision (1.2D+03), are understood.
    """
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
