r"""The collapsed bound of a ``GPLVM`` and its gradient, for rows q(x_n) = N(mu_n, diag s_n).

Titsias & Lawrence 2010. Columns of Y with the same weights w_n share a covariance of q(u). For P
such columns, beta = 1 / noise, L = chol(Kuu), lam_n = L^-1 E k(Z, x_n) and D_n = Cov k(Z, x_n),

    C = sum w (lam lam' + L^-1 D L^-T),    a = sum w lam y'
    B = I + beta C = R R',    c = beta R^-1 a
    t = sum w (v - |lam|^2) - tr L^-1 (sum w D) L^-T,     v = k(x, x)
    F = -P/2 (sum w) log(2 pi noise) - P sum log R_ii - beta/2 sum w y^2 + |c|^2 / 2 - P beta t / 2

summed over such columns, minus KL = sum (s + (mu - m0)^2) / v0 - 1 - log(s / v0), / 2. The sums of
E k k' = D + E k E k' are split so that t keeps its digits where v is large: unsplit, line searches
of data with many columns see noise of nats a row. D = 0 gives the bound of an ``SGPR``.

Gradient, at the optimal q(v) = N(m, B^-1), m = R^-T c, which is stationary, with
H = P (I - B^-1) - m m':

    lam_bar  = beta (m (w y)' + H lam w)               E k's is L^-T lam_bar
    G        = beta/2 L^-T H L^-1                      D_n's is w_n G, and that of v is -P beta/2 w
    Kuu_bar  = -1/2 L^-T (P (B - 2 I + B^-1) + m m') L^-1
    noise_bar = -beta^2 (P (sum w) noise - P tr(B^-1 C) - P t - sum w y^2 + 2 tr a'm - tr m'C m) / 2
    mu_bar -= (mu - m0) / v0,   s_bar -= (1 / v0 - 1 / s) / 2
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..covariances import RBF
from ..posteriors import Whitened
from ..posteriors.base import add_to_diagonals, covariance_factor
from ..records import replace, restricted
from .inputs import GaussianInputs
from .rows import row_bumps, row_bumps_vjp


class Latent(NamedTuple):
    """A checked model in float64 and the data of some rows: ``rows`` are their numbers.

    Y (P, n); weights (n, K) of the K groups of columns, whose numbers are in ``groups``; prior mean
    and variance (n, Q).
    """

    model: Any
    rows: Any
    Y: Any
    weights: Any
    groups: list
    prior: tuple
    jitter: float


class Half(NamedTuple):
    """What the value leaves for the gradient and the optimum: of all rows, by group of columns."""

    value: float
    L: Any
    lam: Any
    psi: Any
    B: list
    R: list
    c: list
    a: list
    counts: Any
    gaps: Any
    squares: Any


def precisions(k: RBF, Q):
    """Return 1 / l^2, (Q,)."""
    return np.broadcast_to(np.asarray(k.lengthscales, np.float64) ** -2, (Q,))


def forward(at: Latent, scale):
    """Return the ``Half`` of all ranks' rows. M^2 / 2 exponentials a row, 3 M^2 n flops."""
    k, Z = at.model.covariance, at.model.inducing
    mean, var = at.model.inputs.mean[at.rows], at.model.inputs.var[at.rows]
    v, beta = float(k.variance), 1 / float(at.model.noise_variance)
    L = covariance_factor(k.Kuu(Z), at.jitter)
    rows = row_bumps(precisions(k, Z.shape[1]), mean, var)
    psi = v * rows.expected(Z)
    lam = kernels.solve_triangular(L, np.ascontiguousarray(psi.T))
    grams, gaps = [], []
    for D, w in zip(rows.sums(Z, psi, at.weights), at.weights.T, strict=True):
        half = kernels.solve_triangular(L, D)
        D = kernels.symmetrise(kernels.solve_triangular(L, np.ascontiguousarray(half.T)))
        gaps.append(w @ (v - np.square(lam).sum(0)) - np.trace(D))
        grams.append(D + kernels.symmetrise(kernels.weighted_gram(lam, np.ascontiguousarray(w))))
    weighted = [w * at.Y[columns] for columns, w in zip(at.groups, at.weights.T, strict=True)]
    squares = [(wy * at.Y[columns]).sum() for columns, wy in zip(at.groups, weighted, strict=True)]
    a = [kernels.matmul(lam, wy, transpose_b=True) for wy in weighted]  # (M, P) each
    m0, v0 = at.prior
    kl = 0.5 * ((var + (mean - m0) ** 2) / v0 - 1 - np.log(var / v0)).sum()
    counts, gaps, squares, kl, grams, a = scale.all_reduce(
        at.weights.sum(0), np.array(gaps), np.array(squares), kl, np.stack(grams),
        np.concatenate(a, axis=1),
    )  # fmt: skip
    a = np.split(a, np.cumsum([len(columns) for columns in at.groups])[:-1], axis=1)
    value, B, R, c = -float(kl), [], [], []
    for i, columns in enumerate(at.groups):
        P = len(columns)
        B.append(beta * grams[i])
        add_to_diagonals(B[-1], 1)
        R.append(kernels.cholesky(B[-1]))
        c.append(beta * kernels.solve_triangular(R[-1], np.ascontiguousarray(a[i])))
        log_det = counts[i] * np.log(2 * np.pi / beta) + 2 * np.log(np.diagonal(R[-1])).sum()
        value += 0.5 * (np.square(c[-1]).sum() - beta * squares[i] - P * (log_det + beta * gaps[i]))
    return Half(value, L, lam, psi, B, R, c, a, counts, gaps, squares)


def gradient(at: Latent, half: Half, wrt, scale):
    """Return the gradient of this rank's rows; sums of all rows count by ``scale.kl``."""
    model, part, L, lam = at.model, scale.kl, half.L, half.lam
    k, Z, noise = model.covariance, model.inducing, float(model.noise_variance)
    beta, M, v = 1 / noise, len(L), float(k.variance)
    lam_bar, C_bar, noise_bar, G = np.zeros_like(lam), np.zeros((M, M)), 0.0, []
    for i, columns in enumerate(at.groups):
        P, w, B = len(columns), at.weights[:, i], half.B[i]
        m = kernels.solve_triangular(half.R[i], half.c[i], transpose=True)
        inverse, mm = kernels.cholesky_inverse(half.R[i]), kernels.matmul(m, m, transpose_b=True)
        H = -P * inverse - mm
        add_to_diagonals(H, P)
        lam_bar += beta * kernels.matmul(m, w * at.Y[columns])
        lam_bar += beta * kernels.matmul(H, lam) * w
        C_bar += P * (B + inverse - 2 * np.eye(M)) + mm
        # whitening_vjp(A) = -L^-T A L^-1 / 2
        G.append(-beta * kernels.whitening_vjp(H, L))
        Cm = (kernels.matmul(B, m) - m) / beta
        trace = noise * (M - np.trace(inverse))  # tr B^-1 C
        total = P * (half.counts[i] * noise - trace - half.gaps[i]) - half.squares[i]
        noise_bar -= beta**2 * (0.5 * total + (half.a[i] * m).sum() - 0.5 * (m * Cm).sum())
    psi_bar = kernels.solve_triangular(L, lam_bar, transpose=True).T
    mean, var = model.inputs.mean[at.rows], model.inputs.var[at.rows]
    p, (m0, v0) = precisions(k, Z.shape[1]), at.prior
    bars = row_bumps_vjp(p, mean, var, Z, half.psi, psi_bar, np.stack(G), at.weights)
    sizes = np.array([len(columns) for columns in at.groups])
    v_bar = bars.amplitude / v - 0.5 * beta * float(at.weights.sum(0) @ sizes)
    l_bar = -2 * bars.p * p**1.5
    k_bar, Z_bar, _ = k.Kuu_vjp(part * kernels.whitening_vjp(C_bar, L), None, Z)
    own = k_bar.lengthscales
    k_bar = RBF(k_bar.variance + v_bar, own + (l_bar if np.ndim(own) else l_bar.sum()))
    found = [np.zeros_like(model.inputs.mean) for _ in range(2)]
    found[0][at.rows] = bars.mean - (mean - m0) / v0
    found[1][at.rows] = bars.var - 0.5 * (1 / v0 - 1 / var)
    inputs = GaussianInputs(*found)
    grad = replace(
        model, covariance=k_bar, inducing=Z_bar + bars.Z, inputs=inputs,
        noise_variance=part * noise_bar,
    )  # fmt: skip
    return restricted(grad, wrt)


def optimum(at: Latent, half: Half, axes):
    """Return the optimal q(v) of all columns of Y; ``axes`` are those of its outputs."""
    M, P = len(half.L), len(at.Y)
    mean, tril = np.empty((P, M)), np.empty((P, M, M))
    for i, columns in enumerate(at.groups):
        mean[columns] = kernels.solve_triangular(half.R[i], half.c[i], transpose=True).T
        tril[columns] = kernels.cholesky_of_inverse(half.B[i])
    return Whitened(mean.reshape(*axes, M), tril.reshape(*axes, M, M))


def groups_of(weights, P, alone):
    """Return weights (n, K) and the numbers of the columns of Y of each, for (n,) or (n, P).

    Ranks, which are not ``alone``, do not see which columns have equal weights in all rows.
    """
    if weights.ndim == 1:
        return weights[:, None], [np.arange(P)]
    if not alone:
        return weights, [np.array([p]) for p in range(P)]
    found, places = np.unique(weights, axis=1, return_inverse=True)
    places = places.reshape(-1)
    return found, [np.flatnonzero(places == i) for i in range(found.shape[1])]


def prior_of(model, rows):
    """Return the mean and the variance of the prior of some rows."""
    if model.prior is None:
        return 0.0, 1.0
    return tuple(
        np.asarray(field, np.float64)[rows] for field in (model.prior.mean, model.prior.var)
    )


def check_covariance(k):
    """Refuse covariances without the rules that training needs."""
    if type(k) is not RBF:
        raise TypeError(
            f"a GPLVM needs an RBF covariance, with one lengthscale for each latent column, not a"
            f" {type(k).__name__}"
        )


def check_prior(prior, shape):
    """Refuse a prior of another shape, or without variance."""
    if type(prior) is not GaussianInputs:
        raise TypeError(
            f"`prior` must be GaussianInputs, or None for 0 and 1, got a {type(prior).__name__}"
        )
    for name in ("mean", "var"):
        values = check.as_array(f"prior.{name}", getattr(prior, name))
        if values.shape != shape:
            raise ValueError(
                f"`prior.{name}` must have shape {shape}, as `inputs.mean`, got {values.shape}"
            )
        check.finite(f"prior.{name}", values)
    if not (np.asarray(prior.var) > 0).all():
        raise ValueError(
            "`prior.var` must be positive: a latent input has an error; fix known columns by an"
            " SGPR on them"
        )
