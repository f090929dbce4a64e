"""The natural-gradient step of a deep GP: that of its last layer."""

import numpy as np

from .. import check, models, weighing
from ..kernels import verdicts
from ..layers.bound import elbo, sweep
from ..layers.chain import Chain
from ..layers.draws import hidden_draws, num_draws
from ..layers.layer import DeepGP, checked
from ..records import replace
from .backing_off import NaturalStepInfo, check_natural, check_value, halved, no_lower


@verdicts.retried
def natural_step(
    model, X, Y, *, step_size=0.3, num_data=None, jitter=None, rng=None, weights=None, monotone=False, draws=None, num_samples=2
):  # fmt: skip
    """As of an SVGP: the last layer's q(u) moves, at these draws of the hidden layers; ``natural_update`` is for those.

    The last layer is an SVGP on the draws of those below, so that a step of 1 on all data with Gaussian noise lands on its
    optimum given them. ``draws`` and ``num_samples`` as in ``elbo``.
    """
    monotone, given, same = check.flag("monotone", monotone), (X, Y), {"num_data": num_data, "rng": rng, "weights": weights}
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights, checked)
    asked = check_natural("natural_step", model.layers[-1].posterior, step_size)
    *below, last = model.layers
    draws = hidden_draws(model, X, draws, num_samples, rng)
    chain = Chain(model, check.jitter_amount(jitter, dtype), len(X), num_draws(draws), top=("natural_step",))
    data, negative = 0.0, 0
    for part in sweep(model, chain, X, Y, draws, num_data, rng, weights=weights):
        data += part.ell
        negative += np.count_nonzero(part.f_bar.var > 0)
        chain.pull(part.rows, part.f_bar)
        del part  # its memory is the next part's
    value = check_value("natural_step", check.result(data - chain.kl(), model))

    def moved(posterior):
        return replace(model, layers=(*below, replace(last, posterior=posterior)))

    def rises(posterior):
        return no_lower(elbo(moved(posterior), *given, jitter=jitter, draws=draws, **same), value, dtype)

    posterior, size, negative = halved(chain.passes[-1].natural_step, asked, negative, model, X, rises if monotone else None)
    return moved(posterior), NaturalStepInfo(value, size, size < asked, negative)


models.register(DeepGP, natural_step=natural_step)
