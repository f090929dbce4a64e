"""``fit`` for an SGPR: iterations of L-BFGS-B on the collapsed bound of all data."""

import contextlib
import logging
import math

import numpy as np

from ... import check, models
from ...collapsed.orthogonal import OrthogonalSGPR
from ...collapsed.sgpr import SGPR, collapsed_bound_and_grad, optimal_svgp
from ...errors import BadEntry, Diverged, InvalidSites, NotPositiveDefinite
from ...optim.flat import free_paths, ravel
from ...priors.on_models import plus_log_prior
from ...records import is_record, replace
from ...runtime import devices
from ...runtime.blas_scope import blas_threads_for
from ...runtime.deferred_checks import on_device
from .. import comparison
from ..batches import locating, whole
from ..loop import StopTraining
from ..ranks import recording
from ..state import TrainingState, settle, started
from ..steps import MoreJitter, Snapshot, Steps
from .growing import ITERATIONS, GrowingSets, SGPROptions

log = logging.getLogger("fastsvgp")
# commands of rank 0 to the others: end, evaluate a trial point, accept a point
END, TRIAL, ACCEPTED = 0, 1, 2


@models.with_options(models.NoOptions)
def collapsed_training(request, **fields):
    """Make the ``Recorder`` of a training on a collapsed bound; ``fields`` of its state."""
    refuse_batches(request, f"an {type(request.model).__name__} is trained")
    moved = free_paths(request.model, request.fixed or ())
    if not moved:
        raise ValueError("fit: all fields are fixed, there is nothing to train")
    check.parts(request.model)
    return full_batch_training(request, moved, check_arrays, CollapsedSteps, **fields)


@models.with_options(SGPROptions)
def sgpr_training(request):
    """Make the ``Recorder`` of a training of an SGPR, or trainings with a growing number."""
    if request.options.within is None:
        return collapsed_training(request)
    return GrowingSets(request, collapsed_training)


models.register(SGPR, fit=sgpr_training)
models.register(OrthogonalSGPR, fit=collapsed_training)


def check_arrays(model, X, Y):
    """Check rows, numbers and devices, for any kind of model."""
    X, Y = check.inputs("X", X), check.as_array("Y", Y)
    return check.parameters(model, X, *((Y,) if Y.dtype.kind == "f" else ()))


def refuse_batches(request, trained, more=()):
    """Refuse options of minibatches, and ``more`` names of given options."""
    names = "epochs", "batch_size", "optimiser", "patience", "validate"
    request.refuse(f"{trained} on all data by L-BFGS-B", *names, more=more)


def full_batch_training(request, moved, checked, steps, **fields):
    """Make the ``Recorder`` of a training that takes all rows in each of its iterations.

    Parameters
    ----------
    request : Request
    moved : tuple of str
        Paths of the leaves that change.
    checked : function
        ``checked(model, X, Y)`` refuses invalid data; the last item of its result is the dtype of
        the bound.
    steps : type
        ``CollapsedSteps`` or a subclass.
    **fields
        More fields of the ``TrainingState``.
    """
    data, plan = (request.X, request.Y, request.weights), request.plan
    # its values have no noise, so they are not averaged
    most = ITERATIONS if plan.until is None else 10**6
    plan = replace(plan, steps=most if plan.steps is None else plan.steps, smoothing=0.0)
    settings = comparison.settings(
        total=plan.steps,
        num_data=len(request.X) if plan.group is None else plan.group.num_rows,
        moved=moved,
        priors=request.priors,
        jitter=request.jitter,
    )
    fields |= request.about | {"settings": settings}
    state = started(TrainingState(request.model, **fields), request.resume)
    if plan.group is not None:
        data = plan.group.rows_of(*data)
    device_like, names = devices.device_array(request.model), ("X", "Y", "weights")
    data = [
        one if one is None or is_record(one) else devices.copy_to(whole(name, one), device_like)
        for name, one in zip(names, data, strict=True)
    ]
    with contextlib.nullcontext() if plan.group is None else locating(plan.group.locate):
        state, jitter, dtype = settle(state, request.jitter, checked, *data)
    made = steps(state, data, request.fixed or (), jitter, dtype, plan.group, request.priors)
    return recording(state, made, plan)


class CollapsedSteps(Steps):
    """Iterations from ``state``, a ``TrainingState``, on ``data``, which are (X, Y, weights).

    The result is the last point that the line search accepted.
    """

    unit = "iteration"
    transform = "softplus"  # of positive parameters

    def __init__(self, state, data, fixed, jitter, dtype, group=None, priors=None):
        (self._X, self._Y, self._weights), self._jitter = data, jitter
        self._with_more_jitter = MoreJitter(jitter, dtype)
        self._start, self._step = state.model, state.step
        self._vector, self._unravel = ravel(state.model, fixed=fixed, transform=self.transform)
        self.snapshot = Snapshot(lambda: state.model)
        self._retried, self._reference, self._group = False, None, group
        self._priors = priors

    def run(self, count, record):
        if self._group is None:
            return self._minimise(count, record)
        if self._group.rank:
            return self._follow(record)
        try:
            self._minimise(count, record)
        except StopTraining:  # on all ranks
            self._say(END)
            raise
        self._say(END)

    def at_end(self, model):
        """Return the SVGP at the optimal q, by one more pass over the data.

        In a group all ranks make this call.
        """
        more = {} if self._group is None else {"group": self._group}

        def compute(jitter):
            return optimal_svgp(
                model, self._X, self._Y, jitter=jitter, weights=self._weights, **more
            )

        try:
            return {"svgp": self._with_more_jitter(compute, self._step)[0]}
        except NotPositiveDefinite as error:
            problem = str(error).split(". Likely")[0]
            log.warning(
                "fit: no optimal SVGP could be computed (%s), so info.svgp is None; more `jitter`"
                " may help",
                problem,
            )
            return {}

    def rehearse(self):
        """Compute the bound of a single row, to compile what an iteration needs."""
        collapsed_bound_and_grad(
            self._start, self._X[:1], self._Y[:1], jitter=self._jitter, wrt=self._unravel.paths
        )

    def _minimise(self, count, record):
        from scipy.optimize import minimize

        def record_iteration(intermediate_result):
            """Record an iteration; SciPy passes an OptimizeResult to an argument of this name."""
            value, vector = -float(intermediate_result.fun), intermediate_result.x
            if self._group is not None:
                self._say(ACCEPTED, value, vector)
            self._accept(value, vector, record)

        options = {"maxiter": count, "maxfun": 100 * count, "maxcor": 20}
        with blas_threads_for((self._start, self._X)):  # SciPy's optimiser calls BLAS too
            start = self._host(self._vector)
            loss = self._loss if self._group is None else self._loss_of_all
            found = minimize(
                loss, start, jac=True, method="L-BFGS-B", callback=record_iteration, options=options
            )
        log.info("L-BFGS-B: %s", found.message)
        return found.status

    def _accept(self, value, vector, record):
        """Record a point that the line search accepted."""
        model = self._keep_model(vector)
        self._reference = -value
        self._step = self._step + 1
        retried = self._retried
        self._retried = False
        self.snapshot = Snapshot(lambda: model)
        record(
            value,
            retried,
            epoch=float(self._step),
            step_size=None,
            natural_step_size=None,
            jitter=self._jitter,
        )

    def _say(self, *said):
        """Broadcast a command of rank 0: what to do, a value, a vector.

        Other ranks call this without arguments, and receive the command.
        """
        message = np.zeros(2 + self._vector.size)
        for part, at in zip(said, (0, 1, slice(2, None)), strict=False):
            message[at] = part
        group = self._group
        group.call(lambda: group.communicator.exchange(group.group.broadcast, message))
        return message[0], float(message[1]), message[2:]

    def _loss_of_all(self, vector):
        """Evaluate ``_loss`` on rank 0, together with all other ranks."""
        self._say(TRIAL, 0.0, vector)
        return self._loss(vector)

    def _follow(self, record):
        """Follow the commands of rank 0 on another rank, until the end."""
        ended = None
        while True:
            command, value, vector = self._say()
            if command == END and ended is not None:
                raise ended
            if command == END:
                return
            try:
                if command == TRIAL:
                    self._loss(vector)
                else:
                    self._accept(value, vector, record)
            except StopTraining as end:
                ended = end

    def _model_at(self, vector):
        return self._unravel(devices.copy_to(vector, self._unravel.device_like))

    _keep_model = _model_at

    def _bound_and_grad(self, model, jitter):
        """Return the objective that is maximised, and its gradient in the free fields."""
        weights, wrt = self._weights, self._unravel.paths
        more = {} if self._group is None else {"group": self._group}
        found = collapsed_bound_and_grad(
            model, self._X, self._Y, jitter=jitter, weights=weights, wrt=wrt, **more
        )
        return plus_log_prior(self._priors, model, *found)

    @staticmethod
    def _host(vector):
        """Copy to the host, where SciPy's line search runs."""
        return vector.get() if on_device(vector) else vector

    def _loss(self, vector):
        """Return minus the bound, and its gradient.

        If the bound cannot be computed at a trial point, even with more jitter, the value is that
        of the last accepted point plus its magnitude (at least 1), and the line search backtracks.
        """
        model = self._model_at(vector)

        def compute(jitter):
            # a gradient that overflows makes the line search backtrack, below
            with np.errstate(over="ignore", invalid="ignore"):
                return self._bound_and_grad(model, jitter)

        try:
            (value, grad), used = self._with_more_jitter(compute, self._step + 1)
            self._retried |= used > self._jitter
            flat = -self._host(
                self._unravel.pullback(devices.copy_to(vector, self._unravel.device_like), grad)
            )
            if math.isfinite(value) and np.isfinite(flat).all():
                self._reference = -value if self._reference is None else self._reference
                return -value, flat
            problem = f"the bound is {value}, or its gradient is not finite"
        except (NotPositiveDefinite, Diverged, InvalidSites, BadEntry) as error:
            if self._reference is None:
                raise
            problem = str(error).split(". Likely")[0]
        if self._reference is None:
            raise check.diverged_error(f"fit: {problem} at the model to start from", model, step=1)
        log.info(  # nothing to act on: the next trial point is nearer
            "iteration %d: the line search went too far and comes back (%s)",
            self._step + 1,
            problem,
        )
        return self._reference + max(1.0, abs(self._reference)), np.zeros_like(vector)
