"""The default likelihood, chosen from the values of the target.

Text and booleans are classes. Whole numbers (of any dtype) are classes if there are at most ``FEW``
different ones, with several rows each. More different values are counts or a scale: ratings, ages,
years. The codes of many classes look the same, so they need ``--likelihood``; the printed reason
says how the target was interpreted.

A count starts at 0, varies about as much as a Poisson variable, and has its longer tail to the
right. The variance of a Poisson variable is its mean for a constant rate, and larger if the rate
depends on the inputs; its skewness is 1 / sqrt(mean). A scale fails one of these tests: equally
frequent digits 0 to 9 have variance 1.8 times the mean, but no skewness.
"""

import numpy as np

FEW = 5
EACH = 4  # fewest rows per class, on average
VARIANCE = 0.5, 5.0  # range of the variance of counts, in units of the mean
SKEWNESS = 0.5  # smallest skewness of counts, in units of 1 / sqrt(mean)


def choose_likelihood(values):
    """Choose a likelihood for a target.

    Parameters
    ----------
    values : (N,) array of finite numbers, booleans or text, at least two of them different

    Returns
    -------
    likelihood, reason : str
        The name, and the reason for the choice.
    """
    distinct = np.unique(values)
    if values.dtype.kind in "US":
        return _classes(distinct, "text")
    if values.dtype.kind == "b":
        return _classes(distinct, "booleans")
    if np.any(distinct != np.round(distinct)):
        return "gaussian", "the target is real-valued"
    if len(distinct) <= FEW and EACH * len(distinct) <= len(values):
        return _classes(distinct, "integers")
    what = (
        f"the target is {len(distinct)} different whole numbers from {distinct[0]:.0f} to"
        f" {distinct[-1]:.0f}"
    )
    if len(distinct) > FEW and is_count(values):
        return "poisson", f"{what}, spread like counts"
    return "gaussian", f"{what}, a scale rather than classes or counts"


def is_count(values):
    """Whether whole numbers look like counts."""
    values = values.astype(np.float64)
    mean = values.mean()
    central = values - mean
    variance = np.mean(central**2)
    skewness = np.mean(central**3) / variance**1.5
    low, high = VARIANCE
    return (
        values.min() == 0
        and low * mean <= variance <= high * mean
        and skewness >= SKEWNESS / np.sqrt(mean)
    )


def _classes(distinct, what):
    if len(distinct) == 2:
        return "bernoulli-probit", f"the target has two values ({what})"
    return "softmax", f"the target has {len(distinct)} different values ({what})"
