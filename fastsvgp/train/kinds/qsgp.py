"""``fit`` for a QSGP: in-place steps on samples of data and basis functions."""

import logging
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ... import check, models
from ...likelihoods import Gaussian
from ...optim.adaptive import adagrad
from ...optim.base import check_offered, initial_state
from ...optim.schedules import lasting
from ...qsgp import model as qsgp
from ...qsgp.bases.samples import SparseRows, draw_basis_sample, num_units
from ...qsgp.closed_form import optimal_diagonal
from ...qsgp.control_changes import update_control_variate
from ...qsgp.control_variates import kriging_control_variate
from ...qsgp.model import QSGP
from ...qsgp.posterior import ChevronWeights
from ...qsgp.relevance import optimal_precision
from ...qsgp.sampled_bound import sampled_bound_and_grad
from ...records import is_record, leaves, matches, replace, tree_map
from ...records.typed import Record
from ...runtime import devices
from ...runtime.deferred_checks import on_device
from .. import comparison
from ..arguments import MOST, count, given_seed, seed_of
from ..batches import Batches, locate_inputs, locating
from ..loop import Recorder
from ..state import TrainingState, begin, cast_model
from ..steps import Snapshot, Steps

log = logging.getLogger("fastsvgp")

FUNCTIONS = 10_000  # basis functions per step on each side
SAMPLED = 500  # rows of data per step
POINTS = 500  # points of the kriged control variate
HELD = "basis.covariance", "basis.inducing", "likelihood"  # default of ``fixed``
# closed forms take this number of rows, or fewer, to compute at most this number of features
ROWS, LOOKS = 4096, 2**32
NEWEST = 0.5  # weight of the newest variance in its running mean
LEAST = 1e-6  # smallest running mean, relative to the prior variance
RENEWAL = 1000  # least number of steps after which a control variate is recomputed
SHARE = 20  # recomputing costs at most 1 / SHARE of the steps


@dataclass(frozen=True)
class QSGPOptions:
    """Options of ``fit`` for a ``QSGP``.

    Parameters
    ----------
    basis_size : int, optional
        Basis functions per step on each side. Default 10,000, or all.
    control : int, KrigedControl or PairedControl, optional
        Control variate: a kriged one at this number of random rows, or an object for this model. 0
        is none. Default min(500, N) for Gaussian noise, else 0.
    closed_form_every : int, optional
        Steps between closed forms of the diagonal, for Gaussian noise. Before the first step
        and at this interval, the diagonal of the factor beyond its dense columns is set to its
        optimum (``fs.qsgp.optimal_diagonal``, on at most 4096 rows), and then the precisions of a
        ``RelevanceBasis`` that are not fixed (``fs.qsgp.optimal_precision``). The optimiser holds
        both fixed. With 0 the optimiser updates them instead. Default: once, before the first
        step, if only the posterior is trained; else 0.
    """

    basis_size: int | None = None
    control: int | Record | None = None
    closed_form_every: int | None = None


@models.with_options(QSGPOptions)
def sampled_training(request):
    """Make the ``Recorder`` of a training of a QSGP."""
    request.refuse("a QSGP is trained on samples of its basis", "weights", "priors")
    model, own = request.model, request.options
    qsgp.check_parts(model)
    size = count("batch_size", request.batch_size) or SAMPLED
    batches = Batches(request.X, request.Y, size, seed_of(request.rng))
    plan = request.make_plan(batches)
    optimiser = lasting(_optimiser(model, request.optimiser, request.fixed), plan.steps)
    closed_form_every, precision, optimiser = _closed_forms(
        model, optimiser, count("closed_form_every", own.closed_form_every, 0)
    )
    _warn_of_hyperparameters(model, optimiser.paths(model))
    units = -(-(count("basis_size", own.basis_size) or FUNCTIONS) // model.basis.width)
    units = min(units, num_units(model.basis))
    basis_size, gaussian = units * model.basis.width, isinstance(model.likelihood, Gaussian)
    points = _points(own.control, gaussian, batches.num_data)
    dense = np.shape(model.posterior.columns)[-1] > 0 or model.basis.dense_precision
    every = max(RENEWAL, SHARE * model.basis.num_functions() // basis_size)
    two_sides = gaussian or dense or points > 0
    choices = Choices(units, two_sides, closed_form_every, precision, every)
    settings = comparison.settings(
        total=plan.steps,
        num_data=batches.num_data,
        batch_size=batches.size,
        basis_size=basis_size,
        control=points,
        optimiser=optimiser,
        moved=optimiser.paths(model),
        closed_form_every=closed_form_every,
        jitter=request.jitter,
        rng=given_seed(request.rng),
    )
    fresh = TrainingState(
        model,
        initial_state(optimiser, model),
        spread=None if gaussian else np.zeros(batches.num_data, like=devices.device_array(model)),
        seed=batches.seed,
        settings=settings,
        **request.about,
    )
    state, batches = begin(fresh, request.resume, batches)
    state, dtype = cast_to_first(state, batches)
    jitter = check.jitter_amount(request.jitter, dtype)
    if request.resume is None:
        control = own.control if is_record(own.control) else None
        if control is None and points:
            control = _control(state, points, batches, jitter)
        state = replace(state, control=control)
    return Recorder(state, SampledSteps(state, batches, optimiser, choices, jitter), plan)


models.register(QSGP, fit=sampled_training)


def cast_to_first(state, batches):
    """Check the first batch; return the state in the dtype of the bound, and this dtype."""
    with locating(batches.locate, state.step):
        checked, _, _, dtype = qsgp.check_data(state.model, *batches.at(state.step))
    return replace(state, model=cast_model(checked, dtype)), dtype


def _control(state, points, batches, jitter):
    """Make the kriged control variate at this number of random rows."""
    rng, dtype = np.random.default_rng([state.seed, 4]), state.model.posterior.mean.dtype
    rows = np.sort(rng.choice(batches.num_data, points, replace=False))
    with locating(locate_inputs, "points", rows):
        inputs = batches.inputs(rows).astype(dtype, copy=False)
        return kriging_control_variate(state.model, inputs, jitter=jitter)


def _optimiser(model, optimiser, fixed):
    """Return the optimiser, with the fixed fields."""
    if optimiser is not None:
        check_offered("fit: `optimiser`", optimiser)
    held = [name for name in HELD if any(matches(path, (name,)) for path, _, _ in leaves(model))]
    optimiser = (adagrad() if optimiser is None else optimiser).fixing(
        held if fixed is None else fixed
    )
    moved = optimiser.paths(model)
    if not moved:
        raise ValueError("fit: all fields are fixed, there is nothing to train")
    if model.basis.dense_precision and any(path.startswith("basis.") for path in moved):
        raise ValueError(
            f"fit: samples do not determine log|S| of a dense S, so an {type(model.basis).__name__}"
            " cannot be trained on them; name 'basis' in `fixed` too, or learn it by"
            " bound_and_grad"
        )
    return optimiser


def _closed_forms(model, optimiser, every):
    """Return ``(every, precision, optimiser)``: when closed forms are taken, and of what.

    every : steps between closed forms, None for never, ``MOST`` for once; precision : whether they
    include precisions; optimiser : that of all other fields
    """
    moved = optimiser.paths(model)
    gaussian, possible = isinstance(model.likelihood, Gaussian), "posterior.diagonal" in moved
    if every is None:
        settled_rest = not any(path.startswith(("basis.", "likelihood.")) for path in moved)
        every = (
            MOST if gaussian and possible and settled_rest and len(model.posterior.diagonal) else 0
        )
    if every == 0:
        return None, False, optimiser
    if not gaussian or not possible:
        kind = type(model.likelihood).__name__
        why = (
            "`posterior.diagonal` is fixed"
            if gaussian
            else f"the optimum is not known for a {kind} likelihood"
        )
        raise ValueError(
            f"fit: `closed_form_every` asks for an optimal diagonal, but {why}; leave it out"
        )
    closed = [path for path in ("posterior.diagonal", "basis.precision") if path in moved]
    return every, "basis.precision" in closed, optimiser.fixing(closed)


def _warn_of_hyperparameters(model, moved):
    """Warn if hyperparameters are learned from the bound of a chevron with few dense columns."""
    learned = [path for path in moved if matches(path, HELD)]
    m, k = np.shape(model.posterior.columns)
    if learned and k < m:
        log.warning(
            "%s are learned from a bound that has %d of %d columns of its factor dense: unless"
            " there are far fewer functions than data, it tends to attribute structure to noise."
            " Hyperparameters of an exact GP on some rows are the safer choice",
            ", ".join(learned),
            k,
            m,
        )


def _points(control, gaussian, num_data):
    """Return the number of points of the control variate; 0 for none."""
    if control is None:
        return min(POINTS, num_data) if gaussian else 0
    if is_record(control):
        return len(getattr(control, "points", ()))
    points = count("control", control, 0)
    if points > num_data:
        raise ValueError(f"fit: `control` asks for {points} points, but there are {num_data} rows")
    return points


class Choices(NamedTuple):
    """Constants of a training.

    units : units of the basis on each side of a step; pair : whether there are two sides;
    closed_form_every, renewal : steps between closed forms, and between exact control variates;
    precision : whether precisions have a closed form
    """

    units: int
    pair: bool
    closed_form_every: int | None
    precision: bool
    renewal: int


class SampledSteps(Steps):
    """Steps from ``state``, a ``TrainingState``; from the second step on they write to its arrays.

    A step takes a batch, draws basis functions, moves along the sampled gradient, and updates the
    control variate by what has moved. The draws depend only on the seed and the step.
    """

    def __init__(self, state, batches, optimiser, choices, jitter):
        self._batches, self._optimiser = batches, optimiser
        self._choices, self._jitter = choices, jitter
        self._seed, self._step, self._torn = state.seed, state.step, []
        self._spread = state.spread
        self._move_to(state.model, state.optimiser, state.control)

    def _move_to(self, model, optimised, control):
        self._model, self._optimised, self._control = model, optimised, control
        torn = self._torn
        fields = {"optimiser": optimised, "control": control, "spread": self._spread}

        def view():
            if torn:
                raise RuntimeError(
                    "fit: interrupted during an in-place step; resume from the last checkpoint"
                )
            return model

        self.snapshot = Snapshot(
            lambda: tree_map(lambda value: value.copy() if np.ndim(value) else value, view()),
            lambda: fields,
            view,
        )

    def run(self, count, record):
        for _ in range(count):
            value, step_size = self._take()
            self._step += 1
            epoch = self._step * self._batches.size / self._batches.num_data
            sizes = {"step_size": step_size, "natural_step_size": None}
            record(value, False, jitter=self._jitter, epoch=epoch, **sizes)

    def _take(self):
        """Take one step; return its objective, and the step size."""
        step, choices, num_data = self._step, self._choices, self._batches.num_data
        model, control = self._renew()
        rows, (X, Y) = self._batches.rows(step), self._batches.at(step)
        sample = draw_basis_sample(
            model.basis, choices.units, rng=(self._seed, step), pair=choices.pair
        )
        paths, tangent = self._optimiser.moving(model, self._optimised), None
        if self._spread is not None:
            prior = model.basis.covariance.kff(X)
            seen = self._spread[devices.copy_to(rows, self._spread)]
            tangent = np.sqrt(np.where(seen > 0, seen, prior))
        options = {"num_data": num_data, "jitter": self._jitter, "wrt": paths}
        with locating(self._batches.locate, step):
            value, grad, info = sampled_bound_and_grad(
                model, X, Y, sample, control=control, tangent=tangent, **options
            )
        if not math.isfinite(value):
            what = f"fit: the bound is {value} at step {step + 1}, though what it sampled is finite"
            raise check.diverged_error(what, step=step + 1)
        step_size = self._optimiser.step_size_at(self._optimised)
        before = _sampled_rows(model.posterior, grad.posterior) if control is not None else None
        self._torn.append(step)
        try:
            model, optimised = self._optimiser.step(model, grad, self._optimised, value)
        except ValueError:  # of the gradient, before anything was written
            self._torn.clear()
            raise
        if before is not None:
            control = update_control_variate(model, info.control, _change(before, model.posterior))
        if self._spread is not None:
            var = np.maximum(info.var, LEAST * prior)
            _put(self._spread, rows, np.where(seen > 0, (1 - NEWEST) * seen + NEWEST * var, var))
        self._torn.clear()
        self._move_to(model, optimised, control)
        return value, step_size

    def _renew(self):
        """Return ``(model, control)`` for the next step, after closed forms and renewals.

        A renewed control variate is free of the rounding of many updates.
        """
        model, control = self._model, self._control
        every, renewal = self._choices.closed_form_every, self._choices.renewal
        if every is not None and self._step % every == 0:
            model = self._solve_closed_forms(model)
        if control is not None and self._step and self._step % renewal == 0:
            control = control.refit(model, self._jitter)
        return model, control

    def _solve_closed_forms(self, model):
        """Return the model with the optimal diagonal, and precisions."""
        few = max(1, min(ROWS, LOOKS // model.basis.num_functions()))
        count = min(max(few, self._batches.size), self._batches.num_data)
        rng = np.random.default_rng([self._seed, 3, self._step])
        rows = np.sort(rng.choice(self._batches.num_data, count, replace=False))
        options = {"num_data": self._batches.num_data, "jitter": self._jitter}
        with locating(locate_inputs, "X", rows):
            model = optimal_diagonal(model, self._batches.inputs(rows), **options)
        if self._choices.precision:
            model = optimal_precision(model)
        return model


def _put(array, rows, values):
    """Set ``array[rows] = values``.

    If an epoch ends within a batch a row can come twice; the last value is kept.
    """
    if on_device(array):
        last = len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]
        rows, values = devices.copy_to(rows[last], array), values[devices.copy_to(last, array)]
    array[rows] = values


def _sampled_rows(q, q_bar):
    """Return the rows of q that a step will change: the rows of its sparse gradient."""
    # there is no q_bar if q is fixed
    parts = {name: getattr(q_bar, name, None) for name in ("mean", "columns")}
    return {
        name: SparseRows(bar.rows, getattr(q, name)[bar.rows])
        for name, bar in parts.items()
        if bar is not None
    }


def _change(before, q):
    """Return the change of these rows of q."""
    moved = {
        name: SparseRows(old.rows, getattr(q, name)[old.rows] - old.values)
        for name, old in before.items()
    }
    return ChevronWeights(moved.get("mean"), moved.get("columns"), None)
