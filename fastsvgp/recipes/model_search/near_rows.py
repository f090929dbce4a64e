"""A process with near rows: a candidate for tables whose detail inducing inputs leave out.

With t times the variance and the noise, and 1 / sqrt(t) times the mean of the whitened q(u), means
stay and variances are t times as large: near rows depend on the ratio of the two alone.
"""

import numpy as np

from ...bounds.predict import predict_f
from ...errors import NotPositiveDefinite
from ...likelihoods import Gaussian
from ...near.model import VIF
from ...near.record import follow, neighbours
from ...optim.natural.step import natural_step
from ...posteriors import Whitened
from ...records import replace
from ...train.kinds.near import ClusterBatches
from .candidates import ByMinibatches, Minibatches, start_at_prior
from .collapsed_posterior import rescale, score_of
from .held_out_density import factor_of
from .plan import RATE

FEWEST = 1000  # rows below which exact processes are trained to the end
NEIGHBOURS = 20
MORE_NOISE = 1.0, 10.0, 100.0
TRIED = 6  # how often the noise is halved, or doubled, at the end
# operations of a step for each row, of which M^2 in addition, and of the search for its near rows
OF_ROW, OF_SQUARE, OF_SEARCH = 4e6, 30, 1e6
PASS = 0.4  # cost of a row in one pass over all, relative to that in a training step


class NearMinibatches(Minibatches):
    """``Minibatches`` of clusters of rows; near rows follow the lengthscales."""

    def __init__(self, model, rows, *given, plan, **options):
        super().__init__(model, rows, *given, **options)
        self._clusters = ClusterBatches(rows.X, rows.y, self._batch, 0, rows.weights)
        self._flops = self._batch * (OF_ROW + OF_SQUARE * len(model.inducing) ** 2)
        self._plan = plan

    def _draw(self):
        batch = self._clusters.rows(self.steps)
        return batch, {"rows": batch}

    def _move_to(self, model):
        near = follow(model.near, model.covariance)
        if near is not model.near:
            self._plan.did(OF_SEARCH * len(self._rows), 0)
            model = replace(model, near=near)
        self.model = model


class Near(ByMinibatches):
    """A process with near rows, from covariance and inducing inputs of a plain one."""

    BATCH, RATE, NATURAL = 400, 0.03, 0.1

    def __init__(self, name, plain, plan, M):
        super().__init__(name, plain.scale, plain.rows)
        self._plain, self._plan, self._M = plain, plan, M

    def begin(self, plan):
        hyper, rows = self._plain.model, self.rows
        Z = hyper.inducing[np.random.default_rng(4).permutation(len(hyper.inducing))[: self._M]]
        start = start_at_prior(hyper.covariance, Z, Gaussian(hyper.noise))
        near = near_rows(rows, start.covariance, plan)
        return self.trainer_of(
            VIF(start.covariance, Z, start.posterior, start.likelihood, near=near)
        )

    def trainer_of(self, model):
        def size(steps):
            return max(self.NATURAL, 1 / (1 + steps))

        return NearMinibatches(
            model, self.rows, self.BATCH, self.RATE, size, np.random.default_rng(4), "log",
            plan=self._plan,
        )  # fmt: skip

    @property
    def model(self):
        return self._trainer.model


def near_rows(rows, covariance, plan):
    """Find near rows of rows."""
    plan.did(OF_SEARCH * len(rows), 0)
    return neighbours(rows.X, covariance, NEIGHBOURS, Y=rows.y, weights=rows.weights)


class Detailed:
    """A ``VIF`` of the training rows, in the place of a ``Collapsed``."""

    def __init__(self, model):
        self.model, self.Z = model, model.inducing
        self.noise = float(model.likelihood.variance)

    def predict(self, X):
        """Return mean and variance of f at X (N, D): two (N,) arrays."""
        return predict_f(self.model, X)

    def of_all(self, factors, rows, plan):
        """Return the VIF of all rows, with variances times ``factors``, which are equal.

        One pass over these rows has the optimal q(u), if there is time for it. Held-out rows can be
        nearer to training rows than the noise tells apart: then there is more noise.
        """
        model = replace(self.model, near=near_rows(rows, self.model.covariance, plan))
        flops = PASS * len(rows) * (OF_ROW + OF_SQUARE * len(self.Z) ** 2)
        if plan.count("last pass", lambda: plan.left * RATE > flops):
            for times in MORE_NOISE:
                noise = Gaussian(times * self.noise)
                try:
                    model, _ = natural_step(
                        replace(model, likelihood=noise), rows.X, rows.y, step_size=1.0,
                        weights=rows.weights,
                    )  # fmt: skip
                    break
                except NotPositiveDefinite:
                    if times == MORE_NOISE[-1]:
                        raise
            plan.did(flops)
        t, q = factors[0], model.posterior
        return replace(
            model,
            covariance=rescale(model.covariance, t),
            posterior=Whitened(q.mean / np.sqrt(t), q.scale_tril),
            likelihood=Gaussian(float(model.likelihood.variance) * t),
        )


def score_near(model, scale, held_out):
    """Return the ``ScoredPosterior`` of a VIF; its factors are equal."""
    one = Detailed(model)
    mean, var_f = one.predict(scale.X(held_out.X))
    t = factor_of(mean, var_f, one.noise, held_out.y, held_out.weights, held_out.least_noise)
    return score_of(one, mean, t * (var_f + one.noise), (t, t), held_out)


def best_noise(model, scale, held_out):
    """Return ``score_near`` with the noise that held-out rows choose.

    It is halved as long as the score rises, or else doubled.
    """
    noise, best = float(model.likelihood.variance), score_near(model, scale, held_out)
    for factor in (0.5, 2.0):
        if best.collapsed.noise != noise:
            break
        for k in range(1, TRIED + 1):
            other = replace(model, likelihood=Gaussian(noise * factor**k))
            try:
                found = score_near(other, scale, held_out)
            except NotPositiveDefinite:  # so little noise tells no rows apart
                break
            if found.score <= best.score:
                break
            best = found
    return best
