"""The likelihood where the user names none: by the values of the target.

Text and booleans are classes. Whole numbers (of any dtype) are classes while there are at most
``FEW`` different ones, each in some rows; more than that are counts or a scale: ratings, ages,
years. The codes of many classes look like these, and so ``--likelihood`` has to be given for them:
the reason that is printed says what they were taken for.

A count starts at 0, varies about as much as a Poisson variable does (its variance is its mean where
the rate is constant, and larger where the inputs move it), and has its longer tail to the right (a
Poisson variable's skewness is 1 / sqrt(mean)). A scale fails one of these: digits 0 to 9 that come
equally often have variance 1.8 times the mean, but no skewness.
"""

import numpy as np

FEW = 5
EACH = 4  # rows of each class, on average
VARIANCE = 0.5, 5.0  # of counts, in units of the mean
SKEWNESS = 0.5  # the least, in units of 1 / sqrt(mean)


def choose_likelihood(values):
    """The name of a likelihood for a target, and why.

    Parameters
    ----------
    values : (N,) array of finite numbers, booleans or text, at least two of them different

    Returns
    -------
    likelihood, reason : str
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
