"""Conversion of q(u) between the parameterisations of the posteriors."""

from typing import Any

import numpy as np

from .. import check, kernels
from ..posteriors import AbsorbedDualSites, DualSites, LikelihoodForm, Marginal, Posterior, Whitened
from ..posteriors.base import PriorFactor, add_to_diagonals
from ..posteriors.dual_sites import DualTying
from ..posteriors.dual_sites_pass import factors
from ..posteriors.gaussian_factor import GaussianFactor
from ..records import replace
from ..records.inducing_sets import naming_repeated
from ..records.typed import Record
from ..runtime.edge import public_call
from .objectives import SVGP

ENDS = Whitened, Marginal, AbsorbedDualSites, DualSites
KINDS = "Whitened, Marginal, AbsorbedDualSites or DualSites"


@public_call(SVGP)
def convert(model: Record, kind: type[Posterior], *, jitter: float | None = None) -> SVGP:
    """Convert q(u) to another parameterisation: the same bound and predictions, other steps.

    Parameters
    ----------
    model : SVGP
        With a ``Whitened``, ``Marginal``, ``AbsorbedDualSites``, ``DualSites`` or
        ``LikelihoodForm`` posterior.
    kind : type
        One of the first four.
    jitter : float, optional
        As in ``elbo``: use the same.

    Returns
    -------
    SVGP

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``; ``TypeError`` for another posterior.

    Notes
    -----
    At most 4 M^3 flops per output. If the covariance of q(u) is nearly singular, its sites are
    large and lose digits.

    Examples
    --------
    >>> sites = fs.posteriors.convert(model, fs.posteriors.AbsorbedDualSites)
    >>> type(sites.posterior).__name__, round(fs.elbo(sites, X, Y) - fs.elbo(model, X, Y), 6) + 0.0
    ('AbsorbedDualSites', 0.0)
    """
    check_kind("convert: `kind`", kind)
    check.parts(model)
    given: Any = model
    q = given.posterior
    if not isinstance(q, GaussianFactor | DualTying | LikelihoodForm):
        raise TypeError(
            f"convert: a {type(q).__name__} posterior cannot be converted; the posterior must be"
            f" {KINDS}, or LikelihoodForm"
        )
    model, _, _, dtype = check.svgp(model)
    prior, q = (
        PriorFactor(model.covariance.Kuu(model.inducing), check.jitter_amount(jitter, dtype)),
        model.posterior,
    )
    with naming_repeated(model.inducing):
        if issubclass(kind, GaussianFactor):
            converted = as_gaussian(kind, q, prior)
        else:
            converted = from_state(kind, prior.L, *state_of(q, prior))
    first = next(iter(vars(converted).values()))
    check.result(np.add.reduce(first, axis=None, dtype=np.float64), converted)
    return replace(model, posterior=converted)  # type: ignore[return-value]


def check_kind(name, kind):
    """Reject a class to which q(u) cannot be converted."""
    if not any(kind is end for end in ENDS):
        raise TypeError(
            f"{name} must be {KINDS}, got"
            f" {kind.__name__ if isinstance(kind, type) else type(kind).__name__}"
        )


def state_of(q, prior):
    """Return ``(t, A)``, (..., M) and (..., M, M), of any convertible posterior.

    q(u') = N(B^-1 t, B^-1) with B = I + A.
    """
    if isinstance(q, GaussianFactor):
        mean, tril = q.whiten(prior.L)
        B = kernels.cholesky_inverse(tril)
        t = kernels.matmul(B, mean[..., None])[..., 0]
        return t, add_to_diagonals(B, -1)
    q = _sites(q, prior) if isinstance(q, LikelihoodForm) else q
    A, t = q.whitened_sites(prior.L)
    return t.reshape(q.lambda1.shape), A.reshape(q.lambda2.shape)


def from_state(kind, L, t, A):
    """Create the posterior of class ``kind`` whose ``state_of`` is ``(t, A)``. Overwrites both."""
    if issubclass(kind, GaussianFactor):
        batch, M = t.shape[:-1], t.shape[-1]
        trils = kernels.cholesky_of_inverse(add_to_diagonals(A, 1).reshape(-1, M, M))
        means = kernels.multiply_triangular(trils, t.reshape(-1, M, 1), transpose=True)
        return _from_moments(
            kind, L, kernels.multiply_triangular(trils, means)[..., 0], trils, batch
        )
    M = t.shape[-1]
    return kind(t, A).from_whitened(L, A.reshape(-1, M, M), t.reshape(-1, M))


def as_gaussian(kind, q, prior):
    """Create the posterior of class ``kind``, Whitened or Marginal, with the same q(u)."""
    if isinstance(q, GaussianFactor):
        work = q.start_from(prior)
        return _from_moments(kind, prior.L, work.means, work.trils, work.batch)
    q = _sites(q, prior) if isinstance(q, LikelihoodForm) else q
    _, _, means = factors(q, prior.L)  # raises ``InvalidSites``
    return _from_moments(
        kind,
        prior.L,
        means,
        kernels.cholesky_of_inverse(q.precision(prior.L)[0]),
        q.lambda1.shape[:-1],
    )


def _from_moments(kind, L, means, trils, batch):
    mean, tril = means.reshape(*batch, -1), trils.reshape(*batch, *trils.shape[1:]).copy()
    return kind(mean, tril).unwhiten(L, mean, kernels.tril(tril))


def _sites(q, prior):
    """Convert pseudo-observations m with noise s to sites m / s and diag(1 / s).

    If not preconditioned, u has the mean Kuu m.
    """
    precision = 1 / q.variance
    lambda2 = np.zeros((*q.mean.shape, len(precision)), q.mean.dtype, like=q.mean)
    lambda2.reshape(-1, len(precision) ** 2)[:, :: len(precision) + 1] = precision
    if q.preconditioned:
        return AbsorbedDualSites(q.mean * precision, lambda2)
    Kw = (
        kernels.matmul(q.mean.reshape(-1, len(precision)), prior.Kuu).reshape(q.mean.shape)
        + prior.jitter * q.mean
    )
    return AbsorbedDualSites(q.mean + Kw * precision, lambda2)
