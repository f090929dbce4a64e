"""One natural-gradient step for the posterior of an SVGP."""

from typing import NamedTuple

import numpy as np

from .. import check, models
from ..bounds.elbo import SVGP, sweep
from ..bounds.passes import layer_pass
from ..errors import Diverged, NotPositiveDefinite
from ..kernels import verdicts
from ..records import replace

MAX_HALVINGS = 30


class NaturalStepInfo(NamedTuple):
    """``value``: the bound before the step; ``step_size``: the one taken; ``backed_off``: whether that is less than asked for.

    ``negative``: how many sites of the batch had negative precision, their log likelihood curving upwards there.
    """

    value: float
    step_size: float
    backed_off: bool
    negative: int = 0


@verdicts.retried
@models.public(SVGP)
def natural_step(model, X, Y, *, step_size=0.3, num_data=None, jitter=None, rng=None, **random):
    """One step along the natural gradient of the bound in q(u); the other fields of the model stay.

    Parameters
    ----------
    model : SVGP
        With a ``Whitened`` or ``Marginal`` posterior, or one of two sets of inducing inputs: their covariances move set by set,
        their means jointly, so that a step of 1 lands on their optimum too. ``DecoupledWeights``: q(u) alone.
    X, Y, num_data, jitter, rng, **random
        As in ``elbo``.
    step_size : float
        In (0, 1] as a rule. A step of 1 on all data with Gaussian noise lands on the optimal q(u).

    Returns
    -------
    model : SVGP
    info : NaturalStepInfo
        ``value`` (the bound before the step), ``step_size`` (taken) and ``backed_off``: where the step would leave the
        positive definite precisions (likelihoods that are not log-concave, or steps above 1) it is halved until it does not.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``; ``NotPositiveDefinite`` also where no step down to 1e-9 of the one asked for is possible.

    Notes
    -----
    3 M^2 B + 5/3 M^3 flops an output. On a device two copies to the host: the value, and whether the precisions of all outputs
    are positive definite (for each size tried). Source: Hensman et al. 2013; Salimbeni, Eleftheriadis and Hensman 2018.
    """
    asked = check.scalar("step_size", step_size)
    if asked <= 0:
        raise ValueError(f"`step_size` must be positive, got {asked:g}")
    check.parts(model)
    if not model.posterior.natural_fields:
        kind, why = type(model.posterior).__name__, model.posterior.no_natural_step
        raise TypeError(
            f"natural_step: a {kind} posterior can not take natural-gradient steps, because {why}; train it with a first-order "
            "optimiser (fastsvgp.adam), or use a Whitened posterior"
        )
    model, X, Y, dtype = check.svgp(model, X, Y)
    random = check.drawn(random, model, dtype, rng)
    layer = layer_pass(model, check.jitter_amount(jitter, dtype), len(X), ("natural_step",), **random)
    data, negative = 0.0, 0
    for part in sweep(model, layer, X, Y, num_data, rng):
        data += part.ell
        negative += np.count_nonzero(part.f_bar.var > 0)
        layer.pull(part.rows, part.f_bar)
    value = check.result(data - layer.kl(), model)
    if not np.isfinite(value):
        raise Diverged(f"natural_step: the bound is {value} at this posterior; start closer to the prior")
    stepped, size, negative = halved(layer.natural_step, asked, negative, model, X)
    return replace(model, posterior=stepped), NaturalStepInfo(value, size, size < asked, negative)


def halved(step, size, negative, model, X, accepted=None):
    """``(step(size), size, negative)`` with the largest of size, size / 2, ... that stays in the cone, and is ``accepted``.

    ``negative`` is a count, on the device perhaps: its copy is the one that tells of the cone, however many matrices there are.
    """
    for halvings in range(MAX_HALVINGS + 1):
        try:
            check.begin(model, X)
            stepped = step(size)
            count, _ = verdicts.settle(negative)
            if accepted is None or halvings == MAX_HALVINGS or accepted(stepped):
                return stepped, size, int(count)
        except (NotPositiveDefinite, verdicts.Fault):
            if halvings == MAX_HALVINGS:
                raise
        size /= 2
    raise AssertionError("not reached")
