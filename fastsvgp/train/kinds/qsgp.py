"""``fit`` for a QSGP."""

import logging
from dataclasses import dataclass

import numpy as np

from ... import check, models
from ...errors import BadEntry
from ...likelihoods import Gaussian
from ...optim.adaptive import adagrad
from ...optim.base import check_offered, initial_state
from ...optim.schedules import lasting
from ...qsgp import model as qsgp
from ...qsgp.bases.samples import num_units
from ...qsgp.control_variates import kriging_control_variate
from ...qsgp.model import QSGP
from ...records import is_record, leaves, matches, replace
from ...records.typed import Record
from ...runtime import devices
from .. import comparison
from ..arguments import MOST, count, given_seed
from ..batches import Batches, OnDevice, locate_inputs
from ..loop import Recorder
from ..state import OtherTraining, TrainingState, cast_model, started
from ..steps.qsgp import Choices, SampledSteps, renewal
from .request import request_of, seed_of
from .svgp import total_steps

log = logging.getLogger("fastsvgp")

FUNCTIONS = 10_000  # basis functions per step on each side
ROWS = 500  # rows of data per step
POINTS = 500  # points of the kriged control variate
HELD = "basis.covariance", "basis.inducing", "likelihood"  # default of ``fixed``


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
def sampled_training(*arguments, **options):
    """Make the ``Recorder`` of a training of a QSGP.

    Takes the arguments of ``minibatch_training``.
    """
    request = request_of(QSGPOptions, arguments, options)
    _refuse_others(request.others)
    model, X, own, jitter = request.model, request.X, request.options, request.jitter
    qsgp.checked_parts(model)
    size = count("batch_size", request.batch_size) or ROWS
    batches = Batches(X, request.Y, size, seed_of(request.rng))
    plan = request.plan
    steps, every = (
        total_steps(plan, request.epochs, batches, 1),
        plan.validate_every or batches.per_epoch,
    )
    plan = replace(plan, steps=steps, validate_every=every)
    optimiser = lasting(_optimiser(model, request.optimiser, request.fixed), steps)
    closed_form_every, precision, optimiser = _closed_forms(
        model, optimiser, count("closed_form_every", own.closed_form_every, 0)
    )
    _warn_of_hyperparameters(model, optimiser.paths(model))
    units = _num_units(model, own.basis_size)
    gaussian = isinstance(model.likelihood, Gaussian)
    points = _points(own.control, gaussian, len(X))
    choices = Choices(
        units,
        _two_sides(model, own.control, gaussian, points),
        closed_form_every,
        precision,
        renewal(model.basis.num_functions(), units * model.basis.width),
    )
    state = started(_fresh(request, optimiser, choices, batches, steps), request.resume)
    batches, device_like = batches.reseeded(state.seed), devices.home_of(model)
    if device_like is not None:
        batches = OnDevice(batches, device_like)
    state, jitter = _cast(state, batches, jitter)
    state = _with_control(state, own.control, points, batches, request.resume, jitter)
    return Recorder(state, SampledSteps(state, batches, optimiser, choices, jitter), plan)


models.register(QSGP, fit=sampled_training)


def _refuse_others(others):
    """Raise ``ValueError`` for options that are not of a QSGP."""
    if others:
        listed = ", ".join(f"`{name}`" for name in others)
        raise ValueError(
            f"fit: a QSGP is trained on samples of its basis; {listed} would have no effect"
        )


def _fresh(request, optimiser, choices, batches, steps):
    """Return the state at the beginning of a training, before its first control variate."""
    model = request.model
    gaussian = isinstance(model.likelihood, Gaussian)
    settings = comparison.settings(
        total=steps,
        optimiser=optimiser,
        moved=optimiser.paths(model),
        closed_form_every=choices.closed_form_every,
        jitter=request.jitter,
        rng=given_seed(request.rng),
    )
    return TrainingState(
        model,
        initial_state(optimiser, model),
        None,
        spread=None if gaussian else np.zeros(len(request.X), like=devices.home_of(model)),
        seed=batches.seed,
        num_data=batches.num_data,
        batch_size=batches.size,
        basis_size=choices.units * model.basis.width,
        settings=settings,
        **request.about,
    )


def _num_units(model, basis_size):
    """Return the number of units of the basis that a step samples on each side."""
    units = -(-(count("basis_size", basis_size) or FUNCTIONS) // model.basis.width)
    return min(units, num_units(model.basis))


def _two_sides(model, control, gaussian, points):
    """Return whether a step needs two samples of the basis."""
    dense = np.shape(model.posterior.columns)[-1] > 0 or model.basis.dense_precision
    return gaussian or dense or points > 0 or is_record(control)


def _cast(state, batches, jitter):
    """Check the first batch; return ``(state, jitter)`` in the dtype of the bound."""
    try:
        checked, _, _, dtype = qsgp.checked_data(state.model, *batches.at(state.step))
    except BadEntry as error:
        batches.locate(error, state.step)
        raise
    return replace(state, model=cast_model(checked, dtype)), check.jitter_amount(jitter, dtype)


def _with_control(state, control, points, batches, resume, jitter):
    """Return the state with its first control variate: the saved one after ``resume``."""
    if resume is not None:
        now = len(control.points) if is_record(control) else points
        if (0 if state.control is None else len(state.control.points)) != now:
            raise OtherTraining(
                f"`resume`: {resume} was made with another `control`; give the same again",
                ["another control"],
            )
        return state
    if not points:
        return replace(state, control=control if is_record(control) else None)
    num_data, dtype = state.num_data, state.model.posterior.mean.dtype
    rows = np.sort(np.random.default_rng([state.seed, 4]).choice(num_data, points, replace=False))
    try:
        made = kriging_control_variate(
            state.model, batches.inputs(rows).astype(dtype, copy=False), jitter=jitter
        )
    except BadEntry as error:
        locate_inputs(error, "points", rows)
        raise
    return replace(state, control=made)


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
    """Return the number of points of the kriged control variate to make; 0 for none."""
    if control is None:
        return min(POINTS, num_data) if gaussian else 0
    if is_record(control):
        return 0
    points = count("control", control, 0)
    if points > num_data:
        raise ValueError(f"fit: `control` asks for {points} points, but there are {num_data} rows")
    return points
