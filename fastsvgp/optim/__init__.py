"""Optimisers: natural gradients, first-order rules, schedules, updates without inverses.

Come here for an optimiser or a schedule to pass to ``fit``, or to write a loop of your own.
"""

from ..public_names import offer

__getattr__, __dir__, __all__ = offer("optim")
