"""An average over the parameters of a process on few rows, in place of one point estimate.

``bench/results/small_tables.md`` has what it gains, by the number of rows.
"""

import numpy as np

from ..collapsed.sgpr import optimal_svgp
from ..priors.around_mode import laplace
from ..priors.densities import dimension_scaled
from ..records import leaves, replace_leaves
from ..train import fit

ROWS = 300  # up to which parameters are averaged over
DRAWS = 16
ITERATIONS = 50  # of a training, about
# of lengthscales in standardised units, and the least noise variance, where a training with priors
# begins: without priors few rows can send lengthscales and noise to zero or infinity
RANGE, LEAST_NOISE = (1e-2, 1e3), 1e-4


def flops_of(sgpr, N):
    """Return about the operations of ``average``: those of its gradients."""
    parameters = sum(np.size(value) for path, _, value in leaves(sgpr) if path != "inducing")
    M = len(sgpr.inducing)
    return (ITERATIONS + 2 * parameters) * 4 * M**2 * (N + M)


def priors_of(sgpr):
    """Return priors of all lengthscales, by path, for standardised inputs."""
    return {path: dimension_scaled(value.size) for path, value in _lengthscales(sgpr).items()}


def average(sgpr, X, y, rng, weights=None):
    """Return the ``Mixture`` around the mode with ``priors_of``, to which training goes on.

    Data are in standardised units. ``laplace`` refuses what is no mode.
    """
    start = {path: np.clip(value, *RANGE) for path, value in _lengthscales(sgpr).items()}
    noise = max(float(sgpr.noise_variance), LEAST_NOISE)
    start = replace_leaves(sgpr, start | {"noise_variance": noise})
    options = {"weights": weights, "priors": priors_of(sgpr)}
    # an SVGP trains in logarithms
    svgp = optimal_svgp(start, X, y, weights=weights)
    svgp, info = fit(svgp, X, y, collapsed=True, fixed="inducing", **options)
    if info.interrupted:
        raise KeyboardInterrupt
    return laplace(svgp, X, y, draws=DRAWS, rng=rng, **options)


def _lengthscales(model):
    found = {path: value for path, _, value in leaves(model) if path.endswith(".lengthscales")}
    return {path: np.asarray(value) for path, value in found.items()}
