"""Likelihoods p(y | f): how targets arise from the latent function.

Come here for targets that are counts, positive, proportions, ordered, censored or classes, or whose
noise varies or has heavy tails.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("likelihoods")
