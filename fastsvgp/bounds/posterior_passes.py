"""Choice of the pass through a layer: ``LayerPass``, or the pass that a posterior needs instead."""

from .. import check
from ..posteriors import DecoupledWeights
from .decoupled_pass import DecoupledLayerPass
from .layer_pass import LayerPass

OWN = {DecoupledWeights: DecoupledLayerPass}


def layer_pass(layer, *args, **named):
    """Create the pass of a layer from the arguments of ``LayerPass``."""
    return OWN.get(type(layer.posterior), LayerPass)(layer, *args, **named)


def begin_pass(model, dtype, columns=0, need=(), *, jitter, rng, direction=None, **random):
    """Create the pass of a checked model; draws the requested random quantities."""
    more = check.drawn(random, model, dtype, rng)
    if direction is not None:
        more["direction"] = direction
    return layer_pass(model, check.jitter_amount(jitter, dtype), columns, need, **more)
