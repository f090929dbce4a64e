"""Candidates with a process on the features of a network."""

from dataclasses import dataclass

import numpy as np

from ...covariances import RBF, Network, OnFeatures
from ...records import replace
from .candidates import ByMinibatches
from .collapsed_posterior import features
from .minibatches import Minibatches, at_prior


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


def on_features(rows, architecture, M, rng, variance=1.0, weighting=None):
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

    def __init__(self, name, scale, rows, rng, architecture, M=128, batch=256, weighting=None):
        model = at_prior(*on_features(rows, architecture, M, rng, weighting=weighting))
        trainer = Minibatches(model, rows, batch, architecture.rate, self.NATURAL, rng)
        super().__init__(name, scale, rows, trainer)
