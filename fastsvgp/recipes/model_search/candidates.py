"""The interface shared by all candidates of a search."""

from typing import Any, NamedTuple

from ...covariances import Covariance

SEGMENTS = 6  # looks at the winner during the rest of the time
LAST = 0.05  # step sizes fall to this part over a whole training


class Hyper(NamedTuple):
    """Hyperparameters, and the inducing inputs learnt with them, or None."""

    covariance: Covariance
    noise: float
    inducing: Any


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

    def saved(self):
        """Return the state for ``restore``: model, optimiser, order and numbers."""
        if self._trainer is None:  # it failed to begin
            return None, None, None, {}
        *records, numbers = self._trainer.saved()
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

    def hyper(self):
        model = self._trainer.model
        Z = model.inducing if self.keeps_inducing else None
        return Hyper(model.covariance, float(model.likelihood.variance), Z)
