"""Plain formulas, in float64, for the results of single calls of kernels on large arrays.

``xp`` is NumPy or CuPy. The sums are products of matrices wherever they can be, so the references
of ``first_times.py`` take seconds on a GPU. ``tests/test_first_times.py`` compares them with the
definitions.
"""

import numpy as np


def doubles(xp, *arrays):
    return tuple(xp.asarray(a).astype(np.float64) for a in arrays)


def error_of(xp, found, truth):
    """Return the largest error of arrays, each scaled by the largest entry of its truth (or 1)."""
    errors = [0.0]
    for one, other in zip(found, truth, strict=True):
        one, other = doubles(xp, one, other)
        if one.shape != other.shape:
            raise ValueError(f"the result has shape {one.shape}, its reference {other.shape}")
        errors.append(float(abs(one - other).max() / max(1.0, float(abs(other).max()))))
    return float(np.max(errors))  # NaN if one of them is


# --- covariance matrices --------------------------------------------------------------------------


def profile(xp, family, A, B):
    """Return ``k`` and ``-2 dk / d(r^2)``, both (N1, N2), for inputs over lengthscales."""
    squares = (A**2).sum(1)[:, None] + (B**2).sum(1)[None, :] - 2 * (A @ B.T)
    squares = xp.maximum(squares, 0)
    if family == "rbf":
        k = xp.exp(-squares / 2)
        return k, k
    t = xp.sqrt(3 * squares)  # Matern-3/2
    return (1 + t) * xp.exp(-t), 3 * xp.exp(-t)


def stationary(xp, family, X1, X2, variance, lengthscales):
    X1, X2 = doubles(xp, X1, X2)
    return float(variance) * profile(xp, family, X1 / lengthscales, X2 / lengthscales)[0]


def stationary_vjp(xp, bar, family, X1, X2, variance, lengthscales):
    """Return the cotangents of X1, of the variance and of the lengthscales.

    With w = bar q, as in the front door: sum_ij w (x_i - x'_j)^2 is r' X1^2 + c' X2^2 - 2 sum X1
    (w X2), feature by feature, for the sums r of the rows and c of the columns of w.
    """
    (bar, X1, X2), variance = doubles(xp, bar, X1, X2), float(variance)
    k, q = profile(xp, family, X1 / lengthscales, X2 / lengthscales)
    w, variance_bar = variance * bar * q, (bar * k).sum()
    pulled, rows, columns = w @ X2, w.sum(1), w.sum(0)
    X1_bar = (pulled - rows[:, None] * X1) / lengthscales**2
    squares = rows @ X1**2 + columns @ X2**2 - 2 * (X1 * pulled).sum(0)
    return X1_bar, variance_bar, squares / lengthscales**3


# --- sums over patches ----------------------------------------------------------------------------


def places(geometry):
    H, W, _, h, w, stride = geometry
    return [(i, j) for i in range(0, H - h + 1, stride) for j in range(0, W - w + 1, stride)]


def gather(xp, X, geometry):
    """Return the patches (P, N, d) of images."""
    H, W, C, h, w, _ = geometry
    images = X.reshape(len(X), H, W, C)
    return xp.stack(
        [images[:, i : i + h, j : j + w].reshape(len(X), -1) for i, j in places(geometry)]
    )


def patch_sums(xp, family, Z, X, A, variance, lengthscales, geometry):
    Z, X, A = doubles(xp, Z, X, A)
    patches, total = gather(xp, X, geometry) / lengthscales, xp.zeros((len(Z), len(X)))
    for weight, patch in zip(A, patches, strict=True):
        total += float(weight) * profile(xp, family, Z / lengthscales, patch)[0]
    return float(variance) * total


def patch_sums_vjp(xp, bar, family, Z, X, A, variance, lengthscales, geometry):
    """Return the cotangents of Z, X, A (P,), the variance and the lengthscales."""
    (bar, Z, X, A), variance = doubles(xp, bar, Z, X, A), float(variance)
    H, W, C, h, w, _ = geometry
    images_bar, Z_bar, A_bar = xp.zeros((len(X), H, W, C)), xp.zeros(Z.shape), xp.zeros(len(A))
    lengthscales_bar, variance_bar = xp.zeros(Z.shape[1]), 0.0
    patches = gather(xp, X, geometry)
    for p, ((i, j), patch) in enumerate(zip(places(geometry), patches, strict=True)):
        weight = float(A[p])
        k, q = profile(xp, family, Z / lengthscales, patch / lengthscales)
        E, A_bar[p] = variance * weight * bar * q, variance * (bar * k).sum()
        variance_bar += weight * float((bar * k).sum())
        rows, columns, pulled = E.sum(1), E.sum(0), E @ patch
        Z_bar += (pulled - rows[:, None] * Z) / lengthscales**2
        patch_bar = (E.T @ Z - columns[:, None] * patch) / lengthscales**2
        images_bar[:, i : i + h, j : j + w] += patch_bar.reshape(len(X), h, w, C)
        squares = rows @ Z**2 + columns @ patch**2 - 2 * (Z * pulled).sum(0)
        lengthscales_bar += squares / lengthscales**3
    return Z_bar, images_bar.reshape(X.shape), A_bar, xp.asarray(variance_bar), lengthscales_bar


# --- chevron factors ------------------------------------------------------------------------------


def chevron(xp, dense, diagonal, z):
    """Return ``C z`` for z (1, m)."""
    dense, diagonal, z = doubles(xp, dense, diagonal, z)
    k = dense.shape[1]
    first, below = xp.tril(dense[:k]), dense[k:]
    return xp.concatenate([z[:, :k] @ first.T, z[:, :k] @ below.T + z[:, k:] * diagonal], axis=1)


# --- random features ------------------------------------------------------------------------------


def features(xp, omega, X, num, variance, lengthscales):
    """Return Phi (N, 2 n): cosines in the even columns, sines in the odd ones."""
    omega, X = doubles(xp, omega, X)
    phases = (X / lengthscales) @ omega.T
    both = xp.stack([xp.cos(phases), xp.sin(phases)], axis=-1)
    return np.sqrt(float(variance) / num) * both.reshape(len(X), -1)


def features_vjp(xp, Phi, omega, X, u, w, variance, lengthscales):
    """Return the cotangents of X, w, the variance and the lengthscales of ``u' Phi w``."""
    omega, X, u, w = doubles(xp, omega, X, u, w)
    slopes = u[:, None] * (Phi[:, ::2] * w[1::2] - Phi[:, 1::2] * w[::2])
    X_bar, w_bar = (slopes @ omega) / lengthscales, u @ Phi
    return X_bar, w_bar, (w @ w_bar) / (2 * float(variance)), -(X_bar * X).sum(0) / lengthscales
