"""Likelihoods p(y | f): expected log densities with exact derivatives, and predictions.

Expectations are taken under Gaussian marginals of f.
"""

from .base import Likelihood
from .bernoulli import BernoulliLogit, BernoulliProbit
from .beta import Beta
from .binomial import Binomial
from .censored import Censored
from .dispersed_counts import NegativeBinomial
from .gamma import Exponential, Gamma
from .gaussian import Gaussian
from .heteroskedastic import HeteroskedasticGaussian
from .known_noise import KnownNoise
from .laplace import Laplace
from .multiclass import RobustMax, Softmax
from .negative_binomial import HeteroskedasticNegativeBinomial
from .ordinal import Ordinal
from .poisson import Poisson
from .student_t import StudentT
from .switched import Switched
from .two_latents import TwoLatents
from .zero_inflated import ZeroInflatedPoisson

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
    "Ordinal",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
    "Switched",
    "TwoLatents",
    "ZeroInflatedPoisson",
]
