"""Windows of images, and sums of stationary functions over them, image by image through ``pairwise``."""

import numpy as np

from . import pairwise


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


def patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows=None):
    out = np.empty((len(Z), len(X)), X.dtype)
    for n in range(len(X)):
        patches = gather_patches(X[n : n + 1], geometry, windows)[0]
        out[:, n] = (A * pairwise.stationary(family, Z, patches, variance, lengthscales)).sum(1)
    return out


def patch_sums_vjp(K_bar, family, Z, X, A, variance, lengthscales, geometry, windows, need):
    bars = {name: np.zeros_like(value) for name, value in dict(Z=Z, X=X, A=A, variance=variance, lengthscales=lengthscales).items()}
    names = tuple({"Z": "X1", "X": "X2"}.get(name, name) for name in need)
    for n in range(len(X)):
        patches, k_bar = gather_patches(X[n : n + 1], geometry, windows)[0], K_bar[:, n, None]
        K = pairwise.stationary(family, Z, patches, variance, lengthscales)
        found = pairwise.stationary_vjp(A * k_bar, family, Z, patches, variance, lengthscales, names, K)
        for name, bar in zip(("Z", "patches", "variance", "lengthscales"), found, strict=True):
            if name == "patches" and bar is not None:
                bars["X"][n] = gather_patches_vjp(bar[None], geometry, windows)[0]
            elif bar is not None:
                bars[name] = bars[name] + bar
        bars["A"] += K * k_bar if A.ndim == 2 else (K * k_bar).sum(0)
    return tuple(bars[name] if name in need else None for name in bars)


def patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows=None, others=None):
    out, weights = np.empty(len(X), X.dtype), _pair_weights(B)
    for n in range(len(X)):
        first, second = _both(X[n : n + 1], geometry, windows, others)
        out[n] = (weights * pairwise.stationary(family, first, second, variance, lengthscales)).sum(dtype=np.float64)
    return out


def patch_pair_sums_vjp(k_bar, family, X, B, variance, lengthscales, geometry, windows, others, need):
    bars = {name: np.zeros_like(value) for name, value in dict(X=X, B=B, variance=variance, lengthscales=lengthscales).items()}
    names, weights = tuple(name for n in need for name in (("X1", "X2") if n == "X" else (n,))), _pair_weights(B)
    for n in range(len(X)):
        first, second = _both(X[n : n + 1], geometry, windows, others)
        K = pairwise.stationary(family, first, second, variance, lengthscales)
        found = pairwise.stationary_vjp(k_bar[n] * weights, family, first, second, variance, lengthscales, names, K)
        for bar, at in zip(found[:2], (windows, others), strict=True):
            if bar is not None:
                bars["X"][n] += gather_patches_vjp(bar[None], geometry, at)[0]
        for name, bar in zip(("variance", "lengthscales"), found[2:], strict=True):
            if bar is not None:
                bars[name] = bars[name] + bar
        bars["B"] += k_bar[n] * K if B.ndim == 2 else 2 * k_bar[n] * (K * B).sum(1)
    return tuple(bars[name] if name in need else None for name in bars)


def _pair_weights(B):
    return B if B.ndim == 2 else B[:, None] * B


def _both(X, geometry, windows, others):
    """The patches of one image in both ranges, (P, d) each; None for the second where it is the first."""
    return gather_patches(X, geometry, windows)[0], None if others is None else gather_patches(X, geometry, others)[0]
