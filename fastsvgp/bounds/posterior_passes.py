"""Choice of the pass through a layer: ``LayerPass``, or the pass that a posterior needs instead."""

from ..posteriors import DecoupledWeights
from .decoupled_pass import DecoupledLayerPass
from .layer_pass import LayerPass

OWN: dict[type, type[LayerPass]] = {DecoupledWeights: DecoupledLayerPass}


def layer_pass(layer, *args, **named):
    """Create the pass of a layer from the arguments of ``LayerPass``."""
    return OWN.get(type(layer.posterior), LayerPass)(layer, *args, **named)
