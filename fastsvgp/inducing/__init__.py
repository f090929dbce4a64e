"""Initial values from data: inducing inputs, lengthscales, means, spectra.

Come here before the training of a model of your own; ``recipes`` does all of it at once.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("inducing")
