"""Optimal mean by conjugate gradients, and the optimal diagonal of Proposition 1.

With Gaussian noise s^2 the bound is quadratic in mu, and its optimum solves

    (phi' phi / s^2 + S) mu = phi' y / s^2,

each product with phi or phi' made of features that are never stored. The bound, as a function of
the iterate, rises in every iteration, so stopping early is safe. In an entry c of the diagonal
beyond the dense columns the bound is -c^2 (S_ii + |phi_i|^2 / s^2) / 2 + log c, for every value of
the rest of q: c^-2 = S_ii + |phi_i|^2 / s^2.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import check
from ..likelihoods import Gaussian
from ..records import replace
from ..records.typed import ArrayLike, RecordT
from ..runtime import deferred_checks, tuning
from ..runtime.edge import public_call
from .bases.base import BasisWeights
from .model import QSGP, check_data, check_inputs


class WeightsInfo(NamedTuple):
    """Report of ``optimal_weights``.

    Parameters
    ----------
    iterations : int
        Number of iterations, or of blocks.
    residual : float
        Last residual, relative to the first. By blocks: after the last complete epoch.
    gains : list of float
        Rise of the bound in each iteration, in nats. By blocks: fall of the dual, which is an upper
        bound of what the optimal mean reaches.
    residuals : tuple of float
        By blocks: the residual of each complete epoch.
    products : bool
        By blocks: whether phi_r phi_r' was taken in place of k(X_r, X_r).
    discarded : int or None
        By blocks: the epoch, counted from 1, that was undone because the residual rose; from then
        on phi_r phi_r' is taken.

    Examples
    --------
    >>> _, info = fs.qsgp.optimal_weights(weights, X, Y, iterations=30)
    >>> len(info.gains) == info.iterations
    True
    """

    iterations: int
    residual: float
    gains: list
    residuals: tuple[float, ...] = ()
    products: bool = False
    discarded: int | None = None


def solve_by_conjugate_gradients(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    iterations: int,
    tolerance: float,
    jitter: float | None,
    callback: Callable[..., object] | None,
) -> tuple[RecordT, WeightsInfo]:
    """Return ``(model, WeightsInfo)``; it takes the arguments of ``optimal_weights``.

    4 m N flops per iteration and twice the features, in O(m) memory; for an ``InducingBasis`` m^2
    covariances more. Ctrl-C between two iterations stops as the tolerance does.
    """
    given, X, Y, dtype = check_data(model, X, Y)
    noise = noise_of("optimal_weights", given)
    basis, jitter = given.basis, check.jitter_amount(jitter, dtype)

    def times(p):
        return (
            _multiply_transposed(basis, X, _product(basis, X, p)) / noise
            + basis.precision_times(p[None], jitter)[0]
        )

    mean = given.posterior.mean.astype(np.float64)
    right = _multiply_transposed(basis, X, Y) / noise
    residual = right - (times(mean.astype(dtype)) if mean.any() else 0)
    direction, squared = residual.copy(), _sum(residual * residual)
    # if all targets are zero: relative to the start of the iteration
    first, gains, taken = _sum(right * right) or squared, [], 0
    try:
        while taken < iterations and squared > tolerance**2 * first:
            along = times(direction.astype(dtype))
            size = squared / _sum(direction * along)
            mean += size * direction
            residual -= size * along
            before, squared = squared, _sum(residual * residual)
            gains.append(0.5 * size * before)
            direction = residual + squared / before * direction
            taken += 1
            info = WeightsInfo(taken, (squared / first) ** 0.5, gains)
            if callback is not None and callback(replace_mean(given, mean), info):
                break
    except KeyboardInterrupt:
        pass
    found = replace_mean(given, mean)
    check.result(float(np.abs(mean).sum()), found)
    info = WeightsInfo(taken, (squared / first) ** 0.5 if first else 0.0, gains)
    return optimal_diagonal(found, X, jitter=jitter), info


@public_call(QSGP)
def optimal_diagonal(
    model: RecordT, X: ArrayLike, *, num_data: float | None = None, jitter: float | None = None
) -> RecordT:
    """Return the model with the optimal diagonal of C (Proposition 1), for Gaussian noise.

    The diagonal is that beyond the dense columns. 2 m N flops and the features.

    Parameters
    ----------
    model : QSGP
    X : (N, D) array
        All data, or a part of them.
    num_data : float, optional
        Size of the whole data set, if X is a part of it.
    jitter : float, optional
        As in ``qsgp.bound``.

    Returns
    -------
    QSGP

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``qsgp.bound``.

    Examples
    --------
    >>> fs.qsgp.bound(fs.qsgp.optimal_diagonal(weights, X), X, Y) > fs.qsgp.bound(weights, X, Y)
    True
    """
    deferred_checks.defer(X)
    given, X, dtype = check_inputs(model, X, "X")
    scale = check.data_scale(num_data, len(X))
    return diagonal_from(given, (X[run] for run in _runs(X)), scale, jitter)


def diagonal_from(model, chunks, scale, jitter):
    """Return a checked model with its optimal diagonal, from the rows of some chunks of X.

    ``scale`` is the number of all data over that of these rows.
    """
    noise, q = noise_of("optimal_diagonal", model), model.posterior
    k, m = q.columns.shape[1], len(q.mean)
    squares, nothing = np.zeros(m, like=q.mean), np.zeros((1, m), q.mean.dtype, like=q.mean)
    for rows in chunks:
        none = np.zeros((1, len(rows)), rows.dtype, like=rows)
        weights = BasisWeights(nothing, nothing[0])
        squares += model.basis.products_vjp(rows, weights, none, none[0] + 1, ())[1]
    own = model.basis.precision_diagonal(check.jitter_amount(jitter, q.mean.dtype))
    diagonal = (own + scale * squares / noise)[k:] ** -0.5
    if deferred_checks.pending():
        check.result(diagonal.sum(), model)
    return replace(model, posterior=replace(q, diagonal=diagonal.astype(q.mean.dtype)))


def noise_of(name, model):
    """Return the noise variance; ``TypeError`` unless the likelihood is Gaussian."""
    if not isinstance(model.likelihood, Gaussian):
        kind = type(model.likelihood).__name__
        raise TypeError(f"{name}: the optimum is known for a Gaussian likelihood, not for a {kind}")
    variance = model.likelihood.variance
    return variance if deferred_checks.on_device(variance) else float(variance)


def _runs(X):
    """Return the chunks of rows, as slices."""
    size = tuning.current.weight_chunk_rows
    return [slice(at, at + size) for at in range(0, len(X), size)]


def _product(basis, X, w):
    """Return phi w (N,)."""
    return np.concatenate([basis.products(X[run], BasisWeights(w[None]))[0][0] for run in _runs(X)])


def _multiply_transposed(basis, X, u):
    """Return phi' u (m,), in float64."""
    total, nothing = 0.0, BasisWeights(np.zeros((1, basis.num_functions()), X.dtype, like=X))
    for rows in _runs(X):
        bar = basis.products_vjp(X[rows], nothing, u[None, rows], None, ())[0]
        total = total + bar[0].astype(np.float64)
    return total


def _sum(values):
    return float(values.sum(dtype=np.float64))


def replace_mean(model, mean):
    """Return the model with this mean, in its dtype."""
    q = model.posterior
    return replace(model, posterior=replace(q, mean=mean.astype(q.mean.dtype)))
