"""Likelihoods of one latent function: what follows from the formulas of a subclass.

Without a closed form an expectation is a Gauss-Hermite rule, with its exact derivatives.
Predictions are trapezoidal rules over f, whose steps shrink until two rules agree.
"""

import functools
import inspect
from typing import ClassVar

import numpy as np

from .. import kernels
from ..errors import not_written, warn
from ..records import Marginals
from ..runtime.devices import constant_like
from .averages import CLOSE_ENOUGH, ENDS, crossing, log_average_of
from .base import CHUNK, NODES, SMALLEST, Likelihood, apply_to_chunks, no_order, sum_outputs
from .layout import add_unit_columns
from .quantiles import search_quantiles, symmetric_quantiles
from .targets import as_targets
from .wide import NODES as FEW, averages, merge, none_wide

TURNS = 30  # of the bisection for a mode or an edge


class OneLatent(Likelihood):
    """Base of likelihoods p(y | f) of one latent function; subclasses are records.

    A subclass writes ``log_density``, ``conditional_mean_and_var`` and, for numbers,
    ``conditional_cdf``; ``check_targets`` refuses invalid targets. The base makes expectations,
    gradients and predictions of them: leave all other methods alone, unless an integral has a
    closed form. Then write ``expected``, ``moments``, ``log_marginal`` or ``marginal_cdf``.

    The expected log density is a Gauss-Hermite rule, and its gradient is exact for the computed
    value. The predictive log density and distribution function are trapezoidal rules around the
    mode of p(y | f) or the edge of its distribution function, found by bisection. A rule is refined
    until half of its nodes give the same; a warning says where they never do. A density below
    exp(-30) is less accurate, and one with several narrow modes in f needs its own
    ``log_marginal``. Quantiles are searched for in the distribution function.
    docs/likelihood.md explains more.

    With ``num_nodes=None``, the default in the package, expected log densities take 20 nodes, and a
    table where q(f) is wide; a number is that of the nodes at any variance. The errors are

    ===========================  =====  ====  ====  ====  ====
    marginal variance                1     4    10    30   100
    ===========================  =====  ====  ====  ====  ====
    by default                    1e-9  1e-9  1e-9  1e-9  1e-9
    20 nodes of BernoulliLogit   3e-11  2e-6  2e-4  4e-3  4e-2
    20 nodes of BernoulliProbit  3e-10  5e-6  3e-4  6e-3  6e-2
    20 nodes of Ordinal           1e-9  2e-5  6e-4  2e-2   0.1
    20 nodes of Beta             7e-10  2e-5  2e-3  3e-2   0.2
    20 nodes of StudentT          2e-4  1e-2  4e-2   0.2   0.3
    ===========================  =====  ====  ====  ====  ====

    Examples
    --------
    >>> @fs.records.record
    ... class Logistic(fs.likelihoods.OneLatent):
    ...     scale: object = fs.records.leaf("positive", default=1.0)
    ...     def log_density(self, Y, f, need=True):
    ...         scale, z = float(self.scale), (Y - f) / float(self.scale)
    ...         t = np.tanh(0.5 * z)
    ...         log_p = -np.logaddexp(z, 0) - np.logaddexp(-z, 0) - np.log(scale)
    ...         return log_p, t / scale, (z * t - 1) / scale
    ...     def conditional_mean_and_var(self, f):
    ...         return f, np.full_like(f, (np.pi * float(self.scale)) ** 2 / 3)
    ...     def conditional_cdf(self, Y, f):
    ...         return 0.5 + 0.5 * np.tanh(0.5 * (Y - f) / float(self.scale))
    >>> logistic = fs.replace(model, likelihood=Logistic(0.2))
    >>> round(fs.elbo(logistic, X, Y), 2)
    -136.9
    """

    num_nodes: int | None = 20  # a subclass can make it a setting: fs.records.static(default=20)
    settings = NODES
    chunk: ClassVar[int] = CHUNK // 8  # data per chunk of predictions
    # distance of the singularities of log p from the real line, if ``tables`` is written
    singularities: float | None = None

    def log_density(self, *rows, need=True):
        """log p(y | f), its derivative in f, and those in the parameters in the order of fields.

        ``rows`` are the columns of targets (N,) and f (nodes, N), in float64. The result is always
        a tuple of arrays (nodes, N), one value per node and datum, without sums; without ``need``,
        ``(value,)`` is enough. All must be finite: limit exponents.
        """
        raise not_written(self, "log_density", "likelihood")

    def conditional_mean_and_var(self, f):
        """Mean and variance of y given f (nodes, N), as two arrays of that shape."""
        raise not_written(self, "conditional_mean_and_var", "likelihood")

    def conditional_cdf(self, *rows):
        """P(y <= Y | f) of targets (N,), any real numbers, and f (nodes, N), in the shape of f."""
        raise TypeError(no_order(self))

    # --- what follows, or a closed form -----------------------------------------------------------

    def rows(self, Y, f):
        """Return the columns of targets, and mean and variance of f, in float64."""
        Y = as_targets(Y, np.float64)
        columns = (Y,) if len(self.target_columns) == 1 else tuple(Y)
        return *columns, *(x.astype(np.float64, copy=False) for x in (f.mean, f.var))

    def expected(self, Y, f, need=True):
        rows, width = self.rows(Y, f), None if self.num_nodes is not None else self.singularities
        if width is None or none_wide(f.var, width):
            return self._average_at_nodes(need, *rows)
        wide, new = self.where_wide(*rows, need=need)
        return merge(wide, new, lambda *row: self._average_at_nodes(need, *row), *rows)

    def _average_at_nodes(self, need, *rows):
        *columns, mean, var = rows
        F = kernels.gauss_hermite_nodes(mean, var, int(self.num_nodes or FEW))
        value, *slopes = self._log_density(*columns, F, need=need)
        if not need:
            return [kernels.gauss_hermite(value)]
        self._check_count("log_density", slopes, ("f",))
        slope, *own = slopes
        bars = kernels.gauss_hermite_vjp(np.zeros(mean.shape, like=F) + 1, slope, mean, var)
        return [kernels.gauss_hermite(value), *bars, *map(kernels.gauss_hermite, own)]

    def _log_density(self, *rows, need=True):
        """Return ``log_density`` after a look at the shapes of what it returned."""
        try:
            found = self.log_density(*rows, need=need)
        except TypeError:
            if "need" in inspect.signature(self.log_density).parameters:
                raise
            raise TypeError(
                f"{type(self).__name__}.log_density takes no `need`; write"
                " log_density(self, Y, f, need=True)"
            ) from None
        what = "the log density and its derivatives"
        found = self._check_shapes("log_density", found if need else found[:1], rows[-1], what)
        return found

    def _check_shapes(self, method, found, f, what):
        """Return a tuple of arrays if all end in the shape of ``f``; else name the ``method``."""
        if not isinstance(found, tuple):
            got = f"not {type(found).__name__}"
        elif not all(np.shape(x)[-f.ndim :] == f.shape for x in found):
            got = f"got {', '.join(str(np.shape(x)) for x in found)}"
        else:
            return found
        raise TypeError(
            f"{type(self).__name__}.{method} must return a tuple: {what}, each (nodes, N) ="
            f" {f.shape} as f, {got}"
        )

    def where_wide(self, *rows, need=True):
        """Return where q(f) is too wide for nodes of its own, and ``expected`` there, by tables."""
        *columns, mean, var = rows
        feature, which, *targets = self.tables(*columns)

        def functions(nodes):
            value, _, *own = self.log_density(*targets, nodes)
            return np.stack([value, *own], axis=1)

        wide, values, *slopes = averages(functions, feature, Marginals(mean, var), which, need)
        if not need:
            return wide, [values[0]]
        return wide, [values[0], *(slope[0] for slope in slopes), *values[1:]]

    def tables(self, *columns):
        """Return a ``wide.Feature``, the table of each datum (-1: none), and the tables' targets.

        Log p is tabulated once for each of C different targets (C, 1), such as labels.
        """
        raise not_written(self, "tables", "likelihood")

    def moments(self, mean, var):
        """Mean and variance of y under f ~ N(mean, var); they can overflow to infinity."""
        F = kernels.gauss_hermite_nodes(mean, var, int(self.num_nodes or FEW))
        found = self.conditional_mean_and_var(F)
        method = "conditional_mean_and_var"
        means, variances = self._check_shapes(method, found, F, "mean and variance of y")
        centre = kernels.gauss_hermite(means)
        return centre, kernels.gauss_hermite(variances + np.square(means - centre))

    def log_marginal(self, *rows):
        """log E p(y | f), (n,), of columns of targets, mean and variance."""
        *columns, mean, var = rows
        sd = np.sqrt(np.maximum(var, SMALLEST))

        def rises(f):
            with np.errstate(all="ignore"):  # far out a density can be 0
                return self._log_density(*columns, f[None])[1][0] > 0

        def log_p(*row):
            return self._log_density(*row, need=False)[0]

        centre = crossing(rises, mean - ENDS * sd, mean + ENDS * sd, TURNS)
        return self._verify(*log_average_of(log_p, centre, mean, sd, *columns), "log_density")

    def marginal_cdf(self, *rows):
        """P(y <= Y), (n,), of columns of targets, mean and variance."""
        *columns, mean, var = rows
        sd = np.sqrt(np.maximum(var, SMALLEST))
        if self.counts:
            columns[0] = np.floor(columns[0])

        def cdf(*row):
            found = self.conditional_cdf(*row)
            return self._check_shapes("conditional_cdf", (found,), row[-1], "P(y <= Y | f)")[0]

        def log_cdf(*row):
            with np.errstate(divide="ignore"):
                return np.log(cdf(*row))

        z, weights = constant_like(mean, _first_rule)
        parts = weights * cdf(*columns, mean + sd * z)
        value = parts.sum(axis=0)
        error = np.abs(value - 2 * parts[::2].sum(axis=0))
        rough = np.argwhere(~(error <= CLOSE_ENOUGH[0]))[:, 0]
        if rough.size:  # nodes crowd around the edge
            mean, sd, *columns = (row[rough] for row in (mean, sd, *columns))
            ends = mean - ENDS * sd, mean + ENDS * sd
            left, right = cdf(*columns, np.stack(ends))
            half, falls = 0.5 * (left + right), left > right
            edge = crossing(lambda f: (cdf(*columns, f[None])[0] > half) == falls, *ends, TURNS)
            logs, still = log_average_of(log_cdf, edge, mean, sd, *columns, edge=True)
            value[rough], rough = np.exp(logs), rough[still]
        return self._verify(value, rough, "conditional_cdf")

    def _verify(self, value, rough, method):
        """Return ``value``, and warn of the data whose rules differ, or raise for NaN."""
        kind = type(self).__name__
        if np.isnan(value).any():
            raise ValueError(f"{kind}.{method} returned NaN for some f; limit exponents")
        if rough.size:
            warn(
                f"{kind}.{method} changes too fast in f to be averaged for {rough.size} data:"
                " predictions of them are inexact; write log_marginal and marginal_cdf"
            )
        return value

    # --- predictions ------------------------------------------------------------------------------

    def predict_mean_and_var(self, f):
        *_, mean, var = self.rows(add_unit_columns(self, 0 * f.mean), f)
        with np.errstate(over="ignore"):
            moments = self.moments(mean, var)
            return tuple(x.astype(f.mean.dtype, copy=False) for x in moments)

    def predict_log_density(self, Y, f):
        return sum_outputs(apply_to_chunks(self.log_marginal, f.mean, self.chunk, *self.rows(Y, f)))

    def predict_cdf(self, Y, f):
        return apply_to_chunks(self.marginal_cdf, f.mean, self.chunk, *self.rows(Y, f))

    def predict_quantiles(self, levels, f):
        def cdf(y, mean, var):
            return self.marginal_cdf(*self.rows(add_unit_columns(self, y), Marginals(mean, var)))

        moments = self.predict_mean_and_var(f)
        return search_quantiles(levels, *moments, cdf, self.counts, f.mean, f.var)


@functools.lru_cache
def _first_rule():
    """Return nodes and weights of a trapezoidal rule for N(0, 1), (2, nodes, 1)."""
    z = 0.15 * np.arange(-56.0, 57.0)[:, None]
    return np.stack([z, 0.15 * np.exp(-0.5 * z * z) / float(np.sqrt(2 * np.pi))])


class Symmetric(OneLatent):
    """Base of y = f + noise, for symmetric and unimodal noise: see ``symmetric_quantiles``."""

    def halves(self, r, var):
        """Masses of y - mean between 0 and ``r`` > 0 and beyond it, and its density at ``r``."""
        raise NotImplementedError

    def noise(self, tail):
        """Distance from its centre beyond which the noise has this mass."""
        raise NotImplementedError

    def marginal_cdf(self, y, mean, var):
        r = y - mean
        within, beyond, _ = self.halves(abs(r), var)
        return np.where(r < 0, beyond, 0.5 + within)

    def predict_quantiles(self, levels, f):
        return symmetric_quantiles(levels, f, self.halves, self.noise, self.chunk)
