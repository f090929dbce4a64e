"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..priors.around_mode import laplace as laplace
from ..priors.densities import (
    Gamma as Gamma,
    HalfNormal as HalfNormal,
    LogNormal as LogNormal,
    Prior as Prior,
    dimension_scaled as dimension_scaled,
)
from ..priors.on_models import log_prior_and_grad as log_prior_and_grad
