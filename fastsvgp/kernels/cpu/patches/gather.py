"""The patches of one image: windows, scaled rows, merged weights, and their transposes."""

from typing import Any, NamedTuple

import numpy as np

from ..pairwise.tiles import centre, jit


class Windows(NamedTuple):
    """A range of windows: ``geometry`` is (H, W, C, h, w, stride), ``span`` is (start, stop)."""

    form = "(i i i i i i) (i i)"
    geometry: tuple
    span: tuple


class Side(NamedTuple):
    """One side of the pairs: the inducing patches, or the patches of a range of windows.

    rows : (P, d), scaled and centred patches, of which the first ones are in use
    norms : (P,), squared
    group : the row that each row of the weights belongs to
    bar, near : (P, d) or empty: cotangents of rows; the part of near pairs
    """

    form = "R2 R1 I1 R2 R2"
    rows: Any
    norms: Any
    group: Any
    bar: Any
    near: Any


@jit
def room(P, d, bars, like):
    """Return a side of P windows; with ``bars`` it has room for their cotangents."""
    dtype, held = like.dtype, P if bars else 0
    return Side(
        np.empty((P, d), dtype),
        np.empty(P, dtype),
        np.empty(P, np.int64),
        np.zeros((held, d), dtype),
        np.zeros((held, d), dtype),
    )


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


@jit
def normalise(patches, mean, scale, norms):
    """Replace patches by (x - mean) scale in place; compute squared norms, return the largest."""
    centre(0, len(patches), patches, mean, scale, patches, norms)
    largest = norms.dtype.type(0)
    for i in range(len(patches)):
        largest = max(largest, norms[i])
    return largest


@jit
def merged(A, rows, columns, count, others):
    """Return the sums (count, others) of A over the windows of each pair of rows.

    A itself if each window has its own row.
    """
    if count == rows.size and others == columns.size:
        return A
    out = np.zeros((count, others), A.dtype)
    for p in range(rows.size):
        for q in range(columns.size):
            out[rows[p], columns[q]] += A[p, q]
    return out


@jit
def spread(bar, rows, columns, A_bar):
    """Add the cotangents of merged weights to those of A."""
    for p in range(rows.size):
        for q in range(columns.size):
            A_bar[p, q] += bar[rows[p], columns[q]]
