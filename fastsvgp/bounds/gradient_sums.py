"""Scaling and addition of gradients.

On a device all arrays of a gradient share one launch, because each of them is small.
"""

from .. import kernels
from ..records import is_record, leaves, tree_map
from ..runtime.deferred_checks import on_device


def scaled(factor, *trees):
    """Multiply records and arrays by a number; None stays None.

    The first tree determines whether all are on a device.
    """
    if factor == 1.0:
        return trees
    if on_device(trees[0]):
        return _joined([[tree] for tree in trees], factor)
    return [_each(lambda array: array * factor, [tree]) for tree in trees]


def added(*sums):
    """Sum each sequence of records of one structure, or of arrays.

    None is skipped; the sum of an empty sequence is None.
    """
    sums = [[tree for tree in trees if tree is not None] for trees in sums]
    if any(on_device(value) for trees in sums for value in _leaves(trees)):
        return _joined(sums)
    return [_each(lambda *arrays: sum(arrays[1:], arrays[0]), trees) for trees in sums]


def _joined(sums, factor=1.0):
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


def _leaves(trees):
    """Return the leaves of the first tree."""
    return (
        [value for _, _, value in leaves(trees[0])] if trees and is_record(trees[0]) else trees[:1]
    )


def _each(function, trees):
    if not trees or trees[0] is None:
        return None
    return tree_map(function, *trees) if is_record(trees[0]) else function(*trees)
