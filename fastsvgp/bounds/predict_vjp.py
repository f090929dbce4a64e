"""Predictions with their pullback to the inputs: for acquisition, sensitivities, and networks.

The caller supplies the cotangents of a prediction later, so the pass stays open: its factor of Kuu
serves every backward pass. The first backward pass consumes the residuals of the forward pass.
Long residuals are not cached. Missing residuals are recomputed from the inputs, at the cost of a
prediction.
"""

from collections.abc import Callable

import numpy as np

from .. import check
from ..records import Marginals
from ..records.typed import Array, ArrayLike, Record
from ..runtime import deferred_checks, tuning
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from .at_inputs import AtInputs, join, stack_rows, total, trailing
from .svgp import SVGP


@public_call(SVGP)
def predict_f_and_vjp(
    model: Record, Xs: ArrayLike, *, jitter: float | None = None
) -> tuple[Array, Array, Callable[[ArrayLike | None, ArrayLike | None], Array]]:
    """Predict mean and variance of the latent function, with the pullback to the inputs.

    Parameters
    ----------
    model : SVGP
        With any posterior.
    Xs : (N, D) array, or GaussianInputs
        Uncertain inputs with RBF, or a sum of them, and independent errors.
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same.

    Returns
    -------
    mean : (N,) or (N, P)
    var : (N,) or (N, P)
        As of ``predict_f``.
    vjp : callable
        ``Xs_bar = vjp(mean_bar, var_bar)``. Takes the derivatives of a number with respect to
        ``mean`` and ``var``, in their shapes; returns its derivative with respect to ``Xs``,
        (N, D) or ``GaussianInputs``, mean function included. ``None`` for either is zero. Can be
        called any number of times. ``Xs`` is copied, so it can be changed between calls; do not
        change the arrays of the model.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite, MemoryError
        As ``elbo``. ``vjp`` raises for cotangents of another shape, on another device, or with NaN
        or infinity.

    Notes
    -----
    The cost of ``predict_f``, and of the backward pass of ``elbo_and_grad`` from marginals to
    inputs; M^3 work is done once. For ``Whitened``, one output: 2 M^2 N flops forward, 2 M^2 N
    backward, and the covariance. Up to P M N = 2^24 the first ``vjp`` uses the residuals of the
    forward pass and frees them. Further calls, and larger predictions, repeat the forward pass.

    A prediction depends only on its own row of ``Xs``, so two calls give all derivatives of one
    output: ``vjp(np.ones(N), None)`` has the derivative of each mean in its row,
    ``vjp(None, np.ones(N))`` that of each variance.

    Examples
    --------
    Gradient of the sum of mean + standard deviation:

    >>> mean, var, vjp = fs.bounds.predict_f_and_vjp(model, Xs)
    >>> Xs_bar = vjp(np.ones(len(Xs)), 0.5 / np.sqrt(var))
    """
    at = AtInputs(model, Xs, jitter=jitter, need=("inputs",))
    model, repeatable = at.model, _RepeatablePass(at)
    f = repeatable.forward()
    check.report_clamped(repeatable.layer.clamped)
    check.result(total(f.var), model)
    like = f.mean

    def vjp(mean_bar, var_bar):
        """Pull cotangents of mean and variance, (N,) or (N, P), back to the inputs (N, D).

        ``None`` is zero.
        """
        return _pull_back(model, repeatable, like, mean_bar, var_bar)

    return trailing(f.mean), trailing(f.var), vjp


class _RepeatablePass:
    """Repeatable forward and backward pass through a layer, in chunks of rows.

    ``rows`` caches the residuals of chunks that have not been pulled yet.
    """

    def __init__(self, at):
        self.layer, self.X, self.slices = at.layer, at.X.copy(), at.slices
        self.rows = {}  # by the start of the chunk

    def forward(self):
        """Return the marginals (..., N)."""
        parts = []
        for at in self.slices:
            part, rows = self.layer.forward(self.X[at], at)
            parts.append(part)
            outputs = part.mean.size // part.mean.shape[-1]
            numbers = outputs * max(M for M, _ in self.layer.sizes) * len(self.X)
            if numbers <= tuning.current.prediction_cache_numbers:
                self.rows[at.start] = rows
        return Marginals(*(join([getattr(f, name) for f in parts]) for name in ("mean", "var")))

    def back(self, f_bar):
        """Return X_bar (N, D) for the cotangents of the marginals."""
        X_bars = []
        for at in self.slices:
            rows = self.rows.pop(at.start, None)
            if rows is None:
                _, rows = self.layer.forward(self.X[at], at)
            bars = (bar[..., at] for bar in (f_bar.mean, f_bar.var))
            part = Marginals(*(np.ascontiguousarray(bar, like=bar) for bar in bars))
            X_bars.append(self.layer.pull(rows, part))
        return stack_rows(X_bars)


@public_call()
def _pull_back(model, repeatable, like, mean_bar, var_bar):
    """Compute ``vjp`` for marginals of the shape (..., N) and dtype of ``like``.

    ``public_call`` reads the sizes of the matrices from ``model``.
    """
    deferred_checks.defer(like)
    bars = (
        _cotangent(name, bar, like) for name, bar in (("mean_bar", mean_bar), ("var_bar", var_bar))
    )
    X_bar = repeatable.back(Marginals(*bars))
    check.result(total(X_bar), model)
    return X_bar


def _cotangent(name, bar, like):
    """Check a user's cotangent and cast it to the layout (..., N) and the dtype of ``like``."""
    if bar is None:
        return np.zeros_like(like)
    bar = check.as_array(name, bar)
    if bar.shape != like.shape[::-1]:
        of = name.partition("_")[0]
        raise ValueError(
            f"`{name}` must have the shape {like.shape[::-1]} of the `{of}` whose cotangent it is,"
            f" got {bar.shape}"
        )
    one_device((name, bar), ("Xs", like))
    check.common_dtype(bar, names=(name,))
    check.finite(name, bar)
    return np.ascontiguousarray(bar.T, like=bar).astype(like.dtype, copy=False)
