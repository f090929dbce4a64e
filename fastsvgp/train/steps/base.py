"""Interface of a kind of training: steps, a snapshot after each, and retries with more jitter."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from ...check import DEFAULT_JITTER
from ...errors import NotPositiveDefinite

log = logging.getLogger("fastsvgp")
RETRIES = 3


class Snapshot(NamedTuple):
    """State of a step object between two steps, as functions without arguments.

    Parameters
    ----------
    model : function
        Returns the model; later steps must not change it.
    fields : function, optional
        Returns a dict of the other fields of ``TrainingState`` that the step object owns, valid
        until the next step.
    view : function, optional
        Returns the model as a read-only view, valid until the next step. Default: ``model``.

    Examples
    --------
    >>> Snapshot(lambda: model).seen() is model
    True
    """

    model: Callable[[], Any]
    fields: Callable[[], dict[str, Any]] = dict
    view: Callable[[], Any] | None = None

    def seen(self):
        """Return a view of the model, valid until the next step."""
        return (self.view or self.model)()


class Steps:
    """A kind of training.

    ``Recorder`` drives it and does everything else: values, validation, patience, checkpoints and
    callbacks.

    To train a kind of model by ``fit``, register as ``fit=`` a function of a ``Request`` that makes
    a step object and returns a ``Recorder`` of it.

    A step object owns its state, and can update it in place. The recorder calls the functions of
    ``snapshot`` between a step and the next one. It keeps the result of ``model`` as the best model
    of a validation, so this must be a copy of arrays that a step overwrites. Callbacks, validations
    and checkpoints get a view, and so does the caller at the end. The recorder keeps only the last
    snapshot, and calls only the functions that it needs.

    Attributes
    ----------
    unit : str
        Name of a step in messages.
    snapshot : Snapshot
        State at the start, and after each step. Set when the step is complete.

    Notes
    -----
    A second Ctrl-C raises ``KeyboardInterrupt`` in the middle of a step. The training then ends
    with the snapshot of the last complete step, which is valid if no step writes to its arrays. If
    interrupted during an in-place update, the snapshot functions must raise: ``fit`` then ends with
    this error, and the last checkpoint stays. After an error of its own a step object must be in
    the state of the last complete step, because ``fit`` saves it before it raises the error.

    Examples
    --------
    Natural steps on all data. docs/model.md registers another step object for ``fit``.

    >>> class Natural(Steps):
    ...     unit = "natural step"
    ...     def __init__(self, model):
    ...         self.model, self.snapshot = model, Snapshot(lambda: model)
    ...     def run(self, count, record):
    ...         for _ in range(count):
    ...             self.model, info = fs.natural_step(self.model, X, Y, step_size=0.3)
    ...             self.snapshot = Snapshot(lambda model=self.model: model)
    ...             step_info = dict(epoch=1.0, step_size=None, natural_step_size=0.3, jitter=1e-6)
    ...             record(info.value, False, **step_info)
    >>> steps = Natural(model)
    >>> steps.run(5, lambda value, retried, **step_info: None)
    >>> fs.elbo(steps.snapshot.seen(), X, Y) > fs.elbo(model, X, Y)
    True
    """

    unit = "step"
    snapshot: Snapshot

    def at_end(self, model):
        """Return extra fields of ``FitInfo``, by name, for the ``model`` that ``fit`` returns.

        Default: none.
        """
        return {}

    def run(self, count, record):
        """Take ``count`` steps, or fewer if they have converged.

        After each step call ``record(value, retried, **step_info)`` with the objective, whether the
        step needed more jitter than requested, and the fields of ``StepInfo`` that the recorder
        does not know. ``record`` raises an exception to end the training; do not catch it.
        """
        raise NotImplementedError


class MoreJitter:
    """Computations of one training, repeated with more jitter if a factorisation fails.

    Parameters
    ----------
    jitter : float
        As requested.
    dtype : dtype
        After jitter 0 the first retry takes the default of the dtype.
    """

    def __init__(self, jitter, dtype):
        self._jitter, self._dtype, self._said = jitter, dtype, False

    def __call__(self, compute, step):
        """Call ``compute(jitter)``; after ``NotPositiveDefinite`` repeat it with ten times as much.

        Returns ``(result, jitter used)``. There are at most three retries; the last
        ``NotPositiveDefinite`` is raised. The first retry of the training is logged as a warning,
        others at level DEBUG; ``Recorder`` counts them, at level INFO.
        """
        jitter = self._jitter
        for attempt in range(RETRIES + 1):
            try:
                return compute(jitter), jitter
            except NotPositiveDefinite as error:
                if attempt == RETRIES:
                    raise
                more = 10 * jitter or DEFAULT_JITTER[self._dtype]
                log.log(
                    logging.DEBUG if self._said else logging.WARNING,
                    "step %d: %s; trying it again with jitter %g%s",
                    step,
                    str(error).split(". Likely")[0],
                    more,
                    "" if self._said else " (further retries are logged at level DEBUG)",
                )
                jitter, self._said = more, True
