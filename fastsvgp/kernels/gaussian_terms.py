"""Expected log likelihoods in closed form."""

from ..runtime.dispatch import family

twin = family("gaussian_terms")


def gaussian_term(Y, mean, var, variance, need=True, weights=None):
    """Sum over data of E log N(y | f, s) for f ~ N(mean, var) elementwise, and its derivatives.

    Parameters
    ----------
    Y, mean, var : (N,) or (P, N)
    variance : () s > 0
    need : bool
        False: the value alone.
    weights : as ``mean``, optional
        How often each entry counts in these sums.

    Returns
    -------
    value : float, or () float64 on a device
        -1/2 (N log(2 pi s) + sum((y - mean)^2 + var) / s), N all entries; sums in float64.
    mean_bar, var_bar : as ``mean``
    variance_bar : () of that dtype, infinite where that holds no such number
        None without ``need``, as the other two.
    """
    module = twin(Y=Y, mean=mean, var=var, variance=variance, weights=weights)
    return module.gaussian_term(Y, mean, var, variance, need, weights)
