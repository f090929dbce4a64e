"""Stratified samples of units, which a step uses."""

from ..runtime.dispatch import operation


@operation("like")
def stratified_units(num, size, seed, step, stream, like):
    """Draw one unit per block: ``(units (size,), widths (size,))``, the latter sizes of blocks.

    Block b is [b num // size, (b + 1) num // size) of ``num`` units; int64 and float64. A pure
    function of seed and step, of 64 bits, and of ``stream``, of 32: the same on a device. ``like``:
    an array on the device of the results.
    """
