"""Sums of a few arrays each, many at a time."""

from ..runtime.dispatch import family

twin = family("group_sums")


def sum_each(groups, factor=1.0):
    """``factor`` times the sum of each group of arrays of one shape, a list of arrays.

    Six groups of three are one launch.
    """
    named = {
        f"groups[{i}][{j}]": array
        for i, arrays in enumerate(groups)
        for j, array in enumerate(arrays)
    }
    return twin(**named).sum_each(groups, factor)
