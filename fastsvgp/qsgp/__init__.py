"""Quadruply stochastic GPs: linear models of up to 10^7 basis functions, trained on samples.

Come here for Fourier or inducing bases, bounds from samples of rows and functions, control
variates, the optimal weights, and relevance vectors.
"""

from ..public_names import offer
from . import predict  # noqa: F401, registers the predictions of a QSGP

__getattr__, __dir__, __all__ = offer("qsgp")
