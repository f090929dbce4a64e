"""The evidence lower bound of SVGP: sum over data of E_q(f) log p(y | f), minus KL[q(u) || p(u)].

Hensman et al. 2013, 2015; handbook, "Non-Gaussian likelihoods". The relay below reads like the equation: rooms hand each other
covariance blocks and marginals, and their cotangents come back the same way. A batch that is long against M goes through in parts
that stay in cache; all that is M x M is a sum over the parts.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..kernels import verdicts
from ..posteriors.base import over_outputs
from ..records import Blocks, Marginals, is_record, record, restricted, tree_map

PART_NUMBERS = 2**19  # of one (M, part) array: three of them stay in a 16 MiB cache
PART_COLUMNS = 1024  # below, products lose speed
DEVICE_PART_NUMBERS = 2**28  # on a device, where long products are the fast ones: 2 GiB in float64
KEEP_KUU_UP_TO = 256  # inducing inputs; above, computing Kuu again for its reverse rule costs 1 % and saves (M, M) numbers


@record
class SVGP:
    """A sparse variational Gaussian process.

    Parameters
    ----------
    covariance : Covariance
    inducing : (M, D) array
        Inducing inputs Z.
    posterior : Posterior
        ``Whitened``, ``Marginal``, ``LikelihoodForm``, ``Relaxed`` or ``InverseFreeWhitened``; leading axes of its fields are
        outputs (or classes).
    likelihood : Likelihood
    mean : Mean, optional
        Added to the latent function; ``None`` is zero.
    """

    covariance: Any
    inducing: Any
    posterior: Any
    likelihood: Any
    mean: Any = None


@verdicts.retried
def elbo(model, X, Y, *, num_data=None, jitter=None, rng=None, probes=None) -> float:
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
        For likelihoods that sample, and for probes.
    probes : int or (M, K) array of +-1, optional
        With a ``Relaxed`` posterior: estimate the traces of its KL divergence without bias by Hutchinson's method, with that many
        random probes or with these. Default: exact traces.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError
        Shapes, dtypes, devices, NaN or infinity, None in a field, labels, ``num_data`` below the batch; also a NaN that comes of
        finite numbers. An infinite value is returned.
    NotPositiveDefinite
        Kuu + jitter I could not be factorised. With a jitter of 0 also where a pivot is so small that it may be rounding alone
        (at most 2 M eps of its diagonal entry), as duplicated inducing inputs leave it.
    MemoryError
        Says how much was asked for, and which argument drives it.

    Notes
    -----
    About (1 + P) M^2 B + M^3 / 3 flops for P outputs; ``Marginal`` takes P M^3 / 3 more. On a device one copy to the host holds
    the value and whether all is well; ``elbo_and_grad`` copies no more.
    """
    model, X, Y, dtype = check.svgp(model, X, Y)
    estimate = check.probes(probes, model.posterior, len(model.inducing), dtype, rng)
    Kuu = model.covariance.matrix(model.inducing)
    work = model.posterior.start(Kuu, check.jitter_amount(jitter, dtype), **estimate)
    data = sum(step.ell for step in sweep(model, work, X, Y, num_data, rng, need=False))
    return check.result(data - model.posterior.kl(work), model)


@verdicts.retried
def elbo_and_grad(model, X, Y, *, num_data=None, jitter=None, rng=None, wrt=None, probes=None) -> tuple[float, SVGP]:
    """The evidence lower bound and its gradient in natural space.

    Parameters
    ----------
    model, X, Y, num_data, jitter, rng
        As in ``elbo``.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate, such as ``("covariance", "posterior.mean")``; default all. Work that
        only the others need is skipped.
    probes : int or (M, K) array of +-1, optional
        As in ``elbo``; the gradients are those of the estimate.

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
    With ``Whitened``, one output: min(4 B + 14/3 M, 5 B + 10/3 M, 6 B + 4/3 M) M^2 flops for the value and all
    gradients; with ``LikelihoodForm`` (3 B + 2 M) M^2. A long batch goes through in parts of at least 1024 rows, so memory is
    that of a few (M, M) and (M, part) arrays, however long the batch.
    """
    return _value_and_grad(model, X, Y, num_data, jitter, rng, wrt, probes, kl_weight=1.0)


@verdicts.retried
def data_term_and_grad(model, X, Y, *, num_data=None, jitter=None, rng=None, wrt=None, probes=None) -> tuple[float, SVGP]:
    """The data term of the bound, num_data / B sum E log p(y | f), and its gradient: ``elbo`` = data term - KL term.

    Arguments, results and errors as in ``elbo_and_grad``. Data terms of shards add up.
    """
    return _value_and_grad(model, X, Y, num_data, jitter, rng, wrt, probes, kl_weight=0.0)


@verdicts.retried
def kl_term_and_grad(model, *, jitter=None, wrt=None, probes=None, rng=None) -> tuple[float, SVGP]:
    """KL[q(u) || p(u)] and its gradient (of the KL itself: subtract it), as ``elbo_and_grad`` with no data.

    About 4/3 M^3 flops for ``Whitened``, whose KL does not depend on the covariance; 4 M^3 an output for ``Marginal``.
    """
    model, _, _, dtype = check.svgp(model)
    wrt = check.names(wrt, model)
    Z = model.inducing
    blocks = model.covariance.blocks(Z, Z[:0])
    posterior = model.posterior
    estimate = check.probes(probes, posterior, len(Z), dtype, rng)
    f, kl, saved = posterior.forward(blocks, check.jitter_amount(jitter, dtype), **estimate)
    posterior_bar, blocks_bar = posterior.vjp(f, 1.0, saved, _posterior_need(wrt))  # f is empty: so are its cotangents
    need, mean_bar = covariance_need(wrt), None
    covariance_bar, Z_bar, _ = model.covariance.blocks_vjp(blocks_bar, blocks, Z, Z[:0], need) if need else (None, None, None)
    if model.mean is not None:
        mean_bar, _ = model.mean.vjp(f.mean, Z[:0], ("mean",))
    no_likelihood_bar = tree_map(np.zeros_like, model.likelihood)
    grad = restricted(SVGP(covariance_bar, Z_bar, posterior_bar, no_likelihood_bar, mean_bar), wrt)
    return check.result(kl, model), grad


@verdicts.retried
def elbo_and_grad_from_blocks(blocks, posterior, likelihood, Y, *, num_data=None, jitter=None, rng=None, probes=None):
    """The bound at the level of covariance blocks, for covariances of your own.

    Parameters
    ----------
    blocks : Blocks
        ``Kuu`` (M, M), ``Kuf`` (M, B), ``kff`` (B,), without jitter.
    posterior : Posterior
    likelihood : Likelihood
    Y : (B,) or (B, P)
    num_data, jitter, rng, probes
        As in ``elbo``.

    Returns
    -------
    value : float
    bars : (Blocks, posterior record, likelihood record)
        Gradients of the value; ``Kuu`` symmetric.
    """
    if not isinstance(blocks, Blocks):
        raise TypeError(f"`blocks` must be fastsvgp.Blocks(Kuu, Kuf, kff), got {type(blocks).__name__}")
    given = _Parts(posterior, likelihood)
    check.parts(given)
    verdicts.begin(blocks.Kuu)
    names = ("blocks.Kuu", "blocks.Kuf", "blocks.kff")
    Kuu, Kuf, kff = (check.as_array(name, getattr(blocks, name[7:])) for name in names)
    M, B = Kuf.shape if Kuf.ndim == 2 else (None, None)
    if M is None or Kuu.shape != (M, M) or kff.shape != (B,):
        raise ValueError(f"`blocks` must hold Kuu (M, M), Kuf (M, B), kff (B,), got {Kuu.shape}, {Kuf.shape}, {kff.shape}")
    for name, block in zip(names, (Kuu, Kuf, kff), strict=True):
        check.finite(name, block)
    Y = check.as_array("Y", Y)
    check.one_device(*zip(names, (Kuu, Kuf, kff), strict=True), ("Y", Y))
    arrays = Kuu, Kuf, kff, *((Y,) if Y.dtype.kind == "f" else ())
    parts, dtype = check.parameters(given, *arrays, names=(*names, "Y"))
    posterior, likelihood = parts.posterior, parts.likelihood
    outputs = posterior.check_size(M)
    likelihood.check_settings()
    blocks = Blocks(*(np.ascontiguousarray(b, dtype, like=b) for b in (Kuu, Kuf, kff)))
    Y = check.targets(Y, B, outputs, likelihood, dtype)
    scale = check.data_scale(num_data, B)
    estimate = check.probes(probes, posterior, M, dtype, rng)
    need = ("posterior", "blocks")
    work = posterior.start(blocks.Kuu, check.jitter_amount(jitter, dtype), B, need, **estimate)
    f, part = posterior.project(work, blocks.Kuf, blocks.kff)
    check.report_clamped(work.clamped)
    kl = posterior.kl(work)
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f, rng)
    f_bar, likelihood_bar = _scaled(f_bar, scale), _scaled(likelihood_bar, scale)
    Kuf_bar = posterior.pull(work, part, f_bar, need)
    posterior_bar, Kuu_bar = posterior.finish(work, -1.0, need)
    blocks_bar = Blocks(Kuu_bar, Kuf_bar, over_outputs(f_bar.var))
    return check.result(scale * ell - kl, parts), (blocks_bar, posterior_bar, likelihood_bar)


@record
class _Parts:
    posterior: Any
    likelihood: Any


def _value_and_grad(model, X, Y, num_data, jitter, rng, wrt, probes, kl_weight):
    model, X, Y, dtype = check.svgp(model, X, Y)
    wrt = check.names(wrt, model)
    Z, posterior, covariance = model.inducing, model.posterior, model.covariance
    posterior_need, blocks_need = _posterior_need(wrt), covariance_need(wrt)
    mean_need = ("mean",) if model.mean is not None and any(name.partition(".")[0] == "mean" for name in wrt) else ()
    estimate = check.probes(probes, posterior, len(Z), dtype, rng)
    Kuu = covariance.matrix(Z)
    work = posterior.start(Kuu, check.jitter_amount(jitter, dtype), len(X), posterior_need, **estimate)
    if len(Z) > KEEP_KUU_UP_TO:
        Kuu = None
    data, inputs_bar, likelihood_bar, mean_bar = 0.0, None, None, None
    for part in sweep(model, work, X, Y, num_data, rng):
        data += part.ell
        likelihood_bar = _plus(part.likelihood_bar, likelihood_bar)
        if mean_need:
            mean_bar = _plus(model.mean.vjp(part.f_bar.mean, part.X, mean_need)[0], mean_bar)
        bars = Blocks(None, posterior.pull(work, part.saved, part.f_bar, posterior_need), over_outputs(part.f_bar.var))
        if blocks_need and not part.last:
            inputs_bar = _plus(covariance.blocks_vjp(bars, part.blocks, Z, part.X, blocks_need)[:2], inputs_bar)
            del part, bars  # their memory is the next part's
    kl = posterior.kl(work) if kl_weight else 0.0
    posterior_bar, Kuu_bar = posterior.finish(work, -kl_weight, posterior_need)
    if blocks_need:  # Kuu travels with the last part
        bars, blocks = Blocks(Kuu_bar, bars.Kuf, bars.kff), Blocks(Kuu, part.blocks.Kuf, part.blocks.kff)
        inputs_bar = _plus(covariance.blocks_vjp(bars, blocks, Z, part.X, blocks_need)[:2], inputs_bar)
    covariance_bar, Z_bar = inputs_bar or (None, None)
    grad = SVGP(covariance_bar, Z_bar, posterior_bar, likelihood_bar, mean_bar)
    return check.result(data - kl_weight * kl, model), restricted(grad, wrt)


class Part(NamedTuple):
    """One part of a batch on its way through the rooms; ``ell`` and the cotangents carry the factor num_data / batch."""

    X: Any
    blocks: Blocks
    saved: Any
    ell: float
    f_bar: Marginals | None
    likelihood_bar: Any
    last: bool


def sweep(model, work, X, Y, num_data, rng, need=True):
    """Take a batch through covariance, posterior and likelihood, part by part; without ``need`` there are no cotangents."""
    scale = check.data_scale(num_data, len(X))
    numbers = PART_NUMBERS if type(X) is np.ndarray else DEVICE_PART_NUMBERS
    count = max(1, round(len(X) / max(PART_COLUMNS, numbers // len(model.inducing))))
    size = -(-len(X) // count)  # all but the last of one size: they hand on their memory
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        yield _part(model, work, X[rows], np.ascontiguousarray(Y[..., rows], like=Y), scale, rng, need, start + size >= len(X))
    check.report_clamped(work.clamped)


def _part(model, work, X, Y, scale, rng, need, last):
    blocks = Blocks(None, model.covariance.matrix(model.inducing, X), model.covariance.diag(X))
    f, saved = model.posterior.project(work, blocks.Kuf, blocks.kff)
    if model.mean is not None:
        f = Marginals(f.mean + model.mean(X), f.var)
    ell, f_bar, likelihood_bar = model.likelihood.expected_log_prob(Y, f, rng, need=need)
    if need:
        f_bar, likelihood_bar = _scaled(f_bar, scale), _scaled(likelihood_bar, scale)
    return Part(X, blocks, saved, scale * ell, f_bar, likelihood_bar, last)


def _scaled(tree, scale):
    return tree if scale == 1.0 else tree_map(lambda bar: bar * scale, tree)


def _plus(new, old):
    """The sum of two gradients of one shape: records, arrays, or tuples of them; ``None`` is nothing."""
    if old is None or new is None:
        return new
    if isinstance(new, tuple):
        return tuple(map(_plus, new, old))
    return tree_map(np.add, new, old) if is_record(new) else new + old


def _posterior_need(wrt):
    """What the posterior must differentiate for these fields of the model."""
    need = [name for name in wrt if name.partition(".")[0] == "posterior"]
    return (*need, "blocks") if covariance_need(wrt) else tuple(need)


def covariance_need(wrt):
    """What the covariance must differentiate for these fields of the model: ``need`` of ``blocks_vjp``."""
    return tuple("Z" if name == "inducing" else name for name in wrt if name.partition(".")[0] in ("covariance", "inducing"))
