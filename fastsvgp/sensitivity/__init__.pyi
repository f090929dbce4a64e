"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..sensitivity.mean_effects import Effect as Effect, effects as effects
from ..sensitivity.sobol_indices import Sobol as Sobol, sobol as sobol
