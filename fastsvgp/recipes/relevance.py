"""Initial lengthscales by relevance: an exact Gaussian process on some rows ranks the inputs.

From equal lengthscales, a sparse model of 32 inputs of which 4 matter converges to an optimum that
treats some of the 4 as noise, and more epochs do not help. The lengthscales of the exact process
themselves are a worse start than equal ones if all inputs matter, because they suit many more
points than there are inducing inputs. Only the relevances are therefore taken from the exact
process.
"""

import numpy as np

from .. import check
from ..collapsed.sgpr import SGPR
from ..distributed import broadcast
from ..likelihoods import Ordinal
from ..runtime import tuning
from ..train import fit
from . import target_values

NOISE = 0.1
# an exact process of targets without noise can end at lengthscales of 0 and of infinity
LARGEST, LEAST = 1e6, 1e-12  # relevance, and relative to the largest
FEW = 0.5  # part of the inputs; if more of them matter, equal lengthscales are the better start


def relevant_lengthscales(kind, start, X, Y, weights=None, rng=None):
    """Compute lengthscales from relevances.

    Parameters
    ----------
    kind : class of a covariance with lengthscales
    start : (D,) array
        ``median_lengthscales`` of X: sqrt(D) times the typical distance m_d of a pair of rows in
        each column.
    X : (N, D) array
        Standardised.
    Y : (N,) or (N, P) array
        Real-valued: see ``as_numbers``.
    weights : (N,) array, optional
    rng : Generator

    Returns
    -------
    (D,) array
        In the dtype of ``start``. With the lengthscales l of the exact process, the relevance of an
        input is r_d = m_d / l_d. The squared scaled distance of a typical pair is one; each input
        gets the part r_d / sum(r) of it, so its lengthscale is m_d sqrt(sum(r) / r_d). If the
        effective number of relevant inputs, sum(r)^2 / sum(r^2), exceeds the part ``FEW`` of the
        inputs that vary, or one relevance ``LARGEST``, the result is ``start``.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C, which only ends the training in ``fit``.

    Notes
    -----
    ``relevance_iterations`` of L-BFGS on ``relevance_rows`` rows (``runtime.tuning``), about five
    seconds on one core.
    """
    some = np.sort(rng.choice(len(X), min(tuning.current.relevance_rows, len(X)), replace=False))
    X, Y = X[some].astype(np.float64), Y[some]
    varies = np.ptp(X, axis=0) > 0
    spread = Y.std()
    if not (spread > 0 and varies.any()):
        return start
    exact = SGPR(
        kind(variance=1.0, lengthscales=np.asarray(start, np.float64)),
        np.unique(X, axis=0),
        noise_variance=NOISE,
    )
    counted = {} if weights is None else {"weights": weights[some]}
    steps, Y = tuning.current.relevance_iterations, (Y - Y.mean(axis=0)) / spread
    found, info = fit(exact, X, Y, steps=steps, fixed="inducing", **counted)
    if info.interrupted:
        raise KeyboardInterrupt
    typical = exact.covariance.lengthscales / np.sqrt(X.shape[1])
    relevance = np.where(varies, typical / found.covariance.lengthscales, 0.0)
    if relevance.max() > LARGEST:
        return start
    relevance = np.where(varies, np.maximum(relevance, LEAST * relevance.max()), 0.0)
    if relevance.sum() ** 2 > FEW * varies.sum() * np.sum(relevance**2):
        return start
    lengthscales = typical * np.sqrt(relevance.sum() / np.where(varies, relevance, 1.0))
    return np.where(varies, lengthscales, start).astype(start.dtype)


def units_on_ranks(group, covariance, X, Y, weights, rng):
    """Compute ``relevant_lengthscales`` from those of ``covariance``.

    On the ranks of a group rank 0 computes and broadcasts them; None is a group of one.
    """

    def relevant(X, seed):
        draw, start = np.random.default_rng(seed), covariance.lengthscales
        return relevant_lengthscales(type(covariance), start, X, Y, weights, draw)

    seed = int(rng.integers(2**32))
    if group is None:
        return relevant(X, seed)
    return broadcast.broadcast_choice(group, relevant, X, seed, tuning.current.relevance_rows)


def as_numbers(likelihood, Y):
    """Convert targets to real values: classes to 0 and 1, counts to log(1 + count), and so on."""
    if likelihood.num_latent is not None:
        return np.eye(likelihood.num_latent)[np.asarray(Y, np.intp)]
    if (
        isinstance(likelihood, Ordinal)
        or not likelihood.counts
        or check.num_columns(likelihood) > 1
    ):
        return target_values.as_real(likelihood, Y)
    return np.log1p(np.asarray(Y, np.float64))
