"""Bounds on the log evidence, with gradients: all of them, and the parts that they consist of.

Come here for the data term and the KL term alone, gradients by covariance blocks, tighter collapsed
bounds, and models that have bounds of their own.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("bounds")
