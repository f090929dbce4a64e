"""Ordered labels: a latent function with unit normal noise, cut at edges.

With the edges u above and l below the label, less f, log p = log(Phi(u) - Phi(l)). The difference
cancels in the upper tail, where P(-u < e < -l) is the same: so u + l <= 0 after a flip. Then, with
D = erfcx(-u / sqrt 2) / 2 - E erfcx(-l / sqrt 2) / 2 and E = exp((u^2 - l^2) / 2),

    log p = -u^2 / 2 + log D,    phi(u) / p = 1 / (D sqrt(2 pi)),    phi(l) / p = E / (D sqrt(2 pi))
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from .. import kernels
from ..records import Marginals, leaf, record, static
from ..records.typed import Array, Number
from .base import (
    NODES,
    Likelihood,
    as_targets,
    in_dtype,
    not_whole,
    refuse,
    sum_outputs,
    total,
    weighted,
)
from .wide import NODES as FEW, ROOT_OF_NDTR, Feature, averages, merged, none_wide

# as the singularities of log p come in pairs, 20 nodes are as exact as for one at this distance
WIDTH = 2.5
FAR = 37.0  # a flipped upper edge beyond this has all of the mass below it
ROOT_HALF = float(np.sqrt(0.5))


@record
class Ordinal(Likelihood):
    """Labels 0 ... C - 1 in their order: y counts the edges below f + e, e ~ N(0, 1).

    The C - 1 edges are ``first``, ``first + gaps[0]``, ``first + gaps[0] + gaps[1]`` and so on. Two
    labels with the edge 0 are ``BernoulliProbit``. The expected log density is a quadrature rule:

    ===================  =====  ====  ====  ====  ====
    marginal variance        1     4    10    30   100
    ===================  =====  ====  ====  ====  ====
    error                 1e-9  1e-9  1e-9  1e-9  1e-9
    error with 20 nodes   1e-9  2e-5  6e-4  2e-2   0.1
    ===================  =====  ====  ====  ====  ====

    Predictions are in closed form; moments and quantiles are those of the numbers 0 ... C - 1.

    Parameters
    ----------
    first : ()
        The first edge. A constant mean of f moves all edges: fix one of them.
    gaps : (C - 2,)
        Distances between neighbouring edges. Positive.
    num_nodes : int, optional
        Number of Gauss-Hermite nodes for every datum, at any variance. Default: 20, and a table
        where q(f) is wide.

    Examples
    --------
    >>> grades = np.digitize(Y, (-0.5, 0.5))
    >>> ordered = fs.replace(model, likelihood=fs.Ordinal(-0.5, np.ones(1)))
    >>> round(fs.elbo(ordered, X, grades), 2)
    -59.45
    """

    log_concave = True
    counts = True

    first: Number = leaf()
    gaps: Array = leaf("positive")
    num_nodes: int | None = static(default=None)
    settings = NODES

    @property
    def num_classes(self):
        """Number C of labels."""
        return len(self.gaps) + 2

    def _edges(self, like):
        """Return the edges with -inf and inf outside, (C + 1,) float64."""
        gaps = np.asarray(self.gaps, dtype=np.float64, like=like)
        edges = np.empty(len(gaps) + 3, like=gaps)
        edges[0], edges[-1], edges[1] = -np.inf, np.inf, self.first
        edges[2:-1] = edges[1] + np.cumsum(gaps)
        return edges

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        dtype, labels, edges = f.mean.dtype, Y.astype(np.intp), self._edges(f.mean)

        def rule(labels, mean, var):
            F = kernels.gauss_hermite_nodes(mean, var, self.num_nodes or FEW)
            g, up, down = _log_between(edges[labels + 1] - F, edges[labels] - F)
            if not need:
                return [kernels.gauss_hermite(g)]
            ones = np.zeros(mean.shape, like=F) + 1
            bars = kernels.gauss_hermite_vjp(ones, down - up, mean, var)
            return [kernels.gauss_hermite(g), *bars, *map(kernels.gauss_hermite, (up, down))]

        if self.num_nodes is not None or none_wide(f.var, WIDTH):
            found = rule(labels, f.mean, f.var)
        else:
            wide, new = _where_wide(edges, labels, f, need)
            found = merged(wide, new, rule, labels, f.mean, f.var)
        ell = total(found[0], weights)
        if not need:
            return ell, None, None
        mean_bar, var_bar, up, down = found[1:]
        bars = (weighted(bar, weights).astype(dtype, copy=False) for bar in (mean_bar, var_bar))
        # each datum moves the edge above its label and the one below it
        C, bar = self.num_classes, np.zeros(self.num_classes + 1, like=edges)
        of_label = labels.ravel() == np.arange(C, like=edges)[:, None]
        for slope, outward, at in ((up, 1, slice(1, None)), (down, -1, slice(C))):
            slope = weighted(slope, weights).ravel()
            bar[at] += outward * (slope * of_label).sum(axis=1)
        later = np.cumsum(bar[-2:0:-1])[::-1]  # an edge moves with all gaps before it
        own = Ordinal(in_dtype(later[0], dtype), later[1:].astype(dtype), num_nodes=self.num_nodes)
        return ell, Marginals(*bars), own

    def predict_mean_and_var(self, f):
        edges = self._edges(f.mean)[1:-1].reshape(-1, *(1,) * f.mean.ndim)
        reached = scipy.special.ndtr((f.mean - edges) / np.sqrt(1.0 + f.var))  # P(y >= k), k >= 1
        odd = 2 * np.arange(len(edges), like=edges).reshape(edges.shape) + 1
        mean = reached.sum(axis=0)
        var = np.maximum((odd * reached).sum(axis=0) - mean * mean, 0)
        return tuple(x.astype(f.mean.dtype, copy=False) for x in (mean, var))

    def predict_log_density(self, Y, f):
        labels, edges, sd = Y.astype(np.intp), self._edges(f.mean), np.sqrt(1.0 + f.var)
        g, _, _ = _log_between(
            *((edges[labels + k] - f.mean) / sd.astype(np.float64) for k in (1, 0))
        )
        return sum_outputs(g.astype(f.mean.dtype, copy=False))

    def predict_cdf(self, Y, f):
        k = np.clip(np.floor(Y), -1, self.num_classes - 1).astype(np.intp)
        p = scipy.special.ndtr((self._edges(f.mean)[k + 1] - f.mean) / np.sqrt(1.0 + f.var))
        return p.astype(f.mean.dtype, copy=False)

    def predict_quantiles(self, levels, f):
        edges = self._edges(f.mean)[1:-1].reshape(-1, *(1,) * f.mean.ndim)
        below = scipy.special.ndtr((edges - f.mean) / np.sqrt(1.0 + f.var))
        out = np.empty((len(levels), *f.mean.shape), f.mean.dtype, like=f.mean)
        for k, level in enumerate(levels):
            out[k] = (below < level).sum(axis=0)
        return out

    def check_settings(self):
        if np.shape(self.first) or np.ndim(self.gaps) != 1:
            raise ValueError(
                "Ordinal: give `first`, one number, and `gaps` (C - 2,) for C labels; got shapes"
                f" {np.shape(self.first)} and {np.shape(self.gaps)}"
            )
        self._check_static()

    def check_targets(self, Y, name="Y"):
        Y, C = as_targets(Y), self.num_classes
        what = f"labels 0 ... {C - 1}, because there are {C - 1} edges"
        advice = "Number the labels from 0 in their order, or give one gap for each further label"
        refuse(name, Y, not_whole(Y), what, advice)
        refuse(name, Y, (Y < 0) | (Y >= C), what, advice)


def _where_wide(edges, labels, f, need):
    """Return where q(f) is wide, and E log p, its derivatives and averages of both slopes there."""
    above, below = edges[1:, None], edges[:-1, None]
    inwards = ROOT_OF_NDTR[0]
    low, high = (np.rint(edge[:, 0]) for edge in (below + inwards, above - inwards))
    low, high = (np.where(np.isfinite(a), a, b) for a, b in ((low, high), (high, low)))
    feature = Feature(0.5 * (low + high), WIDTH, np.maximum(0.5 * (high - low), 0))

    def functions(nodes):
        return np.stack(_log_between(above - nodes, below - nodes), axis=1)

    wide, values, d_mean, d_var = averages(functions, feature, f, labels, need)
    return wide, [values[0], d_mean[0], d_var[0], *values[1:]] if need else [values[0]]


def _log_between(above, below):
    """Return log(Phi(u) - Phi(l)) of u above l, and phi(u) and phi(l) over that difference."""
    flip = above + below > 0
    upper, lower = np.where(flip, -below, above), np.where(flip, -above, below)
    upper = np.minimum(upper, FAR)
    ratio = np.exp(np.minimum(0.5 * (upper - lower) * (upper + lower), 0))
    D = 0.5 * (
        scipy.special.erfcx(-ROOT_HALF * upper) - ratio * scipy.special.erfcx(-ROOT_HALF * lower)
    )
    near = (1 / float(np.sqrt(2 * np.pi))) / D
    far = ratio * near
    g = np.log(D) - 0.5 * upper * upper
    return g, np.where(flip, far, near), np.where(flip, near, far)
