"""What a model says at rows, as arrays (N, P): functions or means of targets, and joint draws."""

import numpy as np

from .. import check, models
from ..bounds.predict import predict_f, predict_y, sample_f
from ..bounds.predictor import predictor
from ..layers.layer import DeepGP
from ..likelihoods.layout import laid_out
from ..qsgp.model import QSGP
from ..records import Marginals
from ..runtime.deferred_checks import on_device


class Values:
    """The latent functions of a model, or with ``targets`` E[y | f], at rows.

    Attributes
    ----------
    normal : bool
        Whether values at several rows are jointly normal, with a covariance in closed form.
    """

    def __init__(self, model, targets, jitter):
        self.targets = check.flag("targets", targets)
        self.normal = not (self.targets or isinstance(model, DeepGP))
        models.serving("predict_f", model)  # raises for a model without predictions
        given = {} if jitter is None else {"jitter": jitter}
        self._options = given if models.takes("predict_f", model, "jitter") else {}
        self._double = models.takes("predictor", model, "dtype") and not isinstance(model, QSGP)
        if self._double:  # Kuu is factorised once, and joint draws of float32 models are safe
            model, self._options = predictor(model, dtype=np.float64, **self._options), {}
        self._model = model

    def _rows(self, X):
        return X.astype(np.float64) if self._double else X

    def means(self, X):
        """Return the means (N, P)."""
        X = self._rows(X)
        if self.targets:
            return _in_columns(predict_y(self._model, X, **self._options)[0])
        return _in_columns(predict_f(self._model, X, var=False, **self._options))

    def average(self, X):
        """Return mean and variance (P,) of the average over rows of jointly normal values."""
        _, cov = predict_f(self._model, self._rows(X), full_cov=True, **self._options)
        var = np.asarray(cov, np.float64).mean(axis=(-2, -1))
        # of a VIF joint means know the near rows of all rows: the mean is that of predictions
        return self.means(X).mean(axis=0), np.atleast_1d(np.maximum(var, 0))

    def draws(self, X, count, rng):
        """Return joint draws (count, N, P)."""
        draws = sample_f(self._model, self._rows(X), count, rng=rng, **self._options)
        if not self.targets:
            return np.asarray(draws, np.float64).reshape(count, len(X), -1)
        f = draws.reshape(count * len(X), *draws.shape[2:]).T
        f = Marginals(np.ascontiguousarray(f), np.zeros_like(f))
        likelihood = self._model.likelihood
        mean = likelihood.predict_mean_and_var(laid_out(likelihood, f))[0]
        return np.asarray(mean, np.float64).T.reshape(count, len(X), -1)


def _in_columns(values):
    values = np.asarray(values, np.float64)
    return values[:, None] if values.ndim == 1 else values


def squeezed(values, P):
    """Return values (..., P) without the last axis if P is 1."""
    return values[..., 0] if P == 1 else values


def check_rows(X):
    """Return checked inputs on the host."""
    if on_device(X := check.inputs("X", X)):
        raise TypeError("`X` must be on the host, with the model: use fastsvgp.to_host on both")
    return X


def check_columns(columns, D):
    """Return a tuple of column numbers for each input; by default each column is one."""
    entries = range(D) if columns is None else columns
    if isinstance(entries, str) or not hasattr(entries, "__iter__"):
        raise TypeError(f"`columns` must be a sequence, such as [0, 2], got {columns!r:.60}")
    found = []
    for entry in entries:
        group = tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)
        group = tuple(check.whole("columns", column, 0) for column in group)
        if not group or max(group) >= D or len(set(group)) < len(group):
            raise ValueError(
                f"`columns` has {entry!r:.60}; an entry is a number from 0 to {D - 1}, or a tuple"
                " of different ones"
            )
        found.append(group)
    if not found:
        raise ValueError("`columns` is empty; leave it out for all columns")
    return found
