"""Untied sites: one per datum; q(u) is recomputed from them for any hyperparameters.

t-SVGP, equations 18, 20. With Lam = L^-1 Kuf over all data, q(u') = N(B^-1 t, B^-1), B = I + A, and

    A = Lam diag(lambda_2) Lam',    t = Lam lambda_1.

The bound is that of this q(u). With the sites held fixed, it depends on the hyperparameters through
Lam: with A_bar, g = t_bar as in ``posteriors.dual_sites_pass``,

    Lam_bar       = that of the marginals + g lambda_1' + 2 A_bar Lam diag(lambda_2)
    lambda_1_bar  = Lam' g,    lambda_2_bar = diag(Lam' A_bar Lam)

For Gaussian noise and sites (y / noise, 1 / noise) it is the collapsed bound for any
hyperparameters.

The bound is the sum of the log normaliser of q and the expected remainder of the log likelihood
(equations 16, 17). Sites are functions of E(f | u), mu its mean: N(lambda_1 / lambda_2 | ., 1 /
lambda_2) if lambda_2 > 0, else not normalised; o = lambda_1 - lambda_2 mu:

    log Z       = sum_(> 0) 1/2 (log lambda_2 / (2 pi) - lambda_1 o / lambda_2)
                  + sum_(<= 0) 1/2 lambda_1 mu - 1/2 log |B|
    E log sites = sum_(> 0) 1/2 (log lambda_2 / (2 pi) - o^2 / lambda_2)
                  + sum_(<= 0) 1/2 (lambda_1 + o) mu - 1/2 tr(A B^-1)
    c           = E log p(y | f) - E log sites
    tr(A B^-1)  = sum lambda_2 var E(f | u) = M - tr B^-1

E-step of size r at some rows, a and b the derivatives of the expected log likelihood in mean and
variance there, and mu the mean without the mean function:

    lambda_2 <- (1 - r) lambda_2 - 2 r b,    lambda_1 <- (1 - r) lambda_1 + r (a - 2 b mu)
"""

import math
from typing import Any

import numpy as np

from .. import check, kernels, models
from ..bounds.convert import check_kind, from_state
from ..bounds.predictor import predictor
from ..bounds.relay import Batch, sweep
from ..bounds.svgp import SVGP
from ..covariances import Covariance
from ..likelihoods import Likelihood
from ..likelihoods.gaussian import LOG_2PI
from ..means import Mean
from ..posteriors import AbsorbedDualSites, Posterior
from ..records import plus, record, restricted
from ..records.typed import Array, ArrayLike, Names, Record, RecordT, Seed
from ..runtime.edge import public_call
from .dual import Sites
from .site_pass import factor, finite_sums, layer_of_sites, site_pass, sites_vjp


@record
class SiteSVGP:
    """A sparse variational Gaussian process whose q(u) is the prior times a site for each datum.

    Parameters
    ----------
    covariance : Covariance
    inducing : (M, D) array, or a record that the covariance takes
    sites : Sites
        ``lambda1``, ``lambda2`` (N,), or (P, N) for P outputs, in the order of the rows of X. Zeros
        are the prior.
    likelihood : Likelihood
    mean : Mean, optional

    Examples
    --------
    >>> untied = fs.sites.SiteSVGP(covariance, Z, fs.sites.Sites(np.zeros(40), np.ones(40)),
    ...     gaussian)
    >>> round(fs.sites.bound(untied, X, Y), 2)
    -100.49
    """

    covariance: Covariance
    inducing: Array | Record
    sites: Sites
    likelihood: Likelihood
    mean: Mean | None = None


@public_call(SiteSVGP, name="sites.bound")
def bound(
    model: Record, X: ArrayLike, Y: ArrayLike, *, jitter: float | None = None, rng: Seed = None
) -> float:
    """Compute the bound at the q(u) of the sites, in nats. 4 M^2 N flops.

    Parameters
    ----------
    model, X, Y, jitter, rng
        As in ``sites.bound_and_grad``.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``sites.bound_and_grad``.

    Examples
    --------
    >>> untied = fs.sites.SiteSVGP(covariance, Z, fs.sites.Sites(Y / 0.1, np.full(40, 10.0)),
    ...     gaussian)
    >>> round(fs.sites.bound(untied, X, Y) - fs.collapsed_bound(sgpr, X, Y), 6) + 0.0
    0.0
    """
    model, X, Y, jitter = check_site_model(model, X, Y, jitter)
    layer = site_pass(layer_of_sites(model, X, jitter), jitter)
    data = sum(chunk.ell for chunk in sweep(model, layer, Batch(X, Y, rng=rng), need=False))
    return check.result(data - layer.kl(), model)


@public_call(SiteSVGP, name="sites.bound_and_grad")
def bound_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    jitter: float | None = None,
    rng: Seed = None,
    wrt: Names | None = None,
) -> tuple[float, RecordT]:
    """Compute the bound at the q(u) of the sites, and its gradient: the M-step of untied t-SVGP.

    The sites are held fixed in the gradients of the other fields.

    Parameters
    ----------
    model : SiteSVGP
    X : (N, D) array
    Y : (N,) or (N, P) array
        All data, one site per datum.
    jitter, rng
        As in ``elbo``.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate; default all, including the sites.

    Returns
    -------
    value : float
    grad : SiteSVGP

    Raises
    ------
    ValueError
        The numbers of sites and data differ; invalid sites, with which q(u) has no covariance; and
        as ``elbo``.
    TypeError, NotPositiveDefinite
        As ``elbo``.

    Notes
    -----
    9 M^2 N flops and some M^3, in chunks of rows: only X, Y and the sites need memory that grows
    with N.

    Examples
    --------
    >>> untied = fs.sites.SiteSVGP(covariance, Z, fs.sites.Sites(Y / 0.1, np.full(40, 10.0)),
    ...     gaussian)
    >>> value, grad = fs.sites.bound_and_grad(untied, X, Y)
    >>> grad.inducing.shape
    (6, 1)
    """
    model, X, Y, jitter = check_site_model(model, X, Y, jitter)
    wrt = check.names(wrt, model)
    of_sites = layer_of_sites(model, X, jitter)
    need = tuple(
        name for name in wrt if name.partition(".")[0] in ("covariance", "inducing", "mean")
    )
    layer = site_pass(of_sites, jitter, len(X), (*need, "posterior"))  # type: ignore[arg-type]
    likelihood_bar: Any = None
    data = 0.0
    for chunk in sweep(model, layer, Batch(X, Y, rng=rng)):
        data += chunk.ell
        likelihood_bar = plus(chunk.likelihood_bar, likelihood_bar)
        layer.pull(chunk.residuals, chunk.f_bar)
    kl, bars = layer.kl(), layer.finish(-1.0)
    covariance_bar, inducing_bar, sites_bar = sites_vjp(model, X, jitter, bars, wrt, need)
    value = check.result(data - kl, model)
    return value, restricted(
        SiteSVGP(covariance_bar, inducing_bar, sites_bar, likelihood_bar, bars.mean), wrt
    )


@public_call(SiteSVGP, name="sites.bound_terms")
def bound_terms(
    model: Record, X: ArrayLike, Y: ArrayLike, *, jitter: float | None = None, rng: Seed = None
) -> tuple[float, float]:
    """Split the bound into ``log_Z + c``: the Gaussian evidence of the sites, and the remainder.

    Parameters
    ----------
    model, X, Y, jitter, rng
        As in ``sites.bound_and_grad``.

    Returns
    -------
    log_Z : float
        Log evidence of pseudo-targets lambda1 / lambda2 with noise 1 / lambda2 for each datum. A
        site with lambda2 <= 0 has no normaliser and enters without one.
    c : float
        E_q of log p(y | f) minus the logs of the sites. For Gaussian noise, after a unit step:
        -tr(Kff - Qff) / (2 noise). For a ``VGP`` it is then zero and log_Z is the log marginal
        likelihood.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``sites.bound``.

    Notes
    -----
    The flops of ``sites.bound``. Source: Adam et al. 2021, equations 16 and 17, with their sites
    normalised.

    Examples
    --------
    >>> untied = fs.sites.SiteSVGP(covariance, Z, fs.sites.Sites(Y / 0.1, np.full(40, 10.0)),
    ...     gaussian)
    >>> log_Z, c = fs.sites.bound_terms(untied, X, Y)
    >>> round(log_Z + c - fs.sites.bound(untied, X, Y), 6) + 0.0
    0.0
    """
    given, X, Y, jitter = check_site_model(model, X, Y, jitter)
    layer, data, means = site_pass(layer_of_sites(given, X, jitter), jitter), 0.0, []
    for chunk in sweep(given, layer, Batch(X, Y, rng=rng), need=False):
        data += chunk.ell
        means.append(chunk.f.mean)
    mean = np.concatenate(means, -1) - (0 if given.mean is None else given.mean(X))
    trils = layer.work.trils
    trace = trils.shape[0] * trils.shape[1] - kernels.tril_sum_of_squares(trils)
    off = given.sites.lambda1 - given.sites.lambda2 * mean
    return terms(given, data, layer.kl(), mean, off, trace)


def terms(model, data, kl, mean, off, trace):
    """Return ``(log_Z, c)``.

    mean, off : mu and o of the module's text (..., N); trace : sum lambda_2 var

    log Z is computed as E log sites - KL, because its own formula multiplies the rounding error of
    o by lambda_1 / lambda_2.
    """
    first, second = model.sites.lambda1, model.sites.lambda2
    mean, off, positive = mean.reshape(first.shape), off.reshape(first.shape), second > 0
    precision = np.where(positive, second, 1)
    logs = np.where(positive, np.log(precision) - LOG_2PI, 0)
    squares = np.where(positive, -np.square(off) / precision, (first + off) * mean)
    expected = 0.5 * (np.sum(logs, dtype=float) - trace + np.sum(squares, dtype=float))
    return check.result(expected - kl, model), check.result(data - expected, model)


@public_call(SiteSVGP)
def tie_sites(
    model: Record,
    X: ArrayLike,
    *,
    to: type[Posterior] = AbsorbedDualSites,
    jitter: float | None = None,
) -> SVGP:
    """Create the SVGP with the q(u) of the sites: for predictions or further training.

    Parameters
    ----------
    model : SiteSVGP
    X : (N, D) array
        The inputs of the sites.
    to : type
        Class of the posterior: ``AbsorbedDualSites`` (default), ``DualSites``, ``Whitened`` or
        ``Marginal``.
    jitter : float, optional
        As in ``elbo``.

    Returns
    -------
    SVGP

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``sites.bound``.

    Notes
    -----
    2 M^2 N flops.

    Examples
    --------
    >>> untied = fs.sites.SiteSVGP(covariance, Z, fs.sites.Sites(Y / 0.1, np.full(40, 10.0)),
    ...     gaussian)
    >>> mean, var = fs.predict_y(fs.sites.tie_sites(untied, X), X)
    >>> bool(abs(mean - Y).max() < 0.2)
    True
    """
    check_kind("tie_sites: `to`", to)
    given, X, _, jitter = check_site_model(model, X, check.ABSENT, jitter)
    state = layer_of_sites(given, X, jitter).posterior
    posterior = from_state(to, factor(given, jitter), state.lambda1, state.lambda2)
    finite_sums(posterior)
    return SVGP(given.covariance, given.inducing, posterior, given.likelihood, given.mean)


def check_site_model(model, X, Y, jitter) -> Any:
    """Check the arguments of a bound of a ``SiteSVGP`` or ``VGP`` and cast them to one dtype.

    Y is returned in the layout of likelihoods, or as ``ABSENT``.
    """
    check.parts(model)
    if not isinstance(model.sites, Sites):
        raise TypeError(
            "`sites` of the model must be a fastsvgp.sites.Sites(lambda1, lambda2), got"
            f" {type(model.sites).__name__}"
        )
    model, X, Y, dtype = check.arguments(model, X, Y, ("X", "Y"))
    D = X.shape[1]
    if hasattr(model, "inducing"):
        check.inducing_for(X, model)
        check.columns(X, check.inducing(model, 1, "SiteSVGP")[1], owner=model.covariance.columns_of)
    elif D:
        try:
            model.covariance.check_dim(D)
        except ValueError as error:
            raise ValueError(f"`X` has {D} columns. {error}") from None
    else:
        raise ValueError(f"`X` must have shape (N, D) with D > 0, got {X.shape}")
    check.codes(model.covariance, X)
    first, second = np.shape(model.sites.lambda1), np.shape(model.sites.lambda2)
    if first != second or len(first) not in (1, 2) or 0 in first[:-1] or first[-1] != len(X):
        raise ValueError(
            f"`sites` has lambda1 {first} and lambda2 {second}, and `X` has {len(X)} rows: give one"
            f" site per row, ({len(X)},) or (P, {len(X)}) in both"
        )
    model.likelihood.check_settings()
    if model.mean is not None:
        model.mean.check_shapes(D, first[:-1])
    if Y is not check.ABSENT:
        outputs, latent = (
            check.outputs_of(model.likelihood, first[:-1], "sites"),
            model.likelihood.num_latent,
        )
        Y = check.one_column(Y, outputs, model.likelihood)
        wanted = check.axes_of_targets(Y, model.likelihood) if latent is None else (latent,)
        if outputs != wanted and Y.shape[:1] == (len(X),):
            K = model.likelihood.latents_per_output
            needed = wanted if K == 1 else (K * math.prod(wanted),)
            fits = f"the shape ({', '.join(map(str, (*needed, len(X))))}{',' * (not needed)})"
            kind = type(model.likelihood).__name__
            raise ValueError(
                f"`sites` has lambda1 {first}, and `Y` {Y.shape} with a {kind} needs {fits}"
            )
        Y = check.targets(Y, len(X), first[:-1], model.likelihood, dtype)
    return model, X.astype(dtype, copy=False), Y, check.jitter_amount(jitter, dtype)


def predictor_of_sites(model, X=None, Y=None, *, jitter=None, dtype=None):
    """Make a predictor of the q(u) of the sites at the inputs X of the data."""
    if X is None:
        raise TypeError(
            f"predictor: a {type(model).__name__} has no q(u) without its inputs; pass its `X`"
            " (`Y` is not needed: the sites stand for it)"
        )
    if Y is not None:
        check_site_model(model, X, check.as_array("Y", Y), jitter)
    return predictor(tie_sites(model, X, jitter=jitter), jitter=jitter, dtype=dtype)


models.register(
    SiteSVGP,
    predictor=predictor_of_sites,
    instead=(
        "em trains it, sites.bound is its bound, and sites.tie_sites(model, X) makes an SVGP of it"
        " to predict with"
    ),
)
