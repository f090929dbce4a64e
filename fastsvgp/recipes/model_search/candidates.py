"""What all candidates of a search have."""

from typing import Any, NamedTuple

from ...covariances import Covariance

SEGMENTS = 6  # looks at a candidate while it has the rest of the time
LAST = 0.05  # step sizes of a whole training fall to this part


class Hyper(NamedTuple):
    """Hyperparameters, and inducing inputs that were learnt with them, or None."""

    covariance: Covariance
    noise: float
    inducing: Any


class ByMinibatches:
    """A candidate that is trained by minibatches.

    Parameters
    ----------
    name : str
    scale : Scale
        Of its inputs.
    rows : Rows
        In units of the model.
    trainer : Minibatches, or None
        Where ``begin`` makes it, at the first ``take``.
    """

    share, segments = 1, SEGMENTS  # slices in the race, and looks after it
    keeps_inducing = True  # inducing inputs are among those of the last posterior

    def __init__(self, name, scale, rows, trainer=None):
        self.name, self.scale, self.rows, self._trainer, self.part = name, scale, rows, trainer, 0.0

    @property
    def steps(self):
        return 0 if self._trainer is None else self._trainer.steps

    def take(self, plan, seconds, part=None):
        """Go on for about these seconds.

        part : the interval of a whole training that this is, over which step sizes fall
        log-linearly; None: they stay.
        """
        began = plan.spent
        if self._trainer is None:
            self._trainer = self.begin(plan)
        first, self.part = part or (0.0, 0.0)
        last = self.part
        self._trainer.take_for(
            plan, self.name, seconds - (plan.spent - began), lambda done: LAST ** (first + done * (last - first))
        )  # fmt: skip

    def begin(self, plan):
        """The ``Minibatches`` of this candidate."""
        raise NotImplementedError

    @property
    def state(self):
        return self._trainer.state, self.part

    def go_back(self, state):
        """To where it was."""
        self._trainer.state, self.part = state

    def hyper(self):
        model = self._trainer.model
        Z = model.inducing if self.keeps_inducing else None
        return Hyper(model.covariance, float(model.likelihood.variance), Z)
