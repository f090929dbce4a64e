"""CPU twin of ``patches``; ``sums`` and ``pair_sums`` are compiled."""

import numpy as np

from ..common.batching import plain
from ..common.thread_pool import over_rows
from ..pairwise import FAMILIES, _scale
from ..pairwise.tiles import centre
from . import pair_sums as pairs, sums as sums
from .gather import Stationary, Windows


def _grid(geometry):
    """Return the rows and columns of windows."""
    H, W, _, h, w, stride = geometry
    return (H - h) // stride + 1, (W - w) // stride + 1


def _range(geometry, windows):
    """Return ``(start, stop, first, last)``: the windows, and the grid rows that contain them."""
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


# --- sums -----------------------------------------------------------------------------------------


def _work(entries, d):
    """Return the work in nanoseconds, roughly."""
    return entries * (1 + 0.05 * d)


def _centred(Z, scale):
    """Return rows scaled about their mean, their norms, and the mean.

    A NaN in the mean must not spread to other rows.
    """
    mean = np.nan_to_num(Z.mean(0), nan=0.0, posinf=0.0, neginf=0.0)
    rows, norms = np.empty(Z.shape, Z.dtype), np.empty(len(Z), Z.dtype)
    centre(0, len(Z), plain(Z), mean, scale, rows, norms)
    return sums.Centred(rows, norms, mean)


def _stationary(family, variance, lengthscales, D, dtype):
    return Stationary(FAMILIES[family], dtype.type(variance), _scale(lengthscales, D, dtype))


def patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows=None):
    k = _stationary(family, variance, lengthscales, Z.shape[1], X.dtype)
    cut = Windows(geometry, _range(geometry, windows)[:2])
    out = np.empty((len(Z), len(X)), X.dtype)
    arguments = k, _centred(Z, k.scale), plain(X), plain(np.atleast_2d(A)), cut, out
    over_rows(
        sums.sums, len(X), _work(out.size * A.shape[-1], Z.shape[1]), *arguments, products=True
    )
    return out


def patch_sums_vjp(K_bar, family, Z, X, A, variance, lengthscales, geometry, windows, need):
    dtype, shared = X.dtype, np.ndim(lengthscales) == 0
    k = _stationary(family, variance, lengthscales, Z.shape[1], dtype)
    cut, centred = Windows(geometry, _range(geometry, windows)[:2]), _centred(Z, k.scale)
    contract = "Z" in need or "lengthscales" in need and not shared
    X_bar = np.zeros((len(X) if "X" in need else 0, X.shape[1]), dtype)
    arguments = k, centred, plain(X), plain(np.atleast_2d(A)), plain(K_bar), cut, contract, X_bar
    work, chunks = 2 * _work(K_bar.size * A.shape[-1], Z.shape[1]), 1 if A.ndim == 2 else 2
    parts = over_rows(sums.sums_vjp, len(X), work, *arguments, chunks=chunks, products=True)
    EX, e, near, A_bar, squares, near_squares, moment, values = map(sum, zip(*parts, strict=True))
    rows, e = centred.rows, e[:, None]
    squares = squares + near_squares + (e * rows * rows - 2 * rows * EX).sum(0, dtype=np.float64)
    squares = moment + near_squares.sum() if shared else squares
    return (
        ((EX - e * rows + near) * k.scale).astype(dtype) if "Z" in need else None,
        X_bar if "X" in need else None,
        A_bar.reshape(A.shape).astype(dtype) if "A" in need else None,
        *_parameters(need, values, squares, variance, k.scale, dtype),
    )


def _parameters(need, values, squares, variance, scale, dtype):
    """Compute the cotangents of variance and lengthscales.

    ``values`` is sum K_bar k; ``squares`` is sum E (x - z)^2, or sum E r^2 if it is a number.
    """
    scale = scale if np.ndim(squares) else scale[0]
    variance_bar = dtype.type(values / float(variance)) if "variance" in need else None
    return variance_bar, (squares * scale).astype(dtype) if "lengthscales" in need else None


# --- sums over pairs ------------------------------------------------------------------------------


def _of_pairs(family, X, B, variance, lengthscales, geometry, windows, others):
    """Return ``(function, weights, pairs, work)`` for the compiled sums; work in nanoseconds."""
    H, W, C, h, w, _ = geometry
    symmetric, first = others is None, _range(geometry, windows)[:2]
    k = _stationary(family, variance, lengthscales, h * w * C, X.dtype)
    of_pairs = B.ndim == 2
    weights = pairs.Weights(
        np.empty(0, X.dtype) if of_pairs else plain(B),
        plain(B) if of_pairs else np.empty((0, 0), X.dtype),
    )
    second = first if symmetric else others
    cut = pairs.Pairs(geometry, first, tuple(second), symmetric)
    entries = len(X) * np.prod([stop - start for start, stop in (first, second)]) / (1 + symmetric)
    return k, weights, cut, _work(entries, len(k.scale))


def patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows=None, others=None):
    k, weights, cut, work = _of_pairs(
        family, X, B, variance, lengthscales, geometry, windows, others
    )
    out = np.empty(len(X), X.dtype)
    over_rows(pairs.pair_sums, len(X), work, k, plain(X), weights, cut, out, products=True)
    return out


def patch_pair_sums_vjp(
    k_bar, family, X, B, variance, lengthscales, geometry, windows, others, need
):
    k, weights, cut, work = _of_pairs(
        family, X, B, variance, lengthscales, geometry, windows, others
    )
    dtype, of_pairs, shared = X.dtype, B.ndim == 2, np.ndim(lengthscales) == 0
    X_bar = np.zeros((len(X) if "X" in need else 0, X.shape[1]), dtype)
    contract = "lengthscales" in need and not shared or "X" in need
    arguments = k, plain(X), weights, plain(k_bar), cut, contract, of_pairs and "B" in need, X_bar
    parts = over_rows(
        pairs.pair_sums_vjp,
        len(X),
        2 * work,
        *arguments,
        chunks=1 if of_pairs else 2,
        products=True,
    )
    b_bar, B_bar, squares, near_squares, moment, values = map(sum, zip(*parts, strict=True))
    squares = moment + near_squares.sum() if shared else squares + near_squares
    return (
        X_bar if "X" in need else None,
        (B_bar if of_pairs else b_bar).astype(dtype) if "B" in need else None,
        *_parameters(need, values, squares, variance, k.scale, dtype),
    )
