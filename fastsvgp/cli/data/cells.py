"""Classify cells of text files: numbers, marks of missing values, and names."""

import re

MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-", "."}
DECIMAL_COMMAS = "these look like decimal commas: write the numbers with decimal points"
THOUSANDS = (
    "these look like thousands separators: write 1012 for 1,012 (or 1.012, if they are decimal"
    " commas)"
)


def is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_missing(cell):
    return cell.strip().lower() in MISSING


def is_name(cell):
    return not is_number(cell) and not is_missing(cell)


def commas(cells):
    """Advice about text that is numbers except for commas; None if commas do not explain it."""
    odd = [cell for cell in cells if is_name(cell)]
    if odd and all(re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", cell) for cell in odd):
        return THOUSANDS
    if odd and all(cell.count(",") == 1 and is_number(cell.replace(",", ".")) for cell in odd):
        return DECIMAL_COMMAS
    return None
