"""The evidence lower bound of SVGP: sum over data of E_q(f) log p(y | f), minus KL[q(u) || p(u)].

Hensman et al. 2013, 2015; handbook, "Non-Gaussian likelihoods". The relay below reads like the equation: rooms hand each other
covariance blocks and marginals, and their cotangents come back the same way.
"""

from typing import Any

import numpy as np

from .. import check
from ..records import Blocks, Marginals, leaf, record, restricted, tree_map


@record
class SVGP:
    """A sparse variational Gaussian process.

    Parameters
    ----------
    covariance : Covariance
    inducing : (M, D) array
        Inducing inputs Z.
    posterior : Posterior
        ``Whitened`` or ``Marginal``; leading axes of its fields are outputs (or classes).
    likelihood : Likelihood
    mean : Mean, optional
        Added to the latent function; ``None`` is zero.
    """

    covariance: Any
    inducing: Any = leaf()
    posterior: Any
    likelihood: Any
    mean: Any = None


def elbo(model, X, Y, *, num_data=None, jitter=None, rng=None):
    """The evidence lower bound, in nats.

    Parameters
    ----------
    model : SVGP
    X : (B, D) array
        A batch of inputs, or all of them.
    Y : (B,) or (B, P) array
        Targets; integer labels for multi-class likelihoods.
    num_data : float, optional
        Size of the whole data set: the data term is scaled by num_data / B. Default: the batch is the data.
    jitter : float, optional
        Absolute amount added to the diagonal of Kuu; default 1e-6 in float64, 1e-4 in float32. Never changed.
    rng : int or numpy.random.Generator, optional
        For likelihoods that sample.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError
        Shapes, dtypes, devices, NaN or infinity, labels, ``num_data`` below the batch.
    NotPositiveDefinite
        Kuu + jitter I could not be factorised.

    Notes
    -----
    About 2 M^2 B + M^3 / 3 flops an output.
    """
    model, X, Y, dtype = check.svgp(model, X, Y)
    data, kl, _ = forward(model, X, Y, num_data, check.jitter_amount(jitter, dtype), rng, need=False)
    return check.result(data - kl, model)


def elbo_and_grad(model, X, Y, *, num_data=None, jitter=None, rng=None, wrt=None):
    """The evidence lower bound and its gradient in natural space.

    Parameters
    ----------
    model, X, Y, num_data, jitter, rng
        As in ``elbo``.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate, such as ``("covariance", "posterior.mean")``; default all. Work that
        only the others need is skipped.

    Returns
    -------
    value : float
    grad : SVGP
        The derivative of the value with respect to each field, in its place; ``None`` for fields not asked for. Gradients of
        triangular factors are lower triangular.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``.

    Notes
    -----
    With ``Whitened``, one output: min(5 B + 10/3 M, 6 B + 4/3 M) M^2 flops for the value and all gradients. Nothing larger
    than (M, M) or (M, B) is formed.
    """
    return _value_and_grad(model, X, Y, num_data, jitter, rng, wrt, kl_weight=1.0)


def data_term_and_grad(model, X, Y, *, num_data=None, jitter=None, rng=None, wrt=None):
    """The data term of the bound, num_data / B sum E log p(y | f), and its gradient: ``elbo`` = data term - KL term.

    Arguments, results and errors as in ``elbo_and_grad``. Data terms of shards add up.
    """
    return _value_and_grad(model, X, Y, num_data, jitter, rng, wrt, kl_weight=0.0)


def kl_term_and_grad(model, *, jitter=None, wrt=None):
    """KL[q(u) || p(u)] and its gradient (of the KL itself: subtract it), as ``elbo_and_grad`` with no data.

    About M^3 / 3 flops for ``Whitened``, whose KL does not depend on the covariance; 4 M^3 for ``Marginal``.
    """
    model, _, _, dtype = check.svgp(model)
    wrt = check.names(wrt, model)
    Z = model.inducing
    blocks = model.covariance.blocks(Z, Z[:0])
    f, kl, saved = model.posterior.forward(blocks, check.jitter_amount(jitter, dtype))
    posterior_bar, blocks_bar = model.posterior.vjp(f, 1.0, saved, _posterior_need(wrt))  # f is empty: so are its cotangents
    no_likelihood_bar = tree_map(np.zeros_like, model.likelihood)
    grad = _chain(model, Z[:0], wrt, blocks, posterior_bar, blocks_bar, no_likelihood_bar, f)
    return check.result(kl, model), grad


def elbo_and_grad_from_blocks(blocks, posterior, likelihood, Y, *, num_data=None, jitter=None, rng=None):
    """The bound at the level of covariance blocks, for covariances of your own.

    Parameters
    ----------
    blocks : Blocks
        ``Kuu`` (M, M), ``Kuf`` (M, B), ``kff`` (B,), without jitter.
    posterior : Posterior
    likelihood : Likelihood
    Y : (B,) or (B, P)
    num_data, jitter, rng
        As in ``elbo``.

    Returns
    -------
    value : float
    bars : (Blocks, posterior record, likelihood record)
        Gradients of the value; ``Kuu`` symmetric.
    """
    Kuu, Kuf, kff = (check.as_array(f"blocks.{n}", getattr(blocks, n)) for n in ("Kuu", "Kuf", "kff"))
    M, B = Kuf.shape if Kuf.ndim == 2 else (None, None)
    if M is None or Kuu.shape != (M, M) or kff.shape != (B,):
        raise ValueError(f"`blocks` must hold Kuu (M, M), Kuf (M, B), kff (B,), got {Kuu.shape}, {Kuf.shape}, {kff.shape}")
    for name, block in (("Kuu", Kuu), ("Kuf", Kuf), ("kff", kff)):
        check.finite(f"blocks.{name}", block)
    Y = check.as_array("Y", Y)
    parts, dtype = check.parameters(_Parts(posterior, likelihood), Kuu, Kuf, kff)
    posterior, likelihood = parts.posterior, parts.likelihood
    outputs = posterior.check_size(M)
    blocks = Blocks(*(np.ascontiguousarray(b, dtype) for b in (Kuu, Kuf, kff)))
    Y = check.targets(Y, B, outputs, likelihood, dtype)
    scale = check.data_scale(num_data, B)
    f, kl, saved = posterior.forward(blocks, check.jitter_amount(jitter, dtype))
    check.report_clamped(saved.clamped)
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f, rng)
    f_bar, likelihood_bar = _scaled(f_bar, scale), _scaled(likelihood_bar, scale)
    posterior_bar, blocks_bar = posterior.vjp(f_bar, -1.0, saved)
    return scale * ell - kl, (blocks_bar, posterior_bar, likelihood_bar)


@record
class _Parts:
    posterior: Any
    likelihood: Any


def _value_and_grad(model, X, Y, num_data, jitter, rng, wrt, kl_weight):
    model, X, Y, dtype = check.svgp(model, X, Y)
    wrt = check.names(wrt, model)
    data, kl, (blocks, saved, f_bar, likelihood_bar) = forward(
        model, X, Y, num_data, check.jitter_amount(jitter, dtype), rng, need=True
    )
    posterior_bar, blocks_bar = model.posterior.vjp(f_bar, -kl_weight, saved, _posterior_need(wrt))
    grad = _chain(model, X, wrt, blocks, posterior_bar, blocks_bar, likelihood_bar, f_bar)
    return check.result(data - kl_weight * kl, model), grad


def forward(model, X, Y, num_data, jitter, rng, need):
    """Data term, KL, and what the reverse pass needs: blocks, saved, cotangents of marginals and likelihood."""
    scale = check.data_scale(num_data, X.shape[0])
    blocks = model.covariance.blocks(model.inducing, X)
    f, kl, saved = model.posterior.forward(blocks, jitter)
    check.report_clamped(saved.clamped)
    if model.mean is not None:
        f = Marginals(f.mean + model.mean(X), f.var)
    ell, f_bar, likelihood_bar = model.likelihood.expected_log_prob(Y, f, rng, need=need)
    if not need:
        return scale * ell, kl, None
    return scale * ell, kl, (blocks, saved, _scaled(f_bar, scale), _scaled(likelihood_bar, scale))


def _scaled(tree, scale):
    return tree if scale == 1.0 else tree_map(lambda bar: bar * scale, tree)


def _posterior_need(wrt):
    """What the posterior must differentiate for these fields of the model."""
    need = [name for name in wrt if name.partition(".")[0] == "posterior"]
    if any(name.partition(".")[0] in ("covariance", "inducing") for name in wrt):
        need.append("blocks")
    return tuple(need)


def _chain(model, X, wrt, blocks, posterior_bar, blocks_bar, likelihood_bar, f_bar):
    """The gradient of the model from the cotangents of its parts, holding what ``wrt`` names and ``None`` elsewhere."""
    roots = {name.partition(".")[0] for name in wrt}
    covariance_bar = Z_bar = mean_bar = None
    need = tuple({"covariance": "covariance", "inducing": "Z"}[r] for r in ("covariance", "inducing") if r in roots)
    if need:
        covariance_bar, Z_bar, _ = model.covariance.blocks_vjp(blocks_bar, blocks, model.inducing, X, need)
    if model.mean is not None and "mean" in roots:
        mean_bar, _ = model.mean.vjp(f_bar.mean, X, ("mean",))
    grad = type(model)(
        covariance=covariance_bar,
        inducing=Z_bar,
        posterior=posterior_bar if "posterior" in roots else None,
        likelihood=likelihood_bar if "likelihood" in roots else None,
        mean=mean_bar,
    )
    return restricted(grad, wrt)
