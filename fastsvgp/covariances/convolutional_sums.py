"""Sums of a covariance over windows of images.

Stationary covariances use fused kernels; others sum ``matrix`` chunk by chunk.
"""

import numpy as np

from .. import kernels
from ..records import plus
from ..runtime import tuning
from .base import needs
from .stationary import Stationary


def num_windows(geometry):
    H, W, _, h, w, stride = geometry
    return ((H - h) // stride + 1) * ((W - w) // stride + 1)


def ranges(total, size):
    """``(start, stop)`` of ranges of at most ``size`` that cover ``total``."""
    size = max(1, size)
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def range_pairs(total, size=None):
    """Pairs of ranges that cover one triangle of all pairs; the second is None if equal."""
    runs = ranges(total, tuning.current.window_range if size is None else size)
    return [(a, b if a != b else None) for i, b in enumerate(runs) for a in runs[: i + 1]]


def chunk_size(like):
    now, on_host = tuning.current, type(like) is np.ndarray
    return now.window_chunk_numbers if on_host else now.window_chunk_numbers_on_device


def windows_per_chunk(like, geometry):
    """Number of windows of an image whose patches fit a chunk."""
    _, _, C, h, w, _ = geometry
    return max(1, chunk_size(like) // (h * w * C))


def _call_fused(covariance, kernel, *arguments, need, inputs):
    """Call the reverse rule of a stationary covariance's kernel: its record, and inputs' bars."""
    fields = tuple(field for field in ("variance", "lengthscales") if needs(need, field))
    names = *fields, *(name for name in need if name in inputs)
    *bars, variance_bar, lengthscales_bar = kernel(*arguments, names)
    covariance_bar = type(covariance)(variance_bar, lengthscales_bar) if fields else None
    return covariance_bar, *bars


# --- sum_p A_mp k(z_m, x_n[p]) --------------------------------------------------------------------


def sums(covariance, Z, X, A, geometry, windows):
    """The sums (M, N), with A (M, P) or (P,)."""
    if isinstance(covariance, Stationary):
        parameters = covariance.variance, covariance.lengthscales
        return kernels.patch_sums(covariance.family, Z, X, A, *parameters, geometry, windows)
    out = np.zeros((len(Z), len(X)), X.dtype, like=X)
    for images, here, part in _chunks(Z, X, windows, geometry):
        patches = kernels.gather_patches(X[images], geometry, here)
        K = covariance.matrix(Z, patches.reshape(-1, Z.shape[1]))
        K = K.reshape(len(Z), *patches.shape[:2])
        K *= A[..., None, part]
        out[:, images] += K.sum(-1)
    return out


def sums_vjp(covariance, K_bar, Z, X, A, geometry, windows, need):
    """``(covariance_bar, Z_bar, X_bar, A_bar)``.

    ``need`` holds "covariance" or fields of it, "Z", "X", "A".
    """
    if isinstance(covariance, Stationary):
        own = covariance.family, Z, X, A, covariance.variance, covariance.lengthscales
        arguments = K_bar, *own, geometry, windows
        kernel = kernels.patch_sums_vjp
        return _call_fused(covariance, kernel, *arguments, need=need, inputs=("Z", "X", "A"))
    names = tuple({"Z": "X1", "X": "X2"}.get(name, name) for name in need if name != "A")
    total = None, np.zeros_like(Z) if "Z" in need else None
    X_bar = np.zeros_like(X) if "X" in need else None
    A_bar = np.zeros(A.shape, A.dtype, like=A) if "A" in need else None
    for images, here, part in _chunks(Z, X, windows, geometry):
        patches = kernels.gather_patches(X[images], geometry, here)
        flat, bar = patches.reshape(-1, Z.shape[1]), K_bar[:, images, None]
        K = covariance.matrix(Z, flat) if "A" in need else None
        if names:
            weights = (bar * A[..., None, part]).reshape(len(Z), -1)
            covariance_bar, Z_bar, patches_bar = covariance.matrix_vjp(weights, K, Z, flat, names)
            total = plus((covariance_bar, Z_bar), total)
            if "X" in need:
                X_bar[images] += kernels.gather_patches_vjp(
                    patches_bar.reshape(patches.shape), geometry, here
                )
        if "A" in need:
            A_bar[..., part] += (K.reshape(len(Z), *patches.shape[:2]) * bar).sum(
                1 if A.ndim == 2 else (0, 1)
            )
    return *total, X_bar, A_bar


def _chunks(Z, X, windows, geometry):
    """Images of each chunk, its windows, and their positions among the requested windows."""
    first, last = (0, num_windows(geometry)) if windows is None else windows
    numbers = max(1, chunk_size(X) // max(Z.shape))  # patches
    for start, stop in ranges(last - first, numbers):
        for a, b in ranges(len(X), numbers // (stop - start)):
            yield slice(a, b), (first + start, first + stop), slice(start, stop)


# --- sum_pq B_pq k(x_n[p], x_n[q]) ----------------------------------------------------------------


def _is_fused(covariance, X, B, geometry):
    fits = B.ndim == 2 or len(B) <= windows_per_chunk(X, geometry)
    return fits and isinstance(covariance, Stationary)


def pair_sums(covariance, X, B, geometry, windows=None, others=None):
    """The sums (N,); B is (P, P) symmetric, (P,) for b b' of all windows, or (P, Q) with others."""
    if _is_fused(covariance, X, B, geometry):
        own = B, covariance.variance, covariance.lengthscales
        return kernels.patch_pair_sums(covariance.family, X, *own, geometry, windows, others)
    if B.ndim == 1:
        pairs = range_pairs(len(B))
        return sum(pair_sums(covariance, X, outer(B, *at), geometry, *at) for at in pairs)
    out = np.empty(len(X), X.dtype, like=X)
    for n in range(len(X)):
        K = covariance.matrix(*_both_ranges(X[n : n + 1], geometry, windows, others))
        K *= B
        out[n] = K.sum(dtype=np.float64)
    return out


def pair_sums_vjp(
    covariance, k_bar, X, B, geometry, windows=None, others=None, need=("covariance", "X", "B")
):
    """``(covariance_bar, X_bar, B_bar)``; B_bar is defined as in ``patch_pair_sums_vjp``."""
    arguments = k_bar, X, B, geometry
    if _is_fused(covariance, X, B, geometry):
        own = covariance.family, X, B, covariance.variance, covariance.lengthscales
        arguments = k_bar, *own, geometry, windows, others
        kernel = kernels.patch_pair_sums_vjp
        return _call_fused(covariance, kernel, *arguments, need=need, inputs=("X", "B"))
    if B.ndim == 1:
        return _outer_pair_sums_vjp(covariance, *arguments, need)
    return _image_pair_sums_vjp(covariance, *arguments, windows, others, need)


def _outer_pair_sums_vjp(covariance, k_bar, X, b, geometry, need):
    """``pair_sums_vjp`` for b b' of all windows, a pair of ranges of them at a time."""
    total, b_bar = (None, None), np.zeros(b.shape, b.dtype, like=b)
    for at in range_pairs(len(b)):
        *bars, B_bar = pair_sums_vjp(covariance, k_bar, X, outer(b, *at), geometry, *at, need)
        total = plus(tuple(bars), total)
        if B_bar is not None:
            add_outer_bar(b_bar, b, B_bar, *at)
    return *total, b_bar if "B" in need else None


def _image_pair_sums_vjp(covariance, k_bar, X, B, geometry, windows, others, need):
    """``pair_sums_vjp`` by the covariance's matrices, an image at a time."""
    names = tuple(name for n in need if n != "B" for name in (("X1", "X2") if n == "X" else (n,)))
    covariance_bar, X_bar = None, np.zeros(X.shape, X.dtype, like=X) if "X" in need else None
    B_bar = np.zeros(B.shape, B.dtype, like=B) if "B" in need else None
    for n in range(len(X)):
        first, second = _both_ranges(X[n : n + 1], geometry, windows, others)
        K = covariance.matrix(first, second) if "B" in need else None
        if names:
            one_bar, *patches_bars = covariance.matrix_vjp(k_bar[n] * B, K, first, second, names)
            covariance_bar = plus(one_bar, covariance_bar)
            for bar, at in zip(patches_bars, (windows, others), strict=True):
                if bar is not None:
                    X_bar[n : n + 1] += kernels.gather_patches_vjp(bar[None], geometry, at)
        if "B" in need:
            K *= k_bar[n]
            B_bar += K
    return covariance_bar, X_bar, B_bar


def outer(b, first, second):
    """A block of b b'; doubled off the diagonal, where it also counts for its transpose."""
    left, right, times = _sides(first, second)
    return times * b[left, None] * b[right]


def add_outer_bar(b_bar, b, B_bar, first, second):
    """Add the pullback of ``outer`` to the cotangent of b."""
    left, right, times = _sides(first, second)
    b_bar[left] += times * (B_bar * b[right]).sum(1)
    b_bar[right] += times * (B_bar * b[left, None]).sum(0)


def _sides(first, second):
    return slice(*first), slice(*(second or first)), 1 if second is None else 2


def _both_ranges(X, geometry, windows, others):
    """The patches of one image in both ranges; None for the second if there is only one range."""
    second = None if others is None else kernels.gather_patches(X, geometry, others)[0]
    return kernels.gather_patches(X, geometry, windows)[0], second
