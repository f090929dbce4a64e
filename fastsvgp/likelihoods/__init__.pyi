"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..likelihoods.base import Likelihood as Likelihood
from ..likelihoods.bernoulli import (
    BernoulliLogit as BernoulliLogit,
    BernoulliProbit as BernoulliProbit,
)
from ..likelihoods.beta import Beta as Beta
from ..likelihoods.censored import Censored as Censored
from ..likelihoods.counts.binomial import Binomial as Binomial
from ..likelihoods.counts.negative_binomial import NegativeBinomial as NegativeBinomial
from ..likelihoods.counts.poisson import Poisson as Poisson
from ..likelihoods.counts.zero_inflated import ZeroInflatedPoisson as ZeroInflatedPoisson
from ..likelihoods.gamma import Exponential as Exponential, Gamma as Gamma
from ..likelihoods.gaussian import Gaussian as Gaussian
from ..likelihoods.known_noise import KnownNoise as KnownNoise
from ..likelihoods.laplace import Laplace as Laplace
from ..likelihoods.multiclass import RobustMax as RobustMax, Softmax as Softmax
from ..likelihoods.one_latent import OneLatent as OneLatent
from ..likelihoods.ordinal import Ordinal as Ordinal
from ..likelihoods.student_t import StudentT as StudentT
from ..likelihoods.switched import Switched as Switched
from ..likelihoods.two_functions.base import TwoLatents as TwoLatents
from ..likelihoods.two_functions.gaussian import HeteroskedasticGaussian as HeteroskedasticGaussian
from ..likelihoods.two_functions.negative_binomial import (
    HeteroskedasticNegativeBinomial as HeteroskedasticNegativeBinomial,
)
