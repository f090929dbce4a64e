"""``fit`` for an SVGP, and for any kind of model whose bound takes minibatches."""

import logging
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from ... import check, models
from ...bounds.protocol import KINDS
from ...bounds.svgp import SVGP
from ...latents.model import MultiGP
from ...likelihoods import Gaussian
from ...optim.base import check_offered, initial_state
from ...optim.first_order import adam
from ...optim.inverse.updates import InverseUpdates, PlacedUpdates, inverse_updates
from ...optim.schedules import Size, as_schedule, lasting, log_linear
from ...posteriors.base import Posterior
from ...posteriors.locate import posteriors_of
from ...records import matches
from ...runtime import deferred_checks, devices
from .. import comparison
from ..arguments import count, given_seed, seed_of
from ..batches import batches_of, locating
from ..ranks import recording
from ..state import TrainingState, begin, settle
from ..steps import Steps
from ..steps.cuda_graph import CapturedSteps, reason_against
from ..steps.minibatch import MinibatchSteps
from .profiled import profiled_training
from .sgpr import check_arrays

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
def minibatch_training(request):
    """Make the ``Recorder`` of a training on minibatches.

    Serves any kind of model: ``models.register(Kind, ..., fit=minibatch_training)``. Steps follow
    ``elbo_and_grad`` of the kind. Natural steps, updates of an inverse and random quantities are
    available if the ``posterior`` of the model has them. The kind has the options of an SVGP.

    Parameters
    ----------
    request : Request
        The arguments of ``fit``, checked.

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
    model, weights, own = request.model, request.weights, request.options
    kind = KINDS.get(type(model))
    checked = kind.checked if kind else check_arrays
    getattr(model, "check_parts", partial(check.parts, model, ("posterior",)))()
    if check.flag("collapsed", own.collapsed):
        return profiled_training(request, checked)
    _check_graph(own.graph, model, request.plan)
    if weights is not None and not models.takes("elbo_and_grad", model, "weights"):
        raise TypeError(
            f"fit: `weights` are given, and elbo_and_grad of a {type(model).__name__} takes none;"
            " leave them out"
        )
    random = {name: count(name, value) for name, value in request.random.items()}
    _check_random(random, model)
    optimisers = assign_leaves(request)
    _check_inverse(optimisers.inverse, weights, random)
    alone = request.plan.group is None
    steps = _choose_steps(request, optimisers, random) if alone else MinibatchSteps
    return recorder(request, steps, optimisers, random, checked)


def _check_random(random, model):
    """Refuse a name that is no random quantity of any posterior of the model."""
    posteriors = list(posteriors_of(model).values()) or [Posterior]
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


def _choose_steps(request, optimisers, random):
    """Return ``CapturedSteps`` if steps are to be captured and can be, else ``MinibatchSteps``."""
    own, model = request.options, request.model
    if own.graph is False:
        return MinibatchSteps
    reason = "`priors` are summed on the host"
    if request.priors is None:
        reason = reason_against(model, optimisers, random, ours=own.graph == "auto")
    if reason is None:
        return CapturedSteps
    if own.graph is True:
        raise ValueError(f"fit: cannot capture a CUDA graph (`graph=True`): {reason}")
    if devices.device_array(model) is not None:
        log.info("fit: steps are not captured into a graph: %s", reason)
    return MinibatchSteps


class Optimisers(NamedTuple):
    """Who moves what in a step, and how often.

    The optimiser of fields that the others leave; natural steps and inverse updates, or None;
    natural steps and steps of the optimiser per step of ``fit``.
    """

    optimiser: Any
    natural: Any
    inverse: Any
    e_steps: int
    m_steps: int

    @classmethod
    def of(cls, model, optimiser, natural, inverse, own):
        """Check that something moves; ``own`` are the options of the kind."""
        if natural is None and not optimiser.paths(model):
            raise ValueError("fit: all fields are fixed, there is nothing to train")
        e_steps, m_steps = (count(name, getattr(own, name)) or 1 for name in ("e_steps", "m_steps"))
        if natural is None and e_steps > 1:
            said = f"fit: `e_steps` of {e_steps} are natural steps of the posterior"
            raise ValueError(f"{said}; give `natural_step_size` too, and do not fix it")
        return cls(optimiser, natural, inverse, e_steps, m_steps)


def recorder(request, steps: Callable[..., Steps], optimisers, random, checked, batches=batches_of):
    """Make the ``Recorder`` of a training by ``steps``, a subclass of ``MinibatchSteps``.

    request : Request
    optimisers : Optimisers
    random : dict of int
    checked : ``checked(model, X, Y)`` refuses an invalid model or first batch; the last item of its
        result is the dtype of the bound
    batches : ``batches(session, X, Y, size, seed, weights)`` makes the batches
    """
    model, X, group = request.model, request.X, request.plan.group
    size = count("batch_size", request.batch_size) or 1024
    found = batches(group, X, request.Y, size, seed_of(request.rng), request.weights)
    *_, e_steps, m_steps = optimisers
    per_round = e_steps + m_steps - 1
    plan = request.make_plan(found, per_round)
    optimisers = Optimisers(*(lasting(one, plan.steps) for one in optimisers))
    optimiser, natural, inverse, *_ = optimisers
    settings = comparison.settings(
        total=plan.steps,
        num_data=len(X) if group is None else group.num_rows,
        batch_size=found.size,
        e_steps=e_steps,
        m_steps=m_steps,
        optimiser=optimiser,
        natural_step_size=natural,
        inverse_updates=inverse,
        moved=optimiser.paths(model),
        priors=request.priors,
        jitter=request.jitter,
        rng=given_seed(request.rng),
        **random,
    )
    fresh = TrainingState(
        model,
        initial_state(optimiser, model),
        None if natural is None else natural.init(),
        seed=found.seed,
        settings=settings,
        **request.about,
    )
    state, found = begin(fresh, request.resume, found)
    at = state.step * per_round
    with locating(found.locate, at), deferred_checks.synchronous():
        state, jitter, dtype = settle(state, request.jitter, checked, *found.at(at))
    made = steps(state, found, optimisers, random, jitter, dtype, request.priors)
    return recording(state, made, plan)


models.register(SVGP, fit=minibatch_training)
models.share(MultiGP, SVGP, "fit")


def assign_leaves(request):
    """Return the ``Optimisers`` of a request."""
    model, own = request.model, request.options
    optimiser = choose_optimiser(request.optimiser, request.fixed or ())
    found, size, natural = (
        posteriors_of(model) or {"posterior": Posterior},
        own.natural_step_size,
        None,
    )
    if len(found) > 1:
        size = _size_for_all(model, found, size, optimiser)
    for path, q in found.items():
        natural, optimiser = natural_schedule(model, q, path, size, optimiser)
    inverse, optimiser = updates_of_inverses(model, optimiser, own.inverse_updates)
    return Optimisers.of(model, optimiser, natural, inverse, own)


def _size_for_all(model, found, natural_step_size, optimiser):
    """Return the step size of several posteriors, which move together or not at all.

    If one takes natural steps by default, all do. Each must be able to.
    """
    if natural_step_size is None and not any(
        q.natural_by_default and not find_fixed(optimiser, paths(path, q.natural_fields))
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


def choose_optimiser(optimiser, fixed):
    """Return the given or the default optimiser, with these fields fixed too."""
    if optimiser is not None:
        check_offered("fit: `optimiser`", optimiser)
    return (adam() if optimiser is None else optimiser).fixing(fixed)


def natural_schedule(model, q, path, natural_step_size, optimiser):
    """Return the schedule of natural steps of q at this path, or None, and the other optimiser."""
    moved = paths(path, q.natural_fields)
    held = find_fixed(optimiser, moved)
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


def find_fixed(optimiser, moved):
    """Return the fixed names of an optimiser that cover some of these paths."""
    return [name for name in optimiser.fixed if any(matches(path, (name,)) for path in moved)]


def updates_of_inverses(model, optimiser, requested):
    """Return the updates of factors of inverses, or None, and the other optimiser."""
    if requested not in (None, False) and not isinstance(requested, InverseUpdates):
        raise TypeError(
            "fit: `inverse_updates` must be made by fs.optim.inverse_updates(...), or be False, got"
            f" {requested!r}"
        )
    moved, found = optimiser.paths(model), posteriors_of(model)
    factors = {path: f"{path}.{q.inverse_field}" for path, q in found.items() if q.inverse_field}
    moving = tuple(path for path, factor in factors.items() if factor in moved)
    if requested is False or requested is None and not moving:
        return None, optimiser
    updates = inverse_updates() if requested is None else requested
    layered = "posterior" not in found
    if not layered:
        updates.check_model(model)
    elif updates.nats is not None or updates.direction != "exact":
        what = "`nats`" if updates.nats is not None else f"direction {updates.direction!r}"
        raise ValueError(
            f"fit: `inverse_updates` with {what} is for an SVGP; give `tolerance` alone for the"
            f" layers of a {type(model).__name__}"
        )
    if not moving:
        held = f"{', '.join(map(repr, factors.values()))} is fixed"
        why = held if factors else "no layer has a factor of an inverse"
        raise ValueError(f"fit: `inverse_updates` asks for updates, but {why}; leave it out")
    held = optimiser.fixing([factors[path] for path in moving])
    return PlacedUpdates(updates, moving) if layered else updates, held


def paths(root, fields):
    return tuple(f"{root}.{field}" for field in fields)
