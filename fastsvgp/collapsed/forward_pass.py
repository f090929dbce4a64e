"""Forward pass of the collapsed bound, for value, gradient and optimal q; formulas in ``sgpr``."""

import numpy as np

from .. import kernels
from ..check.scale import ALL_ROWS
from ..likelihoods.base import in_dtype, log, number, total, weighted
from ..posteriors.base import add_to_diagonals, covariance_factor
from ..records.inducing_sets import naming_repeated
from ..runtime import tuning


class State:
    """Quantities that the value and the gradient share."""

    __slots__ = (
        "blocks",
        "L",
        "Lam",
        "B",
        "R",
        "c",
        "t",
        "beta",
        "y",
        "shape",
        "value",
        "weights",
        "count",
    )


def forward(sgpr, X, Y, jitter, weights=None, scale=ALL_ROWS, keep=True):
    """Compute the value and the ``State`` from which the gradient and the optimal q follow.

    scale : a rank's ``DataScale``, if X and Y are some of all rows
    keep : keep the columns of Kuf and Lam for the gradient; without it long data are processed in
        chunks
    """
    s = State()
    y = Y if sgpr.mean is None else Y - sgpr.mean(X)
    s.shape, s.y = Y.shape, y.reshape(-1, Y.shape[-1])
    s.beta = 1.0 / number(sgpr.noise_variance)
    real_beta, s.weights = in_dtype(s.beta, s.y.dtype), weights
    if keep or X.shape[0] <= tuning.current.collapsed_chunk_rows:
        gram, Lam_y, prior = _sum_whole(s, sgpr, X, jitter, real_beta)
    else:
        gram, Lam_y, prior = _sum_chunks(s, sgpr, X, jitter, real_beta)
    squares = total(np.square(s.y, dtype=float), weights)
    P, N = s.y.shape
    s.count = N if weights is None else total(weights)
    s.count, gram, Lam_y, squares, prior = scale.all_reduce(
        s.count, gram, Lam_y, squares, prior, lower=(1,)
    )
    s.B = kernels.symmetrise(gram)
    s.t = prior - np.trace(s.B, dtype=float) / s.beta
    add_to_diagonals(s.B, 1)
    s.R = kernels.cholesky(s.B)
    s.c = kernels.solve_triangular(s.R, real_beta * Lam_y)  # (M, P)
    fit = total(np.square(s.c, dtype=float)) - s.beta * squares
    log_det = s.count * log(2 * np.pi / s.beta) + 2 * total(np.log(np.diagonal(s.R), dtype=float))
    s.value = 0.5 * (fit - P * (log_det + s.beta * s.t))
    return s


def _sum_whole(s, sgpr, X, jitter, beta):
    """Compute ``(gram, Lam_y, prior)`` from all rows at once; L, blocks and Lam stay in ``s``.

    gram : beta Lam W Lam' in its lower triangle; Lam_y : Lam W y; prior : sum omega kff
    """
    s.blocks = sgpr.covariance.blocks(sgpr.inducing, X)
    with naming_repeated(sgpr.inducing):
        s.L = covariance_factor(s.blocks.Kuu, jitter)
    s.Lam = kernels.solve_triangular(s.L, s.blocks.Kuf)
    precisions = kernels.full(X.shape[0], s.beta, s.y) if s.weights is None else beta * s.weights
    gram = kernels.weighted_gram(s.Lam, precisions)
    Lam_y = kernels.matmul(s.Lam, weighted(s.y, s.weights), transpose_b=True)
    return gram, Lam_y, total(s.blocks.kff, s.weights)


def _sum_chunks(s, sgpr, X, jitter, beta):
    """Compute the same as ``_sum_whole``, one chunk of rows at a time; only L stays in ``s``.

    A chunk has the number of rows that makes work on an (M, rows) matrix efficient.
    """
    gram = Lam_y = part = None
    start, prior, least = 0, 0.0, tuning.current.collapsed_chunk_rows
    while start < X.shape[0]:
        rows = slice(start, start + (part or least))
        blocks = sgpr.covariance.blocks(sgpr.inducing, X[rows])
        if part is None:
            part = max(least, kernels.chunk_numbers(s.y) // len(blocks.Kuu))
            with naming_repeated(sgpr.inducing):
                s.L = covariance_factor(blocks.Kuu, jitter)
        Lam = kernels.solve_triangular(s.L, blocks.Kuf, overwrite_b=True)
        count, weights = Lam.shape[1], None if s.weights is None else s.weights[rows]
        precisions = kernels.full(count, s.beta, s.y) if weights is None else beta * weights
        prior = prior + total(blocks.kff, weights)
        y = np.ascontiguousarray(s.y[:, rows], like=s.y)
        more = kernels.matmul(Lam, weighted(y, weights), transpose_b=True)
        Lam_y = more if Lam_y is None else Lam_y + more
        gram = kernels.weighted_gram(
            Lam, precisions, out=gram, add=gram is not None, overwrite_a=True
        )
        start += count
    return gram, Lam_y, prior
