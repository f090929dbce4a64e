"""One natural-gradient step for the posterior of an SVGP, alone or with the gradient in all else from the same pass."""

from typing import Any, Unpack

import numpy as np

from ... import check
from ...bounds.data_term import Batch, bound_of, less_kl, sweep
from ...bounds.elbo import SVGP, accumulate_bound, value_and_grad
from ...bounds.posterior_passes import layer_pass
from ...bounds.shared_pass import SHARE_NUMBERS, SharedLayerPass
from ...check import weights as weighing
from ...distributed import reduce
from ...records import replace
from ...records.typed import ArrayLike, Group, Names, OfSteps, Random, RecordT, Seed
from ...runtime import deferred_checks
from ...runtime.edge import public_call, run
from . import deep, sites  # noqa: F401, which register the steps of theirs
from .backtracking import NaturalStepInfo, check_natural, check_value, halved, no_lower


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
    """One step along the natural gradient of the bound in q(u); the other fields of the model stay.

    Parameters
    ----------
    model : SVGP, or SiteSVGP
        With a ``Whitened`` or ``Marginal`` posterior, sites (an E-step), or one of two sets of
        inducing inputs: their covariances move set by set, their means jointly, so that a step of 1
        lands on their optimum too. ``DecoupledWeights``: q(u) alone.
    X, Y, num_data, jitter, rng, weights, group
        As in ``elbo``. With a ``group`` one sum over the ranks, and one more for each size that
        ``monotone`` tries.
    **random
        As in ``elbo``. For a ``SiteSVGP`` or ``VGP`` also ``rows``, (B,) integers: X and Y are all
        data, and the sites of these rows move.
    monotone : bool
        Halve the step until the bound on X and Y does not fall.
    step_size : float
        In (0, 1] as a rule. A step of 1 on all data with Gaussian noise lands on the optimal q(u).

    Returns
    -------
    model : SVGP
    info : NaturalStepInfo
        ``value`` (the bound before the step), ``step_size`` (taken) and ``backed_off``: where the
        step would leave the positive definite precisions (likelihoods that are not log-concave, or
        steps above 1) it is halved until it does not. ``negative``: how many data had sites of
        negative precision.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``; ``NotPositiveDefinite`` also where no step down to 1e-9 of the one asked for is
        possible.

    Notes
    -----
    3 M^2 B + 5/3 M^3 flops an output. On a device two copies to the host: the value, and whether
    the precisions of all outputs are positive definite (for each size tried). Source: Hensman et
    al. 2013; Salimbeni, Eleftheriadis and Hensman 2018.

    Examples
    --------
    >>> stepped, info = fs.natural_step(model, X, Y, step_size=1.0)
    >>> round(fs.elbo(stepped, X, Y) - fs.collapsed_bound(sgpr, X, Y), 6) + 0.0
    0.0
    """
    stepped, info, *_ = reduce.evaluate(
        "natural_step", _stepped, model, X, Y, lambda: [_packing(model)], group=group,
        num_data=num_data, weights=weights, jitter=jitter, rng=rng, step_size=step_size,
        monotone=check.flag("monotone", monotone), **random,
    )  # fmt: skip
    return stepped, info


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
    **random: Unpack[Random],
) -> tuple[RecordT, NaturalStepInfo, float, RecordT]:
    """``natural_step``, and then ``elbo_and_grad`` at the new q(u), on one batch: for less than one after the other.

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
        Both as of ``natural_step``.
    value : float
    grad : SVGP
        Both as of ``elbo_and_grad``: at the model returned, uphill.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As these two.

    Notes
    -----
    For one set of inducing inputs, and up to 2^22 numbers M B, both share the covariance blocks,
    the factor of Kuu and its solve with them: M^2 B + M^3 / 3 flops less, and two (M, B) matrices
    are kept meanwhile. On a device three copies to the host.

    Examples
    --------
    >>> stepped, info, value, grad = fs.natural_step_and_grad(model, X, Y, step_size=0.5)
    >>> value > info.value, grad.posterior is None
    (True, True)
    """
    given: Any = model
    if wrt is None:
        wrt = tuple(
            name
            for name, _ in given._record_fields
            if name != "posterior" and getattr(model, name) is not None
        )
    return reduce.evaluate(
        "natural_step_and_grad", _stepped, model, X, Y,
        lambda: [_packing(model), reduce.of_gradient(model, wrt)], group=group, wrt=wrt,
        num_data=num_data, weights=weights, jitter=jitter, rng=rng, step_size=step_size,
        monotone=check.flag("monotone", monotone), **random,
    )  # fmt: skip


def _packing(model):
    return reduce.of_natural_step(model.posterior)


def _stepped(model, X, Y, scale, *, step_size, monotone, weights, jitter, rng, wrt=None, **random):
    """``(model, NaturalStepInfo, value, gradient)``; the last two are None where ``wrt`` is."""
    check.parts(model)
    asked = check_natural("natural_step", model.posterior, step_size)
    given, same = (X, Y, scale), {"jitter": jitter, "rng": rng, "weights": weights}
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights)
    wrt, random = (
        wrt if wrt is None else check.names(wrt, model),
        check.drawn(random, model, dtype, rng),
    )
    same |= random
    M = sum(model.covariance.num_inducing(model.inducing))
    shared = (
        wrt is not None
        and len(model.covariance.num_inducing(model.inducing)) == 1
        and 2 * M * len(X) <= SHARE_NUMBERS
    )
    begin = SharedLayerPass if shared else layer_pass
    jitter = check.jitter_amount(jitter, dtype)
    layer = begin(model, jitter, len(X), ("natural_step",), **random)
    shared = shared and layer.work.shares_rows
    data, negative = 0.0, 0
    for part in sweep(model, layer, X, Y, scale, rng, weights=weights):
        data += part.ell
        negative += np.count_nonzero(part.f_bar.var > 0)
        layer.pull(part.rows, part.f_bar)
        del part  # its memory is the next part's
    value = check.result(less_kl(data, layer, scale), model)
    value, negative = scale.all_reduce_natural(layer, value, negative)
    check_value("natural_step", value)

    def rises(posterior):
        scale.expect(reduce.NUMBER)
        bound = run(bound_of, replace(model, posterior=posterior), *given, **same)
        return no_lower(bound, value, dtype)

    posterior, size, negative = halved(
        layer.natural_step, asked, negative, model, X, rises if monotone else None
    )
    model, info = (
        replace(model, posterior=posterior),
        NaturalStepInfo(value, size, size < asked, negative),
    )
    if wrt is None:
        return model, info, None, None
    if shared:
        check.defer(model, X)
        try:
            after = SharedLayerPass(model, jitter, len(X), wrt, after=layer, **random)
            batch = Batch(X, Y, scale, rng, weights)
            return model, info, *accumulate_bound(model, after, batch, wrt)
        except deferred_checks.CheckFailed:
            if scale.repeatable:
                raise
            # the first sum over the ranks is made: only what follows it is run again
            after = None
    del layer
    return model, info, *run(value_and_grad, model, *given, wrt=wrt, **same)
