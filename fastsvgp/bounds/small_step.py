"""Bounds, gradients and natural steps of small models of one kind, in a few compiled calls.

At M = 20 the arithmetic of a step takes 50 us, and the passes of a layer, which serve every
covariance, posterior and likelihood, take 200 us. So the commonest model has a way of its own: one
whitened posterior, a stationary covariance of arrays, and Gaussian noise. Value and gradients take
half of the time of the passes at (M, B) = (4, 8) and (20, 100), three quarters from (100, 256) to
(256, 1024) on two threads; natural steps two fifths, and two thirds at (100, 256)
(bench/results/pairs.md). With more rows, and on one thread, the long form of the passes is as fast,
and passes of larger natural steps share their blocks with the gradient that follows.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..covariances.stationary import RBF, Matern12, Matern32, Matern52
from ..likelihoods.gaussian import Gaussian
from ..posteriors.gaussian_factor import Whitened
from ..posteriors.whitening.gram import SMALL
from ..records import restricted
from ..runtime import tuning

MOST = 9e7  # M^2 (M + N)
MOST_NATURAL = 2e7  # the same, for natural steps
# the most inducing variables of a bound alone: passes solve with L there, and with more of them
# L^-1 loses up to four times as much to rounding
MOST_OF_BOUND = 100
FEATURES = 40  # the most columns whose distances are computed by differences
STATIONARY = frozenset((RBF, Matern12, Matern32, Matern52))


def bound(call, wrt, with_kl):
    """Compute ``(value, grad)`` of this rank for a checked ``Call``.

    Returns None where a pass must do it: for models of another kind, for a Kuu that is not positive
    definite or has no jitter and marginal variances that were clamped, which a pass checks and
    reports, and for fields that do not depend on Kuu, whose gradients alone take less time there.
    """
    model, kl = call.model, call.batch.scale.kl if with_kl else 0.0
    if not _moves_Kuu(wrt) or (arguments := _arguments(call, MOST)) is None:
        return None
    if (found := kernels.whitened_step(*arguments, -kl)) is None:
        return None
    data, divergence, of_covariance, Z_bar, of_q, noise_bar = found
    grad = type(model)(
        type(model.covariance)(*of_covariance), Z_bar, Whitened(*of_q), Gaussian(noise_bar)
    )
    return check.result(data - kl * divergence, model), restricted(grad, wrt)


class SmallSums(NamedTuple):
    """Data term and KL divergence, and perhaps the sums of a natural step.

    It has what a bound and a natural step read of a pass, and their data term.
    """

    data: Any
    divergence: Any
    Lam_a: Any
    G: Any
    q: Any
    shares_rows: bool = False

    def kl(self):
        return self.divergence

    def natural_sums(self):
        return self.Lam_a[None], self.G[None]

    def natural_step(self, step_size):
        return Whitened(
            *kernels.whitened_natural_step(
                self.q.mean, self.q.scale_tril, self.Lam_a, self.G, step_size
            )
        )


def sums(call, natural=False):
    """Return the ``SmallSums`` of a checked ``Call``; those of a natural step with ``natural``.

    Returns None where a pass must do it, as ``bound`` does. Ranks have different rows, so some
    could take a pass and others not; their natural steps would be rounded differently, and so all
    ranks take a pass.
    """
    if natural and not call.batch.scale.alone:
        return None
    if (arguments := _arguments(call, MOST_NATURAL if natural else MOST)) is None:
        return None
    if not natural and call.model.posterior.mean.size > MOST_OF_BOUND:
        return None
    found = kernels.whitened_sums(*arguments, natural)
    return None if found is None else SmallSums(*found, call.model.posterior)


def _arguments(call, most):
    """Return what describes a small model of this kind to the kernels; else None."""
    model, batch = call.model, call.batch
    if call.quantities or not call.jitter or not _is_plain(model, batch):
        return None
    if not _is_small(model, batch, most):
        return None
    X, covariance, q = batch.X, model.covariance, model.posterior
    return (
        (covariance.family, covariance.variance, covariance.lengthscales), model.inducing,
        X, batch.Y, q.mean, q.scale_tril, model.likelihood.variance,
        call.jitter, batch.scale.factor(len(X)),
    )  # fmt: skip


def _is_plain(model, batch):
    return (
        type(getattr(model, "posterior", None)) is Whitened
        and type(model.likelihood) is Gaussian
        and type(model.covariance) in STATIONARY
        and type(getattr(model, "inducing", None)) is type(batch.X) is np.ndarray
        and batch.weights is model.mean is None
        and model.posterior.mean.ndim == batch.Y.ndim == 1
    )


def _is_small(model, batch, most):
    """Return whether the batch is one chunk for which a gradient would use an explicit L^-1.

    ``MOST`` limits all of them: 0 turns the compiled calls off.
    """
    M, (N, D) = model.posterior.mean.size, batch.X.shape
    now = tuning.current
    columns = max(now.bound_chunk_columns, now.bound_chunk_numbers // M)
    if not (0 < N <= columns and D <= FEATURES):
        return False
    size = M * M * (M + N)
    return size < min(most, MOST) and (
        size < SMALL or kernels.prefers_inverse(model.posterior.scale_tril, N)
    )


def _moves_Kuu(wrt):
    return any(name.startswith(("covariance", "inducing")) for name in wrt)
