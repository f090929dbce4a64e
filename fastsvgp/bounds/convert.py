"""The same q(u) in the parameters of another posterior."""

import numpy as np

from .. import check, kernels, models
from ..inducing import naming_repeated
from ..kernels import verdicts
from ..posteriors import AbsorbedDualSites, LikelihoodForm
from ..posteriors.base import Prior
from ..posteriors.dual_sites import DualTying
from ..posteriors.whitening import GaussianFactor
from ..records import replace
from .elbo import SVGP

KINDS = "Whitened, Marginal, AbsorbedDualSites or DualSites"


@verdicts.retried
@models.public(SVGP)
def convert(model, kind, *, jitter=None) -> SVGP:
    """The SVGP with the same q(u), held by another posterior: the same bound and predictions, other steps.

    Parameters
    ----------
    model : SVGP
        With a ``Whitened``, ``Marginal``, ``AbsorbedDualSites``, ``DualSites`` or ``LikelihoodForm`` posterior.
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
    At most 6 M^3 flops an output. Sites of a q(u) whose covariance is nearly singular are large, and lose digits.
    """
    if not (isinstance(kind, type) and issubclass(kind, GaussianFactor | DualTying)) or kind in (GaussianFactor, DualTying):
        name = kind.__name__ if isinstance(kind, type) else type(kind).__name__
        raise TypeError(f"convert: `kind` must be {KINDS}, got {name}")
    check.parts(model)
    q = model.posterior
    if not isinstance(q, GaussianFactor | DualTying | LikelihoodForm):
        raise TypeError(f"convert: a {type(q).__name__} posterior is none of those that can be: {KINDS}, or LikelihoodForm")
    model, _, _, dtype = check.svgp(model)
    prior, q = Prior(model.covariance.Kuu(model.inducing), check.jitter_amount(jitter, dtype)), model.posterior
    with naming_repeated(model.inducing):
        work = (_sites(q, prior) if isinstance(q, LikelihoodForm) else q).start_from(prior)
    means, trils, batch = work.means, work.trils, work.batch
    if issubclass(kind, GaussianFactor):
        mean, tril = means.reshape(*batch, -1), trils.reshape(*batch, *trils.shape[1:]).copy()
        converted = kind(mean, tril).unwhitened(prior.L, mean, kernels.tril(tril))
    else:
        B = kernels.cholesky_inverse(trils)
        t = kernels.matmul(B, means[..., None])[..., 0]
        B.reshape(len(B), -1)[:, :: B.shape[-1] + 1] -= 1
        shapes = kind(means.reshape(*batch, -1), trils.reshape(*batch, *trils.shape[1:]))
        converted = shapes.from_whitened(prior.L, B, t)
    first = next(iter(vars(converted).values()))
    check.result(np.add.reduce(first, axis=None, dtype=np.float64), converted)
    return replace(model, posterior=converted)


def _sites(q, prior):
    """Pseudo-observations m with noise s as sites: m / s and diag(1 / s). Plain: u has the mean Kuu m."""
    precision = 1 / q.variance
    lambda2 = np.zeros((*q.mean.shape, len(precision)), q.mean.dtype, like=q.mean)
    lambda2.reshape(-1, len(precision) ** 2)[:, :: len(precision) + 1] = precision
    if q.preconditioned:
        return AbsorbedDualSites(q.mean * precision, lambda2)
    Kw = kernels.matmul(q.mean.reshape(-1, len(precision)), prior.Kuu).reshape(q.mean.shape) + prior.jitter * q.mean
    return AbsorbedDualSites(q.mean + Kw * precision, lambda2)
