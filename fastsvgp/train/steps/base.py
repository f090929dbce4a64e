"""What a kind of training has to provide: steps, and a snapshot after each."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Snapshot(NamedTuple):
    """Where a step object stands between two steps, as functions without arguments.

    Parameters
    ----------
    model : function
        Gives the model, which stays as it is, whatever steps follow.
    fields : function, optional
        Gives a dict of the other fields of ``TrainingState`` that are the step object's, true until
        the next step.
    view : function, optional
        Gives the model until the next step, to be looked at only. Default: ``model``.

    Examples
    --------
    >>> Snapshot(lambda: model).seen() is model
    True
    """

    model: Callable[[], Any]
    fields: Callable[[], dict[str, Any]] = dict
    view: Callable[[], Any] | None = None

    def seen(self):
        """The model, for a look at it before the next step."""
        return (self.view or self.model)()


class Steps:
    """A kind of training.

    ``Recorder`` drives it and does the rest: values, validation, patience, checkpoints, callbacks.

    ``fit`` trains models of a kind that registers, as ``fit=``, a function with the arguments of
    ``minibatch_training``: it makes a step object, and returns a ``Recorder`` of it.

    A step object owns its state, and may update it in place. The recorder calls the functions of
    ``snapshot`` after a step and before the next one. It keeps what ``model`` returns for the best
    model of a validation: a copy, then, of whatever the next step writes over. Callbacks,
    validations and checkpoints are shown a view, and the result is the last one. It holds no
    snapshot but the last, and calls nothing that nobody asked for.

    Attributes
    ----------
    unit : str
        What messages call a step.
    snapshot : Snapshot
        Where it stands: at what it starts from, and after each step at what that has reached. Set
        when all of the step is done.

    Notes
    -----
    A second Ctrl-C raises ``KeyboardInterrupt`` amid a step. The training then ends with the
    snapshot after the last whole step, which is true as long as its functions hold what no step
    writes to. A step object that was torn while it worked in place says so by letting these
    functions raise: ``fit`` ends in that error, and the last checkpoint stays what there is to go
    on from. After errors of its own it has to stand where the last whole step left it, for ``fit``
    saves that before it raises them.

    Examples
    --------
    Natural steps on all data. docs/model.md registers another for ``fit``.

    >>> class Natural(Steps):
    ...     unit = "natural step"
    ...     def __init__(self, model):
    ...         self.model, self.snapshot = model, Snapshot(lambda: model)
    ...     def run(self, count, record):
    ...         for _ in range(count):
    ...             self.model, info = fs.natural_step(self.model, X, Y, step_size=0.3)
    ...             self.snapshot = Snapshot(lambda model=self.model: model)
    ...             record(info.value, False, epoch=1.0, step_size=None, natural_step_size=0.3, jitter=1e-6)
    >>> steps = Natural(model)
    >>> steps.run(5, lambda value, retried, **told: None)
    >>> fs.elbo(steps.snapshot.seen(), X, Y) > fs.elbo(model, X, Y)
    True
    """

    unit = "step"
    snapshot: Snapshot

    def at_end(self, model):
        """Fields of ``FitInfo`` beside those of all trainings, by name, of the ``model`` that ``fit`` returns: none."""
        return {}

    def run(self, count, record):
        """Take ``count`` steps, or fewer where there is nothing left to gain.

        After each call ``record(value, retried, **told)``: the objective, whether the step needed
        more jitter than asked for, and those fields of ``StepInfo`` that the recorder cannot know.
        To end the training it raises; let that through.
        """
        raise NotImplementedError
