"""Minibatch training in pieces: for a number of steps, or for some seconds."""

import numpy as np

from ...bounds.svgp import SVGP
from ...likelihoods import Gaussian
from ...optim.first_order import adam
from ...optim.natural.step import natural_step, natural_step_and_grad
from ...posteriors import Whitened

TIMED = 25  # first steps, timed to predict the cost of the others
NOISE = 0.1  # initial noise variance of standardised targets
GAUSSIAN = Gaussian(NOISE)


def at_prior(covariance, Z, likelihood=GAUSSIAN, mean=None):
    """Make an SVGP with q(u) = p(u)."""
    M, outputs = len(Z), () if likelihood.num_latent is None else (likelihood.num_latent,)
    q = Whitened(np.zeros((*outputs, M)), np.tile(np.eye(M), (*outputs, 1, 1)))
    return SVGP(covariance, Z, q, likelihood, mean)


def natural_steps(model, rows, sizes, batch, rng, plan, flops, calls=1):
    """Take one natural step on a minibatch for each of these step sizes."""
    for size in sizes:
        some = rows.drawn(batch, rng)
        model, _ = natural_step(
            model, some.X, some.y, step_size=size, num_data=len(rows), weights=some.weights
        )
        plan.did(flops, calls)
    return model


class Minibatches:
    """An SVGP trained in pieces by natural steps of its posterior, and Adam for the rest.

    Parameters
    ----------
    model : SVGP
    rows : Rows
    batch, rate : int, float
        Rows per step; step size of Adam.
    natural_step : float or callable
        Natural step size, or a function of the number of previous steps.
    counted : int, optional
        Rows per step when a plan counts operations; default ``batch``.
    cost : float
        Multiplier of the operations and calls per step that a plan counts.
    """

    def __init__(
        self,
        model,
        rows,
        batch,
        rate,
        natural_step,
        rng,
        transform="softplus",
        counted=None,
        cost=1.0,
    ):
        self.model, self._rows, self._rng = model, rows, rng
        self._batch, self._rate = min(batch, len(rows)), rate
        self._natural = natural_step if callable(natural_step) else lambda steps: natural_step
        self._optimiser = adam(lambda count: self._size, fixed="posterior", transform=transform)
        self._size, self._state = rate, self._optimiser.init(model)
        self._order, self.steps, self._each = np.empty(0, int), 0, None
        M, network = len(model.inducing), getattr(model.covariance, "network", None)
        numbers = 0 if network is None else sum(W.size for W in network.weights)
        factors, counted = model.posterior.mean.size * M, min(batch, counted or len(rows))
        self._cost = cost
        self._flops = cost * (counted * (8 * factors + 8 * numbers) + 8 * factors * M)

    def take(self, plan, count, size=lambda part: 1.0):
        """Take ``count`` steps; ``size(part)`` multiplies the step size once that part is done."""
        for step in range(count):
            self._size = self._rate * size(step / count)
            batch, weights = self._drawn(), self._rows.weights
            model, _, value, grad = natural_step_and_grad(
                self.model,
                self._rows.X[batch],
                self._rows.y[batch],
                step_size=self._natural(self.steps),
                num_data=len(self._rows),
                weights=None if weights is None else weights[batch],
            )
            self.model, self._state = self._optimiser.step(model, grad, self._state, value)
            self.steps += 1
            plan.did(self._flops, self._cost)

    def take_for(self, plan, name, seconds, size=lambda part: 1.0, most=None):
        """Take the steps that fit in ``seconds``, at most ``most``.

        The cost of earlier steps predicts their number. The first call times ``TIMED`` steps, which
        count.
        """
        began = plan.spent
        if self._each is None:
            self.take(plan, TIMED)
            self._each = (plan.spent - began) / TIMED
        rest = seconds - (plan.spent - began)
        count = max(rest / self._each, 1)
        if most is not None:
            count = min(count, max(most - TIMED, 1))
        count = plan.count(f"{name}: steps", count)
        resumed = plan.spent
        self.take(plan, count, size)
        if count > TIMED:
            self._each = (plan.spent - resumed) / count

    @property
    def state(self):
        """A snapshot to restore; records are immutable, so nothing is copied."""
        return self.model, self._state

    @state.setter
    def state(self, state):
        self.model, self._state = state

    def saved(self):
        """Return model, state of the optimiser, rows left of the epoch, and other numbers."""
        numbers = {"steps": self.steps, "each": self._each, "rng": self._rng.bit_generator.state}
        return self.model, self._state, self._order, numbers

    def restore(self, model, optimiser, order, numbers):
        """Return to the state that ``saved`` gave."""
        self.model, self._state, self._order = model, optimiser, order
        self.steps, self._each = numbers["steps"], numbers["each"]
        self._rng.bit_generator.state = numbers["rng"]

    @property
    def step_seconds(self):
        """The seconds that a step took; None before the first ones."""
        return self._each

    def _drawn(self):
        if len(self._order) < self._batch:
            self._order = self._rng.permutation(len(self._rows))
        batch, self._order = self._order[: self._batch], self._order[self._batch :]
        return np.sort(batch)
