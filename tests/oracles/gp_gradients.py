"""Value and gradients of the bounds for an ARD RBF covariance and Gaussian noise, in plain NumPy: no pass saved.

The formulas are the direct ones (every matrix written out, inverses formed where they appear), so they share no arrangement with
the package, and nothing of it is imported. They work in the dtype of their arguments: float64 as the truth of problems too large
for differences of the definition, float32 as the plain evaluation of an accuracy budget. ``test_gradient_oracles.py`` holds them
to differences of the definitions in ``gp.py``.
"""

import numpy as np
from oracles.gp import LOG_2PI, rbf
from scipy.linalg import solve_triangular


def blocks(Z, X, variance, lengthscales, jitter):
    k = rbf(variance, lengthscales)
    K, diagonal = k(Z, Z), np.asarray(jitter, Z.dtype) * np.eye(len(Z), dtype=Z.dtype)
    return K, K + diagonal, k(Z, X), np.full(len(X), variance, Z.dtype)


def to_parameters(Kuu_bar, Kuf_bar, kff_bar, K, Kuf, Z, X, variance, lengthscales):
    """Chain rule through k(x, x') = variance exp(-|x - x'|^2 / (2 lengthscales^2)); K is Kuu without jitter."""
    Euu, Euf = Kuu_bar * K, Kuf_bar * Kuf
    Z_bar, lengthscales_bar = np.zeros_like(Z), np.zeros_like(lengthscales)
    for d in range(Z.shape[1]):
        to_Z, to_X = Z[:, d, None] - Z[None, :, d], Z[:, d, None] - X[None, :, d]
        both = (Euu * to_Z).sum(axis=1) - (Euu * to_Z).sum(axis=0)
        Z_bar[:, d] = -(both + (Euf * to_X).sum(axis=1)) / lengthscales[d] ** 2
        lengthscales_bar[d] = ((Euu * to_Z**2).sum() + (Euf * to_X**2).sum()) / lengthscales[d] ** 3
    variance_bar = (Euu.sum() + Euf.sum()) / variance + kff_bar.sum()
    return {"covariance.variance": variance_bar, "covariance.lengthscales": lengthscales_bar, "inducing": Z_bar}


def gaussian_data_term(y, noise, mean, var, scale):
    """Value, derivatives in mean, variance and noise of scale * sum E log N(y | f, noise)."""
    n, e2 = y.dtype.type(len(y)), ((y - mean) ** 2 + var).sum()
    value = scale * (-0.5 * n * (LOG_2PI + np.log(noise)) - e2 / (2 * noise))
    b = np.full_like(y, -scale / (2 * noise))
    return value, scale * (y - mean) / noise, b, scale * (e2 / (2 * noise**2) - n / (2 * noise))


def whitened(Z, X, y, variance, lengthscales, noise, mean, scale_tril, jitter, scale=1.0):
    """Whitened SVGP: q(v) = N(mean, W W'), u = chol(Kuu) v."""
    K, Kuu, Kuf, kff = blocks(Z, X, variance, lengthscales, jitter)
    L, W, eye = np.linalg.cholesky(Kuu), np.tril(scale_tril), np.eye(len(Z), dtype=Z.dtype)
    inverse = solve_triangular(L, eye, lower=True)
    Lam = solve_triangular(L, Kuf, lower=True)
    f_var = kff - (Lam**2).sum(axis=0) + ((W.T @ Lam) ** 2).sum(axis=0)
    data, a, b, noise_bar = gaussian_data_term(y, noise, Lam.T @ mean, f_var, scale)
    kl = 0.5 * ((W**2).sum() + mean @ mean - len(Z)) - np.log(np.diag(W)).sum()
    Lam_bar = np.outer(mean, a) + 2 * (W @ W.T - eye) @ (Lam * b)
    C = np.tril(Lam_bar @ Lam.T)
    C[np.diag_indices_from(C)] /= 2
    grad = to_parameters(
        -0.5 * inverse.T @ (C + C.T) @ inverse, inverse.T @ Lam_bar, b, K, Kuf, Z, X, variance, lengthscales
    )
    grad["posterior.mean"] = Lam @ a - mean
    grad["posterior.scale_tril"] = np.tril(2 * (Lam * b) @ Lam.T @ W) - W + np.diag(1 / np.diag(W))
    grad["likelihood.variance"] = noise_bar
    return data - kl, grad


def marginal(Z, X, y, variance, lengthscales, noise, mean, scale_tril, jitter, scale=1.0):
    """Unwhitened SVGP: q(u) = N(mean, W W')."""
    K, Kuu, Kuf, kff = blocks(Z, X, variance, lengthscales, jitter)
    L, W, eye = np.linalg.cholesky(Kuu), np.tril(scale_tril), np.eye(len(Z), dtype=Z.dtype)
    inverse = solve_triangular(L, eye, lower=True)
    inverse = inverse.T @ inverse
    Psi, alpha, S = inverse @ Kuf, inverse @ mean, W @ W.T
    f_var = kff - (Kuf * Psi).sum(axis=0) + (Psi * (S @ Psi)).sum(axis=0)
    data, a, b, noise_bar = gaussian_data_term(y, noise, Psi.T @ mean, f_var, scale)
    kl = 0.5 * (np.trace(inverse @ S) + mean @ alpha - len(Z)) - np.log(np.diag(W)).sum() + np.log(np.diag(L)).sum()
    G, Pa = (Psi * b) @ Psi.T, Psi @ a
    KSG = inverse @ S @ G
    Kuu_bar = (
        G - KSG - KSG.T - 0.5 * (np.outer(alpha, Pa) + np.outer(Pa, alpha)) + 0.5 * np.outer(alpha, alpha)
        + 0.5 * inverse @ S @ inverse - 0.5 * inverse
    )  # fmt: skip
    Kuf_bar = np.outer(alpha, a) + 2 * (inverse @ S @ Psi - Psi) * b
    grad = to_parameters(Kuu_bar, Kuf_bar, b, K, Kuf, Z, X, variance, lengthscales)
    grad["posterior.mean"] = Pa - alpha
    grad["posterior.scale_tril"] = np.tril(2 * G @ W - inverse @ W) + np.diag(1 / np.diag(W))
    grad["likelihood.variance"] = noise_bar
    return data - kl, grad


def collapsed(Z, X, y, variance, lengthscales, noise, jitter):
    """Titsias' bound through Sigma = Kuu + Kuf Kfu / noise."""
    K, Kuu, Kuf, kff = blocks(Z, X, variance, lengthscales, jitter)
    L, eye, n = np.linalg.cholesky(Kuu), np.eye(len(Z), dtype=Z.dtype), len(X)
    inverse = solve_triangular(L, eye, lower=True)
    Lam = inverse @ Kuf
    B = eye + Lam @ Lam.T / noise
    B_inverse = np.linalg.inv(B)
    v = B_inverse @ (Lam @ y) / noise
    w, e = inverse.T @ v, y - Lam.T @ v
    trace = kff.sum() - (Lam**2).sum()
    value = -0.5 * (n * (LOG_2PI + np.log(noise)) + np.linalg.slogdet(B)[1] + y @ e / noise + trace / noise)
    Kuf_bar = (np.outer(w, e) + inverse.T @ (eye - B_inverse) @ Lam) / noise
    Kuu_bar = -0.5 * (np.outer(w, w) + inverse.T @ (B - 2 * eye + B_inverse) @ inverse)
    grad = to_parameters(Kuu_bar, Kuf_bar, np.full_like(y, -0.5 / noise), K, Kuf, Z, X, variance, lengthscales)
    grad["noise_variance"] = (e @ e + trace) / (2 * noise**2) - (n - len(Z) + np.trace(B_inverse)) / (2 * noise)
    return value, grad
