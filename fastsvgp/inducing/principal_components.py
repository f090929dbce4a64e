"""Principal components of the data as a mean function."""

import numpy as np

from .. import check, kernels
from ..errors import names_options
from ..means import LinearMean
from ..records.typed import ArrayLike, Seed
from ..runtime import devices
from .subset import random_rows


@names_options
def pca_mean(X: ArrayLike, P: int, rng: Seed = None, subset: int | None = None) -> LinearMean:
    """Make a mean function whose P outputs are the principal components of X.

    Use it for hidden layers with fewer outputs than inputs.

    Parameters
    ----------
    X : (N, D) array
    P : int
        Number of outputs, at most D.
    rng : None, int or Generator
    subset : int, optional
        Number of random rows to use. Default about min(20 000, 4 000 000 / D), at most all.

    Returns
    -------
    LinearMean
        Mean with weights (P, D) in the dtype of X. The rows are orthonormal, sorted by decreasing
        variance, and the largest entry of each is positive. The mean of X is mapped to 0. Deep GPs
        keep this mean function fixed.

    Notes
    -----
    The cost is about 2 N D^2 + 9 D^3 flops. Source: Salimbeni and Deisenroth 2017, section 2.2.

    Examples
    --------
    >>> inputs = np.hstack([X, 2 * X, X**2])
    >>> fs.inducing.pca_mean(inputs, 2, rng=0).weights.shape
    (2, 3)
    """
    P, rng = check.whole("P", P), check.generator(rng)
    rows, dtype, device_like = random_rows("pca_mean", X, 1, rng, subset)
    if P > rows.shape[1]:
        raise ValueError(
            f"pca_mean: `P` is {P}, but `X` has only {rows.shape[1]} columns; choose a smaller P"
        )
    centre = rows.mean(axis=0)
    rows -= centre
    weights = principal_directions(rows, P)[0]
    largest = np.take_along_axis(weights, abs(weights).argmax(axis=1)[:, None], axis=1)
    weights = weights * np.sign(largest)
    bias = -kernels.matmul(weights, centre[:, None])[:, 0]
    return LinearMean(*(devices.copy_to(a.astype(dtype), device_like) for a in (weights, bias)))


def principal_directions(rows, P):
    """Return the first P principal directions (P, D) of centred rows, and their deviations (P,)."""
    squares, directions = np.linalg.eigh(kernels.matmul(rows, rows, transpose_a=True))
    deviations = np.sqrt(np.maximum(squares[::-1][:P], 0) / len(rows))
    return directions[:, ::-1][:, :P].T, deviations
