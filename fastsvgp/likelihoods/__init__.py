"""Likelihoods p(y | f): expected log densities with exact derivatives, and predictions.

Expectations are taken under Gaussian marginals of f.
"""

from .base import Likelihood
from .bernoulli import BernoulliLogit, BernoulliProbit
from .gaussian import Gaussian
from .heteroskedastic import HeteroskedasticGaussian
from .laplace import Laplace
from .multiclass import RobustMax, Softmax
from .poisson import Poisson
from .student_t import StudentT

__all__ = [
    "BernoulliLogit",
    "BernoulliProbit",
    "Gaussian",
    "HeteroskedasticGaussian",
    "Laplace",
    "Likelihood",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
]
