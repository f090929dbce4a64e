"""A fingerprint of many numbers, which shows whether all of them are equal."""

from ..runtime.dispatch import family

twin = family("fingerprint")


def fold_bits(numbers):
    """(2,) uint64 on the host of ``numbers`` (n,), contiguous float64: exclusive or, and sum modulo 2^64, of their bits.

    The same wherever they live, and in any order. From a device a few hundred numbers are copied.
    One pass.
    """
    return twin(numbers=numbers).fold_bits(numbers)
