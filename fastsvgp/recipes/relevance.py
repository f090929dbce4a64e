"""Lengthscales to start from that know the targets: an exact Gaussian process on some rows says which inputs matter.

From equal lengthscales a sparse model of 32 inputs, of which 4 matter, ends where some of these are
noise, and more epochs leave it there. From the covariance that the exact process finds as it
stands, data whose inputs all matter train worse than from equal ones: it is that of many more
points than there are inducing inputs. So the relevances are taken from it, and no more.
"""

import numpy as np

from ..collapsed.sgpr import SGPR
from ..train import fit

# of the exact process; where there are no more, all of them may be inducing inputs, and this would
# be for nothing
ROWS = 1000
ITERATIONS = 25
NOISE = 0.1
FEW = 0.5  # of the inputs; where more of them matter, equal lengthscales are the better start


def relevant_lengthscales(kind, start, X, Y, weights=None, rng=None):
    """Lengthscales by relevance.

    Parameters
    ----------
    kind : class of a covariance with lengthscales
    start : (D,) array
        ``median_lengthscales`` of X: sqrt(D) times the distance m_d of a typical pair in each
        column.
    X : (N, D) array
        Standardised.
    Y : (N,) or (N, P) array
        Numbers: see ``as_numbers``.
    weights : (N,) array, optional
    rng : Generator

    Returns
    -------
    (D,) array
        In the dtype of ``start``. The exact process finds lengthscales l; the relevance of an input
        is r_d = m_d / l_d. Of the squared scaled distance of a typical pair, which is one, each
        input gets the part r_d / sum(r): m_d sqrt(sum(r) / r_d) is its lengthscale. Where sum(r)^2
        / sum(r^2), the number of inputs that matter, is above ``FEW`` of them, it is ``start``.

    Raises
    ------
    KeyboardInterrupt
        ``fit`` takes Ctrl-C for the end of a training; here it is the end of all.

    Notes
    -----
    ``ITERATIONS`` iterations of L-BFGS on ``ROWS`` rows, about five seconds on one core.
    """
    some = np.sort(rng.choice(len(X), min(ROWS, len(X)), replace=False))
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
    found, info = fit(
        exact, X, (Y - Y.mean(axis=0)) / spread, steps=ITERATIONS, fixed="inducing", **counted
    )
    if info.interrupted:
        raise KeyboardInterrupt
    typical = exact.covariance.lengthscales / np.sqrt(X.shape[1])
    relevance = np.where(varies, typical / found.covariance.lengthscales, 0.0)
    if relevance.sum() ** 2 > FEW * varies.sum() * np.sum(relevance**2):
        return start
    lengthscales = typical * np.sqrt(relevance.sum() / np.where(varies, relevance, 1.0))
    return np.where(varies, lengthscales, start).astype(start.dtype)


def as_numbers(likelihood, Y):
    """Targets of a likelihood as numbers that a Gaussian process may be fitted to: of classes 0 and 1, of counts logarithms."""
    if likelihood.num_latent is not None:
        return np.eye(likelihood.num_latent)[np.asarray(Y, np.intp)]
    Y = np.asarray(Y, np.float64)
    return np.log1p(Y) if likelihood.counts else Y
