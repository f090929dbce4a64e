"""Passes with one prior that share the quantities that depend only on it: Lam = L^-1 Kuf."""

from ..posteriors.base import PriorFactor
from ..records import Marginals
from .layer_pass import LayerPass


class FixedPriorPass:
    """The methods of a layer's pass that ``sweep`` calls, with a shared prior.

    cached : list of the cached rows of all chunks, filled by the first pass; None caches nothing
    columns, need : as of ``LayerPass``
    """

    def __init__(self, model, prior, state, cached, columns=0, need=("natural_step",)):
        self._model, self._cached, self._at = model, cached, 0
        self.num_inducing = len(prior.Kuu)
        self.work = state.start_from(prior, columns, need)

    @property
    def clamped(self):
        return self.work.clamped

    @property
    def omits(self):
        return self.work.omits

    def forward(self, X):
        covariance, mean = self._model.covariance, self._model.mean
        if self._cached is None or self._at == len(self._cached):
            covariance, inner_rows, _ = covariance.inner(X)
            rows = self.work.rows(
                covariance.Kuf(self._model.inducing, inner_rows), covariance.kff(inner_rows)
            )
            if self._cached is not None:
                self._cached.append(rows._replace(Kuf=None))
        else:
            rows = self._cached[self._at]
        self._at += 1
        f, saved = self.work.project_rows(rows, owns=self._cached is None)
        return f if mean is None else Marginals(f.mean + mean(X), f.var), saved

    def pull(self, rows, f_bar):
        return self.work.pull(rows, f_bar)


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

    def forward(self, X):
        if not self.work.shares_rows:
            return super().forward(X)
        owns = bool(self._earlier)
        if owns:
            inner, rows = self._earlier.pop(0)
        else:
            covariance, inner_rows, _ = inner = self.layer.covariance.inner(X)
            rows = self.work.rows(
                covariance.Kuf(self.layer.inducing, inner_rows), covariance.kff(inner_rows)
            )
            self.cached.append((inner, rows))
        return self._through(X, inner, rows.Kuf, *self.work.project_rows(rows, owns))
