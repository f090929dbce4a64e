"""Variational posteriors q(u): marginals and KL divergences from covariance blocks; gradients."""

from .base import Pass, Posterior
from .decoupled import Decoupled
from .decoupled_weights import DecoupledWeights
from .dual_sites import AbsorbedDualSites, DualSites
from .inverse_free_whitened import InverseFreeWhitened
from .likelihood_form import LikelihoodForm
from .marginal import Marginal
from .orthogonal import Orthogonal, WhitenedOrthogonal
from .relaxed import Relaxed
from .whitened import Whitened

__all__ = [
    "AbsorbedDualSites",
    "Decoupled",
    "DecoupledWeights",
    "DualSites",
    "InverseFreeWhitened",
    "LikelihoodForm",
    "Marginal",
    "Orthogonal",
    "Pass",
    "Posterior",
    "Relaxed",
    "Whitened",
    "WhitenedOrthogonal",
]
