"""Likelihoods p(y | f): expected log densities with exact derivatives, and predictions.

Expectations are taken under Gaussian marginals of f.
"""

from .base import Likelihood
from .bernoulli import BernoulliLogit, BernoulliProbit
from .gaussian import Gaussian
from .heteroskedastic import HeteroskedasticGaussian
from .laplace import Laplace
from .multiclass import RobustMax, Softmax
from .negative_binomial import HeteroskedasticNegativeBinomial
from .poisson import Poisson
from .student_t import StudentT
from .two_latents import TwoLatents

__all__ = [
    "BernoulliLogit",
    "BernoulliProbit",
    "Gaussian",
    "HeteroskedasticGaussian",
    "HeteroskedasticNegativeBinomial",
    "Laplace",
    "Likelihood",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
    "TwoLatents",
]
