"""``--layers``: deep Gaussian processes, and their constraints on other arguments."""

import numpy as np

import fastsvgp as fs

from ...layers.build import WIDEST
from ..errors import UsageError
from .names import LAYERED

POSTERIORS = {
    "svgp": fs.Whitened,
    "lsvgp": fs.LikelihoodForm,
    "rsvgp": fs.Relaxed,
    "solvegp": fs.WhitenedOrthogonal,
}


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
    if args.method is not None and args.method not in LAYERED:
        raise UsageError(
            f"--layers is for --method {', '.join(LAYERED)}; with {args.method} leave it out"
        )
    if args.patch_shape is not None:
        raise UsageError(
            "--layers and --patch-shape cannot be combined on the command line; use"
            " fastsvgp.ConvolutionalLayer in Python"
        )
    layers = None if args.layers == 1 else args.layers
    return {"layers": layers, "width": layers and (args.width or min(num_inputs, WIDEST))}


def build(X, kind, likelihood, sizes, settings, rng):
    """Build the initial deep GP, on standardised inputs."""

    def covariance(variance, lengthscales):
        # one lengthscale from the distances in all columns together
        one = lengthscales.dtype.type(np.sqrt(np.mean(lengthscales**2)))
        return kind(variance=variance, lengthscales=lengthscales if settings.ard else one)

    posterior = POSTERIORS[settings.method]
    return fs.deep_gp(
        X,
        likelihood,
        settings.layers,
        sizes,
        width=settings.width,
        covariance=covariance,
        posterior=posterior,
        rng=rng,
    )


def with_mean(model, mean):
    """Return a deep GP with a mean function of its last layer; None leaves it as it is."""
    if mean is None:
        return model
    *hidden, last = model.layers
    return fs.replace(model, layers=(*hidden, fs.replace(last, mean=mean)))


def inducing_fields(settings):
    """Return the paths of the inducing inputs in the model."""
    return (
        [f"layers.{number}.inducing" for number in range(settings.layers)]
        if settings.layers
        else ["inducing"]
    )
