"""Held-out metrics and plots of several targets: those of one, for each, and of all together."""

from dataclasses import replace

import numpy as np

from ..data.targets import of_one
from . import metrics, numbers

MOST = 12  # targets that are plotted


def evaluate(fitted, task):
    """Return metrics of all targets together, and in ``targets`` those of each by its name.

    Missing targets do not count.
    """
    X, y, y_train = task.X[task.test], task.y[task.test], task.y[~task.test]
    log_density, mean = fitted.log_densities(X, y), fitted.predict(X).mean
    there, rate = ~np.isnan(y), np.nanmean(y_train, axis=0)
    if fitted.kind == "counts":
        rates = np.broadcast_to(rate, y.shape)

        def scores(cells, number):
            return metrics.counts(y[cells], mean[cells], log_density[cells], rates[cells])
    elif fitted.kind != "regression":
        moments = [np.broadcast_to(v, y.shape) for v in (rate, np.nanstd(y_train, axis=0))]

        def scores(cells, number):
            own = tuple(values[cells] for values in moments)
            return numbers.in_range(fitted.kind, y[cells], mean[cells], log_density[cells], own)
    else:
        ys, means = fitted.scale.target(y), fitted.scale.target(mean)

        def scores(cells, number):
            scale = None if number is None else of_one(fitted.scale, number)
            return metrics.regression(ys[cells], means[cells], log_density[cells], scale)

    each = {}
    for number, name in enumerate(fitted.target_name):
        cells = there & (np.arange(y.shape[1]) == number)
        if cells.any():
            each[name] = scores(cells, number)
    return (scores(there, None) | {"targets": each}) if each else None


def views(fitted, task):
    """Yield ``(task, fitted)`` of each target by itself, for the first ``MOST`` targets."""
    for number, name in enumerate(task.target_name[:MOST]):
        one = replace(task, y=task.y[:, number], target_name=name, X=task.X, test=task.test)
        yield one, OneTarget(fitted, number)


class OneTarget:
    """One target of a ``Fitted`` model of several, for plots."""

    def __init__(self, fitted, number):
        self._whole, self._number = fitted, number
        self.model, self.scale = fitted.model, of_one(fitted.scale, number)
        self.kind, self.classes = fitted.kind, None

    def predict(self, X, quantiles=()):
        found = self._whole.predict(X, quantiles)
        parts = (
            part if part is None else part[..., self._number]
            for part in (found.mean, found.sd, found.quantiles)
        )
        return type(found)(*parts)

    def cdf(self, X, y):
        whole = np.zeros((len(y), len(self._whole.target_name)))
        whole[:, self._number] = y
        return self._whole.cdf(X, whole)[:, self._number]
