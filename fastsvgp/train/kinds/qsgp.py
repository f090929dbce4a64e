"""How ``fit`` trains a QSGP: what its arguments mean there."""

import logging
from dataclasses import dataclass

import numpy as np

from ... import check, models
from ...errors import BadEntry
from ...likelihoods import Gaussian
from ...optim.adagrad import adagrad
from ...optim.base import begun, check_offered
from ...optim.schedules import lasting
from ...records import is_record, leaves, matches, replace
from ...records.typed import Record
from ...runtime import devices
from ...weight_space import qsgp
from ...weight_space.bases.samples import num_units
from ...weight_space.control_variates import kriged_control
from ...weight_space.qsgp import QSGP
from .. import asked
from ..arguments import MOST, count, given_seed
from ..batches import Batches, OnDevice, locate_inputs
from ..loop import Recorder
from ..state import OtherTraining, TrainingState, settled, started
from ..steps.qsgp import Choices, SampledSteps, renewal
from .svgp import own_options, seed_of, total_steps

log = logging.getLogger("fastsvgp")

FUNCTIONS = 10_000  # a step on each side,
ROWS = 500  # and data
POINTS = 500  # of the kriged control
HELD = "basis.covariance", "basis.inducing", "likelihood"  # unless ``fixed`` says otherwise


@dataclass(frozen=True)
class QSGPOptions:
    """Options of ``fit`` for a ``QSGP``.

    Parameters
    ----------
    basis_size : int, optional
        Basis functions per step on each side. Default 10,000, or all.
    control : int, KrigedControl or PairedControl, optional
        Control variate: a kriged one at this many rows of the data, drawn at random, or one of your
        own for this model. Default min(500, N) with Gaussian noise, else none (0).
    closed_form_every : int, optional
        Steps from one closed form of the diagonal to the next, for Gaussian noise. Before the first
        step and every so many, the diagonal of the factor beyond its dense columns is set to its
        optimum (``fs.optimal_diagonal``, on at most 4096 rows), and then the precisions of a
        ``RelevanceBasis`` that are not fixed (``fs.optimal_precision``); the optimiser leaves them
        alone. Default: before the first step, if nothing but the posterior moves; else, and with 0,
        the optimiser moves them.
    """

    basis_size: int | None = None
    control: int | Record | None = None
    closed_form_every: int | None = None


@models.with_options(QSGPOptions)
def sampled_training(
    model, X, Y, plan, about, resume, fixed, jitter, rng, *, epochs=None, batch_size=None, optimiser=None, **options,
):  # fmt: skip
    """The ``Recorder`` of a training of a QSGP; arguments as of ``minibatch_training``."""
    own = _own(options)
    qsgp.checked_parts(model)
    batches = Batches(X, Y, count("batch_size", batch_size) or ROWS, seed_of(rng))
    steps, every = (
        total_steps(plan, epochs, batches, 1),
        plan.validate_every or batches.per_epoch,
    )
    plan = replace(plan, steps=steps, validate_every=every)
    optimiser = lasting(_optimiser(model, optimiser, fixed), steps)
    closed_form_every, precision, optimiser = _closed_forms(
        model, optimiser, count("closed_form_every", own.closed_form_every, 0)
    )
    _warn_of_hyperparameters(model, optimiser.paths(model))
    units = _num_units(model, own.basis_size)
    gaussian = isinstance(model.likelihood, Gaussian)
    points = _points(own.control, gaussian, len(X))
    home = devices.home_of(model)
    settings = asked.settings(
        total=steps, optimiser=optimiser, moved=optimiser.paths(model), closed_form_every=closed_form_every, jitter=jitter,
        rng=given_seed(rng),
    )  # fmt: skip
    fresh = TrainingState(
        model, begun(optimiser, model), None, spread=None if gaussian else np.zeros(len(X), like=home), seed=batches.seed,
        num_data=batches.num_data, batch_size=batches.size, basis_size=units * model.basis.width, settings=settings,
        **about,
    )  # fmt: skip
    state = started(fresh, resume)
    batches = (
        batches.reseeded(state.seed)
        if home is None
        else OnDevice(batches.reseeded(state.seed), home)
    )
    state, jitter = _settled(state, batches, jitter)
    state = _with_control(state, own.control, points, batches, resume, jitter)
    choices = Choices(
        units,
        _two_sides(model, own.control, gaussian, points),
        closed_form_every,
        precision,
        renewal(model.basis.num_functions(), units * model.basis.width),
    )
    return Recorder(state, SampledSteps(state, batches, optimiser, choices, jitter), plan)


models.register(QSGP, fit=sampled_training)


def _own(options):
    """The ``QSGPOptions`` among the options that came; others are refused."""
    own, others = own_options(QSGPOptions, options)
    if others:
        listed = ", ".join(f"`{name}`" for name in others)
        raise ValueError(
            f"fit: a QSGP is trained on samples of its basis; {listed} would have no effect"
        )
    return own


def _num_units(model, basis_size):
    """How many units of the basis a step samples on each side."""
    units = -(-(count("basis_size", basis_size) or FUNCTIONS) // model.basis.width)
    return min(units, num_units(model.basis))


def _two_sides(model, control, gaussian, points):
    """Whether a step needs two samples of the basis."""
    dense = np.shape(model.posterior.columns)[-1] > 0 or model.basis.dense_precision
    return gaussian or dense or points > 0 or is_record(control)


def _settled(state, batches, jitter):
    """``(state, jitter)`` in the dtype of the bound, by the first batch, which is checked."""
    try:
        checked, _, _, dtype = qsgp.checked_data(state.model, *batches.at(state.step))
    except BadEntry as error:
        batches.locate(error, state.step)
        raise
    return replace(state, model=settled(checked, dtype)), check.jitter_amount(jitter, dtype)


def _with_control(state, control, points, batches, resume, jitter):
    """The state with the control variate to begin with: after ``resume`` its own, else as ``control`` asks."""
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
        made = kriged_control(
            state.model, batches.inputs(rows).astype(dtype, copy=False), jitter=jitter
        )
    except BadEntry as error:
        locate_inputs(error, "points", rows)
        raise
    return replace(state, control=made)


def _optimiser(model, optimiser, fixed):
    """What moves the parameters."""
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
            f"fit: samples do not tell log|S| of a dense S, so that an {type(model.basis).__name__}"
            " cannot be trained on them; name 'basis' in `fixed` too, or learn it by"
            " weight_bound_and_grad"
        )
    return optimiser


def _closed_forms(model, optimiser, every):
    """``(steps between closed forms or None, whether of precisions too, the optimiser of the rest)``; ``MOST`` apart is once."""
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
    """The bound of a chevron with few dense columns is no guide to hyperparameters; who learns them shall know."""
    learned = [path for path in moved if matches(path, HELD)]
    m, k = np.shape(model.posterior.columns)
    if learned and k < m:
        log.warning(
            "%s are learned from a bound that has %d of %d columns of its factor dense: unless there are far fewer functions "
            "than data, it tends to call structure noise. Hyperparameters of an exact GP on some rows are the safer choice",
            ", ".join(learned), k, m,
        )  # fmt: skip


def _points(control, gaussian, num_data):
    """How many points the kriged control has that is to be made."""
    if control is None:
        return min(POINTS, num_data) if gaussian else 0
    if is_record(control):
        return 0
    points = count("control", control, 0)
    if points > num_data:
        raise ValueError(f"fit: `control` asks for {points} points, but there are {num_data} rows")
    return points
