"""A model at test inputs, chunk by chunk: mixtures of the draws of its hidden layers.

Given these draws, the last layer of a deep GP is Gaussian at each row: its predictions are mixtures
of S Gaussian parts of equal weight. Any other model has one part, whose predictions are those of
the likelihood.
"""

import numpy as np

from .. import check, kernels
from ..likelihoods.layout import add_unit_columns, laid_out
from ..records import Marginals, is_record, leaves, replace
from .protocol import kind_of

HALVINGS = 54  # of the bracket of a quantile: float64 has 53 bits
NAMES = ("Xs", "Ys")  # names of the arguments in messages


class AtInputs:
    """Checked test inputs and targets of a call, and the pass of its model.

    Kuu is factorised once. ``more`` are options of the kind of model, for its ``points``.

    Attributes
    ----------
    model, X, Y, jitter
        Checked; Y is ``ABSENT`` for a call without targets.
    layer : LayerProtocol
    mixture : DrawMixture
        Of the draws of a row; of one part for most models.
    """

    def __init__(
        self,
        model,
        Xs,
        Ys=check.ABSENT,
        *,
        jitter,
        chunk_size=None,
        need=(),
        joint=False,
        **more,
    ):
        kind = kind_of(model, Xs)
        self.model, self.X, self.Y, dtype = kind.checked(model, Xs, Ys, NAMES)
        self.jitter = check.jitter_amount(jitter, dtype)
        points = {} if joint else kind.points(self.model, self.X, more)
        columns = 0 if joint or points else len(self.X)
        self.layer = layer = kind.begin(self.model, self.jitter, columns, need, **points)
        self.mixture = DrawMixture(layer.samples, self.model.likelihood)
        numbers = layer.samples * max(M * each for M, each in layer.sizes)
        self.size = max(1, kernels.chunk_numbers(self.X) // numbers)
        if chunk_size is not None:
            self.size = check.whole("chunk_size", chunk_size)

    @property
    def slices(self):
        """The rows of each chunk."""
        return [slice(start, start + self.size) for start in range(0, len(self.X), self.size)]

    def marginals(self):
        """Return the marginals (..., N) at all rows, for models with one draw of a row."""
        parts = [self.layer.forward(self.X[rows], rows)[0] for rows in self.slices]
        f = Marginals(*(join([getattr(f, name) for f in parts]) for name in ("mean", "var")))
        self.check_results(total(f.var))
        return f

    def means(self):
        """Return the means (..., N) alone, for a pass with the need ``MEANS``."""
        means, seen, S = [], 0.0, self.layer.samples
        for rows in self.slices:
            mean = self.layer.means(self.X[rows], rows)
            means.append(mean if S == 1 else self.mixture.average(split_samples(mean, S)))
            seen = seen + total(means[-1])
        self.check_results(seen)
        return join(means)

    def gather(self, function):
        """Return the arrays (..., n) of ``function(f, y)`` at all rows, as (N, ...).

        f are the marginals, y the targets. The function is called once,
        or for each chunk of a model with several draws of a row.
        """
        found = [function(f, y) for f, y in self._pieces()]
        return tuple(trailing(join(part)) for part in zip(*found, strict=True))

    def _pieces(self):
        if self.layer.samples == 1:
            yield self.marginals(), self.Y
            return
        seen = 0.0
        for rows in self.slices:
            f, _ = self.layer.forward(self.X[rows], rows)
            seen = seen + total(f.var)
            y = None if self.Y is check.ABSENT else self.Y[..., rows]
            yield f, y
        self.check_results(seen)

    def check_results(self, seen):
        """Report clamped variances; ``seen`` is a number that is finite if all results are."""
        check.report_clamped(self.layer.clamped)
        check.result(seen, self.model)


# --- mixtures of draws ---


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


# --- arrays ---


def has_variance(full_cov, var, name="full_cov"):
    """Return whether a prediction has a variance or, with ``full_cov``, a covariance."""
    if check.flag(name, full_cov) and not check.flag("var", var):
        raise ValueError(
            f"predict_f: `{name}` asks for covariances, `var=False` for none: leave one out"
        )
    return check.flag("var", var)


def join(parts):
    """Concatenate arrays (..., n)."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def stack_rows(parts):
    """Concatenate the rows of arrays, or of records of arrays of rows."""
    if not is_record(parts[0]):
        return np.concatenate(parts)
    columns = zip(*([value for _, _, value in leaves(part)] for part in parts), strict=True)
    names = (path for path, _, _ in leaves(parts[0]))
    return replace(parts[0], **dict(zip(names, map(np.concatenate, columns), strict=True)))


def total(array):
    """Sum all entries in float64; the sum is finite only if they are."""
    if is_record(array):
        return sum(total(value) for _, _, value in leaves(array))
    return np.add.reduce(array, axis=None, dtype=np.float64)


def trailing(array):
    """Move the outputs from the leading axis, inside the package, to the trailing axis of users."""
    return np.ascontiguousarray(array.T, like=array) if array.ndim == 2 else array
