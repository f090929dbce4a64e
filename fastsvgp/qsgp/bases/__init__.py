"""Sets of basis functions, and the prior of their weights."""

from .base import Basis
from .fourier import RandomFourier
from .inducing import InducingBasis, RelevanceBasis

__all__ = ["Basis", "InducingBasis", "RandomFourier", "RelevanceBasis"]
