"""Natural-gradient steps of q(u), of every kind of model: alone, or with the other gradients."""

from typing import Unpack

from ... import check, models
from ...bounds.protocol import kind_of
from ...bounds.relay import (
    Call,
    bound_of,
    gradient_through,
    request_sums,
    subtract_kl,
    sum_natural,
    value_and_grad,
)
from ...bounds.small_step import SmallSums
from ...bounds.svgp import SVGP
from ...check.scale import DataScale
from ...distributed.reduce import call_on_ranks
from ...hilbert.model import BasisSVGP
from ...latents.bound import MultiGP
from ...layers.bound import DeepGP, DrawOptions
from ...near.model import VIF, RowOptions
from ...posteriors.locate import posteriors_of
from ...records.typed import ArrayLike, Group, Names, OfRows, OfSteps, RecordT, Seed
from ...runtime import deferred_checks
from ...runtime.edge import public_call, run
from . import sites  # noqa: F401, registers its step
from .backtracking import NaturalStepInfo, backtrack, check_size, check_value, non_decreasing


@public_call(SVGP)
def natural_step(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    step_size: float = 0.3,
    num_data: float | None = None,
    jitter: float | None = None,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    monotone: bool = False,
    group: Group | None = None,
    **random: Unpack[OfSteps],
) -> tuple[RecordT, NaturalStepInfo]:
    """Take one step along the natural gradient of the bound in q(u); other fields are unchanged.

    Parameters
    ----------
    model : SVGP
        Any other kind with natural steps is accepted too. In a ``DeepGP`` q(u) of the last layer
        moves, at these draws of the hidden layers; in a ``MultiGP`` all latent functions, jointly
        or in turn (``info.in_turn``); in a ``SiteSVGP`` or ``VGP`` the sites.
        With a ``Whitened`` or ``Marginal`` posterior, sites (an E-step), or a posterior of two sets
        of inducing inputs. With two sets the covariances move set by set and the means jointly, so
        a step of 1 reaches their optimum too. With ``DecoupledWeights`` only q(u) moves.
    X, Y, num_data, jitter, rng, weights, group
        As in ``elbo``. A ``group`` needs one all-reduce, and one more for each size that
        ``monotone`` tries.
    **random
        As in ``elbo``. A ``SiteSVGP`` or ``VGP`` also takes ``rows``, (B,) integers: X and Y are
        all data, and the sites of these rows move.
    monotone : bool
        Halve the step until the bound on X and Y does not fall.
    step_size : float
        Usually in (0, 1]. A step of 1 on all data with Gaussian noise reaches the optimal q(u).

    Returns
    -------
    model : SVGP
    info : NaturalStepInfo
        ``value``: the bound before the step. ``step_size``: the size taken. ``backed_off``: whether
        the step was halved until it stayed in the positive definite precisions (likelihoods that
        are not log-concave, or steps above 1). ``negative``: how many data had sites of negative
        precision.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``; ``NotPositiveDefinite`` also if no step down to 1e-9 of the requested size is
        possible.

    Notes
    -----
    3 M^2 B + 5/3 M^3 flops per output, 3 M^2 B + 2 M^3 for small models. With Gaussian noise
    2 M^2 B + 2 M^3 for long batches on the CPU (B > 5/4 M and M^2 B > 1e7): a data term that is
    linear in the variances needs only their sum. On a device two copies to the host: the value, and
    whether the precisions of all outputs are positive definite (for each size tried). Source:
    Hensman et al. 2013; Salimbeni, Eleftheriadis and Hensman 2018.

    Examples
    --------
    >>> stepped, info = fs.natural_step(model, X, Y, step_size=1.0)
    >>> round(fs.elbo(stepped, X, Y) - fs.collapsed_bound(sgpr, X, Y), 6) + 0.0
    0.0
    """
    options = _options(step_size, weights, jitter, rng, monotone, random)
    if group is not None:
        found = call_on_ranks("natural_step", take_step, model, X, Y, group, num_data, options)
    else:
        found = take_step(model, X, Y, DataScale(num_data), **options)
    return found[:2]


@public_call(SVGP)
def natural_step_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    step_size: float = 0.3,
    wrt: Names | None = None,
    num_data: float | None = None,
    jitter: float | None = None,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    monotone: bool = False,
    group: Group | None = None,
    **random: Unpack[OfRows],
) -> tuple[RecordT, NaturalStepInfo, float, RecordT]:
    """Take a ``natural_step``, then evaluate ``elbo_and_grad`` at the new q(u), on one batch.

    Together they cost less than two separate calls.

    Parameters
    ----------
    model : SVGP
    wrt : sequence of str, optional
        Dotted names of fields to differentiate, as in ``elbo_and_grad``; default all but the
        posterior.
    X, Y, step_size, num_data, jitter, rng, weights, monotone, group, **random
        As in ``natural_step``.

    Returns
    -------
    model : SVGP
    info : NaturalStepInfo
        As returned by ``natural_step``.
    value : float
    grad : SVGP
        As returned by ``elbo_and_grad`` at the new model.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``natural_step`` and ``elbo_and_grad``.

    Notes
    -----
    For one set of inducing inputs, and up to 2^22 numbers M B, both share the covariance blocks,
    the factor of Kuu and its solve with them: M^2 B + M^3 / 3 flops less. Two (M, B) matrices are
    kept meanwhile. Small models compute them twice, which is faster there. On a device three copies
    to the host.

    Examples
    --------
    >>> stepped, info, value, grad = fs.optim.natural_step_and_grad(model, X, Y, step_size=0.5)
    >>> value > info.value, grad.posterior is None
    (True, True)
    """
    options = _options(step_size, weights, jitter, rng, monotone, random)
    options |= {"gradient": True, "wrt": wrt}
    if group is not None:
        name = "natural_step_and_grad"
        return call_on_ranks(name, take_step, model, X, Y, group, num_data, options)
    return take_step(model, X, Y, DataScale(num_data), **options)


def _options(step_size, weights, jitter, rng, monotone, random) -> dict:
    monotone = check.flag("monotone", monotone)
    plain = dict(weights=weights, jitter=jitter, rng=rng, step_size=step_size, monotone=monotone)
    return plain | random


def _all_but(posteriors, model, root=""):
    """Yield the dotted names of the fields of a model that hold no posteriors."""
    names = range(len(model)) if isinstance(model, tuple) else (n for n, _ in model._record_fields)
    for name in names:
        value = model[name] if isinstance(model, tuple) else getattr(model, name)
        path = f"{root}{name}"
        if any(posterior.startswith(path + ".") for posterior in posteriors):
            yield from _all_but(posteriors, value, path + ".")
        elif path not in posteriors and value is not None:
            yield path


def _fields(model, wrt):
    """Return the names to differentiate: by default all but the posteriors."""
    return tuple(_all_but(posteriors_of(model), model)) if wrt is None else wrt


def take_step(model, X, Y, scale, *, step_size, monotone, gradient=False, wrt=None, **options):
    """Return ``(model, NaturalStepInfo, value, gradient)``; the last two only with ``gradient``.

    ``options``: weights, jitter, rng and random quantities, as for ``bound_of``. Most models take
    one step; of several, the info has the first value and the smallest size.
    """
    kind, requested = kind_of(model), check_size(step_size)
    call = Call.from_arguments(kind, model, X, Y, scale, **options)
    kind.check_natural("natural_step", call.model)
    wrt = check.names(_fields(model, wrt), call.model) if gradient else ()
    turns = kind.turns(call, shares=gradient)
    model, turn, infos = call.model, next(turns), []
    while turn is not None:
        layer = turn.layer
        model, info = _take_turn(turn, call, model, requested, monotone)
        infos.append(info)
        turn = _following(turns, model)
    size = min(info.step_size for info in infos)
    info = infos[0]._replace(step_size=size, backed_off=size < requested, in_turn=len(infos) > 1)
    if not gradient:
        return model, info, None, None
    if layer.shares_rows and (after := _reuse_blocks(call, model, layer, wrt)):
        return model, info, *after
    del layer  # its memory is used again
    return model, info, *run(value_and_grad, model, *call.given, wrt=wrt, **call.options)


def _take_turn(turn, call, model, requested, monotone):
    """Return the model after a turn of a step, and its info."""
    layer, scale, batch = turn.layer, call.batch.scale, call.batch
    data, negative = (
        (layer.data, 0) if type(layer) is SmallSums else sum_natural(model, layer, batch)
    )
    value = check.result(subtract_kl(data, layer, scale), model)
    value, negative = scale.all_reduce_natural(layer, value, negative)
    check_value("natural_step", value)

    def move(size):
        return turn.model_with(layer.natural_step(size))

    def rises(model):
        bound = run(bound_of, model, *call.given, **call.options)
        return non_decreasing(bound, value, call.dtype)

    accepted = rises if monotone else None
    model, size, negative = backtrack(move, requested, negative, model, batch.X, accepted)
    return model, NaturalStepInfo(value, size, size < requested, negative)


def _following(turns, model):
    """Send the model to a generator of turns; return the next one, or None."""
    try:
        return turns.send(model)
    except StopIteration:
        return None


def _reuse_blocks(call, model, layer, wrt):
    """Return value and gradient from the blocks that a step kept, or None to recompute them."""
    check.defer(model, call.batch.X)
    try:
        need = request_sums(model, wrt)
        after = layer.follow(model, call.jitter, len(call.batch.X), need, **call.quantities)
        call = call._replace(model=model)
        return gradient_through(kind_of(model), after, call, wrt)
    except deferred_checks.CheckFailed:
        if call.batch.scale.alone:
            raise
        # the first all-reduce is done: only what follows it is run again
        return None


models.share(MultiGP, SVGP, "natural_step", "natural_step_and_grad")
models.share(DeepGP, SVGP, "natural_step", options=DrawOptions)
models.share(BasisSVGP, SVGP, "natural_step", "natural_step_and_grad")
models.share(VIF, SVGP, "natural_step", "natural_step_and_grad", options=RowOptions)
