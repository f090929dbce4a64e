"""``fit`` with ``collapsed=True``: L-BFGS-B on the bound at its optimal q(u)."""

from dataclasses import fields

from ...models import is_default
from ...optim.flat import free_paths
from ...posteriors.placed import moves_naturally, paths_of_q, placed
from ...records import matches
from ..steps.profiled import ProfiledSteps
from .request import SHARED, seed_of
from .sgpr import on_all_rows, refuse_batches


def profiled_training(request, checked):
    """Make the ``Recorder`` of a training of a model whose posteriors all take natural steps."""
    _refuse(request)
    fixed = request.fixed or ()
    moved = free_paths(request.model, fixed)

    def steps(state, data, jitter, dtype):
        return ProfiledSteps(state, data, fixed, jitter, dtype)

    return on_all_rows(request, moved, checked, steps, seed=seed_of(request.rng))


def _refuse(request):
    """Refuse options of minibatches, a group, and posteriors that are fixed or move otherwise."""
    own, model = request.options, request.model
    given = [name for name in SHARED if getattr(request, name) is not None]
    given += [
        field.name
        for field in fields(own)
        if field.name != "collapsed" and not is_default(getattr(own, field.name), field.default)
    ]
    refuse_batches("`collapsed` trains", request, [*given, *request.others])
    if request.plan.group is not None:
        raise ValueError("fit: `collapsed` is for one process; leave out `group` or `collapsed`")
    for q in placed(model).values():
        if not moves_naturally(type(q)):
            kind = type(q).__name__
            raise TypeError(
                f"fit: `collapsed` needs natural steps of all of q(u), which a {kind} has not; use"
                " Whitened, or leave it out"
            )
    held = [one for one in request.fixed or () if matches(one, paths_of_q(model))]
    if held:
        raise ValueError(
            f"fit: {held[0]!r} is fixed, and `collapsed` moves it to its optimum; drop one"
        )
