"""What training tells: to a callback after each step, and at its end."""

from dataclasses import dataclass, field

from ..bounds.elbo import SVGP
from ..optim.inverse.iteration import InverseFactorInfo
from ..records.typed import Array, Record, Vector


@dataclass(frozen=True)
class StepInfo:
    """The third argument of a callback.

    Attributes
    ----------
    model
        After the step, of the kind that is trained.
    smoothed : float
        Exponential average of the objective.
    seconds : float
        Since the beginning, time before a resumed checkpoint included.
    epoch : float
        How often the data have been seen.
    step_size, natural_step_size : float or None
        Those of this step; the natural one as it was accepted.
    jitter : float
        What the step was computed with.
    inverse : InverseFactorInfo or None
        How the factor of an inverse was brought up to date after the step, where the posterior has
        one; of a deep GP a tuple of these, one for each layer, where any has one.
    """

    model: Record
    smoothed: float
    seconds: float
    epoch: float
    step_size: float | None
    natural_step_size: float | None
    jitter: float
    inverse: InverseFactorInfo | tuple[InverseFactorInfo | None, ...] | None = None


@dataclass(frozen=True)
class FitInfo:
    """How a training went.

    Attributes
    ----------
    values : (steps,) array
        The objective at each step: of the batch, scaled to all data, before the update of that
        step.
    smoothed : float
        Its exponential average at the end.
    scores : (k, 2) array
        Step and score of each validation.
    steps : int
        Steps taken, those before a resumed checkpoint included.
    seconds : float
    reason : str
        "steps": as many as asked for; "seconds": the time is over; "converged": the line search found nothing better;
        "patience": no improvement for too long; "callback": it returned True; "interrupted":
        Ctrl-C, SIGTERM or SIGHUP.
    retries : int
        Steps that needed more jitter than asked for; each was logged.
    svgp : SVGP or None
        Of a trained ``SGPR`` or ``OrthogonalSGPR``: the ``SVGP`` at its optimal q, to predict with.
        It is what ``optimal_svgp`` makes of the same data with the jitter of the training, or with
        more where that fails, as in a step. It is computed once, when the training ends, by a pass
        over the data that costs less than an iteration. None for other models, if Ctrl-C
        interrupted that pass, and if a thousand times the jitter was not enough, which is logged.
    """

    values: Vector
    smoothed: float
    scores: Array
    steps: int
    seconds: float
    reason: str
    retries: int
    svgp: SVGP | None = field(default=None, kw_only=True)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C, SIGTERM or SIGHUP ended the training early."""
        return self.reason == "interrupted"
