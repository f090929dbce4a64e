"""CUDA twin of ``patches``: launches of ``kernels_cuda/patches.cu``.

Patches are read in place in their image; equal ones are not merged. Nothing synchronises. The
splitting of sums depends only on the shapes and on the device, so results are the same from run to
run. The memory of partial sums is proportional to the blocks of the device or to the weights of
pairs, whatever the number of images.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...runtime import cuda_devices
from . import products
from .common import loader
from .common.loader import NULL, number, parameter
from .pairwise import FAMILIES, _sum_parts, _sum_sides

# as in patches.cu: threads of a block, columns of a tile, rows of a tile in either kernel
BLOCK, WIDE, TALL, HEIGHT = 256, 64, 64, 32
BLOCKS_EACH = 8  # per multiprocessor
SCRATCH = 1 << 24  # numbers of the partial sums of an image chunk, and weights of pairs at a time
_launch = loader.launcher("patches", BLOCK)


# --- windows --------------------------------------------------------------------------------------


def _grid(geometry):
    """Return the rows and columns of windows."""
    H, W, _, h, w, stride = geometry
    return (H - h) // stride + 1, (W - w) // stride + 1


def _range(geometry, windows):
    rows, columns = _grid(geometry)
    return (0, rows * columns) if windows is None else windows


def _size(geometry, windows):
    start, stop = _range(geometry, windows)
    return stop - start


def _windows(X, geometry, windows):
    """Return the windows of images as kernel arguments: see ``windows_t``."""
    H, W, C, _, _, stride = geometry
    start, stop = _range(geometry, windows)
    steps = np.int64(H * W * C), np.int64(stride * W * C), np.int64(stride * C), np.int64(W * C)
    return X, *steps, np.uint32(start), np.uint32(_grid(geometry)[1]), np.int32(stop - start)


def _inducing(Z, geometry):
    """Return inducing patches as kernel arguments: stacked in one image that all images share."""
    _, _, C, _, w, _ = geometry
    steps = np.int64(0), np.int64(Z.shape[1]), np.int64(0), np.int64(w * C)
    return Z, *steps, np.uint32(0), np.uint32(1), np.int32(len(Z))


def _patch(geometry):
    """Return the numbers of a patch, and how many of them are contiguous."""
    _, _, C, h, w, _ = geometry
    return np.int32(h * w * C), np.int32(w * C)


def gather_patches(X, geometry, windows=None):
    cp, P, patch = cuda_devices.cupy(), _size(geometry, windows), _patch(geometry)
    out = cp.empty((len(X), P, int(patch[0])), X.dtype)
    if out.size:
        images = _windows(cp.ascontiguousarray(X), geometry, windows)
        _launch("gather", X.dtype, (len(X), -(-P // WIDE)), *images, *patch, out)
    return out


def gather_patches_vjp(patches_bar, geometry, windows=None):
    cp, (N, P, _), dtype = cuda_devices.cupy(), patches_bar.shape, patches_bar.dtype
    H, W, C = geometry[:3]
    X_bar = cp.empty((N, H * W * C), dtype)
    if X_bar.size:
        sizes = (*geometry, _range(geometry, windows)[0], P)
        given = cp.ascontiguousarray(patches_bar), *map(np.int32, sizes), X_bar
        _launch("scatter", dtype, (N, -(-H * W * C // BLOCK)), *given)
    return X_bar


def window_places(geometry, like, windows=None):
    cp, columns, stride = cuda_devices.cupy(), _grid(geometry)[1], geometry[5]
    p = cp.arange(*_range(geometry, windows))
    return (cp.stack([p // columns, p % columns], 1) * stride).astype(like.dtype)


# --- pairs of patches -----------------------------------------------------------------------------


def _pairs(model, left, right, A, half, tiles):
    """Return the arguments that both kernels share.

    ``model`` is (family, variance, lengthscales, geometry); A (rows, columns) has any strides; a
    block processes ``tiles`` tiles of columns.
    """
    family, variance, lengthscales, geometry = model
    function = (
        np.int32(FAMILIES[family]),
        *number(variance, A.dtype),
        *parameter(lengthscales, A.dtype),
        *_patch(geometry),
    )
    return *function, *left, *right, A, *_strides(A), np.int32(half), np.int32(tiles)


def _strides(a):
    return tuple(np.int64(step // a.itemsize) for step in a.strides)


def _split(total, shares):
    """Split ``total`` items into at most ``shares`` equal chunks: return their size and number."""
    each = -(-total // max(1, min(total, shares)))
    return each, -(-total // each)


def _row_sums(model, left, right, A, N, half=False):
    """Compute sum_j A[i, j] k(row i, column j of image n), in float64 parts (shares, rows, N)."""
    rows, columns = A.shape
    high, across = -(-rows // TALL), -(-columns // WIDE)
    tiles, shares = _split(across, BLOCKS_EACH * cuda_devices.multiprocessors() // (N * high))
    parts = cuda_devices.cupy().empty((shares, rows, N))
    _launch("sums", A.dtype, (N, high, shares), *_pairs(model, left, right, A, half, tiles), parts)
    return parts


class _Parts(NamedTuple):
    """Partial sums of a contraction in float64; null pointers for those that are not needed."""

    sides: Any
    weights: Any
    squares: Any
    total: Any
    radial: Any


def _contract(model, left, right, A, bar, axis, need, half, each_image):
    """Launch the contraction of ``_pull``; return its ``_Parts``."""
    _, _, lengthscales, geometry = model
    cp, (rows, columns), N = cuda_devices.cupy(), A.shape, bar.shape[-1]
    D = int(_patch(geometry)[0])
    high, across = -(-rows // HEIGHT), -(-columns // WIDE)
    most = BLOCKS_EACH * cuda_devices.multiprocessors()
    tiles, strips = _split(across, most // (high * N) if each_image else most // high)
    share, shares = _split(
        N, min(-(-most // (high * strips)), SCRATCH // A.size if "A" in need else N)
    )
    blocks, slots = shares * high * strips, (N, strips) if each_image else (1, shares * strips)
    by_feature = "lengthscales" in need and np.ndim(lengthscales) > 0
    parts = _Parts(
        cp.zeros((*slots, D, rows)) if "sides" in need else NULL,
        cp.zeros((shares, rows, columns)) if "A" in need else NULL,
        cp.zeros((blocks, D)) if by_feature else NULL,
        cp.empty(blocks),
        cp.empty(blocks),
    )
    *line, step = _strides(bar)
    steps = *(line[0] if axis == i else np.int64(0) for i in range(2)), step
    sizes = np.int32(N), np.int32(share), np.int32(each_image)
    arguments = *_pairs(model, left, right, A, half, tiles), bar, *steps, *sizes
    _launch("contract", A.dtype, (shares, high, strips), *arguments, *parts)
    return parts


def _pull(model, left, right, A, bar, axis, need, half=False, each_image=False):
    """Compute cotangents of the sum over n, i, j of bar A[i, j] k(row i, column j of image n).

    Returns a dictionary with the names in ``need``: "sides" of the rows, (1, rows, d) or for
    ``each_image`` (N, rows, d), "A", "variance", "lengthscales". bar is (rows, N), (columns, N) or
    (N,): its first axis matches axis 0 or 1 of the pairs, or is absent, as ``axis`` says (0, 1 or
    None). With ``half`` A and its cotangent are symmetric.
    """
    _, variance, lengthscales, geometry = model
    cp, dtype, of_all, found = cuda_devices.cupy(), A.dtype, np.ndim(lengthscales) == 0, {}
    parts = _contract(model, left, right, A, bar, axis, need, half, each_image)
    if "sides" in need:
        found["sides"] = cp.empty((len(parts.sides), len(A), int(_patch(geometry)[0])), dtype)
        _sum_sides(parts.sides, 1, lengthscales, found["sides"])
    if "A" in need:
        found["A"] = parts.weights.sum(0).astype(dtype)
        if half:
            products.symmetrise(found["A"])
    if "variance" in need:
        found["variance"] = cp.empty((), dtype)
        _sum_parts(parts.total, variance, False, found["variance"])
    if "lengthscales" in need:
        found["lengthscales"] = cp.empty(np.shape(lengthscales), dtype)
        squares = parts.radial if of_all else parts.squares
        _sum_parts(squares, lengthscales, not of_all, found["lengthscales"])
    return found


def _pull_images(model, X, windows, columns_of, A, bar, axis, need):
    """Apply ``_pull`` to rows that are windows of images X, one image chunk at a time.

    "X" replaces "sides" in the result.
    """
    geometry, total = model[-1], {"X": cuda_devices.cupy().empty_like(X)}
    run = max(1, SCRATCH // (len(A) * int(_patch(geometry)[0])))
    for start in range(0, len(X), run):
        part = slice(start, start + run)
        rows, columns = _windows(X[part], geometry, windows), columns_of(X[part])
        found = _pull(model, rows, columns, A, bar[..., part], axis, need, each_image=True)
        total["X"][part] = gather_patches_vjp(found.pop("sides"), geometry, windows)
        for name, value in found.items():
            total[name] = total[name] + value if name in total else value
    return total


def _zeros(need, **arrays):
    """Allocate zeros for each cotangent that is needed."""
    cp = cuda_devices.cupy()
    return {
        name: cp.zeros(np.shape(a), arrays["X"].dtype) if name in need else None
        for name, a in arrays.items()
    }


def _add(bars, found):
    for name, bar in found.items():
        bars[name] += bar


# --- the operations -------------------------------------------------------------------------------


def patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows=None):
    cp, P = cuda_devices.cupy(), _size(geometry, windows)
    if len(Z) * len(X) * P == 0:
        return cp.zeros((len(Z), len(X)), X.dtype)
    rows = _inducing(cp.ascontiguousarray(Z), geometry)
    columns = _windows(cp.ascontiguousarray(X), geometry, windows)
    model, A = (family, variance, lengthscales, geometry), cp.broadcast_to(A, (len(Z), P))
    return _row_sums(model, rows, columns, A, len(X)).sum(0).astype(X.dtype)


def patch_sums_vjp(K_bar, family, Z, X, A, variance, lengthscales, geometry, windows, need):
    cp, (start, stop) = cuda_devices.cupy(), _range(geometry, windows)
    model = family, variance, lengthscales, geometry
    bars = _zeros(need, Z=Z, X=X, A=A, variance=variance, lengthscales=lengthscales)
    if K_bar.size == 0 or start == stop:
        return tuple(bars.values())
    Z, X = map(cp.ascontiguousarray, (Z, X))
    weights = cp.broadcast_to(A, (len(Z), stop - start))
    rows, own = _inducing(Z, geometry), {"sides" if n == "Z" else n for n in need if n != "X"}
    run = max(1, SCRATCH // len(Z)) if "A" in own and A.ndim == 1 else stop - start
    for first in range(start, stop, run) if own else ():
        here = first, min(stop, first + run)
        at = slice(here[0] - start, here[1] - start)
        found = _pull(model, rows, _windows(X, geometry, here), weights[:, at], K_bar, 0, own)
        if "Z" in need:
            bars["Z"] += found.pop("sides")[0]
        if "A" in need:
            A_bar = found.pop("A")
            bars["A"][..., at] = A_bar if A.ndim == 2 else A_bar.sum(0)
        _add(bars, found)
    if "X" in need:
        _add(bars, _pull_images(model, X, windows, lambda X: rows, weights.T, K_bar, 1, {"sides"}))
    return tuple(bars.values())


def patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows=None, others=None):
    cp, total, model = cuda_devices.cupy(), 0, (family, variance, lengthscales, geometry)
    if B.size == 0 or len(X) == 0:
        return cp.zeros(len(X), X.dtype)
    X = cp.ascontiguousarray(X)
    for first, second, weights in _blocks(B, geometry, windows, others):
        rows, columns = (_windows(X, geometry, at) for at in (first, second or first))
        total = total + _row_sums(model, rows, columns, weights, len(X), half=second is None).sum(
            (0, 1)
        )
    return total.astype(X.dtype)


def patch_pair_sums_vjp(
    k_bar, family, X, B, variance, lengthscales, geometry, windows, others, need
):
    """Without X one side of the diagonal is enough; the cotangent of X needs all pairs."""
    bars = _zeros(need, X=X, B=B, variance=variance, lengthscales=lengthscales)
    model = family, variance, lengthscales, geometry
    if B.size == 0 or len(X) == 0 or not need:
        return tuple(bars.values())
    X, start = cuda_devices.cupy().ascontiguousarray(X), _range(geometry, windows)[0]
    own = {{"B": "A", "X": "sides"}.get(name, name) for name in need}
    for first, second, weights in _blocks(B, geometry, windows, others):
        rows_of, columns_of = (
            functools.partial(_windows, geometry=geometry, windows=at)
            for at in (first, second or first)
        )
        if "X" not in need:
            found = _pull(
                model, rows_of(X), columns_of(X), weights, k_bar, None, own, half=second is None
            )
        else:
            found = _pull_images(model, X, first, columns_of, weights, k_bar, None, own)
            if second is None:
                found["X"] *= 2
            else:
                _add(
                    found,
                    _pull_images(model, X, second, rows_of, weights.T, k_bar, None, {"sides"}),
                )
        if "B" in need:
            B_bar = found.pop("A")
            if B.ndim == 2:
                bars["B"] += B_bar
            else:
                places = (slice(a - start, b - start) for a, b in (first, second or first))
                _add_outer_bar(bars["B"], B, B_bar, *places)
        _add(bars, found)
    return tuple(bars.values())


def _blocks(B, geometry, windows, others):
    """Yield ``(first, second, weights)``: two ranges of windows and the weights of their pairs.

    ``second`` is None if it equals ``first``. The weights are B, or for b b' the blocks on one side
    of the diagonal, with a factor 2 off the diagonal.
    """
    start, stop = _range(geometry, windows)
    if B.ndim == 2:
        yield (start, stop), others, B
        return
    size = int(SCRATCH**0.5)
    runs = [(a, min(stop, a + size)) for a in range(start, stop, size)]
    for i, first in enumerate(runs):
        for second in runs[: i + 1]:
            b, c = (B[u - start : v - start] for u, v in (first, second))
            alike = first == second
            yield first, None if alike else second, (1 if alike else 2) * b[:, None] * c


def _add_outer_bar(b_bar, b, B_bar, first, second):
    """Add the contribution of one block's cotangent to that of b."""
    twice = 1 if first == second else 2
    b_bar[first] += twice * (B_bar * b[second]).sum(1)
    b_bar[second] += twice * (B_bar * b[first, None]).sum(0)
