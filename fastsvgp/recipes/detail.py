"""From a trained SVGP to a VIF: near rows for the detail that its inducing inputs leave out."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import check
from ..bounds.predict import predict_f
from ..bounds.svgp import SVGP
from ..likelihoods import Gaussian
from ..near.model import VIF
from ..near.points import points_of
from ..optim.first_order import adam
from ..optim.schedules import cosine
from ..posteriors import Whitened
from ..records import replace
from ..records.typed import ArrayLike, Seed
from ..train import fit
from ..train.info import FitInfo

BATCH, NEAR_STEPS = 400, 450  # rows of a step, and steps
LARGEST, LAST = 0.03, 0.001  # step sizes of Adam, which fall along a cosine
NATURAL = 0.1  # step size of q(u)
MEASURED = 1000  # rows of ``info.detail``


def near_rows(
    model: SVGP,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    neighbours: int = 20,
    steps: int = NEAR_STEPS,
    weights: ArrayLike | None = None,
    jitter: float | None = None,
    callback: Callable[..., Any] | None = None,
    rng: Seed = 0,
) -> tuple[VIF, FitInfo]:
    """Train a VIF that begins at a trained SVGP.

    Worth its time where a row is within a fifth of a lengthscale, and inducing inputs leave more
    than a tenth of the variance of the noise: ``info.detail`` has both numbers.

    Parameters
    ----------
    model : SVGP
        With a posterior that takes natural steps, and one latent function or Gaussian noise.
    X : (N, D) array
    Y : (N,) or (N, P) array
    neighbours : int
        Near rows of each row, fewer than N.
    steps : int
        Steps of 400 rows, or all: a natural step of q(u), and one of Adam, whose size falls.
    weights : (N,) array, optional
    jitter, callback
        As in ``fit``.
    rng : int, numpy.random.Generator or None
        Seed of the batches.

    Returns
    -------
    model : VIF
    info : FitInfo
        With ``detail``, for Gaussian noise.

    Raises
    ------
    ValueError, TypeError
        As ``fit``.

    Notes
    -----
    For each row of a batch its distinct near rows u, 5 to 13 with 20 neighbours, cost 6 u M^2
    flops a step.

    Examples
    --------
    >>> detailed, info = fs.recipes.near_rows(model, X, Y, neighbours=5, steps=20)
    >>> fs.elbo(detailed, X, Y) > fs.elbo(model, X, Y)
    True
    """
    if not isinstance(model, SVGP):
        raise TypeError(
            f"near_rows: `model` must be an SVGP, got {type(model).__name__}; of an SGPR give"
            " fs.optimal_svgp(model, X, Y)"
        )
    check.parts(model)
    start = VIF(
        model.covariance, model.inducing, model.posterior, model.likelihood, model.mean,
        neighbours=neighbours,
    )  # fmt: skip
    sizes = cosine(LARGEST, LAST, "all")
    trained, info = fit(
        start, X, Y, weights=weights, steps=steps, batch_size=BATCH, natural_step_size=NATURAL,
        optimiser=adam(sizes), jitter=jitter, callback=callback, rng=rng,
    )  # fmt: skip
    if isinstance(model.likelihood, Gaussian):
        info = dataclasses.replace(info, detail=_detail(model, trained.near, jitter))
    return trained, info


def _detail(model, near, jitter):
    """Return the two numbers of ``FitInfo.detail``, from the last rows of the order.

    Nearly all rows come before these.
    """
    last = near.order[-MEASURED:]
    M, dtype = len(model.inducing), model.inducing.dtype
    certain = Whitened(np.zeros(M, dtype), 1e-9 * np.eye(M, dtype=dtype))
    X = near.inputs(last).astype(dtype)
    left = predict_f(replace(model, posterior=certain), X, jitter=jitter)[1]
    nearest = near.earlier[last, 0]
    known = nearest >= 0
    ends = last[known], nearest[known]
    a, b = (points_of(model.covariance, near.inputs(rows)).points for rows in ends)
    distances = np.sqrt(np.square(a - b).sum(axis=1))
    ratio = np.mean(left) / np.mean(model.likelihood.variance)
    return float(ratio), float(np.median(distances))
