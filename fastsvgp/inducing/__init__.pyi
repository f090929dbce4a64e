"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..inducing.choice import greedy_variance as greedy_variance, kmeans as kmeans
from ..inducing.image_patches import patches as patches
from ..inducing.lengthscales import median_lengthscales as median_lengthscales
from ..inducing.principal_components import pca_mean as pca_mean
from ..inducing.spectrum import spectral_start as spectral_start
