"""Candidates of every search: minibatches in pieces, and processes on features of a network."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...bounds.svgp import SVGP
from ...covariances import RBF, Covariance, Network, OnFeatures
from ...likelihoods import Gaussian
from ...optim.first_order import adam
from ...optim.natural.step import natural_step, natural_step_and_grad
from ...posteriors import Whitened
from ...records import replace

SEGMENTS = 6  # looks at the winner during the rest of the time
LAST = 0.05  # step sizes fall to this part over a whole training
TIMED = 25  # first steps, timed to predict the cost of the others
NOISE = 0.1  # initial noise variance of standardised targets
GAUSSIAN = Gaussian(NOISE)


def start_at_prior(covariance, Z, likelihood=GAUSSIAN, mean=None):
    """Make an SVGP with q(u) = p(u)."""
    M, outputs = len(Z), () if likelihood.num_latent is None else (likelihood.num_latent,)
    q = Whitened(np.zeros((*outputs, M)), np.tile(np.eye(M), (*outputs, 1, 1)))
    return SVGP(covariance, Z, q, likelihood, mean)


def natural_steps(model, rows, sizes, batch, rng, plan, flops, calls=1):
    """Take one natural step on a minibatch for each of these step sizes."""
    for size in sizes:
        some = rows.draw(batch, rng)
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
            (batch, options), weights = self._draw(), self._rows.weights
            model, _, value, grad = natural_step_and_grad(
                self.model,
                self._rows.X[batch],
                self._rows.y[batch],
                step_size=self._natural(self.steps),
                num_data=len(self._rows),
                weights=None if weights is None else weights[batch],
                **options,
            )
            model, self._state = self._optimiser.step(model, grad, self._state, value)
            self._move_to(model)
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

    def get_state(self):
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

    def _move_to(self, model):
        self.model = model

    def _draw(self):
        """Return the rows of a batch, and options of its bound."""
        if len(self._order) < self._batch:
            self._order = self._rng.permutation(len(self._rows))
        batch, self._order = self._order[: self._batch], self._order[self._batch :]
        return np.sort(batch), {}


class Hyper(NamedTuple):
    """Hyperparameters, and the inducing inputs learnt with them, or None.

    ``effect``: variance of a random effect of each label, which all rows of a label share.
    """

    covariance: Covariance
    noise: float
    inducing: Any
    effect: float = 0.0


class ByMinibatches:
    """A candidate trained by minibatches.

    Parameters
    ----------
    name : str
    scale : Scale
        Scaling of the inputs.
    rows : Rows
        In the units of the model.
    trainer : Minibatches, or None
        None: ``begin`` makes it at the first ``take``.
    """

    share, segments = 1, SEGMENTS  # slices in the race, and looks after it
    keeps_inducing = True  # whether the last posterior uses the learnt inducing inputs
    settles = False  # whether the end can go back to an earlier look

    def __init__(self, name, scale, rows, trainer=None):
        self.name, self.scale, self.rows, self._trainer, self.part = name, scale, rows, trainer, 0.0

    @property
    def steps(self):
        return 0 if self._trainer is None else self._trainer.steps

    def take(self, plan, seconds, part=None):
        """Train for about this many seconds.

        part : the interval of a whole training, within (0, 1), that this call covers; step sizes
        fall log-linearly over the whole. None: they stay constant.
        """
        began = plan.spent
        if self._trainer is None:
            self._trainer = self.begin(plan)
        first, self.part = part or (0.0, 0.0)
        last = self.part
        self._trainer.take_for(
            plan,
            self.name,
            seconds - (plan.spent - began),
            lambda done: LAST ** (first + done * (last - first)),
        )

    def begin(self, plan):
        """Make the ``Minibatches`` of this candidate."""
        raise NotImplementedError

    def get_state(self):
        """Return the state for ``restore``: model, optimiser, order and numbers."""
        if self._trainer is None:  # it failed to begin
            return None, None, None, {}
        *records, numbers = self._trainer.get_state()
        return *records, numbers | {"part": self.part}

    def restore(self, model, optimiser, order, numbers):
        """Return to an earlier state, in place of training."""
        if model is None:
            return
        if self._trainer is None:
            self._trainer = self.trainer_of(model)
        self._trainer.restore(model, optimiser, order, numbers)
        self.part = numbers["part"]

    def trainer_of(self, model):
        """Make the ``Minibatches`` of a model, for a candidate that has none from the start."""
        raise NotImplementedError

    @property
    def state(self):
        return self._trainer.state, self.part

    def go_back(self, state):
        """Restore an earlier ``state``."""
        self._trainer.state, self.part = state

    @property
    def model(self):
        model = self._trainer.model
        Z = model.inducing if self.keeps_inducing else None
        return Hyper(model.covariance, float(model.likelihood.variance), Z)


# --- processes on the features of a network ---


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


def feature_covariance(covariance):
    """Return the covariance on features: without a network ``covariance`` itself."""
    return covariance.covariance if isinstance(covariance, OnFeatures) else covariance


def features(covariance, X):
    """Return features (N, F) of inputs X (N, D); without a network X."""
    return covariance.network(X) if isinstance(covariance, OnFeatures) else X


def make_features(rows, architecture, M, rng, variance=1.0, weighting=None):
    """Return a covariance on features of a random network, and at most M inducing inputs."""
    D, F = rows.X.shape[1], architecture.num_features
    network = Network.random((D, *architecture.hidden, F), architecture.activation, rng)
    if weighting is not None:
        first, *others = network.weights
        network = replace(network, weights=(weighting[:, None] * first, *others))
    covariance = OnFeatures(RBF(variance, np.ones(F)), network)
    some = rng.choice(len(rows), min(M, max(len(rows) // 2, 1)), replace=False)
    return covariance, features(covariance, rows.X[some])


class Deep(ByMinibatches):
    """A process with an ARD squared-exponential covariance on the features of a network.

    weighting : (D,) array, optional
        Multiplies the rows of the initial first-layer weights.
    """

    NATURAL = 0.3
    keeps_inducing = False  # features change; the last posterior chooses new inducing inputs
    settles = True

    def __init__(self, name, scale, rows, rng, architecture, M=128, batch=256, weighting=None):
        model = start_at_prior(*make_features(rows, architecture, M, rng, weighting=weighting))
        trainer = Minibatches(model, rows, batch, architecture.rate, self.NATURAL, rng)
        super().__init__(name, scale, rows, trainer)
