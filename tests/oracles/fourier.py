"""Random Fourier features written out: generator, spectra, feature matrix and products."""

import numpy as np

DEGREES = {"rbf": None, "matern12": 1, "matern32": 3, "matern52": 5}


def philox(counter, key):
    """Philox4x32-10 on a counter of four words and a key of two, as in Salmon et al. (2011)."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (q >> 32) ^ b ^ k, q % 2**32, (p >> 32) ^ d ^ m, p % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return a, b, c, d


def words(seed, index, block, stream):
    return philox((index % 2**32, index // 2**32, block, stream), (seed % 2**32, seed // 2**32))


def uniform(word, dtype):
    return (dtype(word >> 9) + dtype(0.5)) / dtype(2**23)


def two_normals(a, b, dtype):
    radius, angle = (
        np.sqrt(-2 * np.log(uniform(a, dtype))),
        8 * np.arctan(dtype(1)) * uniform(b, dtype),
    )
    return radius * np.cos(angle), radius * np.sin(angle)


def frequency(family, seed, index, D, dtype):
    """Draw from the spectral density for unit lengthscales: normal, or Student-t with df = 2 nu."""
    normals = []
    for block in range(-(-D // 4)):
        a, b, c, d = words(seed, index, block, 0)
        normals += [*two_normals(a, b, dtype), *two_normals(c, d, dtype)]
    omega = np.array(normals[:D])
    if DEGREES[family]:
        a, b, c, d = words(seed, index, 0, 1)
        chi_square = two_normals(a, b, dtype)[1] ** 2
        chi_square -= 2 * np.log(uniform(c, dtype)) * (DEGREES[family] >= 3)
        chi_square -= 2 * np.log(uniform(d, dtype)) * (DEGREES[family] >= 5)
        omega *= np.sqrt(DEGREES[family] / chi_square)
    return omega


def frequencies(family, seed, indices, D, dtype=np.longdouble):
    return np.array([frequency(family, seed, int(i), D, dtype) for i in indices], dtype).reshape(
        len(indices), D
    )


def features(omega, X, num, variance, lengthscales):
    """Phi (N, 2 n): cosines in the even columns, sines in the odd ones."""
    phase = (X / lengthscales) @ omega.T
    return np.sqrt(variance / num) * np.stack([np.cos(phase), np.sin(phase)], axis=-1).reshape(
        len(X), 2 * len(omega)
    )


def gradients(omega, X, U, W, num, variance, lengthscales):
    """Derivatives of sum U * (W Phi') in X, U, W, the variance and the lengthscales."""
    Phi = features(omega, X, num, variance, lengthscales)
    moved = np.empty_like(Phi)  # derivative of each feature in its phase
    moved[:, ::2], moved[:, 1::2] = -Phi[:, 1::2], Phi[:, ::2]
    slopes = (moved * (U.T @ W)).reshape(len(X), len(omega), 2).sum(2)
    X_bar = slopes @ omega / lengthscales
    U_bar, W_bar = W @ Phi.T, U @ Phi
    variance_bar = (W * W_bar).sum() / (2 * variance)
    lengthscales_bar = -(X_bar * X).sum(0) / lengthscales
    return (
        X_bar,
        U_bar,
        W_bar,
        variance_bar,
        lengthscales_bar if np.ndim(lengthscales) else lengthscales_bar.sum(),
    )
