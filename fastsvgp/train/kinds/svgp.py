"""``fit`` for an SVGP, and for any kind of model whose bound takes minibatches."""

import logging
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from ... import check, models
from ...bounds.protocol import KINDS
from ...bounds.svgp import SVGP
from ...check import weights as weighing
from ...errors import BadEntry
from ...latents.model import MultiGP
from ...likelihoods import Gaussian
from ...optim.base import check_offered, initial_state
from ...optim.first_order import adam
from ...optim.inverse.updates import InverseUpdates
from ...optim.schedules import Size, as_schedule, lasting, log_linear
from ...posteriors.base import Posterior
from ...posteriors.placed import placed
from ...records import matches, replace
from ...runtime import deferred_checks, devices
from .. import comparison
from ..arguments import MOST, count, given_seed
from ..batches import OnDevice
from ..rank_batches import batches_of
from ..ranks import recording
from ..state import TrainingState, cast_model, started
from ..steps import Steps
from ..steps.cuda_graph import CapturedSteps, reason_against
from ..steps.minibatch import MinibatchSteps
from .inverses import own_updates, placed_updates
from .profiled import profiled_training
from .request import Request, own_options, seed_of

log = logging.getLogger("fastsvgp")
NATURAL_STEP = 0.1  # step size of posteriors that take natural steps by default
RAMP = 100  # steps until it is reached if the likelihood is not Gaussian


@dataclass(frozen=True)
class SVGPOptions:
    """Options of ``fit`` for an ``SVGP``, and for kinds of model served by ``minibatch_training``.

    Parameters
    ----------
    natural_step_size : float, schedule, or function ``step -> size``, optional
        Size of the natural-gradient step of q(u) before each step of ``optimiser``, which updates
        everything else. 0.1 is a reasonable choice; for a likelihood that is not Gaussian try
        ``schedules.log_linear(1e-4, 0.1, 100)``. Sites (``AbsorbedDualSites``, ``DualSites``) are
        updated only by natural steps, and take them by default unless they are ``fixed``.
    inverse_updates : InverseUpdates or False, optional
        Updates of the factor of an inverse after each step, for ``Relaxed`` and
        ``InverseFreeWhitened`` posteriors. Made by ``fs.optim.inverse_updates(...)``, which is
        also the default; ``optimiser`` then holds the factor fixed. With False ``optimiser``
        updates it.
    e_steps, m_steps : int, optional
        Natural steps, and steps of ``optimiser``, per step of the training. Each natural step has
        its own batch. The first step of ``optimiser`` reuses the last of these batches, and the
        others take new ones (algorithm E of Adam et al. 2021). Default 1 and 1.
    graph : "auto" or bool
        Whether to capture steps on a device into a CUDA graph, so that the host makes one launch
        per step. "auto" captures an SVGP updated only by ``adam`` or ``sgd``, with nothing random
        in its bound, and otherwise logs the reason at level INFO. It does not capture user-defined
        covariances, likelihoods and posteriors, because they can copy numbers to the device that a
        replayed graph would not read again. True captures these too, and raises an error for a
        model that cannot be captured. Default "auto".
    collapsed : bool
        Whether to train on all data by L-BFGS-B, as an SGPR, for any likelihood. Natural steps take
        q(u) to its optimum at each value of the other parameters, so every field of a posterior
        must move by natural steps. ``steps`` are then iterations, default 1000, and the options of
        minibatches are refused. Not with a ``group``. Default False.
    """

    natural_step_size: Size | None = None
    inverse_updates: InverseUpdates | Literal[False] | None = None
    e_steps: int | None = None
    m_steps: int | None = None
    graph: Literal["auto"] | bool = "auto"
    collapsed: bool = False


@models.with_options(SVGPOptions)
def minibatch_training(
    model, X, Y, plan, about, resume, fixed, jitter, rng, *,
    epochs=None, batch_size=None, optimiser=None, weights=None, **options,
):  # fmt: skip
    """Make the ``Recorder`` of a training on minibatches.

    Serves any kind of model: ``models.register(Kind, ..., fit=minibatch_training)``. Steps follow
    ``elbo_and_grad`` of the kind. Natural steps, updates of an inverse and random quantities are
    available if the ``posterior`` of the model has them.

    Parameters
    ----------
    model, X, Y, resume, jitter, rng
        As passed to ``fit``.
    plan : LoopOptions
        Options of the training loop; its ``steps`` and ``validate_every`` can be None.
    about : dict
        Fields of ``TrainingState``.
    fixed : tuple of str, or None
    epochs, batch_size, optimiser, weights
        As passed to ``fit``, if given.
    **options
        Options of an SVGP (``fs.extending.models.options(fs.SVGP)``), and random quantities of the
        posterior, as passed to ``fit``.

    Returns
    -------
    Recorder

    Examples
    --------
    >>> @fs.records.record
    ... class Halved:
    ...     gp: object
    >>> def halved(model, X, Y, *, wrt=None, **options):
    ...     wrt = tuple(name.removeprefix("gp.") for name in wrt)
    ...     value, grad = fs.elbo_and_grad(model.gp, X / 2, Y, wrt=wrt, **options)
    ...     return value, Halved(grad)
    >>> fs.extending.models.register(Halved, elbo_and_grad=halved, fit=minibatch_training)
    >>> fs.fit(Halved(model), X, Y, steps=3, rng=0)[1].steps
    3
    """
    own, random = own_options(SVGPOptions, options)
    shared = epochs, batch_size, optimiser, weights
    request = Request(
        model, X, Y, plan, about, resume, fixed, jitter, rng, *shared, options=own, others=random
    )
    kind = KINDS.get(type(model))
    return _training(request, kind.checked if kind else _checked)


def _training(request, checked):
    """Make the ``Recorder`` of a request, whose ``others`` are random quantities."""
    model, plan, weights, own = request.model, request.plan, request.weights, request.options
    getattr(model, "check_parts", partial(check.parts, model, ("posterior",)))()
    if check.flag("collapsed", own.collapsed):
        return profiled_training(request, checked)
    _check_graph(own.graph, model, plan)
    _check_weights(weights, model)
    random = {name: count(name, value) for name, value in request.others.items()}
    _check_random(random, model)
    optimisers = _assign_leaves(request)
    _check_inverse(optimisers.inverse, weights, random)
    steps = (
        MinibatchSteps
        if plan.group is not None
        else _captured(own.graph, model, optimisers, random, own.m_steps)
    )
    return recorder(request, steps, optimisers, random, checked)


def _check_weights(weights, model):
    if weights is not None and not models.takes("elbo_and_grad", model, "weights"):
        raise TypeError(
            f"fit: `weights` are given, and elbo_and_grad of a {type(model).__name__} takes none;"
            " leave them out"
        )


def _check_random(random, model):
    """Refuse a name that is no random quantity of any posterior of the model."""
    posteriors = list(placed(model).values()) or [Posterior]
    for name in random:
        if not any(name in q.random_quantities for q in posteriors):
            check.random_names((name,), posteriors[0])


def _check_inverse(inverse, weights, random):
    """Refuse updates of an inverse that do not support weights or random quantities."""
    if inverse is None:
        return
    if weights is not None and getattr(inverse, "nats", None) is not None:
        raise ValueError(
            "fit: `nats` of `inverse_updates` count each row once, and there are `weights`; give"
            " `tolerance` there"
        )
    if random and inverse.direction != "exact":
        given = ", ".join(f"`{name}`" for name in random)
        raise ValueError(
            f"fit: {given} estimate the gradient, but `inverse_updates` asks for direction"
            f" {inverse.direction!r}; drop one"
        )


def _check_graph(graph, model, plan):
    """Check ``graph``: only steps of an SVGP can be captured, and none in a group."""
    if graph not in (True, False, "auto") or not isinstance(graph, (bool, str)):
        raise ValueError(f'fit: `graph` must be "auto", True or False, got {graph!r:.80}')
    if graph is True and not issubclass(type(model), SVGP):
        raise ValueError(
            f"fit: `graph=True` captures steps of an SVGP, and `model` is a {type(model).__name__};"
            " leave it out"
        )
    if graph is True and plan.group is not None:
        raise ValueError(
            "fit: `graph=True` captures whole steps, and with a `group` each has a sum over the"
            " ranks; leave it out"
        )


def _captured(graph, model, optimisers, random, m_steps):
    """Return ``CapturedSteps`` if steps are to be captured and can be, else ``MinibatchSteps``."""
    if graph is False:
        return MinibatchSteps
    reason = reason_against(
        model, optimisers, random, count("m_steps", m_steps) or 1, ours=graph == "auto"
    )
    if reason is None:
        return CapturedSteps
    if graph is True:
        raise ValueError(f"fit: cannot capture a CUDA graph (`graph=True`): {reason}")
    if devices.home_of(model) is not None:
        log.info("fit: steps are not captured into a graph: %s", reason)
    return MinibatchSteps


class Optimisers(NamedTuple):
    """The optimiser of fields that the others leave; natural steps and inverse updates, or None."""

    optimiser: Any
    natural: Any
    inverse: Any


def recorder(request, steps: Callable[..., Steps], optimisers, random, checked):
    """Make the ``Recorder`` of a training by ``steps``, a subclass of ``MinibatchSteps``.

    request : Request
    optimisers : Optimisers
    random : dict of int
    checked : ``checked(model, X, Y)`` refuses an invalid model or first batch; the last item of its
        result is the dtype of the bound
    """
    model, X, plan, own = request.model, request.X, request.plan, request.options
    size = count("batch_size", request.batch_size) or 1024
    batches = batches_of(plan.group, X, request.Y, size, seed_of(request.rng), request.weights)
    e_steps, m_steps = count("e_steps", own.e_steps) or 1, count("m_steps", own.m_steps) or 1
    per_round = e_steps + m_steps - 1
    total, every = (
        total_steps(plan, request.epochs, batches, per_round),
        plan.validate_every or -(-batches.per_epoch // per_round),
    )
    plan = replace(plan, steps=total, validate_every=every)
    optimisers = Optimisers(*(lasting(one, total) for one in optimisers))
    optimiser, natural, inverse = optimisers
    if natural is None and e_steps > 1:
        said = f"fit: `e_steps` of {e_steps} are natural steps of the posterior"
        raise ValueError(f"{said}; give `natural_step_size` too, and do not fix it")
    num_rows = len(X) if plan.group is None else plan.group.num_rows
    moments, schedule = initial_state(optimiser, model), None if natural is None else natural.init()
    settings = comparison.settings(
        total=total,
        optimiser=optimiser,
        natural_step_size=natural,
        inverse_updates=inverse,
        moved=optimiser.paths(model),
        jitter=request.jitter,
        rng=given_seed(request.rng),
        **random,
    )
    fresh = TrainingState(
        model,
        moments,
        schedule,
        seed=batches.seed,
        num_data=num_rows,
        batch_size=batches.size,
        e_steps=e_steps,
        m_steps=m_steps,
        num_samples=random.get("num_samples", 0),
        settings=settings,
        **request.about,
    )
    state = started(fresh, request.resume)
    batches, device_like = batches.reseeded(state.seed), devices.home_of(model)
    if device_like is not None:
        batches = OnDevice(batches, device_like)
    try:
        with deferred_checks.synchronous():
            dtype = _dtype(checked, state.model, *batches.at(state.step * per_round))
    except BadEntry as error:
        batches.locate(error, state.step * per_round)
        raise
    state = replace(state, model=cast_model(state.model, dtype))
    jitter = check.jitter_amount(request.jitter, dtype)
    return recording(state, steps(state, batches, optimisers, random, jitter, dtype), plan)


def _dtype(checked, model, X, Y, weights=None):
    """Return the dtype that ``checked`` finds on the first batch, without targets of weight 0."""
    if weights is None:
        return checked(model, X, Y)[-1]
    columns = check.num_columns(getattr(model, "likelihood", None))
    return weighing.through(lambda X, Y: checked(model, X, Y), X, Y, weights, columns)[0][-1]


models.register(SVGP, fit=minibatch_training)
models.share(MultiGP, SVGP, "fit")


def _checked(model, X, Y):
    """Check rows, numbers and devices, for any kind of model."""
    X, Y = check.inputs("X", X), check.as_array("Y", Y)
    return check.parameters(model, X, *((Y,) if Y.dtype.kind == "f" else ()))


def _assign_leaves(request):
    """Return the ``Optimisers`` of a request."""
    model, own = request.model, request.options
    optimiser = with_default(request.optimiser, request.fixed or ())
    found, size, natural = placed(model) or {"posterior": Posterior}, own.natural_step_size, None
    if len(found) > 1:
        size = _size_for_all(model, found, size, optimiser)
    for path, q in found.items():
        natural, optimiser = natural_schedule(model, q, path, size, optimiser)
    if "posterior" in found:
        q = found["posterior"]
        inverse, optimiser = own_updates(model, q, optimiser, own.inverse_updates)
    else:
        inverse, optimiser = placed_updates(model, optimiser, own.inverse_updates)
    check_moving(model, optimiser, natural)
    return Optimisers(optimiser, natural, inverse)


def _size_for_all(model, found, natural_step_size, optimiser):
    """Return the step size of several posteriors, which move together or not at all.

    If one takes natural steps by default, all do. Each must be able to.
    """
    if natural_step_size is None and not any(
        q.natural_by_default and not fixed_among(optimiser, paths(path, q.natural_fields))
        for path, q in found.items()
    ):
        return None
    for path, q in found.items():
        try:
            check.natural("fit", q)
        except TypeError as error:
            error.args = (f"{path!r}: {error.args[0]}",)
            raise
    return default_size(model) if natural_step_size is None else natural_step_size


def default_size(model):
    """Return the step size, or its schedule, of posteriors that take natural steps by default."""
    if isinstance(model.likelihood, Gaussian):
        return NATURAL_STEP
    return log_linear(1e-3, NATURAL_STEP, RAMP)


def with_default(optimiser, fixed):
    """Return the given or the default optimiser, with these fields fixed too."""
    if optimiser is not None:
        check_offered("fit: `optimiser`", optimiser)
    return (adam() if optimiser is None else optimiser).fixing(fixed)


def natural_schedule(model, q, path, natural_step_size, optimiser):
    """Return the schedule of natural steps of q at this path, or None, and the other optimiser."""
    moved = paths(path, q.natural_fields)
    held = fixed_among(optimiser, moved)
    if natural_step_size is None and q.natural_by_default and not held:
        natural_step_size = default_size(model)
    optimiser = optimiser.fixing(paths(path, q.held_fields))
    if isinstance(natural_step_size, numbers.Real) and natural_step_size == 0:
        raise ValueError(
            "fit: `natural_step_size` must be positive, got 0; without it the optimiser moves the"
            " posterior"
        )
    if natural_step_size is None:
        return None, optimiser
    natural = as_schedule(natural_step_size, "natural_step_size")
    if held:
        raise ValueError(
            f"fit: {held[0]!r} is fixed, but `natural_step_size` asks for steps of the posterior;"
            " drop one"
        )
    return natural, optimiser.fixing(moved)


def fixed_among(optimiser, moved):
    """Return the fixed names of an optimiser that cover some of these paths."""
    return [name for name in optimiser.fixed if any(matches(path, (name,)) for path in moved)]


def check_moving(model, optimiser, others):
    """Raise ``ValueError`` if the optimiser has no field left, and there are no ``others``."""
    if not others and not optimiser.paths(model):
        raise ValueError("fit: all fields are fixed, there is nothing to train")


def paths(root, fields):
    return tuple(f"{root}.{field}" for field in fields)


def total_steps(plan, epochs, batches, per_round):
    steps = plan.steps
    if plan.until is not None and steps is None:
        return MOST
    if (steps is None) == (epochs is None):
        came = "none" if steps is None else "both `steps` and `epochs`"
        raise ValueError(
            "fit: give the length of the training as one of `steps`, `epochs` and `seconds`, got"
            f" {came}"
        )
    if steps is not None:
        return steps
    epochs = check.scalar("epochs", epochs)
    if epochs < 0:
        raise ValueError(f"fit: `epochs` must be zero or more, got {epochs:g}")
    steps = epochs * batches.num_data / batches.size / per_round
    if steps > MOST:
        raise ValueError(
            f"fit: `epochs` of {epochs:g} are {steps:.3g} steps; at most 10**15 can be counted"
        )
    return math.ceil(steps)
