"""The default likelihood, chosen from the values of the target.

Text and booleans are classes. Whole numbers (of any dtype) are classes if there are at most ``FEW``
different ones, with several rows each. More different values are counts or a scale: ratings, ages,
years. The codes of many classes look the same, so they need ``--likelihood``; the printed reason
says how the target was interpreted.

A count starts at 0, varies about as much as a Poisson variable, and has its longer tail to the
right. The variance of a Poisson variable is its mean for a constant rate, and larger if the rate
depends on the inputs; its skewness is 1 / sqrt(mean). A scale fails one of these tests: equally
frequent digits 0 to 9 have variance 1.8 times the mean, but no skewness.

Whole numbers that vary more, or start above 0, can be counts, too: then the reason names their
likelihood. With variance c times the mean, c > 1, the skewness of a negative binomial variable is
(2 c - 1) / sqrt(c mean).
"""

import numpy as np

FEW = 5
EACH = 4  # fewest rows per class, on average
VARIANCE = 0.5, 5.0  # range of the variance of counts, in units of the mean
SKEWNESS = 0.5  # smallest skewness of counts, in units of that of a Poisson variable
VARYING = 1 / 3  # the same for counts that vary more, in units of that of a negative binomial one


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
    ratio = dispersion(values)
    if len(distinct) > FEW and ratio is not None:
        fitting = "poisson" if ratio <= VARIANCE[1] else "negative-binomial"
        times = f"{ratio:.{1 if ratio < 10 else 0}f}"
        return "gaussian", (
            f"{what}, with variance {times} times the mean (if they are counts, give --likelihood"
            f" {fitting})"
        )
    return "gaussian", f"{what}, a scale rather than classes or counts"


def is_count(values):
    """Whether whole numbers look like counts with the spread of Poisson variables."""
    ratio = dispersion(values)
    return ratio is not None and ratio <= VARIANCE[1] and values.min() == 0


def dispersion(values):
    """Return the variance of whole numbers in units of their mean; None if they are no counts."""
    values = values.astype(np.float64)
    mean = values.mean()
    central = values - mean
    variance = np.mean(central**2)
    if values.min() < 0 or variance < VARIANCE[0] * mean:
        return None
    ratio, skewness = variance / mean, np.mean(central**3) / variance**1.5
    least = SKEWNESS / np.sqrt(mean)
    if ratio > VARIANCE[1]:
        least = VARYING * (2 * ratio - 1) / np.sqrt(ratio * mean)
    return float(ratio) if skewness >= least else None


def _classes(distinct, what):
    if len(distinct) == 2:
        return "bernoulli-probit", f"the target has two values ({what})"
    return "softmax", f"the target has {len(distinct)} different values ({what})"
