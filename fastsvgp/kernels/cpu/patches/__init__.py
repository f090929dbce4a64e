"""Windows of images, and sums of stationary functions over them; ``patches_sums`` and ``patches_pairs`` are compiled."""

import numpy as np

from ..common.batching import plain
from ..common.thread_pool import over_rows
from ..pairwise import FAMILIES, _scale
from ..pairwise.tiles import centre
from . import pair_sums as pairs, sums as sums


def _grid(geometry):
    """Rows and columns of windows."""
    H, W, _, h, w, stride = geometry
    return (H - h) // stride + 1, (W - w) // stride + 1


def _range(geometry, windows):
    """``(start, stop, first, last)``: the windows, and the rows of the grid that hold them."""
    rows, columns = _grid(geometry)
    start, stop = (0, rows * columns) if windows is None else windows
    return start, stop, start // columns, -(-stop // columns)


def gather_patches(X, geometry, windows=None):
    H, W, C, h, w, stride = geometry
    start, stop, first, last = _range(geometry, windows)
    columns = _grid(geometry)[1]
    strip = X.reshape(len(X), H, W, C)[:, first * stride : max(last - 1, 0) * stride + h]
    views = np.lib.stride_tricks.sliding_window_view(strip, (h, w), (1, 2))[:, ::stride, ::stride]
    patches = views.transpose(0, 1, 2, 4, 5, 3).reshape(len(X), -1, h * w * C)
    return np.ascontiguousarray(patches[:, start - first * columns : stop - first * columns])


def gather_patches_vjp(patches_bar, geometry, windows=None):
    H, W, C, h, w, stride = geometry
    start, stop, first, last = _range(geometry, windows)
    columns, N = _grid(geometry)[1], len(patches_bar)
    whole = np.zeros((N, (last - first) * columns, h * w * C), patches_bar.dtype)
    whole[:, start - first * columns : stop - first * columns] = patches_bar
    whole = whole.reshape(N, last - first, columns, h, w, C)
    X_bar = np.zeros((N, H, W, C), patches_bar.dtype)
    for i in range(h):
        for j in range(w):
            at = first * stride + i
            X_bar[:, at : at + (last - first) * stride : stride, j : j + columns * stride : stride][
                :, : last - first, :columns
            ] += whole[:, :, :, i, j]
    return X_bar.reshape(N, H * W * C)


def window_places(geometry, like, windows=None):
    start, stop, _, _ = _range(geometry, windows)
    rows, columns = np.divmod(np.arange(start, stop), _grid(geometry)[1])
    return (np.stack([rows, columns], 1) * geometry[5]).astype(like.dtype)


# --- sums ------------------------------------------------------------------------------------------------------------------


def _work(entries, d):
    """Nanoseconds, about."""
    return entries * (1 + 0.05 * d)


def _centred(Z, scale):
    """Scaled rows about their mean, their norms, and the mean.

    A NaN in it must not spread to other rows.
    """
    mean = np.nan_to_num(Z.mean(0), nan=0.0, posinf=0.0, neginf=0.0)
    rows, norms = np.empty(Z.shape, Z.dtype), np.empty(len(Z), Z.dtype)
    centre(0, len(Z), plain(Z), mean, scale, rows, norms)
    return rows, norms, mean


def patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows=None):
    dtype, scale, windows = (
        X.dtype,
        _scale(lengthscales, Z.shape[1], X.dtype),
        _range(geometry, windows)[:2],
    )
    rows, norms, mean = _centred(Z, scale)
    out = np.empty((len(Z), len(X)), dtype)
    arguments = (
        FAMILIES[family],
        rows,
        norms,
        plain(X),
        plain(np.atleast_2d(A)),
        dtype.type(variance),
        mean,
        scale,
    )
    over_rows(
        sums.sums,
        len(X),
        _work(out.size * A.shape[-1], len(scale)),
        *arguments,
        geometry,
        windows,
        out,
    )
    return out


def patch_sums_vjp(K_bar, family, Z, X, A, variance, lengthscales, geometry, windows, need):
    dtype, scale, windows = (
        X.dtype,
        _scale(lengthscales, Z.shape[1], X.dtype),
        _range(geometry, windows)[:2],
    )
    rows, norms, mean = _centred(Z, scale)
    shared = np.ndim(lengthscales) == 0
    contract = "Z" in need or "lengthscales" in need and not shared
    X_bar = np.zeros((len(X) if "X" in need else 0, X.shape[1]), dtype)
    arguments = (
        FAMILIES[family],
        rows,
        norms,
        plain(X),
        plain(np.atleast_2d(A)),
        plain(K_bar),
        dtype.type(variance),
        mean,
        scale,
    )
    work, chunks = 2 * _work(K_bar.size * A.shape[-1], len(scale)), 1 if A.ndim == 2 else 2
    parts = over_rows(
        sums.sums_vjp, len(X), work, *arguments, geometry, windows, contract, X_bar, chunks=chunks
    )
    EX, e, near, A_bar, squares, near_squares, moment, values = map(sum, zip(*parts, strict=True))
    squares = (
        squares + near_squares + (e[:, None] * rows * rows - 2 * rows * EX).sum(0, dtype=np.float64)
    )
    return (
        ((EX - e[:, None] * rows + near) * scale).astype(dtype) if "Z" in need else None,
        X_bar if "X" in need else None,
        A_bar.reshape(A.shape).astype(dtype) if "A" in need else None,
        *_parameters(
            need, values, moment + near_squares.sum() if shared else squares, variance, scale, dtype
        ),
    )


def _parameters(need, values, squares, variance, scale, dtype):
    """Cotangents of variance and lengthscales from sum K_bar k, and sum E (x - z)^2 or, if a number, sum E r^2."""
    scale = scale if np.ndim(squares) else scale[0]
    variance_bar = dtype.type(values / float(variance)) if "variance" in need else None
    return variance_bar, (squares * scale).astype(dtype) if "lengthscales" in need else None


# --- sums over pairs -------------------------------------------------------------------------------------------------------


def _of_pairs(family, X, B, variance, lengthscales, geometry, windows, others):
    """``(arguments, work)`` of the compiled sums: what both share, and nanoseconds."""
    H, W, C, h, w, _ = geometry
    dtype, symmetric, windows = X.dtype, others is None, _range(geometry, windows)[:2]
    scale = _scale(lengthscales, h * w * C, dtype)
    b, B = (plain(B), np.empty((0, 0), dtype)) if B.ndim == 1 else (np.empty(0, dtype), plain(B))
    windows = windows, windows if symmetric else others
    entries = len(X) * np.prod([stop - start for start, stop in windows]) / (1 + symmetric)
    shapes = scale, geometry, *windows, symmetric
    return (
        (FAMILIES[family], plain(X), b, B),
        (dtype.type(variance), *shapes),
        _work(entries, len(scale)),
    )


def patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows=None, others=None):
    first, second, work = _of_pairs(family, X, B, variance, lengthscales, geometry, windows, others)
    out = np.empty(len(X), X.dtype)
    over_rows(pairs.pair_sums, len(X), work, *first, *second, out)
    return out


def patch_pair_sums_vjp(
    k_bar, family, X, B, variance, lengthscales, geometry, windows, others, need
):
    first, second, work = _of_pairs(family, X, B, variance, lengthscales, geometry, windows, others)
    dtype, scale, shared = X.dtype, second[1], np.ndim(lengthscales) == 0
    X_bar = np.zeros((len(X) if "X" in need else 0, X.shape[1]), dtype)
    flags = "lengthscales" in need and not shared or "X" in need, B.ndim == 2 and "B" in need
    arguments, chunks = (*first, plain(k_bar), *second, *flags, X_bar), 1 if B.ndim == 2 else 2
    parts = over_rows(pairs.pair_sums_vjp, len(X), 2 * work, *arguments, chunks=chunks)
    b_bar, B_bar, squares, near_squares, moment, values = map(sum, zip(*parts, strict=True))
    squares = moment + near_squares.sum() if shared else squares + near_squares
    return (
        X_bar if "X" in need else None,
        (b_bar if B.ndim == 1 else B_bar).astype(dtype) if "B" in need else None,
        *_parameters(need, values, squares, variance, scale, dtype),
    )
