"""CPU twin of ``small_whitened``: a few compiled calls in place of some dozens."""

import math

import numpy as np

from ..common.batching import plain
from ..common.thread_pool import over_rows
from ..pairwise import FAMILIES, SMALLEST, vector
from . import algebra, step as compiled

LOG_2PI = math.log(2 * math.pi)
# nanoseconds of work: sums of their own cost ranges more than a hand-over
SERIAL_BELOW = 150_000


def whitened_marginals(inverse, Kuf, kff, mean, tril):
    return algebra.marginals(
        inverse, plain(Kuf), plain(kff), plain(mean), plain(tril), np.finfo(Kuf.dtype).eps
    )


def whitened_cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add):
    algebra.cotangents(inverse, Lam, V, plain(mean), plain(tril), plain(a), plain(b), Lam_a, G, add)


def whitened_bars(tril, G, mean, Lam_a, kl_bar, need_C):
    return algebra.bars(plain(tril), G, plain(mean), Lam_a, float(kl_bar), need_C)


def whitened_kl(mean, tril):
    return algebra.kl(plain(mean), plain(tril))


def whitened_step(covariance, Z, X, Y, mean, tril, noise, jitter, factor, kl_bar):
    family, variance, lengthscales = covariance
    dtype, (B, D), M = Z.dtype, X.shape, len(Z)
    number = dtype.type
    k = compiled.Stationary(
        FAMILIES[family], number(variance), vector(lengthscales, D, dtype), SMALLEST[dtype],
        np.finfo(dtype).eps,
    )  # fmt: skip
    Z, q = plain(Z), compiled.Posterior(plain(mean), plain(tril))
    data = compiled.Data(plain(X), plain(Y), float(noise), float(factor))
    Kuu, inverse, info = compiled.prior(k, Z, number(jitter))
    if info:
        return None
    work = M * B * (1.7 + 0.21 * D + 0.12 * M) * (dtype.itemsize / 8)  # in nanoseconds, roughly
    first, *others = over_rows(
        compiled.rows,
        B,
        work,
        k,
        Z,
        data,
        inverse,
        q,
        chunks=1,
        serial_below=SERIAL_BELOW,
        products=True,
    )
    squares, raised, Lam_a, G, total, by_feature, Z_bar = first
    for more in others:
        squares, raised, total = squares + more[0], raised + more[1], total + more[4]
        for ours, part in zip((Lam_a, G, by_feature, Z_bar), (*more[2:4], *more[5:]), strict=True):
            ours += part
    if raised:
        return None
    kl, mean_bar, tril_bar, of_Kuu = compiled.parameters(
        k, Z, Kuu, inverse, q, Lam_a, G, float(kl_bar)
    )
    s = data.noise
    value = -0.5 * data.factor * (B * (LOG_2PI + math.log(s)) + squares / s)
    noise_bar = number(-0.5 * data.factor * (B - squares / s) / s)
    variance_bar = number((total + of_Kuu[0]) / float(k.variance) - 0.5 * data.factor * B / s)
    by_feature = (by_feature + of_Kuu[1]) * of_Kuu[4]
    lengthscales_bar = (
        number(by_feature.sum()) if np.ndim(lengthscales) == 0 else by_feature.astype(dtype)
    )
    Z_bar += of_Kuu[2]
    return value, kl, (variance_bar, lengthscales_bar), Z_bar, (mean_bar, tril_bar), noise_bar
