"""What a kind of training has to provide: steps, and what they have reached."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Reached(NamedTuple):
    """Where a step object stands between two steps, as functions without arguments.

    ``model()`` is the model; ``fields()`` what else of ``TrainingState`` is the step object's, by name. Nobody changes later what
    they have returned, and they are called before the next step begins or not at all.
    """

    model: Callable[[], Any]
    fields: Callable[[], dict[str, Any]] = dict


class Steps:
    """A kind of training. ``Recorder`` drives it and does the rest: values, validation, patience, checkpoints, callbacks.

    A step object owns its state, and may update it in place. So whoever wants to keep something of it, for a checkpoint, as the
    best validated model, for a callback or as the result, asks for it by the functions of ``reached`` when a step is over, and
    keeps what these return: copies, where the next step would write over it.

    Attributes
    ----------
    unit : str
        What messages call a step.
    reached : Reached
        Where it stands. Each step puts a new one in its place, when all of the step is done.

    Notes
    -----
    ``KeyboardInterrupt`` comes anywhere in a step, at the second Ctrl-C, and training then ends with what was reached by the last
    whole step. That needs no care where the functions of ``reached`` hold on to arrays that no step writes to. A step that works
    in place has to undo what it did, or to let these functions raise: ``fit`` then ends in that error, and the last checkpoint,
    of which nothing is written over, is what there is to go on from.
    """

    unit = "step"
    reached: Reached

    def run(self, count, record):
        """Take ``count`` steps, or fewer where there is nothing left to gain.

        After each call ``record(value, retried, **told)``: the objective; whether the step needed more jitter than asked for; and
        the fields of ``StepInfo`` that the recorder does not know. What it raises, which ends the training, must get through.
        """
        raise NotImplementedError
