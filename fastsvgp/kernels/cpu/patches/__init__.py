"""CPU twin of ``patches``; ``sums`` is compiled."""

import numpy as np

from ..common.batching import plain
from ..common.thread_pool import over_rows
from ..pairwise import FAMILIES, _scale
from ..pairwise.tiles import centre
from . import sums
from .blocks import Stationary
from .gather import Side, Windows


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
    count = views.shape[1] * views.shape[2]
    patches = views.transpose(0, 1, 2, 4, 5, 3).reshape(len(X), count, h * w * C)
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


def _centred(Z, A, scale):
    """Return rows scaled about their mean as a side, and the mean.

    A NaN in the mean must not spread to other rows.
    """
    mean = np.nan_to_num(Z.mean(0), nan=0.0, posinf=0.0, neginf=0.0)
    rows, norms = np.empty(Z.shape, Z.dtype), np.empty(len(Z), Z.dtype)
    centre(0, len(Z), plain(Z), mean, scale, rows, norms)
    return Side(rows, norms, np.arange(len(A)), rows[:0], rows[:0]), mean


def _stationary(family, variance, lengthscales, D, dtype):
    return Stationary(FAMILIES[family], dtype.type(variance), _scale(lengthscales, D, dtype))


def patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows=None):
    k = _stationary(family, variance, lengthscales, Z.shape[1], X.dtype)
    cut, A = Windows(geometry, _range(geometry, windows)[:2]), plain(np.atleast_2d(A))
    out = np.empty((len(Z), len(X)), X.dtype)
    arguments = k, *_centred(Z, A, k.scale), plain(X), A, cut, out
    over_rows(
        sums.sums, len(X), _work(out.size * A.shape[-1], Z.shape[1]), *arguments, products=True
    )
    return out


def patch_sums_vjp(K_bar, family, Z, X, A, variance, lengthscales, geometry, windows, need):
    dtype, shared = X.dtype, np.ndim(lengthscales) == 0
    k = _stationary(family, variance, lengthscales, Z.shape[1], dtype)
    cut, weights = Windows(geometry, _range(geometry, windows)[:2]), plain(np.atleast_2d(A))
    contract = "Z" in need or "X" in need or "lengthscales" in need and not shared
    X_bar = np.zeros((len(X) if "X" in need else 0, X.shape[1]), dtype)
    centred = _centred(Z, weights, k.scale)
    arguments = k, *centred, plain(X), weights, plain(K_bar), cut, contract, X_bar
    work, chunks = 2 * _work(K_bar.size * A.shape[-1], Z.shape[1]), 1 if A.ndim == 2 else 2
    parts = over_rows(sums.sums_vjp, len(X), work, *arguments, chunks=chunks, products=True)
    Z_bar, A_bar, squares, moment, values = map(sum, zip(*parts, strict=True))
    return (
        (Z_bar * k.scale).astype(dtype, copy=False) if "Z" in need else None,
        X_bar if "X" in need else None,
        A_bar.reshape(A.shape).astype(dtype) if "A" in need else None,
        *_parameters(need, values, squares, moment, shared, variance, k.scale, dtype),
    )


def _parameters(need, values, squares, moment, shared, variance, scale, dtype):
    """Compute the cotangents of variance and lengthscales.

    ``values`` is sum K_bar k. ``squares`` is sum E (x - z)^2 of near pairs, and of all others; if
    the lengthscale is shared, ``moment`` is sum E r^2 of the others.
    """
    squares = (squares[0].sum() + moment) * scale[0] if shared else squares.sum(0) * scale
    variance_bar = dtype.type(values / float(variance)) if "variance" in need else None
    return variance_bar, squares.astype(dtype) if "lengthscales" in need else None


# --- sums over pairs ------------------------------------------------------------------------------


def _of_pairs(family, X, B, variance, lengthscales, geometry, windows, others):
    """Return the first arguments of the compiled sums, the windows, and the nanoseconds of work."""
    H, W, C, h, w, _ = geometry
    symmetric, first = others is None, _range(geometry, windows)[:2]
    k = _stationary(family, variance, lengthscales, h * w * C, X.dtype)
    second = first if symmetric else others
    cut = sums.Pairs(geometry, first, tuple(second), symmetric)
    entries = len(X) * np.prod([stop - start for start, stop in (first, second)]) / (1 + symmetric)
    arguments = k, plain(X), plain(np.atleast_2d(B)), B.ndim == 2
    return arguments, cut, _work(entries, len(k.scale))


def patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows=None, others=None):
    arguments, cut, work = _of_pairs(
        family, X, B, variance, lengthscales, geometry, windows, others
    )
    out = np.empty(len(X), X.dtype)
    over_rows(sums.pair_sums, len(X), work, *arguments, cut, out, products=True)
    return out


def patch_pair_sums_vjp(
    k_bar, family, X, B, variance, lengthscales, geometry, windows, others, need
):
    arguments, cut, work = _of_pairs(
        family, X, B, variance, lengthscales, geometry, windows, others
    )
    k, of_pairs = arguments[0], arguments[-1]
    dtype, shared = X.dtype, np.ndim(lengthscales) == 0
    X_bar = np.zeros((len(X) if "X" in need else 0, X.shape[1]), dtype)
    contract = "lengthscales" in need and not shared or "X" in need
    parts = over_rows(
        sums.pair_sums_vjp, len(X), 2 * work, *arguments, plain(k_bar), cut, contract,
        "B" in need, X_bar, chunks=1 if of_pairs else 2, products=True,
    )  # fmt: skip
    B_bar, squares, moment, values = map(sum, zip(*parts, strict=True))
    return (
        X_bar if "X" in need else None,
        B_bar.reshape(B.shape).astype(dtype) if "B" in need else None,
        *_parameters(need, values, squares, moment, shared, variance, k.scale, dtype),
    )
