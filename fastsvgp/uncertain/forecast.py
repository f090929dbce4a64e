"""Forecasts by models of lags of a series, fed back with their uncertainty."""

import numpy as np

from .. import check
from ..bounds.predict import predict_y
from ..bounds.predictor import predictor
from ..bounds.svgp import SVGP
from ..likelihoods import Gaussian
from ..records.inducing_sets import stack_sets
from ..records.typed import Array, ArrayLike
from ..runtime.edge import public_call
from .input_covariance import input_covariance
from .inputs import GaussianInputs


def lagged(series: ArrayLike, lags: int) -> tuple[Array, Array]:
    """Make inputs and targets of a model that predicts a series from its last values.

    Parameters
    ----------
    series : (T,) array
        At equal distances in time, the latest value last.
    lags : int
        Number of last values, below T.

    Returns
    -------
    X : (T - lags, lags)
        Column i holds the values i + 1 steps before the target.
    Y : (T - lags,)

    Raises
    ------
    ValueError
        ``lags`` is not below T; NaN or infinity.

    Examples
    --------
    >>> fs.bounds.lagged([1.0, 2.0, 3.0, 5.0, 8.0], 2)
    (array([[2., 1.],
           [3., 2.],
           [5., 3.]]), array([3., 5., 8.]))
    """
    series = check.as_array("series", series)
    lags = check.whole("lags", lags)
    if series.ndim != 1 or len(series) <= lags:
        raise ValueError(
            f"lagged: `series` must be one row of more than {lags} values, as `lags` says, got"
            f" shape {series.shape}"
        )
    check.finite("series", series)
    windows = np.lib.stride_tricks.sliding_window_view(series, lags + 1)
    return np.ascontiguousarray(windows[:, lags - 1 :: -1]), windows[:, lags].copy()


@public_call()
def forecast(
    model: SVGP,
    history: ArrayLike,
    steps: int,
    *,
    inputs: ArrayLike | None = None,
    jitter: float | None = None,
) -> tuple[Array, Array]:
    """Predict several steps ahead with a model of lags, as ``lagged`` makes them.

    Each prediction is fed back as an input with its variance, and with its covariances with the
    other lags: a model that reads its own predictions as if they were exact is far too sure.

    Parameters
    ----------
    model : SVGP
        Of one output with Gaussian noise, trained on lags, or a predictor of it. With an RBF
        covariance of the lags, or sums and products of them.
    history : (lags,) or (B, lags) array
        The last values of the series, the **latest last**; of B series, or starting points.
    steps : int
    inputs : (steps, E) or (B, steps, E) array, optional
        Further inputs of the model in each step, known beforehand, in columns after the lags: they
        may have any covariance.
    jitter : float, optional
        As in ``elbo``.

    Returns
    -------
    mean, var : (steps,) or (B, steps)
        Of the targets, noise included. Targets are not normal from the second step on: quantiles
        of a normal distribution are approximate.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        Shapes; NaN or infinity; a covariance without closed form, several outputs.

    Notes
    -----
    The first two moments of each step are exact for the normal distribution of its lags. f is drawn
    again in each step: what the model does not know about f does not accumulate along one path. A
    step and series takes M^2 / 2 exponentials. Sources: Girard, Rasmussen, Quinonero Candela &
    Murray-Smith (2003); Deisenroth & Rasmussen, "PILCO" (2011).

    Examples
    --------
    >>> series = np.sin(0.5 * np.arange(60))
    >>> mean, var = fs.bounds.forecast(model, series[-1:], 5)
    >>> mean.shape, bool((var > 0).all())
    ((5,), True)
    """
    _check_model(model)
    steps, history = check.whole("steps", steps), check.as_array("history", history)
    if history.ndim not in (1, 2) or not history.size:
        raise ValueError(f"`history` must be (lags,) or (B, lags), got shape {history.shape}")
    check.finite("history", history)
    mean = np.atleast_2d(np.asarray(history, np.float64))[:, ::-1]
    (B, lags), known = mean.shape, _known(inputs, steps, history)
    columns = stack_sets(model.inducing).shape[1]
    if lags + known.shape[-1] != columns:
        raise ValueError(
            f"forecast: `model` has {columns} inputs, but `history` has {lags} values and `inputs`"
            f" {known.shape[-1]} columns"
        )
    fast = predictor(model, jitter=jitter, dtype=np.float64)
    S, means, variances = np.zeros((B, lags, lags)), [], []
    for step in range(steps):
        Xs = _inputs_at(mean, S, known[:, step])
        y, var = predict_y(fast, Xs)
        between = input_covariance(fast, Xs)[:, :lags]
        means.append(y)
        variances.append(var)
        mean = np.concatenate([y[:, None], mean[:, :-1]], axis=1)
        moved = np.empty_like(S)
        moved[:, 1:, 1:] = S[:, :-1, :-1]
        moved[:, 0, 0] = var
        moved[:, 0, 1:] = moved[:, 1:, 0] = between[:, :-1]
        S = moved
    dtype = np.result_type(stack_sets(model.inducing), np.float32)
    shape = (*history.shape[:-1], steps)
    found = [np.stack(one, 1).reshape(shape).astype(dtype) for one in (means, variances)]
    return found[0], found[1]


def _check_model(model):
    if type(model) is not SVGP:
        kind = type(model).__name__
        raise TypeError(
            f"forecast: `model` must be an SVGP or a predictor of one, got a {kind}; of an SGPR"
            " give info.svgp of its training, or fs.optimal_svgp(model, X, Y)"
        )
    if not isinstance(model.likelihood, Gaussian):
        raise TypeError(
            f"forecast: needs a Gaussian likelihood, got a {type(model.likelihood).__name__}:"
            " targets are fed back, and need exact moments"
        )
    q = model.posterior
    if np.ndim(q.alpha if hasattr(q, "alpha") else next(iter(vars(q).values()))) > 1:
        raise ValueError("forecast: `model` must have one output")


def _known(inputs, steps, history):
    """Return the known inputs (B, steps, E)."""
    B = 1 if history.ndim == 1 else len(history)
    if inputs is None:
        return np.empty((B, steps, 0))
    inputs = check.as_array("inputs", inputs)
    if inputs.shape[:-1] not in ((steps,), (*history.shape[:-1], steps)):
        raise ValueError(
            f"`inputs` must have shape ({steps}, E), a row for each step, or one such array for"
            f" each series, got {inputs.shape}"
        )
    check.finite("inputs", inputs)
    return np.broadcast_to(np.asarray(inputs, np.float64), (B, steps, inputs.shape[-1]))


def _inputs_at(mean, S, known):
    """Return the inputs of a step: lags with errors, and known columns without."""
    D = mean.shape[1] + known.shape[1]
    var = np.zeros((len(mean), D, D))
    var[:, : mean.shape[1], : mean.shape[1]] = 0.5 * (S + np.swapaxes(S, 1, 2))
    return GaussianInputs(np.concatenate([mean, known], axis=1), var)
