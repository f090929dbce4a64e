"""CPU twin of ``small_whitened``: a few compiled calls in place of some dozens."""

import math

import numpy as np

from ..common.batching import plain
from ..common.thread_pool import over_rows
from ..factorisations import not_positive_definite
from ..pairwise import FAMILIES, SMALLEST, vector
from . import step as compiled

LOG_2PI = math.log(2 * math.pi)
# nanoseconds of work: sums of their own cost ranges more than a hand-over
SERIAL_BELOW = 150_000


def whitened_marginals(inverse, Kuf, kff, mean, tril):
    return compiled.marginals(
        inverse, plain(Kuf), plain(kff), plain(mean), plain(tril), np.finfo(Kuf.dtype).eps
    )


def whitened_cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add):
    compiled.cotangents(
        inverse, Lam, V, plain(mean), plain(tril), plain(a), plain(b), Lam_a, G, add
    )


def whitened_bars(tril, G, mean, Lam_a, kl_bar, need_C):
    return compiled.bars(plain(tril), G, plain(mean), Lam_a, float(kl_bar), need_C)


def whitened_kl(mean, tril):
    return compiled.kl(plain(mean), plain(tril))


def whitened_step(covariance, Z, X, Y, mean, tril, noise, jitter, factor, kl_bar):
    variance, lengthscales = covariance[1:]
    dtype, B = Z.dtype, len(X)
    number = dtype.type
    k, Z, q, data = _problem(covariance, Z, X, Y, mean, tril, noise, factor)
    Kuu, inverse, info = compiled.prior(k, Z, number(jitter))
    if info:
        return None
    squares, raised, total, Lam_a, G, by_feature, Z_bar = _over_rows(
        _work(Z, X, 0.21, 0.12), k, Z, data, inverse, q, True, True
    )
    if raised:
        return None
    kl, mean_bar, tril_bar, of_Kuu = compiled.parameters(
        k, Z, Kuu, inverse, q, Lam_a, G, float(kl_bar)
    )
    s = data.noise
    noise_bar = number(-0.5 * data.factor * (B - squares / s) / s)
    variance_bar = number((total + of_Kuu[0]) / float(k.variance) - 0.5 * data.factor * B / s)
    by_feature = (by_feature + of_Kuu[1]) * of_Kuu[4]
    lengthscales_bar = (
        number(by_feature.sum()) if np.ndim(lengthscales) == 0 else by_feature.astype(dtype)
    )
    Z_bar += of_Kuu[2]
    of_covariance, of_q = (variance_bar, lengthscales_bar), (mean_bar, tril_bar)
    return _data_term(data, squares), kl, of_covariance, Z_bar, of_q, noise_bar


def whitened_sums(covariance, Z, X, Y, mean, tril, noise, jitter, factor, natural):
    k, Z, q, data = _problem(covariance, Z, X, Y, mean, tril, noise, factor)
    _, inverse, info = compiled.prior(k, Z, Z.dtype.type(jitter))
    if info:
        return None
    work = _work(Z, X, 0.07, 0.072 if natural else 0.04)
    found = _over_rows(work, k, Z, data, inverse, q, natural, False)
    squares, raised, _, Lam_a, G = found[:5]
    if raised:
        return None
    return _data_term(data, squares), compiled.kl(*q), Lam_a, G


def whitened_natural_step(mean, tril, Lam_a, G, step_size):
    q, G = compiled.Posterior(plain(mean), plain(tril)), plain(G)
    mean, tril, info = compiled.natural_step(q, plain(Lam_a), G, float(step_size))
    if info:
        raise not_positive_definite(0, len(G) - info, 0.0, G)
    return mean, tril


def _problem(covariance, Z, X, Y, mean, tril, noise, factor):
    """Return the arguments of the compiled functions."""
    family, variance, lengthscales = covariance
    dtype = Z.dtype
    k = compiled.Stationary(
        FAMILIES[family], dtype.type(variance), vector(lengthscales, X.shape[1], dtype),
        SMALLEST[dtype], np.finfo(dtype).eps,
    )  # fmt: skip
    q = compiled.Posterior(plain(mean), plain(tril))
    return k, plain(Z), q, compiled.Data(plain(X), plain(Y), float(noise), float(factor))


def _work(Z, X, feature, inducing):
    """Estimate the nanoseconds of all rows.

    An entry of Kuf takes 1.7, ``feature`` for each column of X, and ``inducing`` for each inducing
    input.
    """
    per_entry = 1.7 + feature * X.shape[1] + inducing * len(Z)
    return len(Z) * len(X) * per_entry * (Z.itemsize / 8)


def _over_rows(work, k, Z, data, *args):
    """Add up what the ranges of rows return: numbers, and arrays in place."""
    first, *others = over_rows(
        compiled.rows, len(data.X), work, k, Z, data, *args,
        chunks=1, serial_below=SERIAL_BELOW, products=True,
    )  # fmt: skip
    first = list(first)
    for more in others:
        for i, part in enumerate(more):
            first[i] += part
    return first


def _data_term(data, squares):
    s = data.noise
    return -0.5 * data.factor * (len(data.X) * (LOG_2PI + math.log(s)) + squares / s)
