"""Sites that are not tied: one for each datum, of which q(u) is made wherever the hyperparameters go (t-SVGP, equations 18, 20).

With Lam = L^-1 Kuf over all data, q(u') = N(B^-1 t, B^-1), B = I + A, and

    A = Lam diag(lambda_2) Lam',    t = Lam lambda_1.

The bound is that of this q(u). With the sites held, hyperparameters move Lam and all that is made
of it: with A_bar, g = t_bar as in ``posteriors.dual_sites``,

    Lam_bar       = that of the marginals + g lambda_1' + 2 A_bar Lam diag(lambda_2)
    lambda_1_bar  = Lam' g,    lambda_2_bar = diag(Lam' A_bar Lam)

For Gaussian noise and sites (y / noise, 1 / noise) it is the collapsed bound wherever the
hyperparameters go.

It falls into the log normaliser of q and what the sites do not say of the likelihood (equations 16,
17). Sites are those of E(f | u), mu its mean, N(lambda_1 / lambda_2 | ., 1 / lambda_2) where
lambda_2 > 0, else as they are; o = lambda_1 - lambda_2 mu:

    log Z       = sum_(> 0) 1/2 (log lambda_2 / (2 pi) - lambda_1 o / lambda_2) + sum_(<= 0) 1/2 lambda_1 mu - 1/2 log |B|
    E log sites = sum_(> 0) 1/2 (log lambda_2 / (2 pi) - o^2 / lambda_2) + sum_(<= 0) 1/2 (lambda_1 + o) mu - 1/2 tr(A B^-1)
    c           = E log p(y | f) - E log sites,    tr(A B^-1) = sum lambda_2 var E(f | u) = M - tr B^-1

E-step of size r at some rows, a and b the derivatives of the expected log likelihood in mean and
variance there, and mu the mean without the mean function:

    lambda_2 <- (1 - r) lambda_2 - 2 r b,    lambda_1 <- (1 - r) lambda_1 + r (a - 2 b mu)
"""

from typing import Any

import numpy as np

from .. import check, kernels, models
from ..bounds.convert import check_kind, from_state
from ..bounds.data_term import sweep
from ..bounds.elbo import SVGP
from ..covariances import Covariance
from ..distributed.data_scale import ALL_ROWS
from ..likelihoods import Likelihood
from ..likelihoods.gaussian import LOG_2PI
from ..means import Mean
from ..posteriors import AbsorbedDualSites, Posterior
from ..records import plus, record, restricted
from ..records.typed import Array, ArrayLike, Names, Record, RecordT, Seed
from ..runtime.edge import public_call
from .dual_parameters import Sites
from .site_pass import factor, finite_sums, held_layer, site_pass, sites_vjp


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
    >>> untied = fs.SiteSVGP(covariance, Z, fs.Sites(np.zeros(40), np.ones(40)), gaussian)
    >>> round(fs.site_bound(untied, X, Y), 2)
    -100.49
    """

    covariance: Covariance
    inducing: Array | Record
    sites: Sites
    likelihood: Likelihood
    mean: Mean | None = None


@public_call(SiteSVGP)
def site_bound(
    model: Record, X: ArrayLike, Y: ArrayLike, *, jitter: float | None = None, rng: Seed = None
) -> float:
    """The bound at the q(u) that the sites make, in nats. 4 M^2 N flops.

    Parameters
    ----------
    model, X, Y, jitter, rng
        As in ``site_bound_and_grad``.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``site_bound_and_grad``.

    Examples
    --------
    >>> untied = fs.SiteSVGP(covariance, Z, fs.Sites(Y / 0.1, np.full(40, 10.0)), gaussian)
    >>> round(fs.site_bound(untied, X, Y) - fs.collapsed_bound(sgpr, X, Y), 6) + 0.0
    0.0
    """
    model, X, Y, jitter = checked(model, X, Y, jitter)
    layer = site_pass(held_layer(model, X, jitter), jitter)
    data = sum(part.ell for part in sweep(model, layer, X, Y, ALL_ROWS, rng, need=False))
    return check.result(data - layer.kl(), model)


@public_call(SiteSVGP)
def site_bound_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    jitter: float | None = None,
    rng: Seed = None,
    wrt: Names | None = None,
) -> tuple[float, RecordT]:
    """The bound at the q(u) that the sites make, and its gradient with the sites held: the M-step of untied t-SVGP.

    Parameters
    ----------
    model : SiteSVGP
    X : (N, D) array
    Y : (N,) or (N, P) array
        All data, a site for each.
    jitter, rng
        As in ``elbo``.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate; default all, the sites too.

    Returns
    -------
    value : float
    grad : SiteSVGP

    Raises
    ------
    ValueError
        Sites of another number than data, sites with which q(u) would have no covariance, and as
        ``elbo``.
    TypeError, NotPositiveDefinite
        As ``elbo``.

    Notes
    -----
    9 M^2 N flops and some M^3, in runs of rows: memory does not grow with N but for X, Y and the
    sites.

    Examples
    --------
    >>> untied = fs.SiteSVGP(covariance, Z, fs.Sites(Y / 0.1, np.full(40, 10.0)), gaussian)
    >>> value, grad = fs.site_bound_and_grad(untied, X, Y)
    >>> grad.inducing.shape
    (6, 1)
    """
    model, X, Y, jitter = checked(model, X, Y, jitter)
    wrt = check.names(wrt, model)
    held = held_layer(model, X, jitter)
    need = tuple(
        name for name in wrt if name.partition(".")[0] in ("covariance", "inducing", "mean")
    )
    layer = site_pass(held, jitter, len(X), (*need, "posterior"))  # type: ignore[arg-type]
    likelihood_bar: Any = None
    data = 0.0
    for part in sweep(model, layer, X, Y, ALL_ROWS, rng):
        data += part.ell
        likelihood_bar = plus(part.likelihood_bar, likelihood_bar)
        layer.pull(part.rows, part.f_bar)
    kl, bars = layer.kl(), layer.finish(-1.0)
    covariance_bar, inducing_bar, sites_bar = sites_vjp(model, X, jitter, bars, wrt, need)
    value = check.result(data - kl, model)
    return value, restricted(
        SiteSVGP(covariance_bar, inducing_bar, sites_bar, likelihood_bar, bars.mean), wrt
    )


@public_call(SiteSVGP)
def site_bound_terms(
    model: Record, X: ArrayLike, Y: ArrayLike, *, jitter: float | None = None, rng: Seed = None
) -> tuple[float, float]:
    """The bound as ``log_Z + c``: a Gaussian evidence, that of the sites, and what is left of the likelihood.

    Parameters
    ----------
    model, X, Y, jitter, rng
        As in ``site_bound_and_grad``.

    Returns
    -------
    log_Z : float
        The log evidence of pseudo-targets lambda1 / lambda2 with noise 1 / lambda2 for each datum;
        a site that is not positive, lambda2 <= 0, has no normaliser, and counts as it is.
    c : float
        E_q of log p(y | f) less the logs of the sites. For Gaussian noise, after a unit step:
        -tr(Kff - Qff) / (2 noise); zero for a ``VGP``, whose log_Z then is the log marginal
        likelihood.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``site_bound``.

    Notes
    -----
    The flops of ``site_bound``. Source: Adam et al. 2021, equations 16 and 17, with their sites
    normalised.

    Examples
    --------
    >>> untied = fs.SiteSVGP(covariance, Z, fs.Sites(Y / 0.1, np.full(40, 10.0)), gaussian)
    >>> log_Z, c = fs.site_bound_terms(untied, X, Y)
    >>> round(log_Z + c - fs.site_bound(untied, X, Y), 6) + 0.0
    0.0
    """
    model, X, Y, jitter = checked(model, X, Y, jitter)
    layer, data, means = site_pass(held_layer(model, X, jitter), jitter), 0.0, []
    for part in sweep(model, layer, X, Y, ALL_ROWS, rng, need=False):
        data += part.ell
        means.append(part.f.mean)
    mean = np.concatenate(means, -1) - (0 if model.mean is None else model.mean(X))  # type: ignore[attr-defined]
    trils = layer.work.trils
    trace = trils.shape[0] * trils.shape[1] - kernels.tril_sum_of_squares(trils)
    sites: Any = model.sites  # type: ignore[attr-defined]
    return terms(model, data, layer.kl(), mean, sites.lambda1 - sites.lambda2 * mean, trace)


def terms(model, data, kl, mean, off, trace):
    """``(log_Z, c)`` from the data term, the KL term, means and o (..., N) of what the sites see, and sum lambda_2 var.

    log Z is E log sites - KL: in its own formula o is multiplied by lambda_1 / lambda_2, and so is
    its rounding.
    """
    first, second = model.sites.lambda1, model.sites.lambda2
    mean, off, there = mean.reshape(first.shape), off.reshape(first.shape), second > 0
    precision = np.where(there, second, 1)
    logs = np.where(there, np.log(precision) - LOG_2PI, 0)
    squares = np.where(there, -np.square(off) / precision, (first + off) * mean)
    expected = 0.5 * (np.sum(logs, dtype=float) - trace + np.sum(squares, dtype=float))
    return check.result(expected - kl, model), check.result(data - expected, model)


@public_call(SiteSVGP)
def tied(
    model: Record,
    X: ArrayLike,
    *,
    to: type[Posterior] = AbsorbedDualSites,
    jitter: float | None = None,
) -> SVGP:
    """The SVGP with the q(u) that the sites make: to predict with, to go on with.

    Parameters
    ----------
    model : SiteSVGP
    X : (N, D) array
        The inputs of the sites.
    to : type
        ``AbsorbedDualSites``, ``DualSites``, ``Whitened`` or ``Marginal``.
    jitter : float, optional
        As in ``elbo``.

    Returns
    -------
    SVGP

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``site_bound``.

    Notes
    -----
    2 M^2 N flops.

    Examples
    --------
    >>> untied = fs.SiteSVGP(covariance, Z, fs.Sites(Y / 0.1, np.full(40, 10.0)), gaussian)
    >>> mean, var = fs.predict_y(fs.tied(untied, X), X)
    >>> bool(abs(mean - Y).max() < 0.2)
    True
    """
    check_kind("tied: `to`", to)
    model, X, _, jitter = checked(model, X, check.ABSENT, jitter)
    state = held_layer(model, X, jitter).posterior
    posterior = from_state(to, factor(model, jitter), state.lambda1, state.lambda2)
    finite_sums(posterior)
    return SVGP(model.covariance, model.inducing, posterior, model.likelihood, model.mean)  # type: ignore[attr-defined]


def checked(model, X, Y, jitter) -> Any:
    """Arguments for a ``SiteSVGP`` or a ``VGP``, checked and in one dtype; Y as likelihoods want it, or ``ABSENT``."""
    check.parts(model)
    if not isinstance(model.sites, Sites):
        raise TypeError(
            "`sites` of the model must be a fastsvgp.Sites(lambda1, lambda2), got"
            f" {type(model.sites).__name__}"
        )
    check.defer(model, X)
    X = check.inputs("X", X)
    Y = Y if Y is check.ABSENT else check.as_array("Y", Y)
    model, dtype = check.parameters(
        model, X, *((Y,) if Y is not check.ABSENT and Y.dtype.kind == "f" else ())
    )
    D = X.shape[1]
    if hasattr(model, "inducing"):
        check.columns(X, check.inducing(model, 1, "SiteSVGP")[1], owner=model.covariance.columns_of)
    elif D:
        model.covariance.check_dim(D)
    else:
        raise ValueError(f"`X` must have shape (N, D) with D > 0, got {X.shape}")
    first, second = np.shape(model.sites.lambda1), np.shape(model.sites.lambda2)
    if first != second or len(first) not in (1, 2) or 0 in first[:-1] or first[-1] != len(X):
        raise ValueError(
            f"`sites` has lambda1 {first} and lambda2 {second}, and `X` has {len(X)} rows: give one"
            f" site for each, ({len(X)},) or (P, {len(X)}) in both"
        )
    model.likelihood.check_settings()
    if model.mean is not None:
        model.mean.check_shapes(D, first[:-1])
    if Y is not check.ABSENT:
        Y, latent = check.one_column(Y, first[:-1], model.likelihood), model.likelihood.num_latent
        outputs = Y.shape[1:] if latent is None else (latent,)
        if first[:-1] != outputs and Y.shape[:1] == (len(X),):
            fits = f"the shape ({', '.join(map(str, (*outputs, len(X))))}{',' * (not outputs)})"
            kind = type(model.likelihood).__name__
            raise ValueError(
                f"`sites` has lambda1 {first}, and `Y` {Y.shape} with a {kind} needs {fits}"
            )
        Y = check.targets(Y, len(X), first[:-1], model.likelihood, dtype)
    return model, X.astype(dtype, copy=False), Y, check.jitter_amount(jitter, dtype)


models.register(
    SiteSVGP,
    instead=(
        "em trains it, site_bound is its bound, and tied(model, X) makes an SVGP of it to predict"
        " with"
    ),
)
