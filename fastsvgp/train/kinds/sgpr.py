"""``fit`` for an SGPR: L-BFGS-B on all data."""

from functools import partial

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

    Takes the arguments of ``minibatch_training``; any ``others`` are refused.
    """
    request = Request(*arguments, weights=weights)
    refuse_batches(f"an {type(request.model).__name__} is trained", request, others)
    moved = free_paths(request.model, request.fixed or ())
    if not moved:
        raise ValueError("fit: all fields are fixed, there is nothing to train")
    check.parts(request.model)

    def checked(model, X, Y):
        return check.parameters(model, check.inputs("X", X), *((Y,) if Y.dtype.kind == "f" else ()))

    def steps(state, data, jitter, dtype):
        fixed, group = request.fixed or (), request.plan.group
        return CollapsedSteps(state, data, fixed, jitter, dtype, group)

    return on_all_rows(request, moved, checked, steps)


def refuse_batches(trained, request, given):
    """Refuse options of minibatches: the names ``given``, and those of the plan."""
    plan = request.plan
    given = [
        *given,
        *(name for name in ("patience", "validate") if getattr(plan, name) is not None),
    ]
    if given:
        listed = ", ".join(f"`{name}`" for name in given)
        raise ValueError(f"fit: {trained} on all data by L-BFGS-B; {listed} would have no effect")


def on_all_rows(request, moved, checked, make_steps, **fields):
    """Make the ``Recorder`` of a training that takes all rows in each of its iterations.

    Parameters
    ----------
    request : Request
    moved : tuple of str
        Paths of the leaves that change.
    checked : function
        ``checked(model, X, Y)`` refuses invalid data; the last item of its result is the dtype of
        the bound.
    make_steps : function
        ``make_steps(state, (X, Y, weights), jitter, dtype)`` returns the ``Steps``.
    **fields
        More fields of the ``TrainingState``.
    """
    X, Y, weights, plan = request.X, request.Y, request.weights, request.plan
    # its values have no noise, so they are not averaged
    most = ITERATIONS if plan.until is None else 10**6
    plan = replace(plan, steps=most if plan.steps is None else plan.steps, smoothing=0.0)
    num_data = len(X) if plan.group is None else plan.group.num_rows
    settings = comparison.settings(total=plan.steps, moved=moved, jitter=request.jitter)
    fields |= request.about | {"settings": settings}
    fresh = TrainingState(request.model, num_data=num_data, batch_size=num_data, **fields)
    state = started(fresh, request.resume)
    if plan.group is not None:
        X, Y, weights = plan.group.rows_of(X, Y, weights)
    device_like = devices.home_of(request.model)
    X, Y = (devices.like(whole(name, a), device_like) for name, a in (("X", X), ("Y", Y)))
    weights = None if weights is None else devices.like(weights, device_like)
    columns = check.num_columns(getattr(state.model, "likelihood", None))
    checked = partial(checked, state.model)
    try:
        *_, dtype = (
            checked(X, Y)
            if weights is None
            else weighing.through(checked, X, Y, weights, columns)[0]
        )
    except BadEntry as error:
        if plan.group is not None:
            plan.group.locate(error)
        raise
    state = replace(state, model=cast_model(state.model, dtype))
    jitter = check.jitter_amount(request.jitter, dtype)
    return recording(state, make_steps(state, (X, Y, weights), jitter, dtype), plan)


models.register(SGPR, fit=sgpr_training)
models.register(OrthogonalSGPR, fit=sgpr_training)
