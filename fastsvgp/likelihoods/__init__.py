"""Likelihoods p(y | f): expected log densities with exact derivatives, and predictions.

Expectations are taken under Gaussian marginals of f.
"""

from .base import Likelihood
from .bernoulli import BernoulliLogit, BernoulliProbit
from .beta import Beta
from .censored import Censored
from .counts.binomial import Binomial
from .counts.negative_binomial import NegativeBinomial
from .counts.poisson import Poisson
from .counts.zero_inflated import ZeroInflatedPoisson
from .gamma import Exponential, Gamma
from .gaussian import Gaussian
from .known_noise import KnownNoise
from .laplace import Laplace
from .multiclass import RobustMax, Softmax
from .one_latent import OneLatent
from .ordinal import Ordinal
from .student_t import StudentT
from .switched import Switched
from .two_functions.base import TwoLatents
from .two_functions.gaussian import HeteroskedasticGaussian
from .two_functions.negative_binomial import HeteroskedasticNegativeBinomial

__all__ = [
    "BernoulliLogit",
    "BernoulliProbit",
    "Beta",
    "Binomial",
    "Censored",
    "Exponential",
    "Gamma",
    "Gaussian",
    "HeteroskedasticGaussian",
    "HeteroskedasticNegativeBinomial",
    "KnownNoise",
    "Laplace",
    "Likelihood",
    "NegativeBinomial",
    "OneLatent",
    "Ordinal",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
    "Switched",
    "TwoLatents",
    "ZeroInflatedPoisson",
]
