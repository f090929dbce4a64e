"""Predictions with the way back to their inputs: for acquisition by gradient, for sensitivities, for networks below.

The cotangents of a prediction come from whoever uses it, and later. So the pass stays open: what it
began with, its factor of Kuu among it, serves every way back. The rows that a pass keeps are
consumed by the first one, and are not kept at all where they are long; they are made again from the
inputs then, by the products of a prediction.
"""

from collections.abc import Callable

import numpy as np

from .. import check, kernels
from ..records import Marginals
from ..records.typed import Array, ArrayLike, Record
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from .elbo import SVGP
from .posterior_passes import layer_pass
from .predict import NAMES, total, trailing

# of an (M, N) array for each output, 128 MiB in float64 in all: a pass keeps them, and two more (M,
# N)
KEEP_NUMBERS = 2**24


@public_call(SVGP)
def predict_f_and_vjp(
    model: Record, Xs: ArrayLike, *, jitter: float | None = None
) -> tuple[Array, Array, Callable[[ArrayLike | None, ArrayLike | None], Array]]:
    """Posterior mean and variance of the latent function, and the map from their cotangents to those of the inputs.

    Parameters
    ----------
    model : SVGP
        With any posterior.
    Xs : (N, D) array
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same.

    Returns
    -------
    mean : (N,) or (N, P)
    var : (N,) or (N, P)
        As of ``predict_f``.
    vjp : callable
        ``Xs_bar = vjp(mean_bar, var_bar)``: with the derivatives of a number in ``mean`` and
        ``var``, in their shapes, its derivative in ``Xs``, (N, D), mean function included. ``None``
        in the place of either is zero. It may be called any number of times. What Xs and the model
        were counts, whatever is done to ``Xs`` meanwhile; leave the arrays of the model alone.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite, MemoryError
        As of ``elbo``. Of ``vjp``: cotangents of another shape, on another device, with NaN or
        infinity.

    Notes
    -----
    As long as ``predict_f`` takes, and as the reverse of ``elbo_and_grad`` from marginals to
    inputs: nothing of M^3 beyond the start. For ``Whitened``, one output: 2 M^2 N flops forward, 2
    M^2 N back, and the covariance. Up to P M N = 2^24 the first ``vjp`` finds what the forward pass
    left, and frees it; further calls, and longer ones, take the forward pass again.

    A prediction depends on its own row of ``Xs`` alone, so two calls give all derivatives of one
    output: ``vjp(np.ones(N), None)`` has those of each mean in its row, ``vjp(None, np.ones(N))``
    those of each variance.

    Examples
    --------
    >>> mean, var, vjp = fs.predict_f_and_vjp(model, Xs)
    >>> Xs_bar = vjp(np.ones(len(Xs)), 0.5 / np.sqrt(var))      # of the sum of mean + standard deviation
    """
    model, X, _, dtype = check.svgp(model, Xs, names=NAMES)
    way = _Way(layer_pass(model, check.jitter_amount(jitter, dtype), len(X), ("inputs",)), X.copy())
    f = way.forward()
    check.report_clamped(way.layer.clamped)
    check.result(total(f.var), model)
    shape = f.mean.shape

    def vjp(mean_bar, var_bar):
        """The cotangent (N, D) of the inputs from those of mean and variance, (N,) or (N, P) each; ``None`` is zero."""
        return _pulled(model, way, shape, mean_bar, var_bar)

    return trailing(f.mean), trailing(f.var), vjp


class _Way:
    """Through a layer's pass and back, any number of times: inputs in runs, and the rows of those that nobody has pulled."""

    def __init__(self, layer, X):
        self.layer, self.X = layer, X
        self.size = max(1, kernels.chunk_numbers(X) // layer.num_inducing)
        self.starts = range(0, len(X), self.size)
        self.rows = {}  # by where their run starts

    def _run(self, start):
        return self.layer.forward(self.X[start : start + self.size])

    def forward(self):
        """Marginals (..., N)."""
        parts = []
        for start in self.starts:
            part, rows = self._run(start)
            parts.append(part)
            outputs = part.mean.size // part.mean.shape[-1]
            if outputs * self.layer.num_inducing * len(self.X) <= KEEP_NUMBERS:
                self.rows[start] = rows
        return Marginals(
            *(
                np.concatenate([getattr(part, name) for part in parts], axis=-1)
                for name in ("mean", "var")
            )
        )

    def back(self, f_bar):
        """X_bar (N, D) for the cotangents of the marginals."""
        X_bars = []
        for start in self.starts:
            rows = self.rows.pop(start, None)
            bars = (bar[..., start : start + self.size] for bar in (f_bar.mean, f_bar.var))
            part = Marginals(*(np.ascontiguousarray(bar, like=bar) for bar in bars))
            X_bars.append(self.layer.pull(self._run(start)[1] if rows is None else rows, part))
        return np.concatenate(X_bars)


@public_call()
def _pulled(model, way, shape, mean_bar, var_bar):
    """``vjp`` for marginals of this shape (..., N); the model says how large the matrices are."""
    deferred_checks.defer(way.X)
    bars = (
        _cotangent(name, bar, shape, way.X)
        for name, bar in (("mean_bar", mean_bar), ("var_bar", var_bar))
    )
    X_bar = way.back(Marginals(*bars))
    check.result(total(X_bar), model)
    return X_bar


def _cotangent(name, bar, shape, X):
    """One that came from a user, checked, in the layout (..., N) and the dtype of ``X``."""
    if bar is None:
        return np.zeros(shape, X.dtype, like=X)
    bar = check.as_array(name, bar)
    if bar.shape != shape[::-1]:
        of = name.partition("_")[0]
        raise ValueError(
            f"`{name}` must have the shape {shape[::-1]} of the `{of}` whose cotangent it is, got"
            f" {bar.shape}"
        )
    one_device((name, bar), ("Xs", X))
    check.common_dtype(bar, names=(name,))
    check.finite(name, bar)
    return np.ascontiguousarray(bar.T, like=bar).astype(X.dtype, copy=False)
