"""How a trained model depends on its inputs: mean effects, and shares of the variance, with bands.

Come here after training. Everything goes through predictions, so it serves every kind of model that
has ``predict_f`` and ``sample_f``.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("sensitivity")
