"""Ordered labels: a latent function with unit normal noise, cut at edges.

With the edges u above and l below the label, less f, log p = log(Phi(u) - Phi(l)). The difference
cancels in the upper tail, where P(-u < e < -l) is the same: so u + l <= 0 after a flip. Then, with
D = erfcx(-u / sqrt 2) / 2 - E erfcx(-l / sqrt 2) / 2 and E = exp((u^2 - l^2) / 2),

    log p = -u^2 / 2 + log D,    phi(u) / p = 1 / (D sqrt(2 pi)),    phi(l) / p = E / (D sqrt(2 pi))
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import leaf, record, static
from ..records.typed import Array, Number
from .base import CHUNK
from .one_latent import OneLatent
from .targets import as_targets, not_whole, refuse
from .wide import ROOT_OF_NDTR, Feature

FAR = 37.0  # a flipped upper edge beyond this has all of the mass below it
ROOT_HALF = float(np.sqrt(0.5))


@record
class Ordinal(OneLatent):
    """Labels 0 ... C - 1 in their order: y counts the edges below f + e, e ~ N(0, 1).

    The C - 1 edges are ``first``, ``first + gaps[0]``, ``first + gaps[0] + gaps[1]`` and so on. Two
    labels with the edge 0 are ``BernoulliProbit``. The expected log density is a quadrature rule,
    with the error that ``OneLatent`` states. Predictions are in closed form; moments and quantiles
    are those of the numbers 0 ... C - 1.

    Parameters
    ----------
    first : ()
        The first edge. A constant mean of f moves all edges: fix one of them.
    gaps : (C - 2,)
        Distances between neighbouring edges. Positive.
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> grades = np.digitize(Y, (-0.5, 0.5))
    >>> ordered = fs.replace(model, likelihood=fs.likelihoods.Ordinal(-0.5, np.ones(1)))
    >>> round(fs.elbo(ordered, X, grades), 2)
    -59.45
    """

    log_concave = True
    counts = True
    chunk = CHUNK

    first: Number = leaf()
    gaps: Array = leaf("positive")
    num_nodes: int | None = static(default=None)
    # as the singularities come in pairs, 20 nodes are as exact as for one at this distance
    singularities = 2.5

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

    def log_density(self, y, f, need=True):
        k, edges = y.astype(np.intp), self._edges(f)
        g, up, down = _log_between(edges[k + 1] - f, edges[k] - f)
        return g, down - up, up, down

    def tables(self, y):
        edges, labels = self._edges(y), np.arange(self.num_classes, like=y)[:, None]
        inwards = ROOT_OF_NDTR[0]
        low, high = (np.rint(edge) for edge in (edges[:-1] + inwards, edges[1:] - inwards))
        low, high = (np.where(np.isfinite(a), a, b) for a, b in ((low, high), (high, low)))
        half = np.maximum(0.5 * (high - low), 0)
        return Feature(0.5 * (low + high), self.singularities, half), y.astype(np.intp), labels

    def expected(self, Y, f, need=True):
        found = super().expected(Y, f, need)
        if not need:
            return found
        *found, up, down = found  # of the edges above and below the label
        gap = np.arange(self.num_classes - 2, like=up).reshape(-1, *(1,) * up.ndim)
        return *found, up - down, up * (Y > gap) - down * (Y > gap + 1)

    def _away(self, mean, var):
        """Return the distances (C - 1, ...) of the edges from the mean, in sd of f + e."""
        edges = self._edges(mean)[1:-1].reshape(-1, *(1,) * mean.ndim)
        return (edges - mean) / np.sqrt(1 + var)

    def moments(self, mean, var):
        reached = scipy.special.ndtr(-self._away(mean, var))  # P(y >= k), k >= 1
        odd = 2 * np.arange(len(reached), like=mean).reshape(-1, *(1,) * mean.ndim) + 1
        centre = reached.sum(axis=0)
        return centre, np.maximum((odd * reached).sum(axis=0) - centre * centre, 0)

    def predict_quantiles(self, levels, f):
        below = scipy.special.ndtr(self._away(*self.rows(f.mean, f)[1:]))  # P(y < k), k >= 1
        return np.stack([(below < level).sum(axis=0) for level in levels]).astype(f.mean.dtype)

    def log_marginal(self, y, mean, var):
        k, edges, sd = y.astype(np.intp), self._edges(mean), np.sqrt(1 + var)
        return _log_between(*((edges[k + above] - mean) / sd for above in (1, 0)))[0]

    def marginal_cdf(self, y, mean, var):
        k = np.clip(np.floor(y), -1, self.num_classes - 1).astype(np.intp)
        return scipy.special.ndtr((self._edges(mean)[k + 1] - mean) / np.sqrt(1 + var))

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
