"""Stratified units from counters, against one counter at a time."""

import numpy as np

from fastsvgp.kernels.cpu import stratified

from .common import Case, plain

LOW, SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@plain
def random_pair(c0, c1, c2, c3, k0, k1):
    for _ in range(10):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> SHIFT) ^ c1 ^ k0, p1 & LOW, (p0 >> SHIFT) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return c0, c1


@plain
def stratified_units(num, size, seed, step, stream, units, widths):
    each, rest = num // size, num % size
    for b in range(size):
        first, last = b * each + b * rest // size, (b + 1) * each + (b + 1) * rest // size
        width = np.uint64(last - first)
        high, low = random_pair(
            np.uint64(b), step & LOW, step >> SHIFT, stream, seed & LOW, seed >> SHIFT
        )
        units[b] = first + np.int64((high * width + (low * width >> SHIFT)) >> SHIFT)
        widths[b] = last - first
    return units, widths


def cases(dtype):
    for num, size in (100_000, 500), (10_000_000, 10_000):
        numbers = num, size, np.uint64(7), np.uint64(11), np.uint64(2)
        units, widths = np.empty(size, np.int64), np.empty(size)
        yield Case(
            f"stratified_units, {size} of {num}",
            lambda: stratified.stratified_units(*numbers, dtype.type(0)),
            lambda: stratified_units(*numbers, units, widths),
            0,
        )
