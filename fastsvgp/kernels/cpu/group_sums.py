"""Sums of groups of a few arrays."""


def sum_each(groups, factor=1.0):
    sums = [sum(arrays[1:], arrays[0]) for arrays in groups]
    return sums if factor == 1.0 else [factor * total for total in sums]
