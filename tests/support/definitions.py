"""Bounds of the package's records by the definitions in ``oracles``.

They are dense, and take any dtype, even complex.
"""

from functools import partial

import numpy as np
from oracles import (
    covariances,
    dual_sites,
    gp,
    inverse_free,
    inverse_free_whitened,
    likelihood_gradients,
    orthogonal,
    patches,
)

import fastsvgp as fs
from fastsvgp import kernels


def blocks(covariance, Z, X, jitter):
    if isinstance(covariance, fs.covariances.Convolutional):
        Kuu = patches.Kuu(covariance, Z, Z) + np.asarray(jitter, Z.real.dtype) * np.eye(
            len(Z), dtype=Z.real.dtype
        )
        return fs.records.Blocks(
            Kuu, patches.Kuf(covariance, Z, X), patches.Kff(covariance, X, X).diagonal().copy()
        )
    if isinstance(covariance, fs.covariances.OnFeatures):
        X = covariances.features(covariance.network, X)
        return blocks(covariance.covariance, Z, X, jitter)
    Kuu = covariances.matrix(covariance, Z, Z) + np.asarray(jitter, Z.real.dtype) * np.eye(
        len(Z), dtype=Z.real.dtype
    )
    kff = covariances.matrix(covariance, X, X).diagonal().copy()
    return fs.records.Blocks(Kuu, covariances.matrix(covariance, Z, X), kff)


def moments(posterior, blocks, **probes):
    """Return means (P, N) and variances (P, N) at the batch, and the KL term of the bound.

    ``blocks.Kuu`` includes the jitter.
    """
    Kuu, Kuf, kff = blocks.Kuu, blocks.Kuf, blocks.kff
    M, kind = len(Kuu), type(posterior).__name__
    if kind in ("Orthogonal", "WhitenedOrthogonal", "Decoupled", "DecoupledWeights"):
        return orthogonal_moments(posterior, Kuu, Kuf, kff, kind)
    if kind in ("AbsorbedDualSites", "DualSites"):
        q = list(zip(*q_of_u(posterior, Kuu), strict=True))
        mean, var = zip(*(gp.marginals(Kuu, Kuf, kff, *one) for one in q), strict=True)
        return (
            np.stack(mean),
            np.stack(var),
            sum(gp.kl_gaussians(*one, np.zeros_like(one[0]), Kuu) for one in q),
        )
    means = posterior.mean.reshape(-1, M)
    if kind in ("LikelihoodForm", "Relaxed"):
        T = None
        if kind == "Relaxed":
            L = np.tril(posterior.inverse_tril)
            T = L @ L.T
        form = (means, posterior.variance, posterior.preconditioned)
        mean, cov = inverse_free.marginals(Kuu, Kuf, np.diag(kff), *form, T)
        var = np.stack([cov.diagonal()] * len(means))
        if T is None:
            return mean, var, inverse_free.kl(*inverse_free.q_of_u(Kuu, *form), Kuu)
        return mean, var, inverse_free.kl_bound(Kuu, form[0], form[1], T, form[2], **probes)
    if kind == "InverseFreeWhitened":
        T = inverse_free_whitened.implicit_step(Kuu, np.tril(posterior.inverse_root))
    kl, f = 0.0, []
    for m, W in zip(means, np.tril(posterior.scale_tril).reshape(-1, M, M), strict=True):
        if kind == "InverseFreeWhitened":
            f.append(inverse_free_whitened.marginals(Kuu, T, m, W @ W.T, Kuf, kff))
            kl = kl + inverse_free_whitened.kl_bound(Kuu, T, m, W @ W.T)
        else:
            q = gp.unwhitened(Kuu, m, W) if kind == "Whitened" else (m, W @ W.T)
            f.append(gp.marginals(Kuu, Kuf, kff, *q))
            kl = kl + gp.kl_gaussians(*q, np.zeros_like(m), Kuu)
    return *(np.stack(x) for x in zip(*f, strict=True)), kl


def q_of_u(posterior, Kuu):
    """Return means (P, M) and covariances (P, M, M) of u under the q(u) of the bound."""
    M, kind = len(Kuu), type(posterior).__name__
    if kind in ("AbsorbedDualSites", "DualSites"):
        sites = zip(
            posterior.lambda1.reshape(-1, M), posterior.lambda2.reshape(-1, M, M), strict=True
        )
        return tuple(
            np.stack(x)
            for x in zip(
                *(dual_sites.q_of_u(Kuu, *one, kind == "DualSites") for one in sites), strict=True
            )
        )
    means = posterior.mean.reshape(-1, M)
    if kind in ("LikelihoodForm", "Relaxed"):
        L = np.tril(posterior.inverse_tril) if kind == "Relaxed" else None
        mean, S = inverse_free.q_of_u(
            Kuu, means, posterior.variance, posterior.preconditioned, None if L is None else L @ L.T
        )
        return mean, np.stack([S] * len(mean))
    q = zip(means, np.tril(posterior.scale_tril).reshape(-1, M, M), strict=True)
    if kind == "InverseFreeWhitened":
        T = inverse_free_whitened.implicit_step(Kuu, np.tril(posterior.inverse_root))
        of_each = [inverse_free_whitened.q_of_u(Kuu, T, m, W @ W.T) for m, W in q]
    else:
        of_each = [gp.unwhitened(Kuu, m, W) if kind == "Whitened" else (m, W @ W.T) for m, W in q]
    return tuple(np.stack(x) for x in zip(*of_each, strict=True))


def orthogonal_outputs(posterior, Kuu, kind):
    """Return ``(m_u, S_u, m_v, S_v)`` of each output."""
    fields = [np.asarray(getattr(posterior, name)) for name, _ in posterior._record_fields]
    fields = [np.tril(a) if i % 2 else a for i, a in enumerate(fields)]
    if fields[0].ndim == 1:
        fields = [a[None] for a in fields]
    for m_u, W_u, m_v, *W_v in zip(*fields, strict=True):
        if kind == "WhitenedOrthogonal":
            yield orthogonal.unwhitened(Kuu, m_u, W_u, m_v, *W_v)
        elif kind == "DecoupledWeights":
            yield orthogonal.from_weights(Kuu, m_u, W_u, m_v)
        else:
            yield (
                m_u,
                W_u @ W_u.T,
                m_v,
                W_v[0] @ W_v[0].T if W_v else orthogonal.rest(Kuu, len(m_u))[0],
            )


def orthogonal_moments(posterior, Kuu, Kuf, kff, kind):
    mean, var, kl = [], [], 0.0
    for q in orthogonal_outputs(posterior, Kuu, kind):
        one_mean, cov = orthogonal.joint(Kuu, Kuf, np.diag(kff), *q)
        mean.append(one_mean)
        var.append(cov.diagonal())
        kl = kl + orthogonal.kl(Kuu, *q)
    return np.stack(mean), np.stack(var), kl


def prior_mean(mean, X):
    """Return the prior mean, (1 or P, N)."""
    match type(mean).__name__:
        case "ConstantMean":
            return np.atleast_1d(mean.value)[:, None]
        case "LinearMean":
            return np.atleast_2d(mean.weights) @ X.T + np.atleast_1d(mean.bias)[:, None]
        case "IdentityMean":
            return X.T
    return 0.0


def data_term(likelihood, Y):
    """Return the data term of ``likelihood_gradients``, for targets (P, N) or (N,) classes."""
    settings = {name: getattr(likelihood, name) for name, _ in likelihood._record_fields}
    if isinstance(likelihood, fs.Softmax):
        settings["points"] = kernels.normal_points(likelihood.num_classes, likelihood.num_samples)
    Y = Y[None] if Y.ndim == 1 and likelihood.num_latent is None else Y
    return partial(getattr(likelihood_gradients, type(likelihood).__name__.lower()), Y, **settings)


def expected_log_prob(likelihood, Y, mean, var):
    """Return the expected log density in float64, to first order in imaginary parts.

    Few special functions support extended precision or complex numbers.
    """
    term = data_term(fs.records.tree_map(lambda a: float(a.real), likelihood), Y)
    value, a, b, own = term(*(np.asarray(x.real, float) for x in (mean, var)))
    moved = sum(bar * np.imag(getattr(likelihood, name)) for name, bar in own.items())
    return value + 1j * ((a * mean.imag + b * var.imag).sum() + moved)


def elbo(model, X, Y, scale, jitter, **probes):
    """Return the bound for targets (N,), (N, P), or (N,) classes."""
    mean, var, kl = moments(
        model.posterior, blocks(model.covariance, model.inducing, X, jitter), **probes
    )
    return (
        scale * expected_log_prob(model.likelihood, Y.T, mean + prior_mean(model.mean, X), var) - kl
    )


def layer_moments(layer, X, jitter):
    """Return means and variances (P, N) of a layer's functions at its inputs, and its KL term.

    A layer on patches has all patches side by side.
    """
    Z, N = layer.inducing, len(X)
    Z = np.concatenate([Z.Z, Z.O]) if isinstance(Z, fs.posteriors.InducingPair) else Z
    if isinstance(layer, fs.layers.ConvolutionalLayer):
        X = np.concatenate(patches.gather(X, layer.geometry))
    mean, var, kl = moments(layer.posterior, blocks(layer.covariance, Z, X, jitter))
    return *(a.T.reshape(N, -1).T for a in (mean + prior_mean(layer.mean, X), var)), kl


def deep_marginals(model, X, draws, jitter):
    """Return means and variances (P, N) of the last layer for each draw, and the KL terms.

    ``draws`` has (S, N, P) per hidden layer.
    """
    found = []
    for each in zip(*draws, strict=True) if draws else [()]:
        H, kl = X, 0.0
        for layer, eps in zip(model.layers, (*each, None), strict=True):
            mean, var, own = layer_moments(layer, H, jitter)
            kl = kl + own
            if eps is not None:
                H = (mean + np.sqrt(var) * eps.T).T
        found.append((mean, var))
    return found, kl


def deep_elbo(model, X, Y, scale, jitter, draws):
    f, kl = deep_marginals(model, X, draws, jitter)
    return scale * sum(expected_log_prob(model.likelihood, Y.T, *one) for one in f) / len(f) - kl


def kl_term(model, jitter, **probes):
    return moments(
        model.posterior,
        blocks(model.covariance, model.inducing, model.inducing[:0], jitter),
        **probes,
    )[-1]


def collapsed_orthogonal(sgpr, X, Y, jitter):
    Z, O = sgpr.inducing.Z, sgpr.inducing.O  # noqa: E741
    b = blocks(sgpr.covariance, np.concatenate([Z, O]), X, jitter)
    residuals, P = np.atleast_2d(Y.T) - prior_mean(sgpr.mean, X), 1 if Y.ndim == 1 else Y.shape[1]
    means = [None] * P if sgpr.mean_v is None else sgpr.mean_v.reshape(P, len(O))
    trils = (
        [None] * P
        if sgpr.scale_tril_v is None
        else np.tril(sgpr.scale_tril_v).reshape(P, len(O), len(O))
    )
    noise = sgpr.noise_variance
    return sum(
        orthogonal.collapsed(
            b.Kuu, b.Kuf, b.kff, len(Z), y, noise, m, None if W is None else W @ W.T
        )
        for y, m, W in zip(residuals, means, trils, strict=True)
    )


def tighter(sgpr, X, Y, jitter):
    b, Kff = (
        blocks(sgpr.covariance, sgpr.inducing, X, jitter),
        covariances.matrix(sgpr.covariance, X, X),
    )
    residuals = np.atleast_2d(Y.T) - prior_mean(sgpr.mean, X)
    return sum(orthogonal.tighter(b.Kuu, b.Kuf, Kff, y, sgpr.noise_variance) for y in residuals)


def collapsed(sgpr, X, Y, jitter):
    b = blocks(sgpr.covariance, sgpr.inducing, X, jitter)
    residuals = np.atleast_2d(Y.T) - prior_mean(sgpr.mean, X)
    return sum(gp.titsias_bound(b.Kuu, b.Kuf, b.kff, y, sgpr.noise_variance) for y in residuals)
