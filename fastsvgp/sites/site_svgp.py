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

import copy
from typing import Any

import numpy as np

from .. import check, kernels, models
from ..bounds.convert import check_kind, from_state
from ..bounds.elbo import SVGP, sweep
from ..bounds.layer_pass import LayerParts, LayerPass
from ..bounds.shared_pass import KEEP_NUMBERS, KeptLayer
from ..covariances import Covariance
from ..errors import InvalidSites
from ..likelihoods import Likelihood
from ..likelihoods.base import total
from ..likelihoods.gaussian import LOG_2PI
from ..means import Mean
from ..posteriors import AbsorbedDualSites, Posterior
from ..posteriors.base import Prior, prior_factor
from ..posteriors.dual_sites import WhitenedState
from ..records import leaves, plus, record, replace, restricted
from ..records.inducing_sets import naming_repeated
from ..records.typed import AnyRecord, Array, ArrayLike, Names, Record, RecordT, Seed
from ..runtime import deferred_checks
from .dual_parameters import Sites

INVALID = (
    "`sites.lambda2` holds no valid sites: with them q has no covariance. Zeros are the prior, and"
    " natural_step keeps valid sites valid; where the covariance function has moved since, smaller"
    " steps may be needed"
)
RUN_NUMBERS = 2**22  # of one (M, run) array: 32 MiB in float64


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


@deferred_checks.retried
@models.public(SiteSVGP)
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
    data = sum(part.ell for part in sweep(model, layer, X, Y, None, rng, need=False))
    return check.result(data - layer.kl(), model)


@deferred_checks.retried
@models.public(SiteSVGP)
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
    given, X, Y, jitter = checked(model, X, Y, jitter)
    wrt = check.names(wrt, given)
    held = held_layer(given, X, jitter)
    need = tuple(
        name for name in wrt if name.partition(".")[0] in ("covariance", "inducing", "mean")
    )
    layer = site_pass(held, jitter, len(X), (*need, "posterior"))
    likelihood_bar: Any = None
    data = 0.0
    for part in sweep(given, layer, X, Y, None, rng):
        data += part.ell
        likelihood_bar = plus(part.likelihood_bar, likelihood_bar)
        layer.pull(part.rows, part.f_bar)
    kl, bars = layer.kl(), layer.finish(-1.0)
    covariance_bar, inducing_bar, sites_bar = _through_sites(given, X, jitter, bars, wrt, need)
    value = check.result(data - kl, given)
    return value, restricted(
        SiteSVGP(covariance_bar, inducing_bar, sites_bar, likelihood_bar, bars.mean), wrt
    )


@deferred_checks.retried
@models.public(SiteSVGP)
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
    for part in sweep(model, layer, X, Y, None, rng, need=False):
        data += part.ell
        means.append(part.f.mean)
    mean = np.concatenate(means, -1) - (0 if model.mean is None else model.mean(X))
    trils = layer.work.trils
    trace = trils.shape[0] * trils.shape[1] - kernels.tril_sum_of_squares(trils)
    return terms(
        model, data, layer.kl(), mean, model.sites.lambda1 - model.sites.lambda2 * mean, trace
    )


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


@deferred_checks.retried
@models.public(SiteSVGP)
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
    posterior = from_state(to, _factor(model, jitter), state.lambda1, state.lambda2)
    finite_sums(posterior)
    return SVGP(model.covariance, model.inducing, posterior, model.likelihood, model.mean)


def finite_sums(posterior):
    """Refuse a posterior that is not finite; on a device, where it is known whether all went well."""
    first = next(value for _, _, value in leaves(posterior))
    check.result(total(first), posterior)


def held_layer(model, X, jitter):
    """The layer whose q(u) the sites make, in whitened coordinates: A and t, run of rows by run of rows. Of a checked model."""
    L, batch = _factor(model, jitter), model.sites.lambda1.shape[:-1]
    first, second = (a.reshape(-1, len(X)) for a in (model.sites.lambda1, model.sites.lambda2))
    A, t = kernels.empty((len(first), *L.shape), L), np.zeros((len(first), len(L)), L.dtype, like=L)
    for i, at in enumerate(_runs(len(X), len(L))):
        Lam = kernels.solve_triangular(L, model.covariance.Kuf(model.inducing, X[at]))
        _add_sites(A, t, Lam, first[:, at], second[:, at], add=i > 0)
    state = WhitenedState(
        t.reshape(*batch, len(L)), kernels.symmetrise(A).reshape(*batch, *L.shape)
    )
    return LayerParts(model.covariance, state, model.inducing, model.mean)


def site_pass(held, jitter, columns=0, need=()):
    """The ``LayerPass``; what it says of sites that are not valid, in the words of this model."""
    try:
        return LayerPass(held, jitter, columns, need)
    except InvalidSites as error:
        raise InvalidSites(INVALID) from error


class SparseSites:
    """q(u) of a checked ``SiteSVGP`` as its sites move: L stays, A and t change by the rows whose sites do."""

    def __init__(self, model, X, jitter):
        self.model, self.X, self._prior = (
            model,
            X,
            Prior(model.covariance.Kuu(model.inducing), jitter),
        )
        self._state, self._of_all = held_layer(model, X, jitter).posterior, []
        self._of_rows, self._moves = [], 0

    def layer(self, rows):
        """What ``sweep`` takes for a layer, at some rows or at ``slice(None)``; its ``work`` has the ``kl``."""
        whole = isinstance(rows, slice)
        if whole and self.X.shape[0] * len(self._prior.Kuu) > KEEP_NUMBERS:
            self._of_rows = None
        else:
            self._of_rows = self._of_all if whole else []
        try:
            return KeptLayer(self.model, self._prior, self._state, self._of_rows)
        except InvalidSites as error:
            raise InvalidSites(INVALID) from error

    def moved(self, rows, sites):
        """With other sites at ``rows``, through which a layer has gone. 2 M^2 B flops."""
        there, model = copy.copy(self), replace(self.model, sites=sites)
        there.model, jitter, N = model, self._prior.jitter, len(self.X)
        whole, old, state, start = isinstance(rows, slice), self.model.sites, self._state, 0
        there._moves = 0 if whole else self._moves + len(rows)
        # differences leave rounding behind: an epoch of them is enough
        if self._of_rows is None or there._moves > N:
            there._state, there._moves = held_layer(model, self.X, jitter).posterior, 0
            return there
        M = len(self._prior.L)
        A, t = state.lambda2.reshape(-1, M, M), state.lambda1.reshape(-1, M)
        if whole:  # from the beginning
            A, t, old = kernels.empty(A.shape, A), np.zeros_like(t), Sites(0, 0)
        else:
            A, t = A.copy(), t.copy()
        first, second = (
            (new - was).reshape(-1, N)[:, rows]
            for new, was in ((sites.lambda1, old.lambda1), (sites.lambda2, old.lambda2))
        )
        for kept in self._of_rows:
            at = slice(start, start + kept.Lam.shape[1])
            _add_sites(A, t, kept.Lam, first[:, at], second[:, at], add=not whole or start > 0)
            start = at.stop
        there._state = WhitenedState(
            t.reshape(state.lambda1.shape), kernels.symmetrise(A).reshape(state.lambda2.shape)
        )
        return there


def _add_sites(A, t, Lam, first, second, add):
    """Add what sites (P, B) with these projections are to t, and to the lower triangle of A, or start it."""
    t += kernels.matmul(first, Lam, transpose_b=True)
    for p, weights in enumerate(second):
        kernels.weighted_gram(Lam, np.ascontiguousarray(weights, like=Lam), out=A[p], add=add)


def _factor(model, jitter):
    with naming_repeated(model.inducing):
        return prior_factor(model.covariance.Kuu(model.inducing), jitter)


def _runs(N, M):
    size = max(1, RUN_NUMBERS // M)
    return [slice(start, min(start + size, N)) for start in range(0, N, size)] or [slice(0, 0)]


def _through_sites(model, X, jitter, bars, wrt, need):
    """Cotangents of covariance, inducing inputs and sites: those of the marginals, and what goes through A and t."""
    roots = {name.partition(".")[0] for name in wrt}
    of_Kuf = tuple(name for name in need if name.startswith("covariance")) + (
        ("inducing",) if "inducing" in roots else ()
    )
    covariance_bar, inducing_bar, first_bar, second_bar = bars.covariance, bars.inducing, [], []
    if not of_Kuf and "sites" not in roots:
        return covariance_bar, inducing_bar, None
    L, sites = _factor(model, jitter), model.sites
    first, second = (a.reshape(-1, len(X)) for a in (sites.lambda1, sites.lambda2))
    g, A_bar = (
        bars.posterior.lambda1.reshape(-1, len(L)),
        bars.posterior.lambda2.reshape(-1, *L.shape),
    )
    F, alpha = (
        2 * kernels.solve_triangular(L, A_bar, transpose=True),
        kernels.solve_triangular(L, g[..., None], transpose=True),
    )
    for at in _runs(len(X), len(L)):
        Kuf = model.covariance.Kuf(model.inducing, X[at])
        Lam = kernels.solve_triangular(L, Kuf)
        first_bar.append(kernels.matmul(g, Lam))
        second_bar.append(
            np.stack([np.sum(Lam * kernels.matmul(one, Lam), axis=0) for one in A_bar])
        )
        if of_Kuf:
            Kuf_bar = np.zeros_like(Lam)
            for p in range(len(g)):
                T = kernels.matmul(F[p], Lam)
                weights, targets = (np.ascontiguousarray(a[p, at], like=L) for a in (second, first))
                Kuf_bar += kernels.add_outer(T, alpha[p, :, 0], targets, weights)
            of_covariance, of_inducing, _ = model.covariance.Kuf_vjp(
                Kuf_bar, Kuf, model.inducing, X[at], of_Kuf
            )
            covariance_bar, inducing_bar = (
                plus(of_covariance, covariance_bar),
                plus(of_inducing, inducing_bar),
            )
    sites_bar = Sites(
        *(
            np.concatenate(parts, -1).reshape(sites.lambda1.shape)
            for parts in (first_bar, second_bar)
        )
    )
    return covariance_bar, inducing_bar, sites_bar


def checked(model, X, Y, jitter) -> tuple[AnyRecord, np.ndarray, Any, float]:
    """Arguments for a ``SiteSVGP`` or a ``VGP``, checked and in one dtype; Y as likelihoods want it, or ``ABSENT``."""
    check.parts(model)
    if not isinstance(model.sites, Sites):
        raise TypeError(
            "`sites` of the model must be a fastsvgp.Sites(lambda1, lambda2), got"
            f" {type(model.sites).__name__}"
        )
    check.begin(model, X)
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
