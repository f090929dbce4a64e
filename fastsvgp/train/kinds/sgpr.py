"""``fit`` for an SGPR: L-BFGS-B on all data."""

from ... import check, models
from ...check import weights as weighing
from ...collapsed.orthogonal import OrthogonalSGPR
from ...collapsed.sgpr import SGPR
from ...errors import BadEntry
from ...optim.flat import free_paths
from ...records import replace
from ...runtime import devices
from .. import comparison
from ..batches import whole
from ..ranks import recording
from ..state import TrainingState, cast_model, started
from ..steps.lbfgs import CollapsedSteps
from .request import Request

ITERATIONS = 1000


@models.with_options(models.NoOptions)
def sgpr_training(*arguments, weights=None, **others):
    """Make the ``Recorder`` of a training of an SGPR.

    Arguments as of ``minibatch_training``; any ``others`` are refused.
    """
    request = Request(*arguments, weights=weights)
    model, X, Y, plan = request.model, request.X, request.Y, request.plan
    given = [
        *others,
        *(name for name in ("patience", "validate") if getattr(plan, name) is not None),
    ]
    if given:
        listed = ", ".join(f"`{name}`" for name in given)
        kind = type(model).__name__
        raise ValueError(
            f"fit: an {kind} is trained on all data by L-BFGS-B; {listed} would have no effect"
        )
    # its values have no noise, so they are not averaged
    most = ITERATIONS if plan.until is None else 10**6
    plan = replace(plan, steps=most if plan.steps is None else plan.steps, smoothing=0.0)
    fixed, jitter = request.fixed or (), request.jitter
    moved = free_paths(model, fixed)
    if not moved:
        raise ValueError("fit: all fields are fixed, there is nothing to train")
    check.parts(model)
    num_data = len(X) if plan.group is None else plan.group.num_rows
    settings = comparison.settings(total=plan.steps, moved=moved, jitter=jitter)
    state = started(
        TrainingState(
            model, num_data=num_data, batch_size=num_data, settings=settings, **request.about
        ),
        request.resume,
    )
    if plan.group is not None:
        X, Y, weights = plan.group.rows_of(X, Y, weights)
    device_like = devices.home_of(model)
    X, Y = devices.all_like(device_like, X=whole("X", X), Y=whole("Y", Y))

    def checked(X, Y):
        return check.parameters(
            state.model, check.inputs("X", X), *((Y,) if Y.dtype.kind == "f" else ())
        )

    weights = None if weights is None else devices.like(weights, device_like)
    try:
        _, dtype = checked(X, Y) if weights is None else weighing.through(checked, X, Y, weights)[0]
    except BadEntry as error:
        if plan.group is not None:
            plan.group.locate(error)
        raise
    state = replace(state, model=cast_model(state.model, dtype))
    jitter = check.jitter_amount(jitter, dtype)
    steps = CollapsedSteps(state, (X, Y, weights), fixed, jitter, dtype, plan.group)
    return recording(state, steps, plan)


models.register(SGPR, fit=sgpr_training)
models.register(OrthogonalSGPR, fit=sgpr_training)
