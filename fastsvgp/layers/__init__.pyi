"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..latents.build import multi_gp as multi_gp
from ..latents.model import MultiGP as MultiGP
from ..latents.parallel_layers import ParallelLayers as ParallelLayers
from ..layers.build import deep_gp as deep_gp
from ..layers.convolutional import ConvolutionalLayer as ConvolutionalLayer
from ..layers.layer import DeepGP as DeepGP, Layer as Layer
