"""Which pass takes data through a layer: one of its own for a posterior whose Kuu is never formed as a whole."""

from ..posteriors import DecoupledWeights
from .decoupled_pass import DecoupledLayerPass
from .layer_pass import LayerPass

OWN = {DecoupledWeights: DecoupledLayerPass}


def layer_pass(layer, *args, **named):
    """The ``LayerPass`` of a layer, from its arguments, or what its posterior has in the place of one."""
    return OWN.get(type(layer.posterior), LayerPass)(layer, *args, **named)
