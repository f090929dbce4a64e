"""Features of covariances: Phi(x) w, w ~ N(0, I), is a function of the prior."""

from .base import Features, part_seeds
from .composed import Mapped, Modulated, OfPatches, OfPoints, Stacked
from .explicit import Explicit
from .fourier import ScaleMixture, StationaryFeatures

__all__ = [
    "Explicit",
    "Features",
    "Mapped",
    "Modulated",
    "OfPatches",
    "OfPoints",
    "ScaleMixture",
    "Stacked",
    "StationaryFeatures",
    "part_seeds",
]
