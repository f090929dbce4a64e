"""Stratified samples of units: those that a step looks at."""

from ..runtime.dispatch import family

twin = family("stratified")


def stratified_units(num, size, seed, step, stream, like):
    """``(units (size,), widths (size,))``: one of each of ``size`` blocks of neighbours, and how many there were to draw from.

    Block b is [b num // size, (b + 1) num // size) of ``num`` units; of int64 and float64. A pure
    function of seed and step, of 64 bits, and of ``stream``, of 32: the same on a device. ``like``:
    an array that lives where these are to be.
    """
    return twin(like=like).stratified_units(num, size, seed, step, stream, like)
