"""Likelihoods of one latent function: what follows from the formulas of a subclass.

Without a closed form an expectation is a Gauss-Hermite rule, with its exact derivatives.
Predictions are trapezoidal rules over f, whose steps follow the width of p(y | f).
"""

from typing import ClassVar

import numpy as np

from .. import kernels
from ..errors import not_written
from ..records import Marginals
from .averages import average, log_average_of
from .base import CHUNK, NODES, Likelihood, by_chunks, no_order, sum_outputs
from .layout import of_unit
from .quantiles import searched_quantiles, symmetric_quantiles
from .targets import as_targets
from .wide import NODES as FEW, averages, merged, none_wide

WIDTH = 0.7  # of a density as a function of f, unless the likelihood has another


class OneLatent(Likelihood):
    """Base of likelihoods p(y | f) of one latent function; subclasses are records.

    A subclass writes ``log_density``, ``conditional_mean_and_var`` and, for numbers,
    ``conditional_cdf``; the base makes expectations, gradients and predictions of them. If an
    integral has a closed form, a subclass writes it instead: ``expected``, ``moments``,
    ``log_marginal``, ``marginal_cdf``. No method returns NaN for f that are far out.

    The expected log density is a Gauss-Hermite rule, and its gradient is exact for the computed
    value. The predictive log density and distribution function are trapezoidal rules of 8.4
    standard deviations, whose steps follow ``width``: densities below exp(-14) are less accurate.
    Quantiles are searched for in the distribution function. docs/likelihood.md has an example.

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
    >>> f = fs.records.Marginals(np.zeros(3), np.ones(3))
    >>> ell, f_bar, _ = fs.likelihoods.Ordinal(-0.5, np.ones(1)).expected_log_prob(np.arange(3), f)
    >>> round(ell, 2), f_bar.mean.shape
    (-4.48, (3,))
    """

    num_nodes: int | None = 20  # a subclass can make it a setting: fs.records.static(default=20)
    settings = NODES
    chunk: ClassVar[int] = CHUNK // 8  # data per chunk of predictions
    # distance of the singularities of log p from the real line, if ``tables`` is written
    singularities: float | None = None

    def log_density(self, *rows, need=True):
        """log p(y | f), its derivative in f, and those in the parameters in the order of fields.

        ``rows`` are the columns of targets (N,) and f (nodes, N), in float64. Results are
        (nodes, N). Only the first is read without ``need``.
        """
        raise not_written(self, "log_density", "likelihood")

    def conditional_mean_and_var(self, f):
        """Mean and variance of y given f (nodes, N)."""
        raise not_written(self, "conditional_mean_and_var", "likelihood")

    def conditional_cdf(self, *rows):
        """P(y <= Y | f) of targets (N,), any real numbers, and f (nodes, N)."""
        raise TypeError(no_order(self))

    def width(self, *columns):
        """Distance in f over which p(y | f) varies, a number or (N,): predictions resolve it."""
        return WIDTH

    # --- what follows, or a closed form -----------------------------------------------------------

    def rows(self, Y, f):
        """Return the columns of targets, and mean and variance of f, in float64."""
        Y = as_targets(Y, np.float64)
        columns = (Y,) if len(self.target_columns) == 1 else tuple(Y)
        return *columns, *(x.astype(np.float64, copy=False) for x in (f.mean, f.var))

    def expected(self, Y, f, need=True):
        rows, width = self.rows(Y, f), None if self.num_nodes is not None else self.singularities
        if width is None or none_wide(f.var, width):
            return self._by_nodes(need, *rows)
        wide, new = self.where_wide(*rows, need=need)
        return merged(wide, new, lambda *row: self._by_nodes(need, *row), *rows)

    def _by_nodes(self, need, *rows):
        *columns, mean, var = rows
        F = kernels.gauss_hermite_nodes(mean, var, int(self.num_nodes or FEW))
        value, *slopes = self.log_density(*columns, F, need=need)
        if not need:
            return [kernels.gauss_hermite(value)]
        self._check_count("log_density", slopes, ("f",))
        slope, *own = slopes
        bars = kernels.gauss_hermite_vjp(np.zeros(mean.shape, like=F) + 1, slope, mean, var)
        return [kernels.gauss_hermite(value), *bars, *map(kernels.gauss_hermite, own)]

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
        means, variances = self.conditional_mean_and_var(F)
        centre = kernels.gauss_hermite(means)
        return centre, kernels.gauss_hermite(variances + np.square(means - centre))

    def log_marginal(self, *rows):
        """log E p(y | f), (n,), of columns of targets, mean and variance."""
        *columns, mean, var = rows
        return log_average_of(
            lambda F: self.log_density(*columns, F, need=False)[0],
            mean,
            np.sqrt(var),
            self.width(*columns),
        )

    def marginal_cdf(self, *rows):
        """P(y <= Y), (n,), of columns of targets, mean and variance."""
        *columns, mean, var = rows
        if self.counts:
            columns[0] = np.floor(columns[0])
        return average(
            lambda F: self.conditional_cdf(*columns, F), mean, np.sqrt(var), self.width(*columns)
        )

    # --- predictions ------------------------------------------------------------------------------

    def predict_mean_and_var(self, f):
        *_, mean, var = self.rows(of_unit(self, 0 * f.mean), f)
        with np.errstate(over="ignore"):
            moments = self.moments(mean, var)
            return tuple(x.astype(f.mean.dtype, copy=False) for x in moments)

    def predict_log_density(self, Y, f):
        return sum_outputs(by_chunks(self.log_marginal, f.mean, self.chunk, *self.rows(Y, f)))

    def predict_cdf(self, Y, f):
        return by_chunks(self.marginal_cdf, f.mean, self.chunk, *self.rows(Y, f))

    def predict_quantiles(self, levels, f):
        def cdf(y, mean, var):
            return self.marginal_cdf(*self.rows(of_unit(self, y), Marginals(mean, var)))

        moments = self.predict_mean_and_var(f)
        return searched_quantiles(levels, *moments, cdf, self.counts, f.mean, f.var)


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
