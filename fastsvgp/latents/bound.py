"""The bound and the predictions of a ``MultiGP``: those of an SVGP, through a ``LatentPass``.

    sum over data of E_q(f) log p(y | f) - sum over layers of KL[q(u) || p(u)]

For a likelihood that reads one function per output this is the bound for any mixing: the
expectation of each datum involves one function, whose marginal is exact. A likelihood of several
functions takes them to be independent, so each has latents of its own (``model.checked``).
"""

import inspect

import numpy as np

from .. import check, models
from ..bounds.at_inputs import (
    begin_pass,
    chunks,
    joint_samples,
    total,
    trailing,
    with_variance,
)
from ..bounds.elbo import data_term_and_grad, elbo, elbo_and_grad
from ..bounds.model_kinds import KINDS, ModelKind
from ..bounds.predict import (
    predict_cdf,
    predict_f as predict_f_of_svgp,
    predict_log_density,
    predict_quantiles,
    predict_y,
)
from ..bounds.predict_vjp import predict_f_and_vjp
from ..records import restricted, tree_map
from ..records.inducing_sets import naming_repeated
from .latent_pass import LatentPass
from .model import MultiGP, checked, layers_of


def begin(model, dtype, columns=0, need=(), *, jitter, rng, direction=None, **random):
    """Begin the pass of a checked model; draws the requested random quantities."""
    each = drawn(model, dtype, rng, random)
    if direction is not None:
        raise ValueError(f"a MultiGP has no step direction {direction!r}: leave it out")
    return LatentPass(model, check.jitter_amount(jitter, dtype), columns, need, each=each)


def drawn(model, dtype, rng, random):
    """Return the random quantities of each layer, those that it has; ``TypeError`` if none has."""
    random = {name: value for name, value in random.items() if value is not None}
    layers, each = layers_of(model), []
    for layer in layers:
        own = {n: v for n, v in random.items() if n in layer.posterior.random_quantities}
        each.append(check.drawn(own, layer, dtype, rng))
    for name in random:
        if not any(name in of_layer for of_layer in each):
            check.random_names((name,), layers[0].posterior)
    return each


def _gradient(model, bars, likelihood_bar):
    if bars is None:
        return MultiGP(None, likelihood_bar)
    return MultiGP(bars.latents, likelihood_bar, bars.mixing, bars.mean, bars.inducing)


def kl_term_and_grad(model, *, jitter=None, wrt=None, rng=None, **random):
    """Evaluate as for an SVGP: the sum of the KL terms of the layers."""
    model, _, _, dtype = checked(model)
    wrt = check.names(wrt, model)
    layer = begin(model, dtype, need=wrt, jitter=jitter, rng=rng, **random)
    kl, bars = layer.kl(), layer.finish(1.0)
    likelihood_bar = tree_map(lambda value: np.zeros_like(value)[()], model.likelihood)
    return check.result(kl, model), restricted(_gradient(model, bars, likelihood_bar), wrt)


def predict_f(
    model,
    Xs,
    *,
    full_cov=False,
    full_output_cov=False,
    var=True,
    jitter=None,
    chunk_size=None,
):
    """Predict the J functions as for an SVGP: mean and variance (N, J), or (N,) if J is 1.

    ``full_cov``: covariances over rows, (J, N, N). ``full_output_cov``: covariances over functions
    at each row, (N, J, J), which are W diag(var g) W' because the latent functions are independent
    under q. The flops of the layers' predictions, and 4 J L N, or 2 J^2 L N.
    """
    if not check.flag("full_output_cov", full_output_cov):
        return inspect.unwrap(predict_f_of_svgp)(
            model, Xs, full_cov=full_cov, var=var, jitter=jitter, chunk_size=chunk_size
        )
    with_variance(full_output_cov, var, "full_output_cov")
    if check.flag("full_cov", full_cov):
        raise ValueError(
            "predict_f: `full_cov` and `full_output_cov` together are a covariance of J N numbers;"
            " give one of them, or draw with sample_f"
        )
    layer, model, Xs, *_ = begin_pass(model, jitter, Xs)
    means, covs = [], []
    for X in chunks(layer, Xs, chunk_size):
        g, _ = layer.latents(X)
        means.append(layer.mixed(g, X).mean)
        covs.append(layer.mixing.over_functions(g.var))
    check.report_clamped(layer.clamped)
    mean, cov = np.concatenate(means, axis=-1), np.concatenate(covs)
    check.result(total(cov), model)
    return trailing(mean), cov


def sample_f(model, Xs, num_samples=1, *, rng=None, jitter=None):
    """Draw as for an SVGP: the latent functions are drawn, and then mixed.

    So the functions of a draw depend on each other as under q. N^3 / 3 flops per latent function.
    """
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    layer, model, Xs, _, jitter = begin_pass(model, jitter, Xs, columns=0)
    mean, cov = layer.joint_latents(Xs)
    check.report_clamped(layer.clamped)
    check.result(total(cov), model)
    with naming_repeated(Xs, "Xs"), layer.naming_function():
        draws = joint_samples(mean, cov, jitter, num_samples, rng)  # (S, N, L)
    samples = layer.of_draws(draws, Xs)
    return samples[..., 0] if samples.shape[-1] == 1 else samples


KINDS[MultiGP] = ModelKind(checked, begin, _gradient)
SHARED = (
    elbo,
    elbo_and_grad,
    data_term_and_grad,
    predict_y,
    predict_log_density,
    predict_cdf,
    predict_quantiles,
    predict_f_and_vjp,
)
models.register(
    MultiGP,
    kl_term_and_grad=kl_term_and_grad,
    predict_f=predict_f,
    sample_f=sample_f,
    **{function.__name__: inspect.unwrap(function) for function in SHARED},
)
