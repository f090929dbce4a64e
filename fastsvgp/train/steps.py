"""What a kind of training has to provide: steps, and a snapshot after each."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Snapshot(NamedTuple):
    """Where a step object stands between two steps, as functions without arguments.

    ``model()`` is the model, which stays as it is, whatever steps follow; ``view()`` the model until the next step, for who looks
    only; where there is none, ``model()`` is. ``fields()`` are the other fields of ``TrainingState`` that are the step object's,
    by name, until the next step.
    """

    model: Callable[[], Any]
    fields: Callable[[], dict[str, Any]] = dict
    view: Callable[[], Any] | None = None

    def seen(self):
        """The model, for a look at it before the next step."""
        return (self.view or self.model)()


class Steps:
    """A kind of training. ``Recorder`` drives it and does the rest: values, validation, patience, checkpoints, callbacks.

    ``fit`` trains models of a kind that registers, as ``fit=``, a function with the arguments of ``minibatch_training``: it makes
    a step object, and returns a ``Recorder`` of it.

    A step object owns its state, and may update it in place. The recorder calls the functions of ``snapshot`` after a step and
    before the next one. It keeps what ``model`` returns for the best model of a validation: a copy, then, of whatever the next
    step writes over. Callbacks, validations and checkpoints are shown a view, and the result is the last one. It holds no
    snapshot but the last, and calls nothing that nobody asked for.

    Attributes
    ----------
    unit : str
        What messages call a step.
    snapshot : Snapshot
        Where it stands: at what it starts from, and after each step at what that has reached. Set when all of the step is done.

    Notes
    -----
    A second Ctrl-C raises ``KeyboardInterrupt`` amid a step. The training then ends with the snapshot after the last whole step,
    which is true as long as its functions hold what no step writes to. A step object that was torn while it worked in place says
    so by letting these functions raise: ``fit`` ends in that error, and the last checkpoint stays what there is to go on from.
    After errors of its own it has to stand where the last whole step left it, for ``fit`` saves that before it raises them.
    """

    unit = "step"
    snapshot: Snapshot

    def at_end(self, model):
        """Fields of ``FitInfo`` beside those of all trainings, by name, of the ``model`` that ``fit`` returns: none."""
        return {}

    def run(self, count, record):
        """Take ``count`` steps, or fewer where there is nothing left to gain.

        After each call ``record(value, retried, **told)``: the objective, whether the step needed more jitter than asked for, and
        those fields of ``StepInfo`` that the recorder cannot know. To end the training it raises; let that through.
        """
        raise NotImplementedError
