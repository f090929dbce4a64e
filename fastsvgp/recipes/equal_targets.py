"""Starts for equal targets, which say nothing about their noise."""

import logging
from dataclasses import replace

import numpy as np

from ..optim.flat import free_paths
from ..records import matches
from . import target_values
from .names import REGRESSION
from .scaling import constant

log = logging.getLogger("fastsvgp")


def keeping_noise(start, y):
    """Fix the noise of a training by L-BFGS if all targets are equal.

    Otherwise it would decrease the noise towards zero without converging.
    """
    model, fixed = start.model, start.fit.get("fixed", ())
    if hasattr(model, "noise_variance"):
        noise = ["noise_variance"]
    elif start.fit.get("collapsed") and _has_noise(model.likelihood):
        noise = [path for path in free_paths(model, fixed) if matches(path, ("likelihood",))]
    else:
        noise = []
    if not noise or not constant(np.ptp(y, axis=0), y).all():
        return start
    log.warning(
        "all %d targets are equal, which says nothing about their noise; it stays fixed", len(y)
    )
    return replace(start, fit=start.fit | {"fixed": (*fixed, *noise)})


def _has_noise(likelihood):
    """Whether parameters of a likelihood are those of the noise of real-valued targets."""
    real = isinstance(likelihood, tuple(REGRESSION.values()))
    return real and target_values.standardised(likelihood)
