"""Variational posteriors q(u): from covariance blocks to marginals and a KL divergence, and back."""

from .likelihood_form import LikelihoodForm
from .marginal import Marginal
from .whitened import Whitened

__all__ = ["LikelihoodForm", "Marginal", "Whitened"]
