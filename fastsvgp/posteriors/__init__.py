"""Variational posteriors q(u) of the inducing variables, and functions that build and convert them.

Come here to choose between whitened and plain, orthogonal, inverse-free or dual forms, to start at
the prior, or to change a trained model from one form to another.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("posteriors")
