"""Natural-gradient step of a deep GP: that of its last layer."""

import numpy as np

from ... import check, models
from ...bounds.data_term import less_kl
from ...distributed import reduce
from ...layers.bound import Batch, Settings, bound_of, sweep
from ...layers.layer import DeepGP
from ...records import replace
from ...runtime.edge import run
from .backtracking import NaturalStepInfo, backtrack, check_natural, check_value, non_decreasing

NOT_OF_LAST = (
    "the last layer of this DeepGP is ParallelLayers, which take no natural steps here; use a"
    " Layer, or train it with a first-order optimiser (fastsvgp.adam)"
)


def natural_step(
    model,
    X,
    Y,
    *,
    step_size=0.3,
    num_data=None,
    jitter=None,
    rng=None,
    weights=None,
    monotone=False,
    group=None,
    draws=None,
    num_samples=2,
):
    """Take the step of an SVGP with q(u) of the last layer, at these draws of the hidden layers.

    The last layer is an SVGP on the draws of the layers below, so a step of 1 on all data with
    Gaussian noise reaches its optimum given them. ``natural_update`` moves hidden layers. ``draws``
    and ``num_samples`` as in ``elbo``.
    """
    return reduce.evaluate(
        "natural_step",
        _stepped,
        model,
        X,
        Y,
        lambda: [_packing(model.layers[-1])],
        group=group,
        drawing=True,
        num_data=num_data,
        weights=weights,
        draws=draws,
        jitter=jitter,
        rng=rng,
        num_samples=num_samples,
        step_size=step_size,
        monotone=check.flag("monotone", monotone),
    )


def _packing(last):
    q = getattr(last, "posterior", None)  # of ParallelLayers, refused by every rank
    return reduce.Packing([reduce.REAL]) if q is None else reduce.of_natural_step(q)


def _stepped(model, X, Y, scale, *, step_size, monotone, **settings):
    """Return ``(model, NaturalStepInfo)``; takes the ``Settings`` of the bound."""
    batch = Batch.of(model, X, Y, scale, Settings(**settings))
    if not hasattr(batch.model.layers[-1], "posterior"):
        raise TypeError(f"natural_step: {NOT_OF_LAST}")
    requested = check_natural("natural_step", batch.model.layers[-1].posterior, step_size)
    model, dtype = batch.model, batch.X.dtype
    *below, last = model.layers
    chain = batch.chain(top=("natural_step",))
    data, negative = 0.0, 0
    for part in sweep(batch, chain):
        data += part.ell
        negative += np.count_nonzero(part.f_bar.var > 0)
        chain.pull(part.rows, part.f_bar)
        del part  # the next part reuses its memory
    value = check.result(less_kl(data, chain, scale), model)
    value, negative = scale.all_reduce_natural(chain.passes[-1], value, negative)
    scale.partition = None  # from here on the draws are those of these rows
    settings["draws"] = batch.draws
    check_value("natural_step", value)

    def moved(posterior):
        return replace(model, layers=(*below, replace(last, posterior=posterior)))

    def rises(posterior):
        scale.expect(reduce.NUMBER)
        bound = run(bound_of, moved(posterior), X, Y, scale, **settings)
        return non_decreasing(bound, value, dtype)

    posterior, size, negative = backtrack(
        chain.passes[-1].natural_step,
        requested,
        negative,
        model,
        batch.X,
        rises if monotone else None,
    )
    return moved(posterior), NaturalStepInfo(value, size, size < requested, negative)


models.register(DeepGP, natural_step=natural_step)
