"""The relay of every bound: data go through a layer and the likelihood, cotangents return.

A batch much longer than M is processed in minibatch chunks, so memory is bounded. ``sweep`` is the
only function that loops over them, and ``protocol`` says what it asks of a layer.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..check import weights as weighing
from ..check.scale import ALL_ROWS
from ..posteriors.base import SUMS
from ..records import plus, restricted
from ..runtime import tuning
from . import small_step
from .gradient_sums import scale_bars
from .protocol import ALL, kind_of

LINE, CONFLICT = 8, 512  # numbers in a cache line; in a page of memory


class Batch(NamedTuple):
    """Checked data of a bound, and the scale and the random generator of its data term."""

    X: Any
    Y: Any
    scale: Any = ALL_ROWS
    rng: Any = None
    weights: Any = None


class Call(NamedTuple):
    """Checked arguments of a bound.

    ``quantities``: random quantities of the pass. ``given`` is (X, Y, scale) as they came; with
    these and ``options`` the same bound can be evaluated again.
    """

    model: Any
    batch: Batch
    jitter: float
    dtype: Any
    quantities: dict
    given: tuple
    options: dict

    @classmethod
    def from_arguments(cls, kind, model, X, Y, scale, *, weights, jitter, rng, **random):
        """Check and cast the arguments of a bound, and draw its random quantities."""
        given, options = (X, Y, scale), {"weights": weights, "jitter": jitter, "rng": rng}
        model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights, kind.checked)
        random = kind.quantities(model, X, dtype, rng, random, scale.partition)
        batch = Batch(X, Y, scale, rng, weights)
        jitter = check.jitter_amount(jitter, dtype)
        return cls(model, batch, jitter, dtype, random, given, options | random)

    def begin(self, kind, need=(), columns=None, **more):
        """Begin the pass of the model; ``columns`` default to the rows of the batch."""
        columns = len(self.batch.X) if columns is None else columns
        return kind.begin(self.model, self.jitter, columns, need, **self.quantities, **more)


class Chunk(NamedTuple):
    """Marginals ``f``, residuals and data term of one chunk of a batch.

    ``ell`` and the cotangents include the factor num_data / batch.
    """

    f: Any
    residuals: Any
    ell: float
    f_bar: Any
    likelihood_bar: Any


def chunks(layer, X):
    """Return the slices of the rows of X: equal chunks, of the size that is fastest.

    The last one can be shorter. On the CPU, rows of an (M, chunk) array start at cache lines, but
    not all in the same sets of a cache: products with 2056 columns take 0.92 to 0.97 of the time
    per column of those with 2048.
    """
    now, N, S = tuning.current, len(X), layer.samples
    on_host = type(X) is np.ndarray
    numbers = now.bound_chunk_numbers if on_host else now.bound_chunk_numbers_on_device
    count = 1
    for M, each in layer.sizes:
        count = max(count, round(S * N * each / max(now.bound_chunk_columns, numbers // M)))
    if count == 1:
        return (ALL,)
    size = -(-N // count)  # one size for all but the last chunk, so that memory is reused
    if on_host and size >= CONFLICT:
        size += -size % LINE
        size += LINE * (size % CONFLICT == 0)
    return [slice(start, start + size) for start in range(0, N, size)]


def repeat_targets(Y, S):
    """Repeat targets or weights (..., B) for each of S draws: (..., S B)."""
    return np.concatenate([Y] * S, axis=-1) if S > 1 else np.ascontiguousarray(Y, like=Y)


def sweep(model, layer, batch, need=True):
    """Yield a ``Chunk`` for each chunk of a batch; without ``need`` no cotangents are computed."""
    X, Y, scale, rng, weights = batch
    likelihood, S, factor = model.likelihood, layer.samples, scale.factor(len(X))
    if S > 1:
        factor /= S
    for rows in chunks(layer, X):
        f, residuals = layer.forward(X if rows is ALL else X[rows], rows)
        y = repeat_targets(Y[..., rows], S)
        w = {} if weights is None else {"weights": repeat_targets(weights[..., rows], S)}
        found = layer.data_term(likelihood, y, f, rng, need, **w)
        yield Chunk(f, residuals, *scale_bars(factor, *found))
        del f, residuals, found  # the next chunk reuses their memory
    check.report_clamped(layer.clamped)


def subtract_kl(data, layer, scale=ALL_ROWS):
    """Subtract the KL term from a data term; each rank subtracts its share of it."""
    return data - (layer.kl() if scale.kl == 1.0 else scale.kl * layer.kl())


def request_sums(model, need, gradient=True):
    """Return ``need``, with ``SUMS`` if the data term is linear in the variances of one posterior.

    gradient : whether derivatives in the likelihood's parameters are needed too
    """
    likelihood, posterior = model.likelihood, getattr(model, "posterior", None)
    sums = posterior is not None and posterior.sums_variances and likelihood.linear_in_var
    if sums and (not gradient or likelihood.of_variances(0.0) is not None):
        return *need, SUMS
    return need


def bound_of(model, X, Y, scale, **options):
    """Compute ``elbo``; ``options``: weights, jitter, rng and random quantities."""
    kind = kind_of(model)
    call = Call.from_arguments(kind, model, X, Y, scale, **options)
    model, batch = call.model, call.batch
    if layer := small_step.sums(call):
        data = layer.data
    else:
        layer = call.begin(kind, columns=0)
        data = sum(chunk.ell for chunk in sweep(model, layer, batch, need=False))
    return scale.all_reduce(check.result(subtract_kl(data, layer, scale), model))[0]


def value_and_grad(
    model, X, Y, scale, *, wrt=None, inputs=False, with_kl=True, direction=None, **options
):
    """Compute ``elbo_and_grad``; takes the ``options`` of ``bound_of``.

    With ``direction`` the pass returns that step direction of its posterior in place of the
    gradient. Without ``with_kl`` value and gradient are those of the data term.
    """
    inputs, kind = check.flag("inputs", inputs), kind_of(model)
    call = Call.from_arguments(kind, model, X, Y, scale, **options)
    wrt = check.names(wrt, call.model)
    if not inputs and direction is None and (found := small_step.bound(call, wrt, with_kl)):
        return scale.all_reduce_gradient(*found)
    need = request_sums(call.model, (*wrt, "inputs") if inputs else wrt)
    layer = call.begin(kind, need, **({} if direction is None else {"direction": direction}))
    return gradient_through(kind, layer, call, wrt, inputs, with_kl)


def gradient_through(kind, layer, call, wrt, inputs=False, with_kl=True):
    """Compute ``(value, grad)``, and X_bar with ``inputs``, through a pass that was just begun."""
    value, likelihood_bar, X_bars, model, scale = None, None, [], call.model, call.batch.scale
    for chunk in sweep(model, layer, call.batch):
        value, likelihood_bar = plus(chunk.ell, value), plus(chunk.likelihood_bar, likelihood_bar)
        X_bars.append(layer.pull(chunk.residuals, chunk.f_bar))
        del chunk  # the next chunk reuses its memory
    value = 0.0 if value is None else value
    if rest := layer.omitted_variances():
        value += rest
        likelihood_bar = plus(model.likelihood.of_variances(rest), likelihood_bar)
    if with_kl:
        value = subtract_kl(value, layer, scale)
    bars = layer.finish(-scale.kl if with_kl else 0.0) if wrt else None
    value = check.result(value, model, leave=True)
    grad = restricted(kind.gradient(model, bars, likelihood_bar), wrt)
    value, grad = scale.all_reduce_gradient(value, grad)
    if not inputs:
        return value, grad
    return value, grad, X_bars[0] if len(X_bars) == 1 else np.concatenate(X_bars)


def sum_natural(model, layer, batch):
    """Sum a batch up for a natural step; return the data term, and the number of positive slopes.

    These are the slopes in the variances: such data have sites of negative precision.
    """
    data, negative = 0.0, 0
    for chunk in sweep(model, layer, batch):
        data += chunk.ell
        negative += np.count_nonzero(chunk.f_bar.var > 0)
        layer.pull(chunk.residuals, chunk.f_bar)
        del chunk  # the next chunk reuses its memory
    return data + layer.omitted_variances(), negative
