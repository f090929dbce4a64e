"""Value and gradients of bounds in plain NumPy: from covariance blocks, and for an ARD RBF.

The formulas are the direct ones (every matrix written out, inverses formed where they appear), so
they are arranged differently from the package, and they import nothing of it. They work in the
dtype of their arguments: in float64 they are the reference for problems too large for differences
of the definition, in float32 the plain evaluation of an accuracy budget.
``test_gradient_oracles.py`` compares them with differences of the definitions in ``gp.py``.
"""

from functools import partial

import numpy as np
from oracles import likelihood_gradients
from oracles.gp import LOG_2PI, rbf
from scipy.linalg import solve_triangular


def blocks(Z, X, variance, lengthscales, jitter):
    k = rbf(variance, lengthscales)
    K, diagonal = k(Z, Z), np.asarray(jitter, Z.dtype) * np.eye(len(Z), dtype=Z.dtype)
    return K, K + diagonal, k(Z, X), np.full(len(X), variance, Z.dtype)


def to_parameters(Kuu_bar, Kuf_bar, kff_bar, K, Kuf, Z, X, variance, lengthscales):
    """Chain rule through k(x, x') = variance exp(-|x - x'|^2 / (2 lengthscales^2)).

    K is Kuu without jitter.
    """
    Euu, Euf = Kuu_bar * K, Kuf_bar * Kuf
    Z_bar, lengthscales_bar = np.zeros_like(Z), np.zeros_like(lengthscales)
    for d in range(Z.shape[1]):
        to_Z, to_X = Z[:, d, None] - Z[None, :, d], Z[:, d, None] - X[None, :, d]
        both = (Euu * to_Z).sum(axis=1) - (Euu * to_Z).sum(axis=0)
        Z_bar[:, d] = -(both + (Euf * to_X).sum(axis=1)) / lengthscales[d] ** 2
        lengthscales_bar[d] = ((Euu * to_Z**2).sum() + (Euf * to_X**2).sum()) / lengthscales[d] ** 3
    variance_bar = (Euu.sum() + Euf.sum()) / variance + kff_bar.sum()
    return {
        "covariance.variance": variance_bar,
        "covariance.lengthscales": lengthscales_bar,
        "inducing": Z_bar,
    }


def _through_data(term, marginals, scale):
    """Pass the marginals of each output through the data term, forward and backward.

    The data term is one of ``likelihood_gradients`` with its targets bound.
    """
    mean, var = (np.stack(m) for m in zip(*marginals, strict=True))
    value, a, b, own = term(mean, var)
    return scale * value, scale * a, scale * b, {name: scale * bar for name, bar in own.items()}


def whitened_bars(Kuu, Kuf, kff, means, trils, term, scale=1.0):
    """Whitened SVGP, u = chol(Kuu) v, q(v) = N(m, W W') for each of ``means`` (P, M), ``trils``.

    The value; cotangents of Kuu, Kuf, kff, means, trils; derivatives in the parameters of the data
    term.
    """
    L, eye = np.linalg.cholesky(Kuu), np.eye(len(Kuu), dtype=Kuu.dtype)
    inverse, Lam = solve_triangular(L, eye, lower=True), solve_triangular(L, Kuf, lower=True)
    prior = kff - (Lam**2).sum(axis=0)
    marginals = [
        (Lam.T @ m, prior + ((W.T @ Lam) ** 2).sum(axis=0))
        for m, W in zip(means, trils, strict=True)
    ]
    value, a, b, own = _through_data(term, marginals, scale)
    Lam_bar, mean_bars, tril_bars = np.zeros_like(Lam), [], []
    for m, W, ap, bp in zip(means, trils, a, b, strict=True):
        value -= 0.5 * ((W**2).sum() + m @ m - len(m)) - np.log(np.diag(W)).sum()
        Lam_bar += np.outer(m, ap) + 2 * (W @ W.T - eye) @ (Lam * bp)
        mean_bars.append(Lam @ ap - m)
        tril_bars.append(np.tril(2 * (Lam * bp) @ Lam.T @ W) - W + np.diag(1 / np.diag(W)))
    C = np.tril(Lam_bar @ Lam.T)
    C[np.diag_indices_from(C)] /= 2
    Kuu_bar = -0.5 * inverse.T @ (C + C.T) @ inverse
    return (
        value,
        Kuu_bar,
        inverse.T @ Lam_bar,
        b.sum(axis=0),
        np.stack(mean_bars),
        np.stack(tril_bars),
        own,
    )


def marginal_bars(Kuu, Kuf, kff, means, trils, term, scale=1.0):
    """As ``whitened_bars`` for the unwhitened SVGP, q(u) = N(m, W W')."""
    L, eye = np.linalg.cholesky(Kuu), np.eye(len(Kuu), dtype=Kuu.dtype)
    inverse = solve_triangular(L, eye, lower=True)
    inverse = inverse.T @ inverse
    Psi, log_det = inverse @ Kuf, np.log(np.diag(L)).sum()
    prior = kff - (Kuf * Psi).sum(axis=0)
    marginals = [
        (Psi.T @ m, prior + (Psi * (W @ W.T @ Psi)).sum(axis=0))
        for m, W in zip(means, trils, strict=True)
    ]
    value, a, b, own = _through_data(term, marginals, scale)
    Kuu_bar, Kuf_bar, mean_bars, tril_bars = np.zeros_like(Kuu), np.zeros_like(Kuf), [], []
    for m, W, ap, bp in zip(means, trils, a, b, strict=True):
        S, alpha = W @ W.T, inverse @ m
        G, Pa = (Psi * bp) @ Psi.T, Psi @ ap
        KSG = inverse @ S @ G
        value -= (
            0.5 * (np.trace(inverse @ S) + m @ alpha - len(m)) - np.log(np.diag(W)).sum() + log_det
        )
        Kuu_bar += (
            G - KSG - KSG.T - 0.5 * (np.outer(alpha, Pa) + np.outer(Pa, alpha))
            + 0.5 * np.outer(alpha, alpha) + 0.5 * inverse @ S @ inverse - 0.5 * inverse
        )  # fmt: skip
        Kuf_bar += np.outer(alpha, ap) + 2 * (inverse @ S @ Psi - Psi) * bp
        mean_bars.append(Pa - alpha)
        tril_bars.append(np.tril(2 * G @ W - inverse @ W) + np.diag(1 / np.diag(W)))
    return value, Kuu_bar, Kuf_bar, b.sum(axis=0), np.stack(mean_bars), np.stack(tril_bars), own


def _rbf_svgp(bars, Z, X, y, variance, lengthscales, noise, mean, scale_tril, jitter, scale):
    K, Kuu, Kuf, kff = blocks(Z, X, variance, lengthscales, jitter)
    term, trils = (
        partial(likelihood_gradients.gaussian, y, variance=noise),
        np.tril(scale_tril)[None],
    )
    value, Kuu_bar, Kuf_bar, kff_bar, mean_bars, tril_bars, own = bars(
        Kuu, Kuf, kff, mean[None], trils, term, scale
    )
    grad = to_parameters(Kuu_bar, Kuf_bar, kff_bar, K, Kuf, Z, X, variance, lengthscales)
    grad["posterior.mean"], grad["posterior.scale_tril"] = mean_bars[0], tril_bars[0]
    return value, grad | {f"likelihood.{name}": bar for name, bar in own.items()}


def whitened(Z, X, y, variance, lengthscales, noise, mean, scale_tril, jitter, scale=1.0):
    """Value, and gradients by path, of the whitened SVGP with an RBF and Gaussian noise."""
    return _rbf_svgp(
        whitened_bars, Z, X, y, variance, lengthscales, noise, mean, scale_tril, jitter, scale
    )


def marginal(Z, X, y, variance, lengthscales, noise, mean, scale_tril, jitter, scale=1.0):
    """The same for the unwhitened SVGP."""
    return _rbf_svgp(
        marginal_bars, Z, X, y, variance, lengthscales, noise, mean, scale_tril, jitter, scale
    )


def collapsed_bars(Kuu, Kuf, kff, y, noise):
    """Titsias' bound by Sigma = Kuu + Kuf Kfu / noise: value, cotangents of blocks and noise."""
    L, eye, n = np.linalg.cholesky(Kuu), np.eye(len(Kuu), dtype=Kuu.dtype), len(y)
    inverse = solve_triangular(L, eye, lower=True)
    Lam = inverse @ Kuf
    B = eye + Lam @ Lam.T / noise
    B_inverse = np.linalg.inv(B)
    v = B_inverse @ (Lam @ y) / noise
    w, e = inverse.T @ v, y - Lam.T @ v
    trace = kff.sum() - (Lam**2).sum()
    value = -0.5 * (
        n * (LOG_2PI + np.log(noise)) + np.linalg.slogdet(B)[1] + y @ e / noise + trace / noise
    )
    Kuf_bar = (np.outer(w, e) + inverse.T @ (eye - B_inverse) @ Lam) / noise
    Kuu_bar = -0.5 * (np.outer(w, w) + inverse.T @ (B - 2 * eye + B_inverse) @ inverse)
    noise_bar = (e @ e + trace) / (2 * noise**2) - (n - len(Kuu) + np.trace(B_inverse)) / (
        2 * noise
    )
    return value, Kuu_bar, Kuf_bar, np.full_like(y, -0.5 / noise), noise_bar


def collapsed(Z, X, y, variance, lengthscales, noise, jitter):
    """Value and gradients by path of SGPR with an RBF covariance."""
    K, Kuu, Kuf, kff = blocks(Z, X, variance, lengthscales, jitter)
    value, Kuu_bar, Kuf_bar, kff_bar, noise_bar = collapsed_bars(Kuu, Kuf, kff, y, noise)
    grad = to_parameters(Kuu_bar, Kuf_bar, kff_bar, K, Kuf, Z, X, variance, lengthscales)
    return value, grad | {"noise_variance": noise_bar}
