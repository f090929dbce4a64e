"""Information on a training: for a callback after each step, and at the end."""

from dataclasses import dataclass, field, fields

from ..bounds.svgp import SVGP
from ..collapsed.certificate import Certificate
from ..optim.inverse.iteration import InverseFactorInfo
from ..records.decorator import format_record
from ..records.typed import Array, Record, Vector


@dataclass(frozen=True)
class StepInfo:
    """The third argument of a callback.

    Parameters
    ----------
    model : record
        Model after the step.
    smoothed : float
        Exponential average of the objective.
    seconds : float
        Time since the beginning, including that before a resumed checkpoint.
    epoch : float
        Passes over the data so far.
    step_size, natural_step_size : float or None
        Step sizes of this step; the natural one as accepted.
    jitter : float
        Jitter used in the step.
    inverse : InverseFactorInfo or None
        Update of the factor of an inverse after the step, if the posterior has one; for a deep GP a
        tuple with one entry per layer, if any layer has one.

    Examples
    --------
    >>> def callback(step, value, info):
    ...     return info.smoothed > 0  # end the training there
    >>> _, info = fs.fit(model, X, Y, steps=5, callback=callback, rng=0)
    >>> info.reason
    'steps'
    """

    model: Record
    smoothed: float
    seconds: float
    epoch: float
    step_size: float | None
    natural_step_size: float | None
    jitter: float
    inverse: InverseFactorInfo | tuple[InverseFactorInfo | None, ...] | None = None


@dataclass(frozen=True, repr=False)
class FitInfo:
    """Result of a training.

    Parameters
    ----------
    values : (steps,) array
        Objective at each step: on the batch, scaled to all data, before the update of the step.
    smoothed : float
        Exponential average of the objective at the end.
    scores : (k, 2) array
        Step and score of each validation.
    steps : int
        Steps taken, including those before a resumed checkpoint.
    seconds : float
    reason : str
        "steps": all steps are done; "seconds": the time is over; "converged": the line search found
        no better point; "patience": no improvement for too long; "callback": the callback returned
        True; "interrupted": Ctrl-C, SIGTERM or SIGHUP.
    retries : int
        Steps that needed more jitter than requested.
    svgp : SVGP or None
        For a trained ``SGPR`` or ``OrthogonalSGPR``: the ``SVGP`` at its optimal q, for
        predictions. It is the result of ``optimal_svgp`` on the same data with the jitter of the
        training, or with more if that fails, as in a step. It is computed once, when the training
        ends, by a pass over the data that costs less than an iteration. None for other models, if
        Ctrl-C interrupted that pass, or if a thousand times the jitter was not enough, which is
        logged.
    detail : (float, float) or None
        From ``recipes.near_rows``, at the SVGP: the mean variance that its inducing inputs leave,
        over that of the noise, and the median distance to the nearest row, in lengthscales.
    certificate : Certificate or None
        For an ``SGPR`` trained with ``within``: how far the result is from the exact process.

    Examples
    --------
    >>> trained, info = fs.fit(model, X, Y, steps=5, rng=0)
    >>> info.values.shape, info.reason
    ((5,), 'steps')
    """

    values: Vector
    smoothed: float
    scores: Array
    steps: int
    seconds: float
    reason: str
    retries: int
    svgp: SVGP | None = field(default=None, kw_only=True)
    detail: tuple[float, float] | None = field(default=None, kw_only=True)
    certificate: Certificate | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return format_record(self, (field.name for field in fields(self)))

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C, SIGTERM or SIGHUP ended the training early."""
        return self.reason == "interrupted"
