"""Noise whose variance is a function of the inputs, fitted to residuals of rows left out.

With r the residuals of rows that a posterior has not seen, and V their variances under constant
noise, r^2 / V = exp(h(x)) e^2 with e ~ N(0, 1). So r^2 / V has a gamma density of shape 1/2 and
mean exp(h): h is a process of its own, with the likelihood ``Gamma(0.5)``.

A variational posterior N(g, u) of h gives the rows of the mean the precision E exp(-h) / noise =
exp(u / 2 - g) / noise (Lazaro-Gredilla and Titsias 2011): these factors are weights of the rows.
"""

import numpy as np

from ...bounds.predict import predict_f
from ...covariances import Matern32
from ...inducing import kmeans, median_lengthscales
from ...latents.model import MultiGP
from ...layers.layer import Layer
from ...likelihoods import Gamma, HeteroskedasticGaussian
from ...means import ConstantMean
from ...optim.first_order import adam
from ...train import fit
from .candidates import natural_steps, start_at_prior
from .rows import SearchRows

M, BATCH, STEPS, NATURAL, RATE = 64, 512, 150, 0.3, 0.05
VARIANCE, LENGTHS = 0.3, 2.0  # at first: variance of h, and lengthscales in median distances
FOLDS, REFITS = 5, 15  # of cross-validation; natural steps for each
FEWEST = 100  # rows left out, below which nothing is fitted
LEAST = 1e-6  # of r^2 / V
FLOPS = 8 * M**2 * (BATCH + M)  # of a step
WORK = 2 * (STEPS + FOLDS * REFITS) * FLOPS  # of all, with their calls


def fit_log_factor(rows, plan):
    """Return an SVGP of h from rows, whose targets are r^2 / V."""
    X = rows.X
    covariance = Matern32(VARIANCE, LENGTHS * median_lengthscales(X, rng=0))
    start = start_at_prior(
        covariance, kmeans(X, min(M, len(X) // 2), rng=0), Gamma(0.5), ConstantMean(0.0)
    )
    model, info = fit(
        start, X, rows.y, weights=rows.weights, steps=STEPS, natural_step_size=NATURAL,
        batch_size=min(BATCH, len(X)), rng=0, optimiser=adam(RATE),
        fixed=("likelihood", "inducing"),
    )  # fmt: skip
    if info.interrupted:
        raise KeyboardInterrupt
    plan.did(STEPS * FLOPS, STEPS)
    return model


def cross_fit(model, rows, plan):
    """Return E exp(h) (N,) at these rows, from posteriors of the folds that a row is not in."""
    found = np.empty(len(rows))
    start = start_at_prior(model.covariance, model.inducing, model.likelihood, model.mean)
    for fold in np.array_split(np.random.default_rng(0).permutation(len(rows)), FOLDS):
        others = rows.some(np.setdiff1d(np.arange(len(rows)), fold))
        sizes, rng = [NATURAL] * REFITS, np.random.default_rng(1)
        one = natural_steps(start, others, sizes, min(BATCH, len(others)), rng, plan, FLOPS)
        g, u = predict_f(one, rows.X[fold])
        found[fold] = np.exp(g + 0.5 * u)
    return found


def precisions(model, X):
    """Return E exp(-h) (N,) at rows X (N, D)."""
    g, u = predict_f(model, X)
    return np.exp(0.5 * u - g)


def with_varying_noise(svgp, model):
    """Return the ``MultiGP`` of an SVGP and the log of its noise, changed by h."""
    f = Layer(svgp.covariance, None, svgp.posterior)
    h = Layer(model.covariance, model.inducing, model.posterior)
    level = float(model.mean.value) + np.log(float(svgp.likelihood.variance))
    mean = ConstantMean(np.array([0.0, level]))
    return MultiGP((f, h), HeteroskedasticGaussian(), mean=mean, inducing=svgp.inducing)


def weigh(rows, factors):
    """Return rows whose weights are multiplied by factors (N,)."""
    weights = factors if rows.weights is None else rows.weights * factors
    return SearchRows(rows.X, rows.y, weights)
