"""Likelihoods of two latent functions per output without closed forms: a tensor quadrature rule.

With f ~ N(m, v) and h ~ N(g, u) independent, nodes f_i = m + sqrt(v) z_i, h_j = g + sqrt(u) z_j of
a Gauss-Hermite rule with weights w, and l = log p(y | f, h),

    E l = sum_ij w_i w_j l(f_i, h_j)

    d/dm = sum_ij w_i w_j l_f,    d/dv = sum_ij w_i z_i w_j l_f / (2 sqrt(v)),

and alike for g and u: the exact derivatives of the rule. All three averages of a tensor are one
product of a (3, n^2) matrix of weights with it. Data are processed in chunks, so that the tensors
stay in cache.
"""

import functools

import numpy as np

from .. import kernels
from ..kernels.quadrature_rules import raised, rule
from ..records import Marginals
from ..runtime import deferred_checks
from .base import NODES, ON_DEVICE, Likelihood, sum_outputs, total, weighted_finite
from .quantiles import searched_quantiles

TENSOR_NUMBERS = 2**16  # numbers of a tensor of one chunk: some of them stay in the cache


class TwoLatents(Likelihood):
    """Base of likelihoods p(y | f, h) of two latent functions per output; subclasses are records.

    A subclass writes ``log_density``, ``conditional_mean_and_var`` and, for numbers,
    ``conditional_cdf``; this class averages them over a tensor rule of ``num_nodes``^2
    Gauss-Hermite nodes. The gradient is exact for the computed value at any number of nodes.
    Predictive densities and distribution functions are those of one finite mixture, so that they
    agree with each other.

    A method receives ``Y`` (N,), ``f`` (n, 1, N) and ``h`` (1, n, N) in float64 and returns arrays
    that broadcast to (n, n, N). Terms of h alone, such as a gamma function of exp(h), then take n
    evaluations per datum, not n^2: write them as functions of ``h``, and let sums and products with
    terms of ``f`` broadcast. A method must be finite for any finite f and h.

    A subclass has no parameters with gradients, only settings. docs/likelihood.md has an example.

    Examples
    --------
    >>> f = fs.Marginals(np.zeros((2, 40)), np.ones((2, 40)))
    >>> counts = np.arange(40) % 4
    >>> ell, f_bar, _ = fs.HeteroskedasticNegativeBinomial().expected_log_prob(counts, f)
    >>> round(ell, 2), f_bar.mean.shape
    (-83.3, (2, 40))
    """

    latents_per_output = 2
    num_nodes = 20  # a subclass can make it a setting: num_nodes: int = fs.static(default=20)
    settings = NODES

    def log_density(self, Y, f, h):
        """log p(Y | f, h) and its derivatives in f and h: three arrays."""
        raise NotImplementedError

    def conditional_mean_and_var(self, f, h):
        """Mean and variance of y given f and h."""
        raise NotImplementedError

    def conditional_cdf(self, Y, f, h):
        """P(y <= Y | f, h), for any real ``Y``."""
        raise TypeError(
            f"a {type(self).__name__} likelihood has no distribution function: write its"
            " conditional_cdf"
        )

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        def terms(average, F, H, y):
            value, slope_f, slope_h = self.log_density(y, F, H)
            ell = average(value)[0]
            if not need:
                return (ell,)
            (of_m, of_v, _), (of_g, _, of_u) = average(slope_f), average(slope_h)
            return ell, of_m, of_g, of_v, of_u

        values = self._over_data(terms, 5 if need else 1, f, Y)
        ell = total(values[0], weights)
        if not need:
            return ell, None, None
        values[3:] /= 2 * np.sqrt(raised(f.mean, f.var))
        bars = (weighted_finite(bar, weights, f.mean.dtype) for bar in (values[1:3], values[3:]))
        return ell, Marginals(*bars), self

    def predict_mean_and_var(self, f):
        def moments(average, F, H):
            means, variances = self.conditional_mean_and_var(F, H)
            mean = average(means)[0]
            return mean, average(variances + np.square(means - mean))[0]

        with np.errstate(over="ignore"):
            return tuple(self._over_data(moments, 2, f).astype(f.mean.dtype, copy=False))

    def predict_log_density(self, Y, f):
        def log_density(average, F, H, y):
            logs = self.log_density(y, F, H)[0]
            top = logs.max(axis=(0, 1))
            return (top + np.log(average(np.exp(logs - top))[0]),)

        with np.errstate(over="ignore"):  # a log density can overflow float32 to -inf
            out = self._over_data(log_density, 1, f, Y)[0].astype(f.mean.dtype, copy=False)
        return sum_outputs(out)

    def predict_cdf(self, Y, f):
        return self._cdf(Y, f).astype(f.mean.dtype, copy=False)

    def predict_quantiles(self, levels, f):
        def cdf(y, m, g, v, u):
            return self._cdf(y, Marginals(np.stack([m, g]), np.stack([v, u])))

        mean, var = self.predict_mean_and_var(f)
        return searched_quantiles(levels, mean, var, cdf, self.counts, *f.mean, *f.var)

    def check_settings(self):
        super().check_settings()
        own = [name for name, kind in self._record_fields if kind != "static"]
        if own and type(self).expected_log_prob is TwoLatents.expected_log_prob:
            raise TypeError(
                f"{type(self).__name__}: `{own[0]}` is a parameter, and fastsvgp.TwoLatents has no"
                " gradient of it; make it a setting (fastsvgp.static), or extend expected_log_prob"
            )

    def _cdf(self, Y, f):
        return self._over_data(
            lambda average, F, H, y: (average(self.conditional_cdf(y, F, H))[0],), 1, f, Y
        )[0]

    def _over_data(self, function, count, f, *targets):
        """Apply ``function(average, F, H, *targets)`` to chunks: ``count`` arrays of their shape.

        ``average(tensor)`` has three rows: the mean under q, and with factors z_i and z_j.
        """
        (m, g), (v, u) = f.mean, f.var
        out = np.empty((count, m.size), like=m)
        rows, num = [np.ravel(array) for array in (m, v, g, u, *targets)], int(self.num_nodes)
        weights = np.asarray(_weights(num), like=m)

        def average(tensor):
            tensor = np.broadcast_to(tensor, (num, num, tensor.shape[-1]))
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


@functools.lru_cache
def _weights(num):
    """Return the weights w w', and with factors z_i and z_j, as rows (3, num^2)."""
    z, w = rule(num)
    pairs = (w, w), (w * z, w), (w, w * z)
    weights = np.stack([np.multiply.outer(a, b).ravel() for a, b in pairs])
    weights.flags.writeable = False
    return weights
