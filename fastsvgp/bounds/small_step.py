"""The bound and all its gradients in three compiled calls, for small models of one kind.

At M = 20 the arithmetic of a step takes 50 us, and the passes of a layer, which serve every
covariance, posterior and likelihood, take 200 us. So the commonest model has a way of its own: one
whitened posterior, a stationary covariance of arrays, and Gaussian noise.
"""

import numpy as np

from .. import check, kernels
from ..covariances.stationary import RBF, Matern12, Matern32, Matern52
from ..likelihoods.gaussian import Gaussian
from ..posteriors.whitened import Whitened
from ..posteriors.whitened_pass import SMALL
from .data_term import chunk_numbers

FEATURES = 40  # the most columns whose distances are computed by differences
STATIONARY = frozenset((RBF, Matern12, Matern32, Matern52))


def suits(model, batch, wrt):
    """Return whether ``value_and_grad`` serves this checked model and ``Batch``.

    It computes all gradients: a pass that omits those through Kuu takes less time without it.
    """
    X, Z = batch.X, model.inducing
    if not (
        type(model.posterior) is Whitened
        and type(model.likelihood) is Gaussian
        and type(model.covariance) in STATIONARY
        and type(Z) is type(X) is np.ndarray
        and batch.weights is model.mean is None
        and model.posterior.mean.ndim == batch.Y.ndim == 1
        and any(name.startswith(("covariance", "inducing")) for name in wrt)
    ):
        return False
    M, (N, D) = len(Z), X.shape
    numbers, columns = chunk_numbers(X)
    one_chunk = N <= max(columns, numbers // M)
    return 0 < N and one_chunk and M * M * (M + N) < SMALL and D <= FEATURES


def value_and_grad(model, batch, jitter, kl):
    """Compute the data term less ``kl`` times the KL divergence, and its gradient in all fields.

    Returns None where the pass of a layer must say what is wrong: a Kuu that is not positive
    definite, or marginal variances that were clamped.
    """
    covariance, q, dtype = model.covariance, model.posterior, model.inducing.dtype
    found = kernels.whitened_step(
        (covariance.family, covariance.variance, covariance.lengthscales),
        model.inducing, batch.X, batch.Y, q.mean, q.scale_tril, model.likelihood.variance,
        check.jitter_amount(jitter, dtype), batch.scale.factor(len(batch.X)), -kl,
    )  # fmt: skip
    if found is None:
        return None
    data, divergence, of_covariance, Z_bar, of_q, noise_bar = found
    grad = type(model)(
        type(covariance)(*of_covariance), Z_bar, Whitened(*of_q), Gaussian(noise_bar)
    )
    return data - kl * divergence, grad
