"""Likelihoods p(y | f): expected log densities under Gaussian marginals of f with exact derivatives, and predictions."""

from .base import Likelihood
from .bernoulli import BernoulliLogit, BernoulliProbit
from .gaussian import Gaussian
from .laplace import Laplace
from .multiclass import RobustMax, Softmax
from .poisson import Poisson
from .student_t import StudentT

__all__ = [
    "BernoulliLogit",
    "BernoulliProbit",
    "Gaussian",
    "Laplace",
    "Likelihood",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
]
