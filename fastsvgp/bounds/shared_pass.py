"""Passes with one prior that share the quantities that depend only on it: Lam = L^-1 Kuf."""

from ..posteriors.base import PriorFactor
from .layer_pass import LayerParts, LayerPass
from .protocol import ALL


class FixedPriorPass(LayerPass):
    """The pass of a layer at a prior that several posteriors share, without cotangents of rows.

    cached : list of the cached rows of all chunks, filled by the first pass; None caches nothing
    columns, need : as in ``LayerPass``
    """

    def __init__(self, model, prior, state, cached, columns=0, need=("natural_step",)):
        layer = LayerParts(model.covariance, state, model.inducing, model.mean)
        super().__init__(layer, prior.jitter, columns, need, prior)
        self._cached, self._at = cached, 0

    def forward(self, X, rows=ALL):
        owns = self._cached is None
        if owns or self._at == len(self._cached):
            _, projected = _rows(self, X)
            if not owns:
                self._cached.append(projected._replace(Kuf=None))
        else:
            projected = self._cached[self._at]
        self._at += 1
        f, residuals = self.work.project_rows(projected, owns)
        return self._complete(X, (None, None, None), None, f, residuals)


class SharedLayerPass(LayerPass):
    """A ``LayerPass`` that caches its rows for a later pass with another posterior.

    The later pass names this one as ``after`` and uses the same chunks. If the pass of the
    posterior does not share rows (``work.shares_rows``), nothing is cached.
    """

    def __init__(self, layer, jitter, columns=0, need=(), after=None, **more):
        self.prior = (
            after.prior if after else PriorFactor(layer.covariance.Kuu(layer.inducing), jitter)
        )
        super().__init__(layer, jitter, columns, need, self.prior, **more)
        self._earlier, self.cached = after.cached if after else [], []

    def forward(self, X, rows=ALL):
        if not self.work.shares_rows:
            return super().forward(X)
        owns = bool(self._earlier)
        inner, projected = self._earlier.pop(0) if owns else _rows(self, X)
        if not owns:
            self.cached.append((inner, projected))
        return self._complete(X, inner, projected.Kuf, *self.work.project_rows(projected, owns))

    @property
    def shares_rows(self):
        return self.work.shares_rows

    def follow(self, model, jitter, columns, need, **quantities):
        return SharedLayerPass(model, jitter, columns, need, after=self, **quantities)


def _rows(layer, X):
    """Return what the covariance finds at X, and the ``ProjectedRows`` of the posterior's pass."""
    covariance, inner_rows, _ = inner = layer.layer.covariance.inner(X)
    Kuf = covariance.Kuf(layer.layer.inducing, inner_rows)
    return inner, layer.work.rows(Kuf, covariance.kff(inner_rows))
