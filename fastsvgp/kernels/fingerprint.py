"""Fingerprint of an array, which shows whether two arrays hold equal numbers."""

from ..runtime.dispatch import operation


@operation("numbers")
def fold_bits(numbers):
    """Fold the bits of contiguous float64 ``numbers`` (n,) into a fingerprint.

    It is (2,) uint64 on the host: the exclusive or, and the sum modulo 2^64, of the bit patterns.
    Neither depends on where the numbers are or on their order. From a GPU a few hundred numbers are
    copied. One pass.
    """
