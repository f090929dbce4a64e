"""``--layers``: deep Gaussian processes, and their constraints on other arguments."""

import numpy as np

import fastsvgp as fs

from ...layers.build import WIDEST
from ..errors import UsageError, refuse_beside
from .names import LAYERED


def resolve(args, num_inputs):
    """Return ``layers`` and ``width``; refuse invalid combinations of arguments.

    Both are None for a model without hidden layers, that is of one layer.
    """
    if args.width is not None and (args.layers or 1) == 1:
        raise UsageError(
            "--width is the number of outputs of hidden layers; give --layers 2 or more, or leave"
            " --width out"
        )
    if args.layers is None:
        return {"layers": None, "width": None}
    refuse_beside(args.method or LAYERED[0], LAYERED, layers=args.layers)
    if args.patch_shape is not None:
        raise UsageError(
            "--layers and --patch-shape cannot be combined on the command line; use"
            " fastsvgp.layers.ConvolutionalLayer in Python"
        )
    layers = None if args.layers == 1 else args.layers
    return {"layers": layers, "width": layers and (args.width or min(num_inputs, WIDEST))}


def build(X, kind, likelihood, sizes, settings, posterior, mean, rng):
    """Build the initial deep GP, on standardised inputs; ``mean`` is that of the last layer."""

    def covariance(variance, lengthscales):
        # one lengthscale from the distances in all columns together
        one = lengthscales.dtype.type(np.sqrt(np.mean(lengthscales**2)))
        return kind(variance=variance, lengthscales=lengthscales if settings.ard else one)

    options = {"width": settings.width, "covariance": covariance, "posterior": posterior}
    model = fs.layers.deep_gp(X, likelihood, settings.layers, sizes, rng=rng, **options)
    return fs.records.replace_at(model, f"layers.{settings.layers - 1}.mean", mean)
