"""Candidates for classes and counts: linear, plain, and processes on features of networks."""

import numpy as np

from ....covariances import Linear, Matern32, Sum
from ....inducing import kmeans, lengthscales, median_lengthscales, unique_rows
from ....means import ConstantMean
from ..candidates import LAST, ByMinibatches
from ..minibatches import Minibatches, at_prior
from ..networks import on_features

M, BATCH = 128, 256
FEW = 300  # distinct rows up to which lengthscales use all pairs of rows
SUBSET = 20_000  # rows among which inducing inputs are chosen
NATURAL, RAMP = 0.2, 20  # natural step size, and steps until it is reached
LEAST = 1e-2  # natural step size of the first step
COST = 2.0  # of a step, relative to Gaussian noise: the likelihood has no closed form
RATE = 0.05  # step size of Adam without a network
# initial variance of a latent function: latent functions of separable classes are large, the log
# rate of counts is not
CLASSES, COUNTS = 10.0, 1.0


def ramp(count):
    """Return the natural step size of step ``count``; it is small far from the optimum."""
    return NATURAL * (LEAST / NATURAL) ** max(1 - count / RAMP, 0.0)


class Candidate(ByMinibatches):
    """An SVGP trained by natural steps of q(u), and Adam for the other parameters.

    It has one constant mean per latent function. A look scores the posterior of the minibatches
    itself.
    """

    def __init__(self, name, scale, rows, rng, covariance, Z, likelihood, rate, transform):
        mean = ConstantMean(np.zeros(likelihood.num_latent or ())[()])
        model = at_prior(covariance, Z, likelihood, mean)
        # a row of weight 2 costs as much as two equal rows
        few = len(rows) <= FEW
        counted = len(unique_rows.distinct(rows.X, rows.weights)[0]) if few else None
        trainer = Minibatches(model, rows, BATCH, rate, ramp, rng, transform, counted, COST)
        super().__init__(name, scale, rows, trainer)

    @property
    def model(self):
        return self._trainer.model

    @property
    def step_seconds(self):
        """The seconds that a step took."""
        return self._trainer.step_seconds

    def take_at_once(self, plan, seconds, most):
        """Train once with falling step sizes, for about ``seconds`` and at most ``most`` steps."""
        self._trainer.take_for(plan, self.name, seconds, lambda done: LAST**done, most)


def variance_of(likelihood):
    """Return the initial variance of a latent function."""
    return COUNTS if likelihood.counts else CLASSES


def inducing_among(X, weights, most, rng):
    """Return ``most`` k-means centres of the rows, or all distinct rows if there are no more."""
    distinct = unique_rows.distinct(X, weights)[0]
    if len(distinct) <= most:
        return distinct
    if len(distinct) > SUBSET:
        some = distinct[np.sort(rng.choice(len(distinct), SUBSET, replace=False))]
        distinct = unique_rows.distinct(some)[0]  # many rows are not compared above
        if len(distinct) <= most:
            return distinct
    return kmeans(distinct, most, rng=rng)


def lengthscales_of(rows):
    """Return median distances (D,) of the distinct rows in each input."""
    distinct, shares = unique_rows.distinct(rows.X, rows.weights)
    if len(distinct) > FEW:
        return median_lengthscales(distinct, rng=0)
    return lengthscales.all_pairs_lengthscales(distinct, shares, True)


class LinearModel(Candidate):
    """Bayesian logistic or log-linear regression, with one weight variance per input."""

    def __init__(self, name, scale, rows, rng, likelihood):
        D = rows.X.shape[1]
        covariance = Linear(np.full(D, variance_of(likelihood) / D))
        Z = inducing_among(rows.X, rows.weights, min(M, 2 * D), rng)
        super().__init__(name, scale, rows, rng, covariance, Z, likelihood, RATE, "log")


class Plain(Candidate):
    """A process on inputs: a linear part plus a Matern 3/2 with one lengthscale per input."""

    def __init__(self, name, scale, rows, rng, likelihood):
        D, variance = rows.X.shape[1], variance_of(likelihood)
        smooth = Matern32(variance, lengthscales_of(rows))
        covariance = Sum((Linear(variance / D), smooth))
        Z = inducing_among(rows.X, rows.weights, M, rng)
        super().__init__(name, scale, rows, rng, covariance, Z, likelihood, RATE, "log")


class Deep(Candidate):
    """A process with an ARD squared-exponential covariance on the features of a network."""

    def __init__(self, name, scale, rows, rng, likelihood, architecture):
        covariance, Z = on_features(rows, architecture, M, rng, variance_of(likelihood))
        rate = architecture.rate
        super().__init__(name, scale, rows, rng, covariance, Z, likelihood, rate, "softplus")
