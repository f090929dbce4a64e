"""Expected log likelihoods in closed form."""

from ..runtime.dispatch import operation


@operation("Y", "mean", "var", "variance", "weights")
def gaussian_term(Y, mean, var, variance, need=True, weights=None):
    """Sum E log N(y | f, s) over the data for f ~ N(mean, var) elementwise, with derivatives.

    Parameters
    ----------
    Y, mean, var : (N,) or (P, N)
    variance : () s > 0
    need : bool
        False: compute only the value.
    weights : as ``mean``, optional
        Weight of each entry in these sums.

    Returns
    -------
    value : float, or () float64 on a GPU
        -1/2 (N log(2 pi s) + sum((y - mean)^2 + var) / s) with N the number of all entries; sums in
        float64.
    mean_bar, var_bar : as ``mean``
        None without ``need``.
    variance_bar : () of the same dtype, infinite on overflow
        None without ``need``.
    """
