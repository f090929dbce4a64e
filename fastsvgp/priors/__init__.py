"""Priors of positive parameters, and averages over the parameters around a mode.

Come here for small data: densities for ``fit(..., priors=...)`` and for ``laplace``.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("priors")
