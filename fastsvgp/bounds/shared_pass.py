"""Passes with one prior that share the quantities that depend only on it: Lam = L^-1 Kuf."""

from ..posteriors.base import PriorFactor
from ..records import Marginals
from .layer_pass import LayerPass
from .protocol import ALL, LayerProtocol


class FixedPriorPass(LayerProtocol):
    """The pass of a layer at a prior that several posteriors share.

    cached : list of the cached rows of all chunks, filled by the first pass; None caches nothing
    columns, need : as in ``LayerPass``
    """

    def __init__(self, model, prior, state, cached, columns=0, need=("natural_step",)):
        self._model, self._cached, self._at = model, cached, 0
        self.num_inducing = len(prior.Kuu)
        self.work = state.start_from(prior, columns, need)

    @property
    def clamped(self):
        return self.work.clamped

    def of_omitted_variances(self):
        return self.work.of_omitted_variances() if self.work.omits else 0.0

    def kl(self):
        return self.work.kl()

    def natural_step(self, step_size):
        return self.work.natural_step(step_size)

    def forward(self, X, rows=ALL):
        covariance, mean = self._model.covariance, self._model.mean
        if self._cached is None or self._at == len(self._cached):
            covariance, inner_rows, _ = covariance.inner(X)
            projected = self.work.rows(
                covariance.Kuf(self._model.inducing, inner_rows), covariance.kff(inner_rows)
            )
            if self._cached is not None:
                self._cached.append(projected._replace(Kuf=None))
        else:
            projected = self._cached[self._at]
        self._at += 1
        f, saved = self.work.project_rows(projected, owns=self._cached is None)
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

    def forward(self, X, rows=ALL):
        if not self.work.shares_rows:
            return super().forward(X)
        owns = bool(self._earlier)
        if owns:
            inner, projected = self._earlier.pop(0)
        else:
            covariance, inner_rows, _ = inner = self.layer.covariance.inner(X)
            projected = self.work.rows(
                covariance.Kuf(self.layer.inducing, inner_rows), covariance.kff(inner_rows)
            )
            self.cached.append((inner, projected))
        return self._through(X, inner, projected.Kuf, *self.work.project_rows(projected, owns))

    @property
    def shares_rows(self):
        return self.work.shares_rows

    def follow(self, model, jitter, columns, need, **quantities):
        return SharedLayerPass(model, jitter, columns, need, after=self, **quantities)
