"""The units of the data and those of a model: scaling of inputs and targets, codes of classes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import check
from ..check import weights as weighing
from ..covariances import Covariance
from ..errors import BadEntry

LARGEST = 1e150  # value whose square is still finite
UNUSED = 1e200  # scale of a column that is no input: in units of the model it is constant
CONSTANT = 1e-12  # spread of a constant column, relative to its largest absolute value


@dataclass
class Scale:
    """Affine scaling by mean and standard deviation; a constant column keeps scale 1.

    Attributes
    ----------
    x_mean, x_scale : (D,) arrays
    y_mean, y_scale : float, or (P,) arrays for P targets
    x_map : tuple of None or Monotone, optional
        One per column; a column with a map is not scaled.
    x_ends : (2, D) array, optional
        The smallest and the largest value of each column of the training rows.
    """

    x_mean: np.ndarray
    x_scale: np.ndarray
    y_mean: Any = 0.0
    y_scale: Any = 1.0
    x_map: Any = None
    x_ends: Any = None

    @classmethod
    def fit(cls, X, y, scale_target, shared=False, weights=None):
        """Fit to training rows X (N, D), y (N,) or (N, P) and weights (N,).

        ``shared``: one mean and one scale for all columns of X.
        """
        x_mean, x_scale = _moments(X, weights)
        if shared:
            x_mean, x_scale = np.full_like(x_mean, X.mean()), np.full_like(x_scale, X.std())
        x_scale = constant_scale(x_scale, _largest(X))
        x_ends = np.stack([X.min(axis=0), X.max(axis=0)]) if X.size else None
        if not scale_target:
            return cls(x_mean, x_scale, x_ends=x_ends)
        y_mean, y_scale = _moments(y, weights)
        y_scale = np.where(constant(y_scale, y), 1.0, y_scale)
        return cls(
            x_mean,
            x_scale,
            *((y_mean, y_scale) if np.ndim(y) == 2 else (float(y_mean), float(y_scale))),
            x_ends=x_ends,
        )

    def add_column_maps(self, X, weights=None):
        """Add a ``Monotone`` map per column of X (N, D) that has at least three distinct values."""
        columns = zip(X.T, self.x_scale < UNUSED, strict=True)
        maps = (
            Monotone.fit(np.asarray(one, np.float64), weights) if used else None
            for one, used in columns
        )
        return replace(self, x_map=tuple(maps))

    def X(self, X):
        """Convert inputs (N, D) to the units of the model, in their dtype."""
        result = (X - self.x_mean) / self.x_scale
        for d, column in self._column_maps():
            result[:, d] = column(X[:, d])
        return _cast_like(X, result)

    def X_back(self, X):
        """Convert inputs of the model to the units of the data."""
        result = X * self.x_scale + self.x_mean
        for d, column in self._column_maps():
            result[:, d] = column.back(X[:, d])
        return _cast_like(X, result)

    def _column_maps(self):
        return [(d, column) for d, column in enumerate(self.x_map or ()) if column is not None]

    def y(self, y):
        """Convert targets (N,) or (N, P) to the units of the model, in their dtype."""
        return _cast_like(y, (y - self.y_mean) / self.y_scale)

    def back(self, mean, var=None):
        """Convert a mean, and a variance if given, (N,) or (N, P), to the units of y."""
        mean = _cast_like(mean, mean * self.y_scale + self.y_mean)
        return mean if var is None else (mean, _cast_like(var, var * np.square(self.y_scale)))

    def moments(self, mean, var):
        """Convert a mean and a variance, (N,) or (N, P), to mean and standard deviation of y."""
        # y_scale squared can overflow float32
        return self.back(mean), (np.sqrt(var) * self.y_scale).astype(var.dtype, copy=False)

    def covariances(self, mean, cov):
        """Convert a mean (N,) or (N, P) and covariances (N, N) or (N, N, P) to those of y."""
        cov = cov * np.square(self.y_scale)
        return self.back(mean), cov.astype(mean.dtype, copy=False)

    def log_units(self, y):
        """Return what the log density of y in the units of the model exceeds that of y by.

        A number, or (N,) if it depends on y.
        """
        return np.sum(np.log(self.y_scale))


KNOTS = 513  # quantiles of a column, from its smallest value to its largest
BEYOND = 1e6  # largest distance from its ends of a value of a map


@dataclass(frozen=True)
class Monotone:
    """A piecewise linear, increasing map of one column.

    Beyond an end it continues with the mean slope of the nearest unit of its values, so that the
    scale of a skewed column differs at its two ends.

    Attributes
    ----------
    knots, values : (K,) arrays, increasing
    """

    knots: np.ndarray
    values: np.ndarray

    @classmethod
    def fit(cls, column, weights=None):
        """Map to normal quantiles of mid-ranks, with mean 0 and variance 1 over the rows.

        None if the column has at most two distinct values.
        """
        from scipy.special import ndtri

        knots, counts = _count_values(column, weights)
        if len(knots) < 3:
            return None
        upto, total = np.cumsum(counts), counts.sum()
        if len(knots) > KNOTS:
            shares = np.linspace(0, 1, KNOTS) * total
            at = np.unique(np.searchsorted(upto, shares).clip(0, len(knots) - 1))
        else:
            at = np.arange(len(knots))
        ranks = (upto - 0.5 * counts)[at] / total
        # the weight of the first or last value carries no information about a tail
        half = 0.5 * min(1.0, counts.min()) / total
        ranks = ranks.clip(half, 1 - half)
        knots, values = knots[at], ndtri(ranks)
        mean, spread = _moments(np.interp(column, knots, values), weights)
        return cls(knots, (values - mean) / spread)

    def __call__(self, x):
        """Return the values at x (N,)."""
        values = _extrapolate(x, self.knots, self.values, self.slopes())
        return np.clip(values, self.values[0] - BEYOND, self.values[-1] + BEYOND)

    def back(self, values):
        """Return x (N,) of values."""
        return _extrapolate(values, self.values, self.knots, [1 / one for one in self.slopes()])

    def slopes(self):
        """Return the slopes below and above."""
        knots, values = self.knots, self.values
        first = min(np.searchsorted(values, values[0] + 1), len(values) - 1)
        last = max(np.searchsorted(values, values[-1] - 1, side="right") - 1, 0)
        return tuple(
            (values[b] - values[a]) / max(knots[b] - knots[a], 1 / LARGEST)
            for a, b in ((0, first), (last, -1))
        )


def _extrapolate(at, x, y, slopes):
    """Interpolate y at x linearly, and continue it with these slopes below and above."""
    below, above = np.minimum(at - x[0], 0), np.maximum(at - x[-1], 0)
    return np.interp(at, x, y) + slopes[0] * below + slopes[1] * above


def keeping_codes(scale, covariance, D):
    """Return the scale of X (N, D) without a change of the columns of codes of a covariance.

    A covariance given by name has none.
    """
    codes = list(covariance.code_columns(D)) if isinstance(covariance, Covariance) else []
    if not codes:
        return scale
    mean, unit = np.array(scale.x_mean), np.array(scale.x_scale)
    mean[codes], unit[codes] = 0, 1
    return replace(scale, x_mean=mean, x_scale=unit)


def _count_values(column, weights):
    """Return the distinct values of a column, increasing, and the weight of each."""
    values, inverse = np.unique(column, return_inverse=True)
    return values, np.bincount(inverse, weights).astype(np.float64)


@dataclass
class ClassScale(Scale):
    """``Scale`` of a classification: ``y`` converts labels to codes 0, 1, ...; ``back`` inverts it.

    classes : (C,) sorted labels
    """

    classes: Any = None

    def set_classes(self, y):
        """Set the classes of labels y (N,); return their number, and the default likelihood."""
        self.classes = np.unique(y)
        if len(self.classes) < 2:
            raise ValueError(
                f"`y` has one class only, {self.classes[0]!s}; a classifier needs at least two"
                " classes"
            )
        C = len(self.classes)
        return C, "bernoulli-probit" if C == 2 else "softmax"

    def y(self, y):
        codes = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
        unknown = np.asarray(self.classes[codes] != y)
        if unknown.any():
            label, known = np.asarray(y)[unknown.argmax()], ", ".join(map(str, self.classes[:12]))
            raise ValueError(
                f"`y` holds the class {label!s}, which is none of those of the model: {known}"
            )
        return codes

    def back(self, codes, var=None):
        return self.classes[np.asarray(codes, np.intp)]


@dataclass
class ColumnScale(Scale):
    """``Scale`` of targets of several columns: ``y`` takes all, ``back`` predictions of y alone.

    squared : tuple of int
        Positions of columns in the squared units of y; other ones than y have no units.
    """

    squared: tuple = ()

    def y(self, y):
        result = np.array(y, np.result_type(y, np.float32))
        result[..., 0] = super().y(y[..., 0])
        for column in self.squared:
            result[..., column] = y[..., column] / np.square(self.y_scale)
        return result


@dataclass
class LogScale(Scale):
    """``Scale`` of targets whose logarithm is modelled: ``y`` and ``back`` are those of y itself.

    ``back`` of a mean alone is the median of y; with a variance it gives the moments of y. Under
    Gaussian noise the predictive distribution of z = log y is N(mu, s^2) at one row, and N(mu, C)
    jointly, so that of y is log-normal:

        E y_i = m_i = exp(mu_i + C_ii / 2),      Cov(y_i, y_j) = m_i m_j (exp(C_ij) - 1),

    its quantiles are exp of those of z, and p(y) = p(z) / y.
    """

    @classmethod
    def fit(cls, X, y, scale_target, shared=False, weights=None):
        return super().fit(X, np.log(y), scale_target, shared, weights)

    def y(self, y):
        return super().y(np.log(y))

    def back(self, mean, var=None):
        if var is not None:
            mean, sd = self.moments(mean, var)
            return mean, np.square(sd)
        with np.errstate(over="ignore"):
            return np.exp(self._back_to_logs(mean)).astype(mean.dtype, copy=False)

    def moments(self, mean, var):
        s2 = np.asarray(var, np.float64) * np.square(self.y_scale)
        with np.errstate(over="ignore"):
            m = np.exp(self._back_to_logs(mean) + 0.5 * s2)
            sd = m * np.sqrt(np.expm1(s2))
            return m.astype(mean.dtype, copy=False), sd.astype(mean.dtype, copy=False)

    def covariances(self, mean, cov):
        C = np.asarray(cov, np.float64) * np.square(self.y_scale)
        with np.errstate(over="ignore"):
            m = np.exp(self._back_to_logs(mean) + 0.5 * np.diagonal(C).T)
            of_y = m[:, None] * m * np.expm1(C)
            return m.astype(mean.dtype, copy=False), of_y.astype(mean.dtype, copy=False)

    def log_units(self, y):
        logs = np.log(y)
        return super().log_units(y) + (logs.sum(axis=1) if logs.ndim == 2 else logs)

    def _back_to_logs(self, mean):
        """Convert means of the model to those of log y, in float64."""
        return np.asarray(mean, np.float64) * self.y_scale + self.y_mean


def _moments(values, weights):
    """Return mean and standard deviation of columns, in float64."""
    if weights is None:
        return values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64)
    mean = np.average(values, axis=0, weights=weights)
    return mean, np.sqrt(np.average(np.square(values - mean), axis=0, weights=weights))


def constant(scale, values):
    """Find columns that are constant up to rounding, from standard deviations or ranges."""
    return scale <= CONSTANT * _largest(values)


def constant_scale(scale, largest):
    """Replace the scale of constant columns, whose largest absolute values are given, by 1."""
    return np.where(scale <= CONSTANT * largest, 1.0, scale)


def _largest(values):
    return np.abs(values).max(axis=0)


def _cast_like(value, result):
    """Cast ``result`` to float32 if ``value`` is float32."""
    return result.astype(np.float32) if getattr(value, "dtype", None) == np.float32 else result


def usable_rows(X, y, weights, labels=False, likelihood=None):
    """Check and return the rows of positive weight: X, y, and weights or None.

    ``likelihood``: that of the targets, if they can have several columns.
    """
    X, y, weights = check_shapes(X, y, weights, labels, likelihood)
    if weights is None:
        return *check_values(X, y, labels), None
    there = weights > 0
    try:
        found = check_values(X[there], y[there], labels)
    except BadEntry as error:
        error.index = (int(np.flatnonzero(there)[error.index[0]]), *error.index[1:])
        raise
    return *found, weights[there].astype(np.float64)


def check_shapes(X, y, weights, labels, likelihood=None):
    """Check everything but the values of X and y; return X, y, and weights or None."""
    for name, array in (("X", X), ("y", y)):
        if hasattr(array, "__cuda_array_interface__"):
            raise TypeError(
                f"`{name}` is on a device; start from arrays on the host, then move the model with"
                " fs.to_device"
            )
    X, y = check.inputs("X", X, values=False), y if labels else check.as_array("y", y)
    several = not labels and check.num_columns(likelihood) > 1
    if several:
        check.all_columns("y", y, likelihood)
    if (
        y.ndim not in ((1,) if labels else (2, 3) if several else (1, 2))
        or len(y) != len(X)
        or y.size == 0
    ):
        raise ValueError(
            f"`y` must be ({len(X)},){'' if labels else f' or ({len(X)}, P)'}, a row for each of"
            f" `X`, got {y.shape}"
        )
    if weights is None:
        return X, y, None
    weights = weighing.shape_weights(weights, y)
    weighing.check_values(weights)
    if weights.ndim != 1:
        raise ValueError(
            f"`weights` must be {y.shape[:1]}, one for each row, to start from, got {weights.shape}"
        )
    return X, y, weights


def refuse_tiny(name, array):
    """Refuse columns that vary, but by so little that its square is 0."""
    spread = np.ptp(array, axis=0) if array.size else np.zeros(1)
    tiny = (spread > 0) & (spread < 1 / LARGEST)
    if tiny.any():
        raise ValueError(
            f"`{name}` varies by {np.ravel(spread)[np.argmax(tiny)]:g}, too little to be squared;"
            " give it other units"
        )


def check_values(X, y, labels):
    """Return X and y in the dtype of X; check that values are finite and can be squared."""
    check.finite("X", X)
    X = X.astype(check.common_dtype(X, names=("X",)), copy=False)
    if not labels:
        check.finite("y", y)
    for name, array in (("X", X),) if labels else (("X", X), ("y", y)):
        if float(max(-array.min(initial=0.0), array.max(initial=0.0))) >= LARGEST:
            largest = array.flat[np.abs(array).argmax()]
            raise ValueError(
                f"`{name}` holds {largest:g}, too large to be squared; give it other units"
            )
        refuse_tiny(name, array)
    return X, y if labels else y.astype(X.dtype, copy=False)
