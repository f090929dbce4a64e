"""The natural-gradient step of a deep GP: that of its last layer."""

import numpy as np

from ... import check, models
from ...bounds.elbo import less_kl
from ...check import weights as weighing
from ...distributed import reduce
from ...layers.bound import elbo, sweep
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
    monotone = check.flag("monotone", monotone)
    if group is not None:
        options = dict(
            num_data=num_data,
            jitter=jitter,
            rng=rng,
            weights=weights,
            draws=draws,
            num_samples=num_samples,
        )
        sums, more = (
            lambda: [reduce.of_natural_step(model.layers[-1].posterior)],
            {
                "step_size": step_size,
                "monotone": monotone,
            },
        )
        return reduce.bound(
            group, natural_step, model, X, Y, packings=sums, drawing=True, **options, **more
        )
    given, same = (X, Y), {"num_data": num_data, "rng": rng, "weights": weights}
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights, checked)
    asked = check_natural("natural_step", model.layers[-1].posterior, step_size)
    *below, last = model.layers
    draws = hidden_draws(model, X, draws, num_samples, rng, reduce.place(num_data))
    chain = Chain(
        model, check.jitter_amount(jitter, dtype), len(X), num_draws(draws), top=("natural_step",)
    )
    data, negative = 0.0, 0
    for part in sweep(model, chain, X, Y, draws, num_data, rng, weights=weights):
        data += part.ell
        negative += np.count_nonzero(part.f_bar.var > 0)
        chain.pull(part.rows, part.f_bar)
        del part  # its memory is the next part's
    value = check.result(less_kl(data, chain, num_data), model)
    if isinstance(num_data, reduce.Share):
        value, negative = reduce.summed_natural(num_data, chain.passes[-1], value, negative)
        num_data.place = None  # the draws are those of these rows from here on
    check_value("natural_step", value)

    def moved(posterior):
        return replace(model, layers=(*below, replace(last, posterior=posterior)))

    def rises(posterior):
        if isinstance(num_data, reduce.Share):
            num_data.due.insert(0, reduce.NUMBER)
        bound = run(elbo, moved(posterior), *given, jitter=jitter, draws=draws, **same)
        return no_lower(bound, value, dtype)

    posterior, size, negative = halved(
        chain.passes[-1].natural_step, asked, negative, model, X, rises if monotone else None
    )
    return moved(posterior), NaturalStepInfo(value, size, size < asked, negative)


models.register(DeepGP, natural_step=natural_step)
