"""What races: processes on raw or rank inputs, and processes above a network.

A candidate has a ``name``, the ``scale`` of its inputs, and ``rows`` in units of the model.
``hyper()`` are its hyperparameters so far; ``take(plan, seconds, part)`` goes on for about these seconds.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...bounds.elbo import SVGP
from ...collapsed.sgpr import SGPR, collapsed_bound_and_grad
from ...covariances import RBF, Covariance, Matern32, Network, OnFeatures
from ...initialise import kmeans_inducing, median_lengthscales, unique_rows
from ...likelihoods import Gaussian
from ...optim.first_order import adam
from ...optim.natural.svgp import natural_step_and_grad
from ...posteriors import Whitened
from ...records import replace
from ...train import fit
from .. import relevance, routine
from .collapse import features

TIMED = 25  # first steps, which foretell what the others cost
TRIALS = 1.1  # evaluations of the bound in an iteration of L-BFGS
LAST = 0.05  # step sizes of the winner fall to this part
NOISE = 0.1  # of standardised targets, to start from


class Hyper(NamedTuple):
    """Hyperparameters, and inducing inputs that were learnt with them, or None."""

    covariance: Covariance
    noise: float
    inducing: Any


@dataclass(frozen=True)
class Rows:
    """Training rows in units of the model: X (N, D), y (N,), weights (N,) or None."""

    X: np.ndarray
    y: np.ndarray
    weights: Any = None

    def __len__(self):
        return len(self.X)

    def some(self, chosen):
        weights = None if self.weights is None else self.weights[chosen]
        return Rows(self.X[chosen], self.y[chosen], weights)

    def drawn(self, count, rng):
        """At most so many, at random."""
        if len(self) <= count:
            return self
        return self.some(np.sort(rng.choice(len(self), count, replace=False)))

    def and_more(self, others):
        """These and others."""
        weights = None
        if self.weights is not None:
            weights = np.concatenate([self.weights, others.weights])
        return Rows(np.concatenate([self.X, others.X]), np.concatenate([self.y, others.y]), weights)


JITTER = 1e-7  # of the exact process, whose bound loses up to N jitter / (2 noise)
LEARNT = ("covariance", "noise_variance")


class Minibatches:
    """An SVGP trained by natural steps of its posterior and Adam for all else; it can go on at any time.

    Parameters
    ----------
    model : SVGP
    rows : Rows
    batch, rate, natural_step : int, float, float
        Rows per step, step size of Adam, natural step size.
    """

    def __init__(self, model, rows, batch, rate, natural_step, rng, transform="softplus"):
        self.model, self._rows, self._rng = model, rows, rng
        self._batch, self._rate, self._natural = min(batch, len(rows)), rate, natural_step
        self._optimiser = adam(lambda count: self._size, fixed="posterior", transform=transform)
        self._size, self._state = rate, self._optimiser.init(model)
        self._order, self.steps = np.empty(0, int), 0
        M, network = len(model.inducing), getattr(model.covariance, "network", None)
        numbers = 0 if network is None else sum(W.size for W in network.weights)
        self._flops = self._batch * (8 * M * M + 8 * numbers) + 8 * M**3

    def take(self, plan, count, size=lambda part: 1.0):
        """``count`` steps; ``size(part)`` multiplies the step size where that part of them is done."""
        for step in range(count):
            self._size = self._rate * size(step / count)
            batch, weights = self._drawn(), self._rows.weights
            model, _, value, grad = natural_step_and_grad(
                self.model, self._rows.X[batch], self._rows.y[batch], step_size=self._natural,
                num_data=len(self._rows), weights=None if weights is None else weights[batch],
            )  # fmt: skip
            self.model, self._state = self._optimiser.step(model, grad, self._state, value)
            self.steps += 1
            plan.did(self._flops)

    @property
    def state(self):
        """What can be gone back to; records do not change."""
        return self.model, self._state

    @state.setter
    def state(self, state):
        self.model, self._state = state

    def _drawn(self):
        if len(self._order) < self._batch:
            self._order = self._rng.permutation(len(self._rows))
        batch, self._order = self._order[: self._batch], self._order[self._batch :]
        return np.sort(batch)


def _at_prior(covariance, Z):
    q = Whitened(np.zeros(len(Z)), np.eye(len(Z)))
    return SVGP(covariance, Z, q, Gaussian(NOISE))


def steps_for(trainer, plan, name, seconds):
    """How many steps of ``trainer`` these seconds are: a first few are timed, and count."""
    began = plan.spent
    trainer.take(plan, TIMED)
    each = (plan.spent - began) / TIMED
    return plan.count(f"{name}: steps", lambda: max((seconds - (plan.spent - began)) / each, 1))


class Exact:
    """An exact process on few rows: all distinct ones are inducing inputs, L-BFGS to its end."""

    ITERATIONS = 100

    def __init__(self, name, scale, rows):
        self.name, self.scale, self.rows, self.steps = name, scale, rows, 0
        covariance = Matern32(1.0, median_lengthscales(rows.X, rng=0))
        self._sgpr = SGPR(covariance, unique_rows.distinct(rows.X)[0], NOISE)

    def take(self, plan, seconds, part=None):
        """All iterations if they take at most half of the time that is left, else ``seconds`` of them."""
        rows, began = self.rows, plan.spent
        M = len(self._sgpr.inducing)
        flops = 4 * M**2 * (len(rows) + M)
        collapsed_bound_and_grad(
            self._sgpr, rows.X, rows.y, weights=rows.weights, jitter=JITTER, wrt=LEARNT
        )
        plan.did(flops)
        each = TRIALS * (plan.spent - began)
        whole = self.ITERATIONS * each

        def possible():
            return self.ITERATIONS if whole <= plan.left / 2 else max(seconds / each, 1)

        count = plan.count(f"{self.name}: iterations", possible)
        settings = dict(steps=count, fixed=("inducing",), jitter=JITTER, weights=rows.weights)
        self._sgpr, info, _ = routine.train(self._sgpr, rows.X, rows.y, settings, lambda *_: None)
        if info.interrupted:
            raise KeyboardInterrupt
        self.steps += info.steps
        plan.did(flops * TRIALS * info.steps, info.steps)

    def hyper(self):
        return Hyper(self._sgpr.covariance, float(self._sgpr.noise_variance), self._sgpr.inducing)


class Plain:
    """One process, without a network: minibatches to begin with, then L-BFGS on the collapsed bound of some rows."""

    M, BATCH, RATE, NATURAL = 256, 512, 0.05, 0.1

    def __init__(self, name, scale, rows, rng, rows_at_once=3000):
        self.name, self.scale, self.rows, self._rng = name, scale, rows, rng
        self.rows_at_once, self.steps, self._each, self._begun = rows_at_once, 0, None, False
        distinct = unique_rows.distinct(rows.X, rows.weights)[0]
        self._at_rows = len(distinct) <= self.M
        Z = distinct if self._at_rows else kmeans_inducing(rows.X, self.M, rng=0)
        lengthscales = median_lengthscales(rows.X, rng=0)
        self._sgpr = SGPR(Matern32(1.0, lengthscales), Z, NOISE)

    def take(self, plan, seconds, part=None):
        """Minibatches for the first half of the first time, L-BFGS for the rest; ``part`` is not looked at."""
        began = plan.spent
        if not self._begun and not self._at_rows:
            self._minibatches(plan, 0.5 * seconds)
        self._begun = True
        rows = self.rows.drawn(self.rows_at_once, self._rng)
        fixed = ("inducing",) if self._at_rows else ()
        flops = 4 * len(self._sgpr.inducing) ** 2 * (len(rows) + len(self._sgpr.inducing))
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

    def _minibatches(self, plan, seconds):
        sgpr = self._sgpr
        model = _at_prior(sgpr.covariance, sgpr.inducing)
        trainer = Minibatches(
            model, self.rows, self.BATCH, self.RATE, self.NATURAL, self._rng, transform="log"
        )
        count = steps_for(trainer, plan, self.name, seconds)
        trainer.take(plan, count, lambda part: max(0.1, 1 - part))
        found, self.steps = trainer.model, self.steps + trainer.steps
        noise = float(found.likelihood.variance)
        self._sgpr = SGPR(found.covariance, found.inducing, noise)

    def hyper(self):
        sgpr = self._sgpr
        return Hyper(sgpr.covariance, float(sgpr.noise_variance), sgpr.inducing)

    def lengthscales(self):
        """(D,), of an ARD covariance."""
        return np.broadcast_to(self._sgpr.covariance.lengthscales, (self.rows.X.shape[1],))


class Scarce:
    """A plain process by minibatches alone, to its end at once: where L-BFGS ends at "noise only"."""

    M, BATCH, RATE, NATURAL = 128, 256, 0.05, 0.1
    LOWEST = 0.02

    def __init__(self, name, scale, rows, rng):
        self.name, self.scale, self.rows = name, scale, rows
        distinct = unique_rows.distinct(rows.X, rows.weights)[0]
        Z = distinct if len(distinct) <= self.M else kmeans_inducing(rows.X, self.M, rng=0)
        covariance = Matern32(1.0, median_lengthscales(rows.X, rng=0))
        self._trainer = Minibatches(
            _at_prior(covariance, Z),
            rows,
            self.BATCH,
            self.RATE,
            self.NATURAL,
            rng,
            transform="log",
        )

    @property
    def steps(self):
        return self._trainer.steps

    def take(self, plan, seconds, part=None):
        count = steps_for(self._trainer, plan, self.name, seconds)
        self._trainer.take(plan, count, lambda part: max(self.LOWEST, np.cos(0.5 * np.pi * part)))

    def hyper(self):
        model = self._trainer.model
        return Hyper(model.covariance, float(model.likelihood.variance), model.inducing)

    def lengthscales(self):
        """(D,), of an ARD covariance."""
        return self._trainer.model.covariance.lengthscales


class Relevant:
    """One process by minibatches, from lengthscales that know which inputs matter: how a fit with settings begins by itself."""

    M, BATCH, RATE, NATURAL = 256, 512, 0.01, 0.1

    def __init__(self, name, scale, rows, rng):
        self.name, self.scale, self.rows = name, scale, rows
        self._rng, self._trainer, self._each = rng, None, None

    @property
    def steps(self):
        return 0 if self._trainer is None else self._trainer.steps

    def cost(self, plan):
        """Seconds of the start, foretold by one evaluation of the bound that it is made of."""
        rows = self.rows.drawn(relevance.ROWS, self._rng)
        exact = SGPR(Matern32(1.0, median_lengthscales(rows.X, rng=0)), rows.X, NOISE)
        began = plan.spent
        collapsed_bound_and_grad(exact, rows.X, rows.y, wrt=LEARNT)
        plan.did(8 * len(rows) ** 3)
        return TRIALS * relevance.ITERATIONS * (plan.spent - began)

    def take(self, plan, seconds, part=None):
        began = plan.spent
        if self._trainer is None:
            self._trainer = Minibatches(
                self._start(), self.rows, self.BATCH, self.RATE, self.NATURAL, self._rng, transform="log"
            )  # fmt: skip
            plan.did(8 * relevance.ITERATIONS * min(relevance.ROWS, len(self.rows)) ** 3)
        if self._each is None:
            before = plan.spent
            self._trainer.take(plan, TIMED)
            self._each = (plan.spent - before) / TIMED
        count = plan.count(
            f"{self.name}: steps",
            lambda: max((seconds - (plan.spent - began)) / self._each, 1),
        )
        first, last = part or (0.0, 0.0)
        self._trainer.take(plan, count, lambda done: LAST ** (first + done * (last - first)))

    def _start(self):
        rows, rng = self.rows, self._rng
        lengthscales = relevance.relevant_lengthscales(
            Matern32, median_lengthscales(rows.X, rng=0), rows.X, rows.y, rows.weights, rng
        )
        X = rows.drawn(20_000, rng).X
        distinct = unique_rows.distinct(X / lengthscales)[0]
        M = min(self.M, len(distinct))
        return _at_prior(
            Matern32(1.0, lengthscales), kmeans_inducing(distinct, M, rng=0) * lengthscales
        )

    def hyper(self):
        model = self._trainer.model
        return Hyper(model.covariance, float(model.likelihood.variance), model.inducing)


@dataclass(frozen=True)
class Architecture:
    """Hidden units, features, activation, and the step size of Adam."""

    name: str
    hidden: tuple
    num_features: int
    activation: str
    rate: float


WIDE = Architecture("tanh 128", (128,), 8, "tanh", 0.02)
WIDER = Architecture("tanh 256", (256,), 8, "tanh", 0.02)
RELU = Architecture("relu 100-50", (100, 50), 4, "relu", 0.01)
DEEP = Architecture("tanh 64-64", (64, 64), 4, "tanh", 0.01)


class Deep:
    """A process with an ARD squared-exponential covariance on the features of a network.

    weighting : (D,) array, optional
        Multiplies the rows of the first weights at the start.
    """

    NATURAL = 0.3

    def __init__(self, name, scale, rows, rng, architecture, M=128, batch=256, weighting=None):
        self.name, self.scale, self.rows = name, scale, rows
        D, F = rows.X.shape[1], architecture.num_features
        network = Network.random((D, *architecture.hidden, F), architecture.activation, rng)
        if weighting is not None:
            first, *others = network.weights
            network = replace(network, weights=(weighting[:, None] * first, *others))
        covariance = OnFeatures(RBF(1.0, np.ones(F)), network)
        M = min(M, max(len(rows) // 2, 1))
        Z = features(covariance, rows.X[rng.choice(len(rows), M, replace=False)])
        self._trainer = Minibatches(
            _at_prior(covariance, Z), rows, batch, architecture.rate, self.NATURAL, rng
        )
        self._each, self.part = None, 0.0

    @property
    def steps(self):
        return self._trainer.steps

    @property
    def state(self):
        return self._trainer.state, self.part

    def go_back(self, state):
        """To where it was."""
        self._trainer.state, self.part = state

    def take(self, plan, seconds, part=None):
        """``part``: the interval of a whole training that this is, over which step sizes fall log-linearly; None: they stay."""
        began, before = plan.spent, self.steps
        if self._each is None:
            self._trainer.take(plan, TIMED)
            self._each = (plan.spent - began) / TIMED
        count = plan.count(
            f"{self.name}: steps",
            lambda: max((seconds - (plan.spent - began)) / self._each, 1),
        )
        first, last = part or (0.0, 0.0)
        resumed, self.part = plan.spent, last
        self._trainer.take(plan, count, lambda done: LAST ** (first + done * (last - first)))
        if self.steps - before > TIMED:
            self._each = (plan.spent - resumed) / count

    def hyper(self):
        model = self._trainer.model
        return Hyper(model.covariance, float(model.likelihood.variance), None)
