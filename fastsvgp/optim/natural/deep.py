"""The natural-gradient step of a deep GP: that of its last layer."""

import numpy as np

from ... import check, models
from ...bounds.data_term import less_kl
from ...check import weights as weighing
from ...distributed import reduce
from ...layers.bound import bound_of, sweep
from ...layers.chain_pass import Chain
from ...layers.draws import hidden_draws, num_draws
from ...layers.layer import DeepGP, checked
from ...records import replace
from ...runtime.edge import run
from .backtracking import NaturalStepInfo, check_natural, check_value, halved, no_lower


def natural_step(
    model, X, Y, *, step_size=0.3, num_data=None, jitter=None, rng=None, weights=None, monotone=False, group=None, draws=None,
    num_samples=2,
):  # fmt: skip
    """As of an SVGP: the last layer's q(u) moves, at these draws of the hidden layers; ``natural_update`` is for those.

    The last layer is an SVGP on the draws of those below, so that a step of 1 on all data with
    Gaussian noise lands on its optimum given them. ``draws`` and ``num_samples`` as in ``elbo``.
    """
    return reduce.evaluate(
        "natural_step", _stepped, model, X, Y, lambda: [reduce.of_natural_step(model.layers[-1].posterior)], group=group,
        drawing=True, num_data=num_data, weights=weights, draws=draws, jitter=jitter, rng=rng, num_samples=num_samples,
        step_size=step_size, monotone=check.flag("monotone", monotone),
    )  # fmt: skip


def _stepped(
    model, X, Y, scale, *, weights, jitter, rng, num_samples, step_size, monotone, draws=None
):
    given, same = (X, Y, scale), {"weights": weights, "jitter": jitter, "rng": rng}
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights, checked)
    asked = check_natural("natural_step", model.layers[-1].posterior, step_size)
    *below, last = model.layers
    draws = hidden_draws(model, X, draws, num_samples, rng, scale.partition)
    chain = Chain(
        model, check.jitter_amount(jitter, dtype), len(X), num_draws(draws), top=("natural_step",)
    )
    data, negative = 0.0, 0
    for part in sweep(model, chain, X, Y, draws, scale, rng, weights=weights):
        data += part.ell
        negative += np.count_nonzero(part.f_bar.var > 0)
        chain.pull(part.rows, part.f_bar)
        del part  # its memory is the next part's
    value = check.result(less_kl(data, chain, scale), model)
    value, negative = scale.all_reduce_natural(chain.passes[-1], value, negative)
    scale.partition = None  # the draws are those of these rows from here on
    check_value("natural_step", value)

    def moved(posterior):
        return replace(model, layers=(*below, replace(last, posterior=posterior)))

    def rises(posterior):
        scale.expect(reduce.NUMBER)
        bound = run(bound_of, moved(posterior), *given, draws=draws, **same)
        return no_lower(bound, value, dtype)

    posterior, size, negative = halved(
        chain.passes[-1].natural_step, asked, negative, model, X, rises if monotone else None
    )
    return moved(posterior), NaturalStepInfo(value, size, size < asked, negative)


models.register(DeepGP, natural_step=natural_step)
