"""Intervals of the predictions of the exact process, from a sparse one.

Names as in ``certificate``: A = Q + s2 W^-1, C = A + R, W^1/2 R W^1/2 <= t I. At a test input, with
k = k(X, x) and a = A^-1 k,

    A^-1 - C^-1 = A^-1 R C^-1 = A^-1 R A^-1 - A^-1 R C^-1 R A^-1 <= A^-1 R A^-1
    var  = kss - k'C^-1 k      from  kss - k'a    to  kss - k'a + a'R a,     a'R a <= t a'W^-1 a
    mean = k'C^-1 y = a'y - a'R C^-1 y
    |a'R C^-1 y|^2 <= (a'R a) (y'C^-1 R C^-1 y)             by Cauchy and Schwarz in R
    C^-1 R C^-1 <= C^-1 (R + R A^-1 R) C^-1 = A^-1 - C^-1   by A^-1 = C^-1 (C A^-1 C) C^-1
    y'C^-1 R C^-1 y <= y'A^-1 y - y'C^-1 y <= y'A^-1 y - (y'v)^2 / v'C v = g

g is twice the distance of the product bound from log N(y | 0, A), which ``certificate`` gives.

With Lam W k = b and m = beta B^-1 b, a = beta W e for e = k - Lam' m, and a'W^-1 a = beta^2 e'W e.
"""

import numpy as np

from .. import check, kernels, models
from ..bounds.svgp import SVGP
from ..likelihoods.base import weighted
from ..records import Marginals
from ..records.typed import ArrayLike, Record
from ..runtime.edge import public_call
from .certificate import certificate, in_float64, sgpr_of
from .forward_pass import forward
from .sgpr import SGPR, check_sgpr, check_weighted_sgpr


@public_call(SGPR)
def moment_interval(
    model: Record,
    X: ArrayLike,
    Y: ArrayLike,
    Xs: ArrayLike,
    *,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
) -> tuple[Marginals, Marginals]:
    """Bound mean and variance of the exact process at test inputs from both sides.

    It is useful only where tr(Kff - Qff) is far below the noise variance: there a sparse process is
    nearly exact, and this proves it.

    Parameters
    ----------
    model : SGPR or SVGP
        With Gaussian noise, as in ``certificate``.
    X : (N, D) array
    Y : (N,) or (N, P) array
    Xs : (Ns, D) array
    jitter, weights
        As in ``certificate``.

    Returns
    -------
    lower, upper : Marginals
        ``mean`` (Ns,) or (Ns, P) and ``var`` (Ns,) of the latent function, in float64.

    Raises
    ------
    TypeError, ValueError, NotPositiveDefinite
        As in ``certificate``.

    Notes
    -----
    The cost of ``certificate``, then 4 N M flops per test input; memory for (M, N) and (N, Ns)
    numbers.

    Examples
    --------
    >>> lower, upper = fs.bounds.moment_interval(sgpr, X, Y, X[:3])
    >>> mean, var = fs.predict_f(fs.optimal_svgp(sgpr, X, Y), X[:3])
    >>> bool((lower.mean < mean).all() and (mean < upper.mean).all())
    True
    """
    found = certificate(model, X, Y, jitter=jitter, weights=weights)
    Xs = check.inputs("Xs", Xs).astype(np.float64, copy=False)
    shape = np.shape(Y)[1:]
    model, X, Y, jitter, w = check_weighted_sgpr(
        weights, check_sgpr, model, in_float64(X), Y, jitter
    )
    check.columns(Xs, X.shape[1], "Xs")
    check.codes(model.covariance, Xs, "Xs")
    s = forward(model, X, Y, jitter, w)
    beta, t = float(s.beta), max(float(s.t), 0.0)
    g = max(2 * (found.upper - float(s.value)) - beta * len(s.y) * t, 0.0)
    k = model.covariance.Kff(Xs, X)
    b = kernels.matmul(s.Lam, weighted(k, w), transpose_b=True)
    m = kernels.solve_triangular(s.R, kernels.solve_triangular(s.R, beta * b), transpose=True)
    e = k - kernels.matmul(m, s.Lam, transpose_a=True)
    a = beta * weighted(e, w)
    prior = model.covariance.kff(Xs)
    low = prior - (a * k).sum(axis=1)
    spread = t * beta * (a * e).sum(axis=1)
    mean = kernels.matmul(s.y, a, transpose_b=True)
    mean = mean if model.mean is None else mean + model.mean(Xs)
    off = np.sqrt(spread * g)
    lower, upper = ((mean + sign * off).T.reshape(-1, *shape) for sign in (-1, 1))
    return Marginals(lower, np.maximum(low, 0)), Marginals(upper, np.minimum(low + spread, prior))


def _of_svgp(model, X, Y, Xs, *, jitter=None, weights=None):
    sgpr = sgpr_of("moment_interval", model)
    return moment_interval(sgpr, X, Y, Xs, jitter=jitter, weights=weights)


models.register(SVGP, moment_interval=_of_svgp)
