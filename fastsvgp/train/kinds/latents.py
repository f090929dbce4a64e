"""Training of a ``MultiGP``: ``fit`` on minibatches, and what ``em`` asks of it."""

from functools import partial

from ... import models
from ...latents.model import MultiGP, checked
from ...posteriors.gaussian_factor import GaussianFactor
from ...posteriors.placed import placed
from .svgp import minibatch_training

models.register(MultiGP, fit=partial(minibatch_training, checked=checked))


def checked_for_em(model, X, Y):
    """Check the arguments of ``em``, which holds a mean and a factor; return the dtype."""
    dtype = checked(model, X, Y)[-1]
    for path, q in placed(model).items():
        if not isinstance(q, GaussianFactor):
            raise TypeError(
                f"em: {path!r} is a {type(q).__name__}, and M-steps of a MultiGP hold a mean and a"
                " factor: use Whitened or Marginal in every layer"
            )
    return dtype
