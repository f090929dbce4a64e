"""Shared code of the sums over patches: windows of one image, and rows of squared distances.

Distances are computed from norms and a product of centred, scaled rows, with an error of eps times
the norms; the error of k is q / 2 times that, q = -2 dk / d(r^2), and so is that of the
contractions. Pairs whose q is too large for the norms are recomputed, and contracted, by
differences: then k is as accurate as in ``pairwise``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ..common.compiled import kernel
from ..common.elementwise import power_of_half
from ..pairwise.tiles import FAR, LOG2E, LOOP, MATERN12, MATERN32, RBF, jit

LIMIT = 32  # of q (|a|^2 + |b|^2) / variance: up to here the error of k is at most 16 eps


class Stationary(NamedTuple):
    """A stationary function: its family, its variance, and 1 / lengthscales (d,)."""

    form = "i r R1"
    family: int
    variance: Any
    scale: Any


class Windows(NamedTuple):
    """A range of windows: ``geometry`` is (H, W, C, h, w, stride), ``span`` is (start, stop)."""

    form = "(i i i i i i) (i i)"
    geometry: tuple
    span: tuple


class Patches(NamedTuple):
    """Scaled patches of one image.

    rows : (P, d), of which the first ones are in use
    norms : (P,), squared
    group : (P,), the row that each window uses
    """

    rows: Any
    norms: Any
    group: Any


@jit
def room_for_patches(P, d, like):
    return Patches(np.empty((P, d), like.dtype), np.empty(P, like.dtype), np.empty(P, np.int64))


@jit
def take(image, geometry, windows, merge, patches, group):
    """Gather the patches of these windows of an image; with ``merge`` equal constant ones once.

    Returns how many rows there are.

    group : (P,), the row that each window uses in ``patches``.
    """
    _, W, C, h, w, stride = geometry
    columns, line, start = (W - w) // stride + 1, W * C, windows[0]
    constants, places = np.empty(group.size, image.dtype), np.empty(group.size, np.int64)
    count, known = 0, 0
    for p in range(start, windows[1]):
        corner = (p // columns * line + p % columns * C) * stride
        first, same, k = image[corner], merge, 0
        for i in range(h):
            for j in range(corner + i * line, corner + i * line + w * C):
                patches[count, k] = image[j]
                same &= image[j] == first
                k += 1
        at = count
        if same:
            for c in range(known):
                if constants[c] == first:
                    at = places[c]
                    break
            if at == count:
                constants[known], places[known] = first, count
                known += 1
        group[p - start] = at
        if at == count:
            count += 1
    return count


@jit
def put(patches_bar, scale, geometry, windows, image_bar):
    """Add the cotangents of scaled patches, one row per window, to those of an image."""
    _, W, C, h, w, stride = geometry
    columns, line, start = (W - w) // stride + 1, W * C, windows[0]
    for p in range(start, windows[1]):
        corner, k = (p // columns * line + p % columns * C) * stride, 0
        for i in range(h):
            for j in range(corner + i * line, corner + i * line + w * C):
                image_bar[j] += patches_bar[p - start, k] * scale[k]
                k += 1


@jit
def mean_of(patches, mean):
    mean[:] = 0
    for i in range(len(patches)):
        for d in range(mean.size):
            mean[d] += patches[i, d]
    for d in range(mean.size):
        m = mean[d] / len(patches)
        mean[d] = m if abs(m) < np.inf else 0  # a NaN must not spread to other patches


@kernel("R2 R1 R1 R1", **LOOP)
def normalise(patches, mean, scale, norms):
    """Replace patches by (x - mean) scale in place, and compute squared norms.

    Returns the largest norm. Sums and stores are in separate loops: see ``centre``.
    """
    largest = norms.dtype.type(0)
    for i in range(len(patches)):
        for d in range(mean.size):
            patches[i, d] = (patches[i, d] - mean[d]) * scale[d]
        total = norms.dtype.type(0)
        for d in range(mean.size):
            total += patches[i, d] * patches[i, d]
        norms[i] = total
        largest = max(largest, total)
    return largest


@jit
def merged(a, group, out):
    """Return out[g] = sum of a over the windows of row g; ``a`` itself if each has its own row."""
    if out.size == group.size:
        return a
    out[:] = 0
    for p in range(group.size):
        out[group[p]] += a[p]
    return out


@jit
def near_below(family, norms):
    """Return the r^2 below which q norms can exceed LIMIT (q of unit variance)."""
    x = norms / LIMIT
    if family == RBF:  # q = exp(-r^2/2)
        return 2 * math.log(x) if x > 1 else 0.0
    if family == MATERN12:  # q = exp(-r) / r
        r = max(1.0, math.log(x)) if x > 1 else x
        return r * r
    if family == MATERN32:  # q = 3 exp(-t)
        t = math.log(3 * x) if 3 * x > 1 else 0.0
        return t * t / 3
    # q = (5/3) (1 + t) exp(-t) < 2.03 exp(-t/2)
    t = 2 * math.log(2.03 * x) if 2.03 * x > 1 else 0.0
    return t * t / 5


@jit
def squared(products, a, norm, b, norms, limit, r2, near):
    """Compute r2 = norm + norms + products, with those below ``limit`` by differences.

    Returns how many are below the limit, with their j in ``near``.
    """
    zero, low, n = r2.dtype.type(0), 0, r2.size
    for j in range(n):
        r = products[j] + (norm + norms[j])
        r2[j] = zero if r < zero else r
        low += 1 if r < limit else 0
    if low == 0:
        return 0
    low = 0
    for j in range(n):
        if r2[j] < limit:
            near[low] = j
            low += 1
    for i in range(low):
        j, total = near[i], zero
        for d in range(a.size):
            e = b[j, d] - a[d]
            total += e * e
        r2[j] = total
    return low


@jit
def value_and_slope(family, variance, r2, k, q):
    """Compute k and q = -2 dk / d(r^2) from one exponential; see ``pairwise.tiles.weights``."""
    f = k.dtype.type
    zero, one, far = f(0), f(1), f(FAR)
    if family == RBF:
        factor = f(LOG2E / 2)
        for j in range(k.size):
            v = variance * power_of_half(factor * r2[j])
            k[j], q[j] = v, v
    elif family == MATERN12:
        factor = f(LOG2E)
        for j in range(k.size):
            r = math.sqrt(far if r2[j] > far else r2[j])
            v = variance * power_of_half(factor * r)
            k[j], q[j] = v, zero if r2[j] == zero else v / r
    elif family == MATERN32:
        factor, three = f(LOG2E), f(3)
        for j in range(k.size):
            t = math.sqrt(three * (far if r2[j] > far else r2[j]))
            v = variance * power_of_half(factor * t)
            k[j], q[j] = (one + t) * v, three * v
    else:
        factor, five, third, outer = f(LOG2E), f(5), f(1 / 3), f(5 / 3)
        for j in range(k.size):
            t = math.sqrt(five * (far if r2[j] > far else r2[j]))
            v = variance * power_of_half(factor * t)
            k[j], q[j] = (one + t + third * t * t) * v, outer * ((one + t) * v)


@jit
def dot(a, b):
    total = a.dtype.type(0)
    for j in range(b.size):
        total += a[j] * b[j]
    return total


@jit
def weigh(factor, a, k, q, r2, w, column_sums, k_sums):
    """Compute w = factor a q and add it to the column sums, and factor k to ``k_sums``.

    Returns the sums of w, w r^2 and a k.
    """
    zero = w.dtype.type(0)
    total, moment, value = zero, zero, zero
    for j in range(w.size):
        v = factor * k[j]
        e = factor * a[j] * q[j]
        w[j] = e
        total += e
        moment += e * r2[j]
        value += a[j] * k[j]
        column_sums[j] += e
        k_sums[j] += v
    return total, moment, value


@jit
def contract_near(factor, a, q, near, low, x, b, x_bar, b_bar, squares):
    """Contract the near pairs of a row by differences, in scaled units; set their q to 0.

    An empty b_bar is not written.
    """
    both = len(b_bar) > 0
    for i in range(low):
        j = near[i]
        w = factor * a[j] * q[j]
        q[j] = 0
        if w != 0:
            for d in range(x.size):
                e = b[j, d] - x[d]
                x_bar[d] += w * e
                squares[d] += w * e * e
                if both:
                    b_bar[j, d] -= w * e


# --- RBF rows without near pairs, the usual case: one loop without buffers ------------------------


@jit
def is_lean(family, products, norm, norms, limit):
    if family != RBF:
        return False
    low = 0
    if limit > 0:
        for j in range(products.size):
            low += 1 if products[j] + (norm + norms[j]) < limit else 0
    return low == 0


@jit
def lean_value(products, norm, norms, variance, a):
    """Return sum_j a k."""
    zero, factor = a.dtype.type(0), a.dtype.type(LOG2E / 2)
    total = zero
    for j in range(products.size):
        r = products[j] + (norm + norms[j])
        total += a[j] * power_of_half(factor * (zero if r < zero else r))
    return variance * total


@jit
def lean_weigh(w, norm, norms, variance, factor, a, k_sums):
    """Do the same as ``weigh`` for products stored in w, where q = k.

    The column sums of w are a times those of factor k. The sum of w is not returned.
    """
    zero, half = a.dtype.type(0), a.dtype.type(LOG2E / 2)
    value, moment, scaled = zero, zero, factor * variance
    for j in range(w.size):
        r = w[j] + (norm + norms[j])
        r = zero if r < zero else r
        u = power_of_half(half * r)
        v = scaled * u
        e = a[j] * v
        w[j] = e
        k_sums[j] += v
        value += a[j] * u
        moment += e * r
    return moment, variance * value
