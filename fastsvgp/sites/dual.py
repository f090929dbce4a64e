"""Sites of the data, and leave-one-out predictions from them.

At a q(f) with marginals N(mu, v), each datum has a Gaussian site, given by the cotangents a, b of
the data term: with beta = -2 b,

    t(f) = exp(lambda_1 f - lambda_2 f^2 / 2),    lambda_2 = beta,    lambda_1 = a + beta mu

(mu without the mean function). At the optimum of the bound q is the prior times these sites (Adam
et al. 2021, section 3). If q is made of the sites, f_i without its own datum has the cavity
marginal: with s = v - (kff - qff), the part of its variance due to u,

    mean = (mu - s lambda_1) / (1 - s lambda_2),    var = s / (1 - s lambda_2) + kff - qff.
"""

from typing import Any

import numpy as np

from .. import check, kernels
from ..bounds.posterior_passes import layer_pass
from ..bounds.relay import Batch, sweep
from ..bounds.svgp import SVGP
from ..likelihoods.layout import laid_out
from ..posteriors.base import covariance_factor
from ..posteriors.dual_sites import DualTying
from ..posteriors.gaussian_factor import GaussianFactor
from ..records import Marginals, leaf, record
from ..records.typed import Array, ArrayLike, Record, Seed
from ..runtime import deferred_checks
from ..runtime.edge import public_call


@record
class Sites:
    """A Gaussian site exp(lambda1 f - lambda2 f^2 / 2) for each datum.

    f is the latent function without its mean function.

    Parameters
    ----------
    lambda1 : (..., n)
        Coefficient of f.
    lambda2 : (..., n)
        Precision; negative where the likelihood is not log-concave.

    Examples
    --------
    >>> sites = fs.sites.Sites(lambda1=np.zeros(40), lambda2=np.ones(40))
    >>> fs.sites.SiteSVGP(covariance, Z, sites, gaussian).sites
    Sites(lambda1=<float64 (40,)>, lambda2=<float64 (40,)>)
    """

    lambda1: Array = leaf()
    lambda2: Array = leaf()


@public_call(SVGP)
def dual_parameters(
    model: Record, X: ArrayLike, Y: ArrayLike, *, jitter: float | None = None, rng: Seed = None
) -> Sites:
    """Compute the site of each datum at the model's q(u): its pseudo-target and precision.

    Parameters
    ----------
    model : SVGP
        With any posterior.
    X : (N, D) array
    Y : (N,) or (N, P) array
    jitter, rng
        As in ``elbo``.

    Returns
    -------
    Sites
        ``lambda1``, ``lambda2`` (N,), or (P, N) for P outputs. The pseudo-target of a datum is
        lambda1 / lambda2. Its precision lambda2 measures its influence.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``.

    Notes
    -----
    The flops of ``elbo``.

    Examples
    --------
    >>> best = fs.optimal_svgp(sgpr, X, Y)
    >>> sites = fs.sites.dual_parameters(best, X, Y)
    >>> np.allclose(sites.lambda2, 1 / 0.1), np.allclose(sites.lambda1, Y / 0.1)
    (True, True)
    """
    model, X, Y, dtype = check.svgp(model, X, Y)
    sites, _, total = _sites(model, X, Y, check.jitter_amount(jitter, dtype), rng)
    check.result(total, model)
    return sites


@public_call(SVGP)
def leave_one_out(
    model: Record, X: ArrayLike, Y: ArrayLike, *, jitter: float | None = None, rng: Seed = None
) -> Array:
    """Compute the leave-one-out log predictive density of each datum from the sites.

    Its negated mean is a held-out NLPD.

    Parameters
    ----------
    model : SVGP
        Near the optimum of its q(u) for X and Y, all the data that it was trained on. With a
        ``Whitened``, ``Marginal``, ``AbsorbedDualSites`` or ``DualSites`` posterior.
    X, Y, jitter, rng
        As in ``dual_parameters``.

    Returns
    -------
    (N,) array

    Raises
    ------
    ValueError
        A marginal without its datum has no positive variance: q(u) is far from its optimum.
    TypeError, NotPositiveDefinite
        As ``elbo``.

    Notes
    -----
    Exact for Gaussian noise at the optimal q(u) with inducing inputs and parameters held fixed;
    otherwise as accurate as the sites. The effect of the datum on inducing inputs and parameters is
    not removed. M^2 N flops more than ``elbo``.

    Examples
    --------
    >>> best = fs.optimal_svgp(sgpr, X, Y)
    >>> round(float(-fs.sites.leave_one_out(best, X, Y).mean()), 3)
    -0.151
    """
    check.parts(model)
    given: Any = model
    if not isinstance(given.posterior, GaussianFactor | DualTying):
        kind = type(given.posterior).__name__
        raise TypeError(
            f"leave_one_out: the sites do not determine the covariance of a {kind} posterior; use a"
            " Whitened one"
        )
    model, X, Y, dtype = check.svgp(model, X, Y)
    jitter = check.jitter_amount(jitter, dtype)
    sites, f, total = _sites(model, X, Y, jitter, rng)
    check.result(total, model)
    prior_mean = 0 if model.mean is None else model.mean(X)
    rest = model.covariance.kff(X) - _explained_variances(model, X, jitter)
    s = np.maximum(f.var - rest, 0)
    left = 1 - s * sites.lambda2
    if not deferred_checks.none(left <= 0):
        where = np.argwhere(left <= 0)[0]
        raise ValueError(
            f"leave_one_out: without datum {int(where[-1])} its marginal would have no positive"
            " variance; q(u) of `model` is far from its optimum for these `X` and `Y`: take"
            " natural_step on all of them first"
        )
    cavity = Marginals(
        (f.mean - prior_mean - s * sites.lambda1) / left + prior_mean, s / left + rest
    )
    density = model.likelihood.predict_log_density(Y, laid_out(model.likelihood, cavity))
    check.result(np.add.reduce(density, axis=None, dtype=np.float64), model)
    return density


def _sites(model, X, Y, jitter, rng):
    """Return ``(Sites, marginals with the mean function, the data term)``."""
    layer = layer_pass(model, jitter, len(X))
    parts = [(part.ell, part.f, part.f_bar) for part in sweep(model, layer, Batch(X, Y, rng=rng))]
    total = sum(ell for ell, _, _ in parts)
    mean, var, a, b = (
        np.concatenate([getattr(p[i], name) for p in parts], -1)
        for i in (1, 2)
        for name in ("mean", "var")
    )
    prior_mean = 0 if model.mean is None else model.mean(X)
    lambda2 = -2 * b
    return Sites(a + lambda2 * (mean - prior_mean), lambda2), Marginals(mean, var), total


def _explained_variances(model, X, jitter):
    """Return qff (N,), the prior variance of each value that u explains."""
    L = covariance_factor(model.covariance.Kuu(model.inducing), jitter)
    Lam = kernels.solve_triangular(L, model.covariance.Kuf(model.inducing, X))
    return kernels.column_moments(Lam, np.zeros(len(L), Lam.dtype, like=Lam))[1]
