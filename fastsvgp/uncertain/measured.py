"""Measured inputs: the distribution of the true ones."""

import numpy as np

from .. import check
from ..records.typed import ArrayLike
from .inputs import GaussianInputs, check_inputs

LEAST = 1e-3  # of the variance of measurements, that of the true inputs


def measured(
    obs: ArrayLike, var: ArrayLike, *, population: tuple[ArrayLike, ArrayLike] | None = None
) -> GaussianInputs:
    """Return the distribution of the true inputs given measurements with known errors.

    The true inputs of a column are taken for a normal population N(c, t^2). Measurements far from
    its centre are then more likely errors than values: the mean is c + (obs - c) t^2 / (t^2 + var),
    and the variance t^2 var / (t^2 + var).

    Parameters
    ----------
    obs : (N, D) array
    var : (N, D) array, (D,) or a number
        Variances of the errors: 0 for exact numbers, which stay as they are.
    population : pair of (D,) arrays, optional
        c and t^2 of each column. Default: from these measurements, c their mean and t^2 their
        variance less the mean of ``var``, at least a thousandth of the former. Give training and
        test inputs the same: ``population=(obs.mean(0), obs.var(0) - var.mean(0))`` of the former.

    Returns
    -------
    GaussianInputs
        For predictions, and as ``inputs`` and ``prior`` of a ``GPLVM``, where all variances must be
        positive.

    Raises
    ------
    ValueError
        Shapes, negative variances, NaN or infinity; t^2 that is not positive.

    Notes
    -----
    It helps where the population is near normal. Skewed columns keep their measurements:
    ``GaussianInputs(obs, var)``.

    Examples
    --------
    >>> found = fs.bounds.measured(np.array([[0.0], [4.0]]), 1.0, population=([0.0], [3.0]))
    >>> found.mean.ravel(), found.var.ravel()
    (array([0., 3.]), array([0.75, 0.75]))
    """
    obs, var = check.as_array("obs", obs), check.as_array("var", var)
    if obs.ndim != 2 or var.shape not in ((), obs.shape[1:], obs.shape):
        raise ValueError(
            f"measured: `obs` must be (N, D), and `var` (N, D), (D,) or a number, got {obs.shape}"
            f" and {var.shape}"
        )
    dtype = obs.dtype if obs.dtype.kind == "f" else np.dtype(np.float64)
    var = np.ascontiguousarray(np.broadcast_to(var, obs.shape), dtype)
    X = check_inputs("measured", GaussianInputs(obs.astype(dtype), var))
    if population is None:
        centre, spread = X.mean.mean(0), X.mean.var(0)
        spread = np.maximum(spread - X.var.mean(0), LEAST * spread)
    else:
        centre, spread = (check.as_array("population", part) for part in population)
        if centre.shape != obs.shape[1:] or spread.shape != centre.shape or not (spread > 0).all():
            raise ValueError(
                "`population` must hold centres and positive variances, a number for each column"
            )
    spread = np.where(spread > 0, spread, 1.0)  # of constant columns
    share = spread / (spread + X.var)
    mean = np.where(X.var > 0, centre + (X.mean - centre) * share, X.mean)
    return GaussianInputs(mean.astype(dtype), (share * X.var).astype(dtype))
