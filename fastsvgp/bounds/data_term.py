"""The data term of a bound, chunk by chunk, through a layer and the likelihood.

A batch much longer than M is processed in minibatch chunks that stay in cache.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..distributed.data_scale import ALL_ROWS
from ..likelihoods.layout import laid_out, stacked
from ..posteriors.base import SUMS
from ..records import plus, restricted
from ..runtime import tuning
from .gradient_sums import scaled
from .model_kinds import kind_of


def chunk_numbers(like):
    """Return the numbers of an (M, chunk) array where ``like`` is, and the least columns of it."""
    now = tuning.current
    numbers = (
        now.bound_chunk_numbers if type(like) is np.ndarray else now.bound_chunk_numbers_on_device
    )
    return numbers, now.bound_chunk_columns


def less_kl(data, layer, scale=ALL_ROWS):
    """Subtract the KL term from a data term; each rank subtracts its share of it."""
    return data - (layer.kl() if scale.kl == 1.0 else scale.kl * layer.kl())


class Batch(NamedTuple):
    """Checked data of a bound, and the scale and the random generator of its data term."""

    X: Any
    Y: Any
    scale: Any
    rng: Any
    weights: Any = None


class Part(NamedTuple):
    """Marginals ``f``, residuals ``rows`` and data term of one chunk of a batch.

    ``ell`` and the cotangents include the factor num_data / batch.
    """

    f: Any
    rows: Any
    ell: float
    f_bar: Any
    likelihood_bar: Any


def sweep(model, layer, X, Y, scale, rng, need=True, weights=None):
    """Yield a ``Part`` for each chunk of a batch; without ``need`` no cotangents are computed."""
    factor = scale.factor(len(X))
    numbers, columns = chunk_numbers(X)
    count = max(1, round(len(X) / max(columns, numbers // layer.num_inducing)))
    size = -(-len(X) // count)  # one size for all but the last chunk, so that memory is reused
    for start in range(0, len(X), size):
        f, rows = layer.forward(X if count == 1 else X[start : start + size])
        if count == 1 and Y.flags.c_contiguous:
            y = Y
        else:
            y = np.ascontiguousarray(Y[..., start : start + size], like=Y)
        w = (
            {}
            if weights is None
            else {"weights": np.ascontiguousarray(weights[..., start : start + size], like=Y)}
        )
        read = laid_out(model.likelihood, f)
        ell, f_bar, likelihood_bar = scaled(
            factor, *model.likelihood.expected_log_prob(y, read, rng, need=need, **w)
        )
        yield Part(f, rows, ell, stacked(model.likelihood, f_bar), likelihood_bar)
        del f, rows, read, f_bar, likelihood_bar
    check.report_clamped(layer.clamped)


def with_sums(model, need, gradient=True):
    """Return ``need`` of an SVGP, with ``SUMS`` if its data term is linear in the variances.

    gradient : whether derivatives in the likelihood's parameters are needed too
    """
    likelihood = model.likelihood
    sums = model.posterior.sums_variances and likelihood.linear_in_var
    if sums and (not gradient or likelihood.of_variances(0.0) is not None):
        return *need, SUMS
    return need


def accumulate_bound(model, layer, batch, wrt, inputs=False, with_kl=True, sums=False):
    """Compute ``(value, grad)``, and X_bar with ``inputs``, through a pass of a layer.

    batch : Batch; all arguments are checked already
    sums : whether the pass may omit variances
    """
    value, likelihood_bar, X_bars, scale = None, None, [], batch.scale
    for part in sweep(model, layer, batch.X, batch.Y, scale, batch.rng, weights=batch.weights):
        value, likelihood_bar = plus(part.ell, value), plus(part.likelihood_bar, likelihood_bar)
        X_bars.append(layer.pull(part.rows, part.f_bar))
        del part  # the next chunk reuses its memory
    value = 0.0 if value is None else value
    if sums and (rest := rest_of_variances(layer)):
        value += rest
        likelihood_bar = plus(model.likelihood.of_variances(rest), likelihood_bar)
    if with_kl:
        value = less_kl(value, layer, scale)
    bars = layer.finish(-scale.kl if with_kl else 0.0) if wrt else None
    value = check.result(value, model, leave=True)
    grad = kind_of(model).gradient(model, bars, likelihood_bar)
    value, grad = scale.all_reduce_gradient(value, restricted(grad, wrt))
    if not inputs:
        return value, grad
    return value, grad, X_bars[0] if len(X_bars) == 1 else np.concatenate(X_bars)


def pulled(model, layer, batch):
    """Sum a batch up for a natural step; return the data term, and the number of positive slopes.

    These are the slopes in the variances: such data have sites of negative precision.
    """
    data, negative = 0.0, 0
    X, Y, scale, rng, weights = batch
    for part in sweep(model, layer, X, Y, scale, rng, weights=weights):
        data += part.ell
        negative += np.count_nonzero(part.f_bar.var > 0)
        layer.pull(part.rows, part.f_bar)
        del part  # the next part reuses its memory
    return data + rest_of_variances(layer), negative


def rest_of_variances(layer):
    """Return what omitted variances add to the data term, after the last ``pull``."""
    return layer.work.of_omitted_variances() if layer.omits else 0.0
