"""Targets on a log scale: a model of log y, and predictions of y itself.

Under Gaussian noise the predictive distribution of z = log y is N(mu, s^2) at one row, and N(mu, C)
jointly, so that of y is log-normal:

    E y_i = m_i = exp(mu_i + C_ii / 2),      Cov(y_i, y_j) = m_i m_j (exp(C_ij) - 1),

its quantiles are exp of those of z, and p(y) = p(z) / y.
"""

from dataclasses import dataclass

import numpy as np

from ..likelihoods import Gaussian
from .scaling import Scale

SHOWN = 5  # rows that a message names


def checked_target(target):
    """Return the setting ``target``, None or "log"; ``ValueError`` for anything else."""
    if target is not None and not (isinstance(target, str) and target == "log"):
        raise ValueError(
            f"`target` must be None, or 'log' for a model of log y; got {target!r:.60}"
        )
    return target


def check_log_target(likelihood, y, weights=None):
    """Refuse targets without a logarithm, by their rows, and noise under which E y is infinite.

    Rows of weight 0 do not count.
    """
    if not isinstance(likelihood, Gaussian):
        raise ValueError(
            "`target='log'` is for the likelihood 'gaussian', under which y has a mean in closed"
            f" form; got {type(likelihood).__name__}: leave one of them out"
        )
    bad = ~(np.asarray(y) > 0).reshape(len(y), -1).all(axis=1)
    if weights is not None:
        bad &= np.asarray(weights) > 0
    rows = np.flatnonzero(bad)
    if len(rows):
        listed = ", ".join(map(str, rows[:SHOWN]))
        more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        raise ValueError(
            f"`y` must be positive for target='log', but is {np.min(y[rows[0]]):g} in row {rows[0]}"
            f" (rows {listed}{more}); leave these rows out, or target='log'"
        )


@dataclass
class LogScale(Scale):
    """``Scale`` of targets whose logarithm is modelled: ``y`` and ``back`` are those of y itself.

    ``back`` of a mean alone is the median of y; with a variance it gives the moments of y.
    """

    @classmethod
    def of(cls, X, y, scale_target, shared=False, weights=None):
        return super().of(X, np.log(y), scale_target, shared, weights)

    def y(self, y):
        return super().y(np.log(y))

    def back(self, mean, var=None):
        if var is not None:
            mean, sd = self.moments(mean, var)
            return mean, np.square(sd)
        with np.errstate(over="ignore"):
            return np.exp(self._of_logs(mean)).astype(mean.dtype, copy=False)

    def moments(self, mean, var):
        s2 = np.asarray(var, np.float64) * np.square(self.y_scale)
        with np.errstate(over="ignore"):
            m = np.exp(self._of_logs(mean) + 0.5 * s2)
            sd = m * np.sqrt(np.expm1(s2))
            return m.astype(mean.dtype, copy=False), sd.astype(mean.dtype, copy=False)

    def covariances(self, mean, cov):
        C = np.asarray(cov, np.float64) * np.square(self.y_scale)
        with np.errstate(over="ignore"):
            m = np.exp(self._of_logs(mean) + 0.5 * np.diagonal(C).T)
            of_y = m[:, None] * m * np.expm1(C)
            return m.astype(mean.dtype, copy=False), of_y.astype(mean.dtype, copy=False)

    def log_units(self, y):
        logs = np.log(y)
        return super().log_units(y) + (logs.sum(axis=1) if logs.ndim == 2 else logs)

    def _of_logs(self, mean):
        """Convert means of the model to those of log y, in float64."""
        return np.asarray(mean, np.float64) * self.y_scale + self.y_mean
