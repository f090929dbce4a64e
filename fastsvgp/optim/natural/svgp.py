"""Natural-gradient step for the posterior of an SVGP, alone or with the other gradients."""

from typing import Any, Unpack

from ... import check
from ...bounds import small_step
from ...bounds.data_term import (
    Batch,
    accumulate_bound,
    less_kl,
    pulled,
    with_sums,
)
from ...bounds.elbo import SVGP, bound_of, value_and_grad
from ...bounds.posterior_passes import layer_pass
from ...bounds.shared_pass import SharedLayerPass
from ...check import weights as weighing
from ...distributed import reduce
from ...records import replace
from ...records.typed import ArrayLike, Group, Names, OfSteps, Random, RecordT, Seed
from ...runtime import deferred_checks, tuning
from ...runtime.edge import public_call, run
from . import deep, latents, sites  # noqa: F401, registers their steps
from .backtracking import NaturalStepInfo, backtrack, check_natural, check_value, non_decreasing


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
    model : SVGP, or SiteSVGP
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
    stepped, info, *_ = reduce.evaluate(
        "natural_step",
        _stepped,
        model,
        X,
        Y,
        lambda: [_packing(model)],
        group=group,
        num_data=num_data,
        weights=weights,
        jitter=jitter,
        rng=rng,
        step_size=step_size,
        monotone=check.flag("monotone", monotone),
        **random,
    )
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
        Both as of ``natural_step``.
    value : float
    grad : SVGP
        Both as of ``elbo_and_grad``: at the model returned, uphill.

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
        "natural_step_and_grad",
        _stepped,
        model,
        X,
        Y,
        lambda: [_packing(model), reduce.of_gradient(model, wrt)],
        group=group,
        wrt=wrt,
        num_data=num_data,
        weights=weights,
        jitter=jitter,
        rng=rng,
        step_size=step_size,
        monotone=check.flag("monotone", monotone),
        **random,
    )


def _packing(model):
    return reduce.of_natural_step(model.posterior)


def _stepped(model, X, Y, scale, *, step_size, monotone, wrt=None, **options):
    """Return ``(model, NaturalStepInfo, value, gradient)``; the last two are None if ``wrt`` is.

    ``options``: weights, jitter, rng and random quantities, as for ``bound_of``.
    """
    check.parts(model)
    requested = check_natural("natural_step", model.posterior, step_size)
    given, rng = (X, Y, scale), options["rng"]
    plain = ("weights", "jitter", "rng")
    random = {name: value for name, value in options.items() if name not in plain}
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, options["weights"])
    wrt = wrt if wrt is None else check.names(wrt, model)
    random = check.drawn(random, model, dtype, rng)
    options |= random
    begin = SharedLayerPass if wrt is not None and _shares_rows(model, X) else layer_pass
    jitter = check.jitter_amount(options["jitter"], dtype)
    batch = Batch(X, Y, scale, rng, weights)
    small = small_step.sums(model, batch, natural=True, jitter=jitter, rng=rng, **random)
    if small:
        layer, data, negative, shared = small, small.data, 0, False
    else:
        need = with_sums(model, ("natural_step",), gradient=False)
        layer = begin(model, jitter, len(X), need, **random)
        data, negative = pulled(model, layer, batch)
        shared = begin is SharedLayerPass and layer.work.shares_rows
    value = check.result(less_kl(data, layer, scale), model)
    value, negative = scale.all_reduce_natural(layer, value, negative)
    check_value("natural_step", value)

    def rises(posterior):
        scale.expect(reduce.NUMBER)
        bound = run(bound_of, replace(model, posterior=posterior), *given, **options)
        return non_decreasing(bound, value, dtype)

    posterior, size, negative = backtrack(
        layer.natural_step, requested, negative, model, X, rises if monotone else None
    )
    model = replace(model, posterior=posterior)
    info = NaturalStepInfo(value, size, size < requested, negative)
    if wrt is None:
        return model, info, None, None
    if shared:
        check.defer(model, X)
        try:
            need = with_sums(model, wrt)
            after = SharedLayerPass(model, jitter, len(X), need, after=layer, **random)
            return model, info, *accumulate_bound(model, after, batch, wrt, sums=True)
        except deferred_checks.CheckFailed:
            if scale.repeatable:
                raise
            # the first all-reduce is done: only what follows it is run again
            after = None
    del layer
    return model, info, *run(value_and_grad, model, *given, wrt=wrt, **options)


def _shares_rows(model, X):
    """Return whether the step and the gradient can share the rows' blocks within their memory."""
    sizes = model.covariance.num_inducing(model.inducing)
    return len(sizes) == 1 and 2 * sum(sizes) * len(X) <= tuning.current.shared_block_numbers
