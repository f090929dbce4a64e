"""Whether a row is a header.

It is a header if all cells are text, or if some are above a number in the next row, but not if all
cells occur again in their columns. The counts 0, 1, 2... are names written by pandas, but data if
all following numbers are whole as well, unless an empty cell is above the index of pandas. Years in
a row, such as 1990, 1991, 1992, are names unless the numbers below are years.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import join
from .cells import is_figure, is_missing, is_name, is_number, is_word

log = logging.getLogger("fastsvgp")

# A rule takes the cells of the row, of the row ``below``, and of all ``following`` rows.


def _values_of_all_columns(first, below, following):
    columns = list(zip(*following, strict=True))
    if not columns or _some_name_above_a_number(first, below, following):
        return False
    return all(
        is_name(cell) and cell in column for cell, column in zip(first, columns, strict=True)
    )


def _all_names(first, below, following):
    return all(map(is_name, first)) and any(map(is_word, first))


def _some_name_above_a_number(first, below, following):
    return any(
        is_name(cell) and is_number(under) or is_word(cell) and is_figure(under)
        for cell, under in zip(first, below, strict=False)
    )


def _names_without_numbers(first, below, following):
    return not any(map(is_number, first)) and _some_name_above_a_number(first, below, following)


def _names_and_empty_cells(first, below, following):
    return any(map(is_word, first)) and all(is_name(cell) or not cell for cell in first)


def _counts(first, below, following):
    return len(first) > 2 and first == [str(i) for i in range(len(first))]


def _counts_beside_an_index(first, below, following):
    return not first[0] and all(row[0] for row in following) and _counts(first[1:], None, None)


def _counts_above_fractions(first, below, following):
    return _counts(first, below, following) and not all(
        cell.lstrip("+-").isdigit() or is_missing(cell) for row in following for cell in row
    )


def years(first, below, following):
    at = [j for j, cell in enumerate(first) if is_number(cell)]
    if not all(_is_year(first[j]) for j in at):
        return False
    steps = {int(first[k]) - int(first[j]) for j, k in zip(at, at[1:], strict=False)}
    return (
        len(at) > 2
        and len(steps) == 1
        and steps != {0}
        and not any(_is_year(row[j]) for row in following for j in at)
        and not any(
            cell and cell in column
            for cell, column in zip(first, zip(*following, strict=True), strict=False)
        )
    )


def _is_year(cell):
    return cell.isdecimal() and 1500 <= int(cell) <= 2500


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
    HeaderRule(_values_of_all_columns, False, True, ("red,dark", "red,dark")),
    HeaderRule(_all_names, True, False, ("a,b", "1,2")),
    HeaderRule(_names_without_numbers, True, False, ("a,na", "1,2")),
    HeaderRule(_some_name_above_a_number, True, True, ("a,2020", "1,2")),
    HeaderRule(_names_and_empty_cells, True, True, ("a,", "x,2")),
    HeaderRule(_counts_above_fractions, True, True, ("0,1,2", "0.5,1,2")),
    HeaderRule(_counts_beside_an_index, True, True, (",0,1,2", "0,5,1,2")),
    HeaderRule(_counts, False, True, ("0,1,2", "5,1,2")),
    HeaderRule(years, True, True, ("a,1990,1991,1992", "x,1,2,3")),
    HeaderRule(_anything, False, False, ("1,2", "3,4")),
)


def is_header(path, first, following):
    """Whether a row is a header; an ambiguous decision is logged."""
    below = following[0] if following else []
    rule = next(rule for rule in HEADER_RULES if rule.holds(first, below, following))
    if rule.ambiguous:
        decision = (
            "column names; give --header no if it is data"
            if rule.names
            else "data; give --header yes if it is column names"
        )
        log.warning("%s: the first line (%s) is read as %s", path, join(first), decision)
    return rule.names
