"""Predictions as mixtures: S Gaussian parts of equal weight for each row.

Given the draws of its hidden layers, the last layer of a deep GP is Gaussian at each row. Any other
model has one part, whose predictions are those of the likelihood.
"""

import numpy as np

from ..likelihoods.layout import add_unit_columns, laid_out

HALVINGS = 54  # of the bracket of a quantile: float64 has 53 bits


def split_samples(values, S):
    """Reshape (..., S n) of all draws to (S, ..., n)."""
    return np.moveaxis(values.reshape(*values.shape[:-1], S, -1), -2, 0)


def bisect(low, high, level, cdf, counts):
    """Return the quantile between two arrays of bounds; ``counts``: the smallest whole number."""
    for _ in range(HALVINGS):
        if not (low < high).any():
            break
        middle = np.floor(0.5 * (low + high)) if counts else low + 0.5 * (high - low)
        reached = cdf(middle) >= level
        low, high = np.where(reached, low, middle + counts), np.where(reached, middle, high)
    return high


class DrawMixture:
    """Moments and distribution of a mixture of S parts, whose marginals f are (..., S n)."""

    def __init__(self, S, likelihood):
        self.S, self.likelihood = S, likelihood

    def average(self, values):
        """Average over the draws, the leading axis."""
        return values.sum(axis=0) / self.S

    def moments(self, mean, var):
        """Return the mean and variance of the mixture, from those of its parts."""
        if self.S == 1:
            return mean, var
        mean, var = split_samples(mean, self.S), split_samples(var, self.S)
        centre = self.average(mean)
        return centre, self.average(var) + self.average(np.square(mean - centre))

    def targets(self, f):
        """Return the mean and variance of new targets."""
        return self.moments(*self.likelihood.predict_mean_and_var(laid_out(self.likelihood, f)))

    def log_density(self, y, f):
        """Return the log density (n,) of targets, of all outputs of a row jointly."""
        logs = self.likelihood.predict_log_density(self._repeat(y), laid_out(self.likelihood, f))
        if self.S == 1:
            return logs
        logs = split_samples(logs, self.S)
        # finite, also if all are -inf
        top = np.maximum(logs.max(axis=0), np.finfo(logs.dtype).min)
        with np.errstate(divide="ignore"):
            return top + np.log(self.average(np.exp(logs - top)))

    def cdf(self, y, f):
        """Return the distribution function at targets (..., n), of each output."""
        p = self.likelihood.predict_cdf(self._repeat(y), laid_out(self.likelihood, f))
        return p if self.S == 1 else self.average(split_samples(p, self.S))

    def quantiles(self, levels, f):
        """Return an array (..., n) for each level.

        The quantiles of the parts bracket those of the mixture; bisection halves the bracket.
        """
        of_parts = self.likelihood.predict_quantiles(levels, laid_out(self.likelihood, f))
        if self.S == 1:
            return tuple(of_parts)
        found, counts = [], self.likelihood.counts
        for parts, level in zip(of_parts, levels, strict=True):
            parts = split_samples(parts, self.S)

            def cdf(y):
                return self.cdf(add_unit_columns(self.likelihood, y), f)

            found.append(bisect(parts.min(axis=0), parts.max(axis=0), level, cdf, counts))
        return tuple(found)

    def _repeat(self, y):
        return y if self.S == 1 else np.concatenate([y] * self.S, axis=-1)
