"""Moments of f at uncertain inputs by Gauss-Hermite nodes, for any covariance and mean function.

With nodes x_q of weights w_q, in at most two uncertain columns,

    mean = sum_q w_q mean(x_q),    var = sum_q w_q (var(x_q) + (mean(x_q) - mean)^2)
"""

import numpy as np

from ..bounds.protocol import ALL, LayerProtocol
from ..posteriors.base import Joint
from ..records import Marginals

MOST_COLUMNS = 2


class NodesPass(LayerProtocol):
    """Predictions at nodes, averaged, in float64 inside.

    ``layer`` is the pass of a predictor; further arguments as in ``ClosedFormPass``.
    """

    def __init__(self, layer, X, dtype, need=()):
        if "inputs" in need:
            raise TypeError(
                "predict_f_and_vjp: no pullback to uncertain inputs with `nodes`, or without an"
                " uncertain column; use differences of predict_f, or an array"
            )
        columns = np.flatnonzero(X.uncertain())
        if X.var.ndim == 3 and len(columns):
            raise ValueError(
                "`nodes` are for independent errors: give `var` as (N, D), or leave `nodes` out"
            )
        if len(columns) > MOST_COLUMNS:
            raise ValueError(
                f"`nodes` serve at most {MOST_COLUMNS} uncertain columns, got {len(columns)}; use"
                " RBF, Linear, Periodic, their sums and products, or draw inputs yourself"
            )
        x, w = np.polynomial.hermite_e.hermegauss(X.nodes or 1)
        grid = np.meshgrid(*[x] * len(columns), indexing="ij")
        weights = np.ones(())
        for _ in columns:
            weights = np.multiply.outer(weights, w / w.sum())
        self._offsets = np.zeros((weights.size, X.mean.shape[1]))
        for column, values in zip(columns, grid, strict=True):
            self._offsets[:, column] = values.ravel()
        self._weights = weights.ravel()
        self._dtype, self._layer = dtype, layer

    @property
    def clamped(self):
        return self._layer.clamped

    @property
    def sizes(self):
        return [(M, len(self._weights)) for M, _ in self._layer.sizes]

    def _nodes(self, X):
        """Return all nodes of all rows, (n q, D)."""
        at = X.mean[:, None] + np.sqrt(X.variances())[:, None] * self._offsets
        return at.reshape(-1, at.shape[-1])

    def _average(self, values):
        """Average (..., n q) over the nodes, to (..., n)."""
        return (values.reshape(*values.shape[:-1], -1, len(self._weights)) * self._weights).sum(-1)

    def _moments(self, X, mean, var):
        """Return the moments (..., n) over the nodes, from those at each (..., n q)."""
        centre = self._average(mean)
        spread = np.square(mean - np.repeat(centre, len(self._weights), axis=-1))
        return centre, self._average(var + spread)

    def forward(self, X, rows=ALL):
        """Return ``(Marginals, None)`` at a chunk of rows."""
        f, _ = self._layer.forward(self._nodes(X))
        moments = self._moments(X, f.mean, f.var)
        return Marginals(*(values.astype(self._dtype) for values in moments)), None

    def joint(self, X):
        """Return the ``Joint`` moments at all rows, which are independent of each other."""
        mean, cov = self._layer.joint(self._nodes(X))
        var = np.diagonal(cov, axis1=-2, axis2=-1)
        centre, own = self._moments(X, mean, var)
        cov = self._average(np.swapaxes(self._average(cov), -1, -2))
        rows = np.arange(len(X))
        cov[..., rows, rows] = own
        return Joint(centre.astype(self._dtype), cov.astype(self._dtype))

    def with_functions(self, X):
        """Return Cov(x, f), (P, n, D)."""
        mean = self._layer.means(self._nodes(X)).reshape(-1, len(X), len(self._weights))
        apart = np.sqrt(X.variances())[:, None] * self._offsets  # (n, q, D)
        return ((mean * self._weights)[..., None] * apart).sum(-2)

    def joint_outputs(self, X):
        """Return means (P, n), and covariances (n, P, P) over the functions at each row."""
        mean, cov = self._layer.joint_outputs(self._nodes(X))
        centre = self._average(mean)
        apart = (mean - np.repeat(centre, len(self._weights), axis=-1)).T
        cov = np.moveaxis(cov + apart[:, :, None] * apart[:, None], 0, -1)
        cov = np.moveaxis(self._average(cov), -1, 0)
        return centre.astype(self._dtype), cov.astype(self._dtype)

    def sample(self, X, num_samples, jitter, rng, name=None):
        """Refuse: f at an uncertain input is not normal."""
        refuse_samples()


def refuse_samples():
    """Refuse draws of f at uncertain inputs."""
    raise TypeError(
        "sample_f: f at uncertain inputs is not normal; draw rows of `Xs.mean` and `Xs.var`"
        " yourself, and pass them as an array"
    )
