"""``fit`` with ``collapsed=True``: L-BFGS-B on the bound at its optimal q(u)."""

from dataclasses import fields

import numpy as np

from ...bounds.objectives import elbo_and_grad
from ...errors import Diverged
from ...models import is_default
from ...optim.flat import free_paths
from ...posteriors.locate import moves_naturally, paths_of_q, posteriors_of
from ...priors.on_models import plus_log_prior
from ...records import matches
from ...runtime import devices
from ..arguments import seed_of
from ..natural_steps import step_to_optimum
from .sgpr import CollapsedSteps, full_batch_training, refuse_batches

NATS = 1e-6  # smallest rise of the bound by a natural step that continues an E-step
MOST = 20  # natural steps of an E-step
FAILED = 2  # status of SciPy's L-BFGS-B if its line search finds no better point
FAR = 1e3  # a trial point is refused below the reference by this times its magnitude


def profiled_training(request, checked):
    """Make the ``Recorder`` of a training of a model whose posteriors all take natural steps."""
    _refuse(request)
    moved = free_paths(request.model, request.fixed or ())
    return full_batch_training(request, moved, checked, ProfiledSteps, seed=seed_of(request.rng))


def _refuse(request):
    """Refuse options of minibatches, a group, and posteriors that are fixed or move otherwise."""
    own, model = request.options, request.model
    given = [
        field.name
        for field in fields(own)
        if field.name != "collapsed" and not is_default(getattr(own, field.name), field.default)
    ]
    refuse_batches(request, "`collapsed` trains", given)
    if request.plan.group is not None:
        raise ValueError("fit: `collapsed` is for one process; leave out `group` or `collapsed`")
    for q in posteriors_of(model).values():
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


class ProfiledSteps(CollapsedSteps):
    """Iterations of L-BFGS-B on the bound as a function of everything but q(u).

    At each point natural steps of at most 1, which do not lower the bound, take q(u) to its
    optimum, from the q(u) of the last accepted point. There the bound is stationary in q(u), so its
    gradient in the other fields is the profiled bound's. With Gaussian noise, also of known
    variances, one step reaches the optimum, and the bound is the collapsed one.

    Positive parameters move by their logarithms. By softplus, whose slope falls towards zero as the
    parameter does, more trainings end where lengthscales near zero explain nothing, after twice the
    iterations.
    """

    transform = "log"

    def __init__(self, state, data, fixed, *rest):
        self._reached = self._trial = state.model
        super().__init__(state, data, (*fixed, *paths_of_q(state.model)), *rest)
        self._options = {"weights": self._weights, "rng": state.seed}

    def at_end(self, model):
        return {}

    def run(self, count, record):
        if not self._unravel.size:  # q(u) alone is free
            start = self._host(self._vector)
            return self._accept(-self._loss(start)[0], start, record)
        status, end, began = FAILED, self._step + count, None
        # an E-step that did not end can fail a line search: it goes on from where it is
        while status == FAILED and began != self._step:
            began = self._step
            status = self._minimise(end - began, record)
            self._vector = self._unravel.pack(self._reached)

    def _model_at(self, vector):
        return self._unravel(devices.copy_to(vector, self._unravel.device_like), like=self._reached)

    def _keep_model(self, vector):
        self._reached = self._trial  # a line search takes the last point that it has tried
        return self._reached

    def _bound_and_grad(self, model, jitter):
        X, Y, options = self._X, self._Y, self._options | {"jitter": jitter}
        model = step_to_optimum(model, X, Y, steps=MOST, tolerance=NATS, **options)
        found = elbo_and_grad(model, X, Y, wrt=self._unravel.paths, **options)
        value, grad = plus_log_prior(self._priors, model, *found)
        least = -np.inf if self._reference is None else -self._reference
        if value < least - FAR * max(1.0, abs(least)):
            # a line search that saw such a value would go back too far
            raise Diverged(f"the bound is {value:g} there")
        self._trial = model
        return value, grad
