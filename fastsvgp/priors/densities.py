"""Log densities of positive parameters t, as densities of log t.

With phi = log t, a density p(t) is p(t) t as a density of phi. Let c(phi) be its logarithm:

    LogNormal(mu, sd)      c = -(phi - mu)^2 / (2 sd^2) - log sd - log(2 pi) / 2
                           dc/dt = -(phi - mu) / (sd^2 t)
    Gamma(a, b)            c = a phi - b t + a log b - log Gamma(a)
                           dc/dt = a / t - b
    HalfNormal(s)          c = phi - t^2 / (2 s^2) + log(2 / pi) / 2 - log s
                           dc/dt = 1 / t - t / s^2

The modes in phi are t = exp(mu), the median; a / b, the mean; and s.
"""

import math
from dataclasses import dataclass

import numpy as np

from .. import check


class Prior:
    """Base of priors of a positive parameter.

    A prior of your own derives from it and has ``log_density_and_grad``. A frozen dataclass tells
    ``fit(..., resume=...)`` its numbers.

    Examples
    --------
    >>> isinstance(fs.priors.LogNormal(0.0, 1.0), fs.priors.Prior)
    True
    """

    def log_density_and_grad(self, value):
        """Compute the log density of log ``value``, and its derivative in ``value``, by entry.

        Parameters
        ----------
        value : array
            Positive.

        Returns
        -------
        log_density, derivative : arrays of the same shape
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LogNormal(Prior):
    """The logarithm is normal.

    Parameters
    ----------
    mean : float
        Of the logarithm.
    sd : float
        Standard deviation of the logarithm.

    Examples
    --------
    >>> prior = fs.priors.LogNormal(mean=np.log(2.0), sd=1.0)
    >>> log_density, derivative = prior.log_density_and_grad(np.array([1.0, 4.0]))
    >>> derivative.round(3)
    array([ 0.693, -0.173])
    """

    mean: float
    sd: float

    def __post_init__(self):
        check.scalar("mean", self.mean)
        _positive("sd", self.sd)

    def log_density_and_grad(self, value):
        """See ``Prior``."""
        off = (np.log(value) - self.mean) / self.sd
        return (
            -0.5 * off * off - math.log(self.sd) - 0.5 * math.log(2 * math.pi),
            -off / (self.sd * value),
        )


@dataclass(frozen=True)
class Gamma(Prior):
    """The Gamma distribution, of mean ``shape / rate``.

    Parameters
    ----------
    shape, rate : float
        Positive.

    Examples
    --------
    >>> prior = fs.priors.Gamma(shape=3.0, rate=6.0)
    >>> log_density, derivative = prior.log_density_and_grad(np.array([0.5, 1.0]))
    >>> derivative
    array([ 0., -3.])
    """

    shape: float
    rate: float

    def __post_init__(self):
        _positive("shape", self.shape)
        _positive("rate", self.rate)

    def log_density_and_grad(self, value):
        """See ``Prior``."""
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return (
            self.shape * np.log(value) - self.rate * value + constant,
            self.shape / value - self.rate,
        )


@dataclass(frozen=True)
class HalfNormal(Prior):
    """The absolute value of a normal number of mean zero.

    Parameters
    ----------
    sd : float
        Standard deviation of the normal number.

    Examples
    --------
    >>> prior = fs.priors.HalfNormal(sd=2.0)
    >>> log_density, derivative = prior.log_density_and_grad(np.array([1.0, 2.0]))
    >>> derivative
    array([0.75, 0.  ])
    """

    sd: float

    def __post_init__(self):
        _positive("sd", self.sd)

    def log_density_and_grad(self, value):
        """See ``Prior``."""
        constant = 0.5 * math.log(2 / math.pi) - math.log(self.sd)
        ratio = value / self.sd
        return np.log(value) - 0.5 * ratio * ratio + constant, 1 / value - ratio / self.sd


def dimension_scaled(num_columns: int) -> LogNormal:
    """Return the prior of lengthscales of BoTorch: log-normal, around 4.1 sqrt(D).

    For standardised inputs. It keeps the distance between two rows in units of the lengthscales the
    same for any number of columns. BoTorch has ``LogNormal(-4.0, 1.0)`` for the noise variance, of
    standardised targets.

    Parameters
    ----------
    num_columns : int
        D, of the columns that the covariance reads.

    Returns
    -------
    LogNormal
        Mean sqrt(2) + log(D) / 2, standard deviation sqrt(3). Source: Hvarfner, Hellsten and Nardi,
        "Vanilla Bayesian optimization performs great in high dimensions" (2024).

    Examples
    --------
    >>> round(fs.priors.dimension_scaled(9).mean, 3)
    2.513
    """
    D = check.whole("num_columns", num_columns)
    return LogNormal(math.sqrt(2) + 0.5 * math.log(D), math.sqrt(3))


def _positive(name, value):
    if check.scalar(name, value) <= 0:
        raise ValueError(f"`{name}` of a prior must be positive, got {value:g}")
