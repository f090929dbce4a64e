"""CPU twin of ``small_whitened``: a few compiled calls in place of some dozens."""

from .algebra import (
    whitened_bars as whitened_bars,
    whitened_cotangents as whitened_cotangents,
    whitened_kl as whitened_kl,
    whitened_marginals as whitened_marginals,
)
from .step import whitened_step as whitened_step
