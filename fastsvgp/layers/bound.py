"""The doubly stochastic evidence lower bound of a deep GP, and its gradient.

    sum over data and S draws of E_q(f) log p(y | f) / S, at the last layer's marginals given the
    draws of those below, minus sum over layers of KL[q(u) || p(u)]

Given the draws it is an ordinary function of the parameters, and value and gradient belong to each
other; over draws it is an estimate without bias of the bound of Salimbeni and Deisenroth (2017),
eq. (17).
"""

import numpy as np

from .. import check, models
from ..bounds.data_term import DEVICE_PART_NUMBERS, PART_COLUMNS, PART_NUMBERS, Part, less_kl
from ..bounds.gradient_sums import scaled
from ..check import weights as weighing
from ..distributed import reduce
from ..distributed.data_scale import DataScale
from ..records import plus, restricted, tree_map
from .chain_pass import Chain
from .draws import hidden_draws, num_draws
from .layer import DeepGP, checked


def elbo(
    model,
    X,
    Y,
    *,
    num_data=None,
    jitter=None,
    rng=None,
    weights=None,
    group=None,
    draws=None,
    num_samples=2,
):
    """As of an SVGP, at draws of the hidden layers.

    draws : tuple of one array (S, B, P) for each hidden layer, standard normal numbers; default: drawn with ``rng``,
    ``num_samples`` for each row. For even numbers the second half is the negative of the first. With a ``group`` they belong to
    the rows that are given, and those that are drawn are what one process draws for all rows, in the order of the ranks.

    The flops of an SVGP's value for each layer, S B rows in all but the first.
    """
    return reduce.evaluate(
        "elbo", bound_of, model, X, Y, lambda: [reduce.NUMBER], group=group, drawing=True, num_data=num_data,
        weights=weights, draws=draws, jitter=jitter, rng=rng, num_samples=num_samples,
    )  # fmt: skip


def bound_of(model, X, Y, scale, *, weights, jitter, rng, draws=None, num_samples=2):
    """``elbo`` with a ``DataScale``."""
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights, checked)
    draws = hidden_draws(model, X, draws, num_samples, rng, scale.partition)
    chain = Chain(model, check.jitter_amount(jitter, dtype))
    parts = sweep(model, chain, X, Y, draws, scale, rng, need=False, weights=weights)
    data = sum(part.ell for part in parts)
    return scale.all_reduce(check.result(less_kl(data, chain, scale), model))[0]


def elbo_and_grad(
    model, X, Y, *, num_data=None, jitter=None, rng=None, weights=None, wrt=None, inputs=False, group=None, draws=None,
    num_samples=2,
):  # fmt: skip
    """As of an SVGP: the value of ``elbo`` at these draws, and the exact gradient of that number.

    ``wrt`` names fields such as "layers.1.covariance" or "layers.0.posterior.mean"; layers below
    all that is named are only gone through forward. With n rows in a layer, min((3 P + 3) M^2 n +
    4/3 M^3, (3 P + 2) M^2 n + (4/3 + 2 P) M^3) flops for a ``Whitened`` one of P outputs and 3 M^2
    n + 2 M^3 for a ``LikelihoodForm``, whatever P; some 4 P (M^2 + M n) numbers.
    """
    return reduce.evaluate(
        "elbo_and_grad", _value_and_grad, model, X, Y, lambda: [reduce.of_gradient(model, wrt)], group=group, wrt=wrt,
        drawing=True, num_data=num_data, weights=weights, draws=draws, jitter=jitter, rng=rng, inputs=inputs,
        num_samples=num_samples,
    )  # fmt: skip


def data_term_and_grad(
    model, X, Y, *, num_data=None, jitter=None, rng=None, weights=None, wrt=None, inputs=False, draws=None, num_samples=2
):  # fmt: skip
    """As of an SVGP, at draws as in ``elbo``.

    Data terms of shards add up where their draws are those of their rows.
    """
    options = dict(weights=weights, jitter=jitter, rng=rng, wrt=wrt, inputs=inputs)
    more = dict(draws=draws, num_samples=num_samples, with_kl=False)
    return _value_and_grad(model, X, Y, DataScale(num_data), **options, **more)


def kl_term_and_grad(model, *, jitter=None, wrt=None):
    """As of an SVGP: the sum of the layers' terms, in which nothing is drawn."""
    model, _, _, dtype = checked(model)
    wrt = check.names(wrt, model)
    chain = Chain(model, check.jitter_amount(jitter, dtype), need=wrt)
    kl = chain.kl()
    grad = DeepGP(chain.finish(1.0), tree_map(np.zeros_like, model.likelihood))
    return check.result(kl, model), restricted(grad, wrt)


def _value_and_grad(
    model, X, Y, scale, *, weights, jitter, rng, inputs, num_samples, wrt=None, draws=None, with_kl=True
):  # fmt: skip
    inputs = check.flag("inputs", inputs)
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights, checked)
    draws, wrt = (
        hidden_draws(model, X, draws, num_samples, rng, scale.partition),
        check.names(wrt, model),
    )
    need = (*wrt, "inputs") if inputs else wrt
    chain = Chain(model, check.jitter_amount(jitter, dtype), len(X), num_draws(draws), need)
    data, likelihood_bar, X_bars = 0.0, None, []
    for part in sweep(model, chain, X, Y, draws, scale, rng, weights=weights):
        data += part.ell
        likelihood_bar = plus(part.likelihood_bar, likelihood_bar)
        X_bars.append(chain.pull(part.rows, part.f_bar))
        del part  # its memory is the next part's
    if with_kl:
        data = less_kl(data, chain, scale)
    grad = restricted(DeepGP(chain.finish(-scale.kl if with_kl else 0.0), likelihood_bar), wrt)
    value, grad = scale.all_reduce_gradient(check.result(data, model, leave=True), grad)
    return (
        (value, grad, X_bars[0] if len(X_bars) == 1 else np.concatenate(X_bars))
        if inputs
        else (value, grad)
    )


def sweep(model, chain, X, Y, draws, scale, rng, need=True, weights=None):
    """Take a batch through the layers and the likelihood, run by run of rows; without ``need`` there are no cotangents."""
    S = num_draws(draws)
    factor = scale.factor(len(X)) / S
    for rows in runs(len(X), S, chain, X):
        f, way = chain.forward(X[rows], [eps[:, rows] for eps in draws])
        w = {} if weights is None else {"weights": repeated(weights[..., rows], S)}
        terms = scaled(
            factor,
            *model.likelihood.expected_log_prob(repeated(Y[..., rows], S), f, rng, need=need, **w),
        )
        yield Part(f, way, *terms)
        del f, way, terms
    check.report_clamped(chain.clamped)


def runs(B, S, chain, home):
    """Slices of B rows with S draws of each: runs of one size, but for the last, that stay in a cache where that pays."""
    numbers = PART_NUMBERS if type(home) is np.ndarray else DEVICE_PART_NUMBERS
    count = max(
        1, *(round(S * B * each / max(PART_COLUMNS, numbers // M)) for M, each in chain.sizes)
    )
    size = -(-B // count)
    return (slice(start, start + size) for start in range(0, B, size))


def repeated(Y, S):
    """Targets, or weights, (..., B) for each of S draws: (..., S B)."""
    return np.concatenate([Y] * S, axis=-1) if S > 1 else np.ascontiguousarray(Y, like=Y)


models.register(
    DeepGP, elbo=elbo, elbo_and_grad=elbo_and_grad, data_term_and_grad=data_term_and_grad, kl_term_and_grad=kl_term_and_grad,
)  # fmt: skip
