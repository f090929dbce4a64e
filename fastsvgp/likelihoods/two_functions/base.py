"""Likelihoods of two latent functions per output without closed forms: a tensor quadrature rule.

Expected log densities. With f ~ N(m, v) and h ~ N(g, u) independent, nodes f_i = m + sqrt(v) z_i,
h_j = g + sqrt(u) z_j of a Gauss-Hermite rule with weights w, and l = log p(y | f, h),

    E l = sum_ij w_i w_j l(f_i, h_j)

    d/dm = sum_ij w_i w_j l_f,    d/dv = sum_ij w_i z_i w_j l_f / (2 sqrt(v)),

and alike for g and u: the exact derivatives of the rule. All three averages of a tensor are one
product of a (3, n^2) matrix of weights with it. Data are processed in chunks, so that the tensors
stay in cache.

Predictions. log p is smooth in f and h, but p need not be: a count of 1,000 has a relative standard
deviation of at least 0.03, which is its width in a log mean f. Trapezoidal rules with steps of that
width, times a constant below 1, converge geometrically. If q(f) is much wider than p, the nodes are
c + width sinh(u) at equal distances of u, with c where p is largest: their number grows with the
logarithm of the ratio.
"""

import functools

import numpy as np

from ... import kernels
from ...errors import not_written
from ...kernels.common.quadrature_rules import raised, rule
from ...records import Marginals
from ...runtime import deferred_checks
from ...runtime.devices import constant_like
from ..base import NODES, ON_DEVICE, SMALLEST, Likelihood, apply_to_chunks, sum_outputs
from ..quantiles import search_quantiles
from ..targets import as_targets

TENSOR_NUMBERS = 2**17  # numbers of a tensor of one chunk: some of them stay in the cache
ROWS = 64  # data per chunk of predictions
# rules of predictions: the distance of nodes, in units of the width of the integrand, and where it
# ends, in standard deviations from the mean
FOR_DENSITY, FOR_CDF, ROUGH = (0.7, 8.0), (0.9, 6.5), (1.5, 5.0)
SPREAD = 1e-3  # relative width of the bracket around a quantile by the rough rule
WIDTH = 0.7  # of a density as a function of log scale or log dispersion
FAR = 4.0  # standard deviations of h at which the width in f is evaluated
MOST_NODES = 2**11
# a width below this share of the standard deviation of f takes the nodes c + width sinh(u), at
# this share of the ordinary steps
CROWDED, STEP_OF_SINH = 0.05, 0.17
BISECTIONS = 60  # of the interval of q(f): they find c


class TwoLatents(Likelihood):
    """Base of likelihoods p(y | f, h) of two latent functions per output; subclasses are records.

    A subclass writes ``log_density``, ``conditional_mean_and_var`` and, for numbers,
    ``conditional_cdf``; and ``width`` if p(y | f, h) can be narrower than 0.7 in f, as predictions
    are wrong without. The expected log density and the predictive moments are averages over
    ``num_nodes^2`` Gauss-Hermite nodes; the gradient is exact for the computed value at any number
    of nodes. Predictive densities and distribution functions are trapezoidal rules over both
    functions, of 8 and 6.5 standard deviations, whose steps follow ``width``: densities below
    exp(-14) are less accurate. Quantiles are searched for in the distribution function.

    A method receives ``Y`` (N,), ``f`` (n, 1, N) and ``h`` (1, k, N) in float64 and returns arrays
    that broadcast to (n, k, N). Terms of h alone, such as a gamma function of exp(h), then take k
    evaluations per datum, not n k: write them as functions of ``h``, and let sums and products with
    terms of ``f`` broadcast. No method may return NaN, also for f and h that are far out.

    A subclass has no parameters with gradients, only settings. docs/likelihood.md has an example.

    Examples
    --------
    >>> f = fs.records.Marginals(np.zeros((2, 40)), np.ones((2, 40)))
    >>> counts = np.arange(40) % 4
    >>> noisy = fs.likelihoods.HeteroskedasticNegativeBinomial()
    >>> ell, f_bar, _ = noisy.expected_log_prob(counts, f)
    >>> round(ell, 2), f_bar.mean.shape
    (-83.3, (2, 40))
    """

    latents_per_output = 2
    num_nodes = (
        20  # a subclass can make it a setting: num_nodes: int = fs.records.static(default=20)
    )
    settings = NODES

    def log_density(self, Y, f, h):
        """log p(Y | f, h) and its derivatives in f and h: three arrays."""
        raise not_written(self, "log_density", "likelihood")

    def conditional_mean_and_var(self, f, h):
        """Mean and variance of y given f and h."""
        raise not_written(self, "conditional_mean_and_var", "likelihood")

    def conditional_cdf(self, Y, f, h):
        """P(y <= Y | f, h), for any real ``Y``."""
        raise TypeError(
            f"a {type(self).__name__} likelihood has no distribution function: write its"
            " conditional_cdf"
        )

    def width(self, Y, h):
        """Distance (N,) in f over which p(Y | f, h) varies: the steps of predictions follow it.

        Write it if p(Y | f, h) can be narrower than 0.7 in f, such as a gamma density of large
        shape. ``Y`` and ``h`` are (N,). Where it is below a twentieth of the standard deviation of
        f, nodes crowd around the f at which p(Y | f, h) is largest for the mean of h.
        """
        return WIDTH + 0.0 * h

    def expected(self, Y, f, need=True):
        def terms(average, F, H, y):
            value, slope_f, slope_h = self.log_density(y, F, H)
            ell = average(value)[0]
            if not need:
                return (ell,)
            (of_m, of_v, _), (of_g, _, of_u) = average(slope_f), average(slope_h)
            return ell, of_m, of_g, of_v, of_u

        values = self._apply_to_data(terms, 5 if need else 1, f, Y)
        values[3:] /= 2 * np.sqrt(raised(f.mean, f.var)) if need else 1
        return (values[0], values[1:3], values[3:])[: 3 if need else 1]

    def predict_mean_and_var(self, f):
        def moments(average, F, H):
            means, variances = self.conditional_mean_and_var(F, H)
            mean = average(means)[0]
            return mean, average(variances + np.square(means - mean))[0]

        with np.errstate(over="ignore"):
            return tuple(self._apply_to_data(moments, 2, f).astype(f.mean.dtype, copy=False))

    def predict_log_density(self, Y, f):
        def log_density(log_w, F, H, y):
            logs = self.log_density(y, F, H)[0] + log_w
            top = logs.max(axis=(0, 1))
            return top + np.log(np.exp(logs - top).sum(axis=(0, 1)))

        return sum_outputs(self._apply_on_grid(log_density, Y, f, FOR_DENSITY))

    def predict_cdf(self, Y, f):
        return self._cdf(Y, f, FOR_CDF)

    def predict_quantiles(self, levels, f):
        # a rough rule finds the start of the search by the fine one
        mean, var = self.predict_mean_and_var(f)
        out = np.empty((len(levels), *mean.shape), mean.dtype, like=mean)
        for k, level in enumerate(levels):
            rough = self._quantile(level, mean, var, f, ROUGH)
            spread = SPREAD * np.abs(rough)
            with np.errstate(invalid="ignore"):  # infinite quantiles
                low = rough - np.maximum(0.5 * spread, self.counts)
            out[k] = self._quantile(level, low, np.square(spread), f, FOR_CDF)
        return out

    def check_settings(self):
        super().check_settings()
        own = [name for name, kind in self._record_fields if kind != "static"]
        if own and type(self).expected is TwoLatents.expected:
            raise TypeError(
                f"{type(self).__name__}: `{own[0]}` is a parameter, and"
                " fastsvgp.likelihoods.TwoLatents has no"
                " gradient of it; make it a setting (fastsvgp.records.static), or extend `expected`"
            )

    def _apply_to_data(self, function, count, f, *targets):
        """Apply ``function(average, F, H, *targets)`` to chunks: ``count`` arrays of their shape.

        ``average(tensor)`` has three rows: the mean under q, and with factors z_i and z_j.
        """
        (m, g), (v, u) = f.mean, f.var
        out = np.empty((count, m.size), like=m)
        targets = (as_targets(y, np.float64) for y in targets)
        rows, num = [np.ravel(array) for array in (m, v, g, u, *targets)], int(self.num_nodes)
        weights = constant_like(m, _weights, num)

        def average(tensor):
            shape = (num, num, tensor.shape[-1])
            if tensor.shape != shape:  # a broadcast array is read-only, which matmul copies
                tensor = np.broadcast_to(tensor, shape)
            return kernels.matmul(weights, tensor.reshape(num * num, -1))

        size = max(1, TENSOR_NUMBERS // num**2)
        size = size * ON_DEVICE if deferred_checks.on_device(out) else size
        for start in range(0, m.size, size):
            at = slice(start, start + size)
            m_at, v_at, g_at, u_at, *y = (row[at] for row in rows)
            F = kernels.gauss_hermite_nodes(m_at, v_at, num)[:, None]
            H = kernels.gauss_hermite_nodes(g_at, u_at, num)[None]
            for row, values in zip(out, function(average, F, H, *y), strict=True):
                row[at] = values
        return out.reshape(count, *m.shape)

    def _quantile(self, level, mean, var, f, rule):
        def cdf(y, *moments):
            m, g, v, u = (moment.astype(np.float64, copy=False) for moment in moments)
            return self._cdf(y, Marginals(np.stack([m, g]), np.stack([v, u])), rule)

        return search_quantiles([level], mean, var, cdf, self.counts, *f.mean, *f.var)[0]

    def _cdf(self, Y, f, rule):
        Y = np.floor(Y) if self.counts else Y

        def average(log_w, F, H, y):
            return (np.exp(log_w) * self.conditional_cdf(y, F, H)).sum(axis=(0, 1))

        return self._apply_on_grid(average, Y, f, rule)

    def _apply_on_grid(self, function, Y, f, rule):
        """Apply ``function(log_weights, F, H, Y)`` to chunks, with the nodes of predictions."""

        def part(y, m, v, g, u):
            m, g = (x.astype(np.float64, copy=False) for x in (m, g))
            sd, sd_h = (np.sqrt(np.maximum(x, SMALLEST, dtype=np.float64)) for x in (v, u))
            width = np.minimum(*(self.width(y, g + shift * sd_h) for shift in (-FAR, FAR)))
            width, out = np.minimum(width, WIDTH) / sd, np.empty(m.shape, like=sd)
            wide = width < CROWDED
            for where, nodes in ((~wide, _trapezoid), (wide, self._crowd_nodes)):
                at = np.argwhere(where)[:, 0]
                if at.size:
                    *row, s, s_h, w = (x[at] for x in (y, m, g, sd, sd_h, width))
                    y_at, m_at, g_at = row
                    z, log_w = nodes(w, *rule, *row, s)
                    z_h, log_w_h = _trapezoid(WIDTH / s_h, *rule)
                    F, H = (m_at + s * z)[:, None], (g_at + s_h * z_h)[None]
                    out[at] = function(log_w[:, None] + log_w_h, F, H, y_at)
            return out

        (m, g), (v, u) = f.mean, f.var
        return apply_to_chunks(part, m, ROWS, as_targets(Y, np.float64), m, v, g, u)

    def _crowd_nodes(self, widths, step, ends, y, m, g, sd):
        """Return as ``_trapezoid`` the rules whose nodes crowd where log p(y | f, g) is largest."""
        low, high = (0 * sd + sign * ends for sign in (-1, 1))
        for _ in range(BISECTIONS):
            z = 0.5 * (low + high)
            with np.errstate(all="ignore"):  # the density of a target far out can be 0
                slope = self.log_density(y, (m + sd * z)[None, None], g[None, None])[1]
            rises = np.broadcast_to(slope, (1, 1, z.size))[0, 0] > 0
            low, high = np.where(rises, z, low), np.where(rises, high, z)
        low, high = (np.arcsinh((sign * ends - z) / widths) for sign in (-1, 1))
        # on a device this copies to the host
        last = 1 + int(float((high - low).max()) / (STEP_OF_SINH * step))
        u = low + (high - low) * (np.arange(last + 1, like=sd) / last)[:, None]
        nodes = z + widths * np.sinh(u)
        log_w = np.log(np.cosh(u)) - 0.5 * nodes * nodes
        return nodes, log_w - np.log(np.exp(log_w).sum(axis=0))


def _trapezoid(widths, step, ends, *_):
    """Return nodes (k, n) of trapezoidal rules for N(0, 1) and the logs of their weights.

    ``widths`` (n,) are those of the functions. All rules have as many nodes as the longest; those
    beyond its ends are moved there, and have no weight.
    """
    step = np.maximum(step * np.minimum(widths, 1), 2 * ends / MOST_NODES)
    end = 1 + int(ends / float(step.min()))  # on a device this copies to the host
    z = step * np.arange(-end, end + 1, like=widths)[:, None]
    log_w = -0.5 * z * z
    return np.clip(z, -ends - 1, ends + 1), log_w - np.log(np.exp(log_w).sum(axis=0))


@functools.lru_cache
def _weights(num):
    """Return the weights w w', and with factors z_i and z_j, as rows (3, num^2)."""
    z, w = rule(num)
    pairs = (w, w), (w * z, w), (w, w * z)
    weights = np.stack([np.multiply.outer(a, b).ravel() for a, b in pairs])
    weights.flags.writeable = False
    return weights
