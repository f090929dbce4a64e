"""Likelihoods p(y | f): expected log densities under Gaussian marginals of f with exact derivatives, and predictions."""

from .base import Likelihood
from .bernoulli import BernoulliLogit, BernoulliProbit
from .gaussian import Gaussian

__all__ = ["BernoulliLogit", "BernoulliProbit", "Gaussian", "Likelihood"]
