"""The dual parameterisation: models whose posterior is the prior times Gaussian sites.

Come here for t-VGP and t-SVGP: their bounds, their natural steps, and the sites of other models.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("sites")
