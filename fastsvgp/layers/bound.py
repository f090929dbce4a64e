"""Doubly stochastic evidence lower bound of a deep GP, and its gradient.

    sum over data and S draws of E_q(f) log p(y | f) / S, at the last layer's marginals given the
    draws of those below, minus sum over layers of KL[q(u) || p(u)]

For given draws it is an ordinary function of the parameters, and the gradient is exact for the
value. Over draws it is an unbiased estimate of the bound of Salimbeni and Deisenroth (2017), eq.
(17).
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check, models
from ..bounds.data_term import Part, chunk_numbers, less_kl
from ..bounds.gradient_sums import scaled
from ..check import weights as weighing
from ..distributed import reduce
from ..distributed.data_scale import DataScale
from ..likelihoods.layout import laid_out, stacked
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
    """Evaluate the bound as for an SVGP, at draws of the hidden layers.

    ``draws`` is a tuple of one array (S, B, P) per hidden layer, of standard normal numbers. By
    default ``num_samples`` per row are drawn with ``rng``; for even numbers the second half is the
    negative of the first. With a ``group``, given draws belong to the rows of this rank. Draws that
    are made are those that one process makes for all rows, in the order of the ranks.

    The flops of an SVGP's value per layer, with S B rows in all layers but the first.
    """
    return reduce.evaluate(
        "elbo",
        bound_of,
        model,
        X,
        Y,
        lambda: [reduce.NUMBER],
        group=group,
        drawing=True,
        num_data=num_data,
        weights=weights,
        draws=draws,
        jitter=jitter,
        rng=rng,
        num_samples=num_samples,
    )


class Settings(NamedTuple):
    """Arguments of a bound of a deep GP besides the model, the data and their scale."""

    weights: Any
    jitter: Any
    rng: Any
    draws: Any = None
    num_samples: int = 2


class Batch(NamedTuple):
    """Checked arguments of a bound, with the draws of the hidden layers."""

    model: Any
    X: Any
    Y: Any
    weights: Any
    draws: Any
    scale: Any
    rng: Any
    jitter: float

    @classmethod
    def of(cls, model, X, Y, scale, settings):
        """Check and cast the arguments, and make the draws that are not given."""
        model, X, Y, weights, dtype = weighing.svgp(model, X, Y, settings.weights, checked)
        draws = hidden_draws(
            model, X, settings.draws, settings.num_samples, settings.rng, scale.partition
        )
        jitter = check.jitter_amount(settings.jitter, dtype)
        return cls(model, X, Y, weights, draws, scale, settings.rng, jitter)

    def chain(self, need=(), top=()):
        """Begin a ``Chain`` whose rows will be pulled back."""
        samples = num_draws(self.draws)
        return Chain(self.model, self.jitter, len(self.X), samples, need, top)


def bound_of(model, X, Y, scale, **settings):
    """Evaluate ``elbo`` with a ``DataScale`` and ``Settings``."""
    batch = Batch.of(model, X, Y, scale, Settings(**settings))
    chain = Chain(batch.model, batch.jitter)
    data = sum(part.ell for part in sweep(batch, chain, need=False))
    return scale.all_reduce(check.result(less_kl(data, chain, scale), batch.model))[0]


def elbo_and_grad(
    model,
    X,
    Y,
    *,
    num_data=None,
    jitter=None,
    rng=None,
    weights=None,
    wrt=None,
    inputs=False,
    group=None,
    draws=None,
    num_samples=2,
):
    """Evaluate as for an SVGP: ``elbo`` at these draws, and the exact gradient of that number.

    ``wrt`` names fields such as "layers.1.covariance" or "layers.0.posterior.mean". Layers below
    all named fields only run forward. With n rows in a layer, min((3 P + 3) M^2 n + 4/3 M^3, (3 P +
    2) M^2 n + (4/3 + 2 P) M^3) flops for a ``Whitened`` one of P outputs, and 3 M^2 n + 2 M^3 for a
    ``LikelihoodForm`` with any P; about 4 P (M^2 + M n) numbers.
    """
    return reduce.evaluate(
        "elbo_and_grad",
        _value_and_grad,
        model,
        X,
        Y,
        lambda: [reduce.of_gradient(model, wrt)],
        group=group,
        wrt=wrt,
        drawing=True,
        num_data=num_data,
        weights=weights,
        draws=draws,
        jitter=jitter,
        rng=rng,
        inputs=inputs,
        num_samples=num_samples,
    )


def data_term_and_grad(
    model,
    X,
    Y,
    *,
    num_data=None,
    jitter=None,
    rng=None,
    weights=None,
    wrt=None,
    inputs=False,
    draws=None,
    num_samples=2,
):
    """Evaluate as for an SVGP, at draws as in ``elbo``.

    Data terms of shards add up if their draws are those of their rows.
    """
    settings = Settings(weights, jitter, rng, draws, num_samples)._asdict()
    scale = DataScale(num_data)
    return _value_and_grad(model, X, Y, scale, wrt=wrt, inputs=inputs, with_kl=False, **settings)


def kl_term_and_grad(model, *, jitter=None, wrt=None):
    """Evaluate as for an SVGP: the sum of the KL terms of the layers, which needs no draws."""
    model, _, _, dtype = checked(model)
    wrt = check.names(wrt, model)
    chain = Chain(model, check.jitter_amount(jitter, dtype), need=wrt)
    kl = chain.kl()
    grad = DeepGP(chain.finish(1.0), tree_map(np.zeros_like, model.likelihood))
    return check.result(kl, model), restricted(grad, wrt)


def _value_and_grad(model, X, Y, scale, *, wrt=None, inputs=False, with_kl=True, **settings):
    """Return ``(value, gradient)``, and the cotangent of X if ``inputs``; takes ``Settings``."""
    inputs = check.flag("inputs", inputs)
    batch = Batch.of(model, X, Y, scale, Settings(**settings))
    wrt = check.names(wrt, batch.model)
    chain = batch.chain((*wrt, "inputs") if inputs else wrt)
    data, likelihood_bar, X_bars = 0.0, None, []
    for part in sweep(batch, chain):
        data += part.ell
        likelihood_bar = plus(part.likelihood_bar, likelihood_bar)
        X_bars.append(chain.pull(part.rows, part.f_bar))
        del part  # the next part reuses its memory
    if with_kl:
        data = less_kl(data, chain, scale)
    grad = restricted(DeepGP(chain.finish(-scale.kl if with_kl else 0.0), likelihood_bar), wrt)
    value, grad = scale.all_reduce_gradient(check.result(data, batch.model, leave=True), grad)
    if not inputs:
        return value, grad
    return value, grad, X_bars[0] if len(X_bars) == 1 else np.concatenate(X_bars)


def sweep(batch, chain, need=True):
    """Yield the chunks of a batch after the layers and the likelihood.

    Without ``need`` there are no cotangents.
    """
    X, draws, weights, S = batch.X, batch.draws, batch.weights, num_draws(batch.draws)
    factor, likelihood = batch.scale.factor(len(X)) / S, batch.model.likelihood
    for rows in runs(len(X), S, chain, X):
        f, residuals = chain.forward(X[rows], [eps[:, rows] for eps in draws])
        y = repeated(batch.Y[..., rows], S)
        w = {} if weights is None else {"weights": repeated(weights[..., rows], S)}
        read = laid_out(likelihood, f)
        ell, f_bar, likelihood_bar = scaled(
            factor, *likelihood.expected_log_prob(y, read, batch.rng, need=need, **w)
        )
        yield Part(f, residuals, ell, stacked(likelihood, f_bar), likelihood_bar)
        del f, residuals, read, f_bar, likelihood_bar
    check.report_clamped(chain.clamped)


def runs(B, S, chain, home):
    """Return slices of B rows with S draws each: equal chunks, cache-sized if that is faster.

    The last chunk can be shorter.
    """
    numbers, columns = chunk_numbers(home)
    count = max(1, *(round(S * B * each / max(columns, numbers // M)) for M, each in chain.sizes))
    size = -(-B // count)
    return (slice(start, start + size) for start in range(0, B, size))


def repeated(Y, S):
    """Repeat targets or weights (..., B) for each of S draws: (..., S B)."""
    return np.concatenate([Y] * S, axis=-1) if S > 1 else np.ascontiguousarray(Y, like=Y)


models.register(
    DeepGP,
    elbo=elbo,
    elbo_and_grad=elbo_and_grad,
    data_term_and_grad=data_term_and_grad,
    kl_term_and_grad=kl_term_and_grad,
)
