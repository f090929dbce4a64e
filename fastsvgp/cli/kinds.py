"""What differs between the kinds of fitted models."""

import fastsvgp as fs

from ..latents.model import layers_of as latents_of


def bottom(model):
    """Return the first layer of a model, which has inducing inputs; an SVGP is a layer itself."""
    if isinstance(model, fs.MultiGP):
        return latents_of(model)[0]
    return model.layers[0] if isinstance(model, fs.DeepGP) else model


def options(model, jitter):
    """Return the options of a prediction with this jitter; none if no matrix is factorised."""
    return {} if isinstance(model, fs.QSGP) else {"jitter": jitter}
