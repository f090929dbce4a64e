"""Fingerprint of an array, which shows whether two arrays hold equal numbers."""

import numpy as np


def fold_bits(numbers):
    bits = numbers.view(np.uint64)
    return np.array([np.bitwise_xor.reduce(bits), np.add.reduce(bits)])
