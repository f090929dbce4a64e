"""Candidates without a network: an exact process, and sparse ones by L-BFGS or minibatches."""

import numpy as np

from ...collapsed.sgpr import SGPR, collapsed_bound_and_grad
from ...covariances import Linear, Matern32, On, Periodic, Sum
from ...inducing import kmeans, median_lengthscales, unique_rows
from ...records import replace
from ...runtime import tuning
from ...train import fit
from .. import relevance, routine, second_try
from .candidates import NOISE, ByMinibatches, Hyper, Minibatches, start_at_prior

TRIALS = 1.1  # evaluations of the bound per iteration of L-BFGS
SUBSET = 20_000  # rows among which inducing inputs are chosen
JITTER = 1e-7  # of the exact process, whose bound loses up to N jitter / (2 noise)
# operations for each column of the covariance of a pair of rows and its gradient; a part of it
# costs as much as PASS columns
OF_PAIR, PASS = 10, 5
FEWEST = 6  # iterations of an exact process after those of a sparse one
LEAST = 1e-30  # of the variance of a part: a copy of the model in float32 has it, too
LEARNT = ("covariance", "noise_variance")


def smooth_on(X):
    """Return the covariance of a smooth function of rows X, at first."""
    return Matern32(1.0, median_lengthscales(X, rng=0))


def plain_on(X):
    """Return a linear part plus the covariance of a smooth function of rows X, at first.

    Without the linear part, rows close to a line send variance and lengthscales to infinity.
    """
    return Sum((Linear(1 / X.shape[1]), smooth_on(X)))


def raise_variances(covariance):
    """Return a covariance with variances of at least ``LEAST``.

    L-BFGS takes that of a part that explains nothing to the smallest number of float64.
    """
    if isinstance(covariance, Sum):
        return Sum([raise_variances(one) for one in covariance.parts])
    if isinstance(covariance, On | Periodic):
        return replace(covariance, part=raise_variances(covariance.part))
    return replace(covariance, variance=max(covariance.variance, LEAST))


def pairs(sgpr, rows):
    """Return the operations of the covariances with rows, and of their gradient."""
    parts = getattr(sgpr.covariance, "parts", (sgpr.covariance,))
    columns = sum(
        PASS + (len(part.columns) if isinstance(part, On) else rows.X.shape[1]) for part in parts
    )
    return OF_PAIR * columns * len(rows) * len(sgpr.inducing)


class ByLBFGS:
    """A candidate trained by L-BFGS on the collapsed bound of its SGPR."""

    share, segments, settles = 1, 1, False

    @property
    def model(self):
        sgpr = self._sgpr
        return Hyper(raise_variances(sgpr.covariance), float(sgpr.noise_variance), sgpr.inducing)


class Exact(ByLBFGS):
    """An exact process on few rows: all distinct rows are inducing inputs, trained by L-BFGS.

    sketch : (M, D) array, optional
        Inducing inputs of a sparse process that is trained first, if there is no time to train the
        exact one to the end: its iterations are far quicker.

    Attributes
    ----------
    bound : float
        Of the last iteration.
    """

    ITERATIONS = 100

    def __init__(self, name, scale, rows, covariance=None, noise=NOISE, sketch=None):
        self.name, self.scale, self.rows, self.steps = name, scale, rows, 0
        self.bound, self._sketch = -np.inf, sketch
        covariance = covariance or plain_on(rows.X)
        self._sgpr = SGPR(covariance, unique_rows.distinct(rows.X)[0], noise)

    def take(self, plan, seconds, part=None):
        """Train to the end if that takes at most half of the time left, else for ``seconds``."""
        rows, began = self.rows, plan.spent
        M = len(self._sgpr.inducing)
        flops = 4 * M**2 * (len(rows) + M) + pairs(self._sgpr, rows)
        collapsed_bound_and_grad(
            self._sgpr, rows.X, rows.y, weights=rows.weights, jitter=JITTER, wrt=LEARNT
        )
        plan.did(flops)
        each = TRIALS * (plan.spent - began)
        whole = self.ITERATIONS * each
        if self._sketch is not None and not self.steps:
            late = plan.count(f"{self.name}: begins sparse", whole > plan.left / 2)
            if late:
                self._begin(plan, seconds / 2)
                seconds -= plan.spent - began

        def possible():
            if whole <= plan.left / 2:
                return self.ITERATIONS
            # after a sparse process the first iterations of L-BFGS gain nothing
            return max(seconds / each, 1) if not self.steps or seconds > FEWEST * each else 0

        count = plan.count(f"{self.name}: iterations", possible)
        if not count:
            return
        settings = dict(steps=count, fixed=("inducing",), jitter=JITTER, weights=rows.weights)
        self._sgpr, info, _ = routine.train(self._sgpr, rows.X, rows.y, settings, lambda *_: None)
        if info.interrupted:
            raise KeyboardInterrupt
        self.steps += info.steps
        self.bound = float(info.values[-1]) if len(info.values) else self.bound
        plan.did(flops * TRIALS * info.steps, info.steps)

    def _begin(self, plan, seconds):
        """Train a sparse process with the same covariance."""
        rows, sparse = self.rows, replace(self._sgpr, inducing=self._sketch)
        flops = 4 * len(self._sketch) ** 2 * (len(rows) + len(self._sketch)) + pairs(sparse, rows)
        began = plan.spent
        collapsed_bound_and_grad(sparse, rows.X, rows.y, weights=rows.weights, wrt=LEARNT)
        plan.did(flops)
        each = TRIALS * (plan.spent - began)
        possible = min(max(seconds / each, 1), self.ITERATIONS)
        count = plan.count(f"{self.name}: sparse iterations", possible)
        sparse, info = fit(
            sparse, rows.X, rows.y, weights=rows.weights, steps=count, fixed=("inducing",)
        )
        if info.interrupted:
            raise KeyboardInterrupt
        plan.did(flops * TRIALS * info.steps, info.steps)
        self._sgpr = replace(sparse, inducing=self._sgpr.inducing)
        self.steps += info.steps

    def get_state(self):
        return self._sgpr, None, None, {"steps": self.steps}

    def restore(self, model, optimiser, order, numbers):
        self._sgpr, self.steps = model, numbers["steps"]


class Plain(ByLBFGS):
    """A sparse process: minibatches first, then L-BFGS on the collapsed bound of some rows.

    start : Hyper, optional
        A trained one, from which L-BFGS begins.
    """

    M, BATCH, RATE, NATURAL = 256, 512, 0.05, 0.1

    def __init__(self, name, scale, rows, rng, rows_at_once=3000, start=None):
        self.name, self.scale, self.rows, self._rng = name, scale, rows, rng
        self.rows_at_once, self.steps, self._each, self._started = rows_at_once, 0, None, False
        if start is not None:
            self._started, self._at_rows = True, False
            self._sgpr = SGPR(start.covariance, start.inducing, start.noise)
            return
        distinct = unique_rows.distinct(rows.X, rows.weights)[0]
        self._at_rows = len(distinct) <= self.M
        Z = distinct if self._at_rows else kmeans(rows.X, self.M, rng=0)
        few = len(rows) <= tuning.current.exact_rows
        self._sgpr = SGPR(plain_on(rows.X) if few else smooth_on(rows.X), Z, NOISE)

    def take(self, plan, seconds, part=None):
        """Train by L-BFGS, in the first call after minibatches for half of ``seconds``.

        ``part`` is ignored.
        """
        began = plan.spent
        if not self._started:
            self._begin(plan, seconds)
        rows = self.rows.draw(self.rows_at_once, self._rng)
        fixed = ("inducing",) if self._at_rows else ()
        flops = 4 * len(self._sgpr.inducing) ** 2 * (len(rows) + len(self._sgpr.inducing))
        flops += pairs(self._sgpr, rows)
        if self._each is None or self._each[0] != len(rows):
            before = plan.spent
            collapsed_bound_and_grad(self._sgpr, rows.X, rows.y, weights=rows.weights)
            plan.did(flops)
            self._each = len(rows), plan.spent - before
        each = TRIALS * self._each[1]
        count = plan.count(
            f"{self.name}: iterations", lambda: max((seconds - (plan.spent - began)) / each, 1)
        )
        self._sgpr, info = fit(
            self._sgpr, rows.X, rows.y, weights=rows.weights, steps=count, fixed=fixed
        )
        if info.interrupted:
            raise KeyboardInterrupt
        self.steps += info.steps
        plan.did(flops * TRIALS * info.steps, info.steps)

    def _begin(self, plan, seconds):
        rows, M = self.rows.draw(self.rows_at_once, np.random.default_rng(0)), self.M
        self._sgpr, tried = second_try.choose_by_bound(self._sgpr, rows.X, rows.y, rows.weights)
        plan.did(2 * M**2 * (len(rows) + M) * tried, tried)
        if not self._at_rows:
            self._minibatches(plan, 0.5 * seconds)
        self._started = True

    def _minibatches(self, plan, seconds):
        sgpr = self._sgpr
        model = start_at_prior(sgpr.covariance, sgpr.inducing)
        trainer = Minibatches(
            model, self.rows, self.BATCH, self.RATE, self.NATURAL, self._rng, transform="log"
        )
        trainer.take_for(plan, self.name, seconds, lambda part: max(0.1, 1 - part))
        found, self.steps = trainer.model, self.steps + trainer.steps
        noise = float(found.likelihood.variance)
        self._sgpr = SGPR(found.covariance, found.inducing, noise)

    def get_state(self):
        numbers = {
            "steps": self.steps,
            "each": self._each,
            "begun": self._started,
            "rng": self._rng.bit_generator.state,
        }
        return self._sgpr, None, None, numbers

    def restore(self, model, optimiser, order, numbers):
        self._sgpr, self.steps, self._started = model, numbers["steps"], numbers["begun"]
        self._each = numbers["each"] and tuple(numbers["each"])
        self._rng.bit_generator.state = numbers["rng"]

    def lengthscales(self):
        """Return the lengthscales (D,)."""
        covariance = self._sgpr.covariance
        smooth = covariance.parts[1] if isinstance(covariance, Sum) else covariance
        return np.broadcast_to(smooth.lengthscales, (self.rows.X.shape[1],))


class Scarce(ByMinibatches):
    """A sparse process by minibatches only, for data that L-BFGS explains as pure noise."""

    M, BATCH, RATE, NATURAL = 128, 256, 0.05, 0.1
    LOWEST = 0.02

    def __init__(self, name, scale, rows, rng):
        distinct = unique_rows.distinct(rows.X, rows.weights)[0]
        Z = distinct if len(distinct) <= self.M else kmeans(rows.X, self.M, rng=0)
        model = start_at_prior(smooth_on(rows.X), Z)
        trainer = Minibatches(
            model, rows, self.BATCH, self.RATE, self.NATURAL, rng, transform="log"
        )
        super().__init__(name, scale, rows, trainer)

    def take(self, plan, seconds, part=None):
        self._trainer.take_for(
            plan, self.name, seconds, lambda part: max(self.LOWEST, np.cos(0.5 * np.pi * part))
        )

    def lengthscales(self):
        """Return the lengthscales (D,)."""
        return self._trainer.model.covariance.lengthscales


class Relevant(ByMinibatches):
    """A sparse process by minibatches, from lengthscales by relevance.

    A fit with settings has the same start.
    """

    M, BATCH, RATE, NATURAL = 256, 512, 0.01, 0.1
    share = 2

    def __init__(self, name, scale, rows, rng):
        super().__init__(name, scale, rows)
        self._rng = rng

    def cost(self, plan):
        """Predict the seconds that the start takes, from one evaluation of its bound."""
        rows = self.rows.draw(tuning.current.relevance_rows, self._rng)
        exact = SGPR(smooth_on(rows.X), rows.X, NOISE)
        began = plan.spent
        collapsed_bound_and_grad(exact, rows.X, rows.y, wrt=LEARNT)
        plan.did(8 * len(rows) ** 3)
        return TRIALS * tuning.current.relevance_iterations * (plan.spent - began)

    def begin(self, plan):
        rows, rng = self.rows, self._rng
        lengthscales = relevance.relevant_lengthscales(
            Matern32, median_lengthscales(rows.X, rng=0), rows.X, rows.y, rows.weights, rng
        )
        now = tuning.current
        plan.did(8 * now.relevance_iterations * min(now.relevance_rows, len(rows)) ** 3)
        distinct = unique_rows.distinct(rows.draw(SUBSET, rng).X / lengthscales)[0]
        Z = kmeans(distinct, min(self.M, len(distinct)), rng=0) * lengthscales
        return self.trainer_of(start_at_prior(Matern32(1.0, lengthscales), Z))

    def trainer_of(self, model):
        return Minibatches(
            model, self.rows, self.BATCH, self.RATE, self.NATURAL, self._rng, transform="log"
        )
