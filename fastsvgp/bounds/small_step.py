"""The bound and all its gradients in three compiled calls, for small models of one kind.

At M = 20 the arithmetic of a step takes 50 us, and the passes of a layer, which serve every
covariance, posterior and likelihood, take 200 us. So the commonest model has a way of its own: one
whitened posterior, a stationary covariance of arrays, and Gaussian noise. It takes half of the time
of the passes at (M, B) = (4, 8) and (20, 100), three quarters from (100, 256) to (256, 1024) on two
threads (bench/results/pairs.md). With more rows, and on one thread, the long form of the passes is
as fast.
"""

import numpy as np

from .. import check, kernels
from ..covariances.stationary import RBF, Matern12, Matern32, Matern52
from ..likelihoods.gaussian import Gaussian
from ..posteriors.whitened import Whitened
from ..posteriors.whitening.small import SMALL
from ..records import restricted
from .data_term import chunk_numbers

MOST = 9e7  # M^2 (M + N)
FEATURES = 40  # the most columns whose distances are computed by differences
STATIONARY = frozenset((RBF, Matern12, Matern32, Matern52))


def bound(model, batch, wrt, with_kl, *, jitter, rng, **more):
    """Compute ``(value, grad)`` of this rank for a checked model and ``Batch``.

    Returns None where a pass must do it: for models of another kind, for a Kuu that is not positive
    definite or has no jitter and marginal variances that were clamped, which a pass checks and
    reports, and for fields that do not depend on Kuu, whose gradients alone take less time there.
    """
    if more or not (_is_plain(model, batch) and _is_small(model, batch) and _through_Kuu(wrt)):
        return None
    covariance, q, likelihood = model.covariance, model.posterior, model.likelihood
    X, kl = batch.X, batch.scale.kl if with_kl else 0.0
    jitter = check.jitter_amount(jitter, X.dtype)
    if not jitter:
        return None
    found = kernels.whitened_step(
        (covariance.family, covariance.variance, covariance.lengthscales), model.inducing,
        X, batch.Y, q.mean, q.scale_tril, likelihood.variance,
        jitter, batch.scale.factor(len(X)), -kl,
    )  # fmt: skip
    if found is None:
        return None
    data, divergence, of_covariance, Z_bar, of_q, noise_bar = found
    grad = type(model)(
        type(covariance)(*of_covariance), Z_bar, Whitened(*of_q), Gaussian(noise_bar)
    )
    return check.result(data - kl * divergence, model), restricted(grad, wrt)


def _is_plain(model, batch):
    return (
        type(getattr(model, "posterior", None)) is Whitened
        and type(model.likelihood) is Gaussian
        and type(model.covariance) in STATIONARY
        and type(model.inducing) is type(batch.X) is np.ndarray
        and batch.weights is model.mean is None
        and model.posterior.mean.ndim == batch.Y.ndim == 1
    )


def _is_small(model, batch):
    """Return whether the batch is one chunk for which passes would use an explicit L^-1."""
    M, (N, D) = model.posterior.mean.size, batch.X.shape
    numbers, columns = chunk_numbers(batch.X)
    if not (0 < N <= max(columns, numbers // M) and D <= FEATURES):
        return False
    size = M * M * (M + N)
    return size < MOST and (size < SMALL or kernels.prefers_inverse(model.posterior.scale_tril, N))


def _through_Kuu(wrt):
    return any(name.startswith(("covariance", "inducing")) for name in wrt)
