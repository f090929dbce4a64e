"""Scaling and addition of gradients.

On a device all arrays of a gradient share one launch, because each of them is small.
"""

import numpy as np

from .. import kernels
from ..records import flat, is_record, tree_map
from ..runtime.deferred_checks import on_device

# to find a class here takes a fifth of the time of asking for an attribute that is not there
HOST = frozenset((np.ndarray, np.float64, np.float32, type(None)))


def scale_bars(factor, *trees):
    """Multiply records and arrays by a number; None stays None.

    The first tree determines whether all are on a device.
    """
    if factor == 1.0:
        return trees
    if on_device(trees[0]):
        return _sum_at_once([[tree] for tree in trees], factor)
    return [_each(lambda array: array * factor, [tree]) for tree in trees]


def add_gradients(*sums):
    """Sum each sequence of records of one structure, or of arrays.

    None is skipped; the sum of an empty sequence is None.
    """
    sums = [[tree for tree in trees if tree is not None] for trees in sums]
    firsts = [value for trees in sums for value in _leaves(trees)]
    if not HOST.issuperset(map(type, firsts)) and any(map(on_device, firsts)):
        return _sum_at_once(sums)
    return [_each(_sum, trees) for trees in sums]


def _sum_at_once(sums, factor=1.0):
    """Return ``factor`` times the sum of the trees in each list, in one launch."""
    groups = []
    for trees in sums:
        _each(lambda *arrays: groups.append(arrays), trees)
    on_devices = [arrays for arrays in groups if all(map(on_device, arrays))]
    on_devices = iter(kernels.sum_each(on_devices, factor) if on_devices else ())

    def result(*arrays):
        if all(map(on_device, arrays)):
            return next(on_devices)
        total = sum(arrays[1:], arrays[0])
        return total if factor == 1.0 else total * factor

    return [_each(result, trees) for trees in sums]


def _sum(first, *others):
    return sum(others, first)


def _leaves(trees):
    """Return the leaves of the first tree."""
    if trees and is_record(trees[0]):
        return flat(trees[0])[2]
    return trees[:1]


def _each(function, trees):
    if not trees or trees[0] is None:
        return None
    return tree_map(function, *trees) if is_record(trees[0]) else function(*trees)
