"""The bound of new rows and of what an old q(u) knows, with its gradient (Bui et al. 2017).

The old q(v) = N(m0, S0), v = L0^-1 u, u at Z0, is its prior times exp(t'v - v'A v / 2):

    A = S0^-1 - I,    t = S0^-1 m0,    log of its constant  n(t, I + A),
    n(b, B) = (b'B^-1 b - log|B|) / 2

The new model has other parameters, and inducing inputs Z. It reads the old q as this factor of its
own v: M rows of data at Z0 with the dense noise A^-1. With L of Z, w = L^-1 u, D = diag(weights) /
noise, y = Y - mean(X), and d = L0^-1 (mean(Z0) - mean0(Z0)), by which a value of the new process
falls short of that of the old one,

    Lam = L^-1 K(Z, X),    Lam0 = L^-1 K(Z, Z0),    G = Lam0 L0^-T
    v | w ~ N(G'w, T),     T = L0^-1 U L0^-T,       U = K(Z0, Z0) - Lam0'Lam0

    B = I + G A G' + Lam D Lam',    b = G (t - A d) + Lam D y,    q(w) = N(B^-1 b, B^-1) = N(m, S)
    bound = n(b, B) - n(t, I + A) + t'd - d'A d / 2 - tr(A T) / 2
            - (sum D (y^2 + kff - colsum Lam^2) + sum weights log(2 pi noise)) / 2

At fixed parameters and Z the second term cancels the first of the batch before, so that the bounds
of all batches add up to the collapsed bound. Each output has t, A, d, y, and so B, of its own.

An inducing input that stays is the same variable, jitter included (``reproject``): its rows of U
are zero. They are set to that, because A makes much of their rounding.

Gradient. q(w) is optimal, and so held. With e = y - Lam'm, r = t - A (G'm + d),

    G_bar = m r' - S G A           U_bar = -L0^-T A L0^-1 / 2 = K(Z0, Z0)_bar, zero where U is set
    Lam0_bar = G_bar L0^-1 - 2 Lam0 U_bar
    Lam_bar = m (D e)' + (Lam - S Lam) D
    kff_bar = -D / 2               mean_bar = D e at X, L0^-T r at Z0
    noise_bar = (sum weights (e^2 + kff - colsum Lam^2 + colsum Lam * S Lam) / noise
                 - sum weights) / (2 noise)

and Kuu_bar by the whitening rule from C = Lam0_bar Lam0' + Lam_bar Lam'.
"""

from typing import Any

import numpy as np

from .. import check, kernels
from ..bounds.svgp import SVGP
from ..collapsed.sgpr import SGPR, check_sgpr, check_weighted_sgpr
from ..likelihoods import Gaussian
from ..likelihoods.base import in_dtype, log, number, total, weighted
from ..posteriors.base import PriorFactor, add_to_diagonals
from ..records import Blocks, plus, restricted
from ..records.inducing_sets import naming_repeated
from ..records.typed import ArrayLike, Names, Record
from ..runtime.edge import public_call
from .new_rows import refuse_posterior
from .reproject import (
    check_inputs_as_inducing,
    divide,
    functions_of,
    kept,
    move_site,
    site_of,
    times,
    with_site,
)


@public_call(SVGP)
def streaming_bound_and_grad(
    old: Record,
    new: SGPR,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    jitter: float | None = None,
    wrt: Names | None = None,
) -> tuple[float, SGPR]:
    """Compute the streaming bound, for parameters to follow new rows without the old ones.

    It is the collapsed bound of the new rows, with the q(u) of the old model in place of the old
    rows. Maximise it in ``new``, then call ``streaming_svgp``.

    Parameters
    ----------
    old : SVGP
        What is known: with a ``Whitened``, ``Marginal``, ``AbsorbedDualSites`` or ``DualSites``
        posterior. Its inducing inputs are rows of X.
    new : SGPR
        Covariance, inducing inputs, noise and mean from now on. Start from those of ``old``, with
        inducing inputs added where the new rows need them. Inducing inputs that replace old ones
        forget what these told.
    X : (N, D) array
        New inputs.
    Y : (N,) or (N, P) array
        New targets, as many outputs as ``old`` has.
    weights : (N,) array, optional
        As in ``collapsed_bound_and_grad``.
    jitter : float, optional
        As in ``elbo``: use that of the training.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate; default all.

    Returns
    -------
    value : float
    grad : SGPR
        In natural space; ``None`` for fields that ``wrt`` leaves out.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``collapsed_bound_and_grad``. ``NotPositiveDefinite`` too if the old q(u) is wider than
        its prior, so that with other parameters it is no factor of a Gaussian.

    Notes
    -----
    With the parameters and inducing inputs of ``old``, the bounds of all batches add up to the
    collapsed bound of all rows. An inducing input that equals an old one is the same variable,
    jitter included, so the bound jumps by what the jitter is worth when such a row moves: leave
    "inducing" out of ``wrt``, or move it and accept the loss.

    7 M^2 N + 26 M^3 flops for one output; memory for eight (M, N + M) arrays. Source: Bui, Nguyen
    and Turner, "Streaming Sparse Gaussian Process Approximations" (2017).

    Examples
    --------
    >>> old = fs.optimal_svgp(sgpr, X[:30], Y[:30])
    >>> value, grad = fs.bounds.streaming_bound_and_grad(old, sgpr, X[30:], Y[30:])
    >>> whole = fs.collapsed_bound(sgpr, X, Y) - fs.collapsed_bound(sgpr, X[:30], Y[:30])
    >>> round(value - whole, 6) + 0.0, grad.inducing.shape
    (0.0, (6, 1))
    """
    arguments = _read("streaming_bound_and_grad", old, new, X, Y, weights, jitter)
    wrt = check.names(wrt, arguments[1])
    step = Streaming(*arguments)
    return check.result(step.value, arguments[1]), step.gradient(wrt)


@public_call(SVGP)
def streaming_svgp(
    old: Record,
    new: SGPR,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    jitter: float | None = None,
) -> SVGP:
    """Compute the SVGP of the streaming bound: old and new rows, at the parameters of ``new``.

    Parameters
    ----------
    old, new, X, Y, weights, jitter
        As in ``streaming_bound_and_grad``.

    Returns
    -------
    SVGP
        With a posterior of the class of that of ``old``, and ``Gaussian`` noise.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``streaming_bound_and_grad``.

    Notes
    -----
    At the parameters of ``old`` it is ``condition`` with ``inducing``.

    Examples
    --------
    >>> old = fs.optimal_svgp(sgpr, X[:30], Y[:30])
    >>> now = fs.bounds.streaming_svgp(old, fs.replace(sgpr, noise_variance=0.2), X[30:], Y[30:])
    >>> float(now.likelihood.variance), type(now.posterior).__name__
    (0.2, 'Whitened')
    """
    step = Streaming(*_read("streaming_svgp", old, new, X, Y, weights, jitter))
    check.result(step.value, step.new)
    return step.optimum()


def _read(name, old, new, X, Y, weights, jitter):
    """Check the arguments and cast them to one dtype; Y as (N,) or (P, N)."""
    check.parts(old)
    if type(new) is not SGPR:
        raise TypeError(
            f"{name}: `new` must be an SGPR, the parameters from now on, got"
            f" {type(new).__name__}; for other likelihoods than Gaussian use fs.condition"
        )
    given: Any = old
    refuse_posterior(name, given.posterior)
    check_inputs_as_inducing(name, given.covariance, given.inducing)
    new, X, Y, jitter, weights = check_weighted_sgpr(weights, check_sgpr, new, X, Y, jitter)
    check_inputs_as_inducing(name, new.covariance, new.inducing)
    given, *_, dtype = check.svgp(given)
    if dtype != X.dtype:
        raise TypeError(f"{name}: `old` is in {dtype}, the rest in {X.dtype}; give one dtype")
    _, D = check.inducing(given)
    check.columns(X, D, owner="`old.inducing`")
    axes = given.posterior.check_size(*given.covariance.num_inducing(given.inducing))
    if Y.shape[:-1] != axes:
        raise ValueError(
            f"{name}: `Y` has {Y.shape[0] if Y.ndim > 1 else 'one'} output(s) where `old` has"
            f" {axes[0] if axes else 'one'}; give targets (N,) or (N, P) as in its training"
        )
    return given, new, X, Y, jitter, weights


class Streaming:
    """The value, and what the gradient and q(w) need; formulas and names as above."""

    def __init__(self, old, new, X, Y, jitter, weights):
        self.old, self.new = old, new
        Z0, real = old.inducing, X.dtype.type
        self.noise = number(new.noise_variance)
        self.D = weighted(kernels.full(len(X), 1 / self.noise, X), weights)
        self.rows = np.concatenate([Z0, X])
        self.blocks = new.covariance.blocks(new.inducing, self.rows)
        with naming_repeated(new.inducing):
            self.L = PriorFactor(self.blocks.Kuu, jitter).L
        t, A, prior = site_of(old, jitter)
        self.sites, self.L0 = functions_of(t, A), prior.L
        M, same = len(Z0), kept(new.inducing, Z0)
        Kuf = self.blocks.Kuf.copy()
        Kuf[:, :M] += same * real(jitter)
        Lam = kernels.solve_triangular(self.L, Kuf, overwrite_b=True)
        self.Lam0, self.Lam = (
            np.ascontiguousarray(part, like=part) for part in (Lam[:, :M], Lam[:, M:])
        )
        self.G = divide(self.Lam0, self.L0, transpose=True)
        moves = ~same.any(0)
        self.moves = moves[:, None] & moves
        U = add_to_diagonals(new.covariance.Kuu(Z0), real(jitter))
        U -= kernels.matmul(self.Lam0, self.Lam0, transpose_a=True)
        T = divide(kernels.solve_triangular(self.L0, U * self.moves), self.L0, transpose=True)
        self.rest = self.blocks.kff[M:] - np.square(self.Lam).sum(axis=0)
        self._read_means(X, Y)
        gram = kernels.symmetrise(kernels.weighted_gram(self.Lam, self.D))
        logs = total(self.D) * self.noise * log(2 * np.pi * self.noise)
        self.value, self.q = 0.0, []
        for (t, A), y, d in zip(self.sites, self.y, self.d, strict=True):
            Ad = times(A, d)
            b, B = move_site(self.G, t - Ad, A)
            b += times(self.Lam, self.D * y)
            B = add_to_diagonals(kernels.symmetrise(B) + gram, 1)
            after, R, m = _log_constant(b, B)
            before, _, _ = _log_constant(t, add_to_diagonals(A.copy(), 1))
            self.value += after - before + total(d * (t - Ad / 2))
            self.value -= 0.5 * (total(A * T) + total(self.D * (np.square(y) + self.rest)) + logs)
            self.q.append((b, B, R, m))

    def _read_means(self, X, Y):
        """Set y (P, N) and d (P, M)."""
        Z0 = self.old.inducing
        y = Y if self.new.mean is None else Y - self.new.mean(X)
        d = np.zeros((*Y.shape[:-1], len(Z0)), X.dtype, like=X)
        for mean, sign in ((self.new.mean, 1), (self.old.mean, -1)):
            if mean is not None:
                d += sign * mean(Z0)
        self.axes, self.y = Y.shape[:-1], y.reshape(-1, len(X))
        self.d = [
            kernels.solve_triangular(self.L0, one[:, None])[:, 0] for one in d.reshape(-1, len(Z0))
        ]

    def optimum(self):
        """Return the model with q(w)."""
        b, A = zip(*((b, add_to_diagonals(B.copy(), -1)) for b, B, _, _ in self.q), strict=True)
        q = with_site(self.old.posterior, self.L, np.stack(b), np.stack(A))
        new = self.new
        return SVGP(new.covariance, new.inducing, q, Gaussian(new.noise_variance), new.mean)

    def gradient(self, wrt):
        """Return the gradient, restricted to ``wrt``."""
        if not wrt:
            return SGPR(None, None, None, None)
        new, L0, Z0 = self.new, self.L0, self.old.inducing
        Lam0_bar, Lam_bar = np.zeros_like(self.Lam0), np.zeros_like(self.Lam)
        K_bar, noise_bar, at_rows, mean_bar = np.zeros_like(L0), 0.0, [], None
        for (t, A), y, d, (_, _, R, m) in zip(self.sites, self.y, self.d, self.q, strict=True):
            S = kernels.cholesky_inverse(R)
            SLam = kernels.matmul(S, self.Lam)
            e = y - times(self.Lam, m, transpose=True)
            r = t - times(A, times(self.G, m, transpose=True) + d)
            U_bar = divide(kernels.solve_triangular(L0, A, transpose=True), L0)
            U_bar *= -0.5 * self.moves
            G_bar = m[:, None] * r - kernels.matmul(kernels.matmul(S, self.G), A)
            Lam0_bar += divide(G_bar, L0) - 2 * kernels.matmul(self.Lam0, U_bar)
            Lam_bar += m[:, None] * (self.D * e) + (self.Lam - SLam) * self.D
            K_bar += U_bar
            squares = np.square(e) + self.rest + (self.Lam * SLam).sum(axis=0)
            noise_bar += total(self.D * squares) - total(self.D) * self.noise
            at_Z0 = kernels.solve_triangular(L0, r[:, None], transpose=True)[:, 0]
            at_rows.append(np.concatenate([at_Z0, self.D * e]))
        C = kernels.matmul(Lam0_bar, self.Lam0, transpose_b=True)
        C += kernels.matmul(Lam_bar, self.Lam, transpose_b=True)
        Kuf_bar = kernels.solve_triangular(
            self.L, np.concatenate([Lam0_bar, Lam_bar], axis=1), transpose=True, overwrite_b=True
        )
        kff_bar = np.concatenate([np.zeros_like(L0[0]), -0.5 * len(self.q) * self.D])
        bars = Blocks(kernels.whitening_vjp(C, self.L), Kuf_bar, kff_bar)
        of_covariance = tuple(name for name in wrt if name.partition(".")[0] == "covariance")
        need = *of_covariance, *(name for name in wrt if name == "inducing")
        covariance_bar, inducing_bar, _ = new.covariance.blocks_vjp(
            bars, self.blocks, new.inducing, self.rows, need
        )
        if of_covariance:
            at_Z0, _, _ = new.covariance.Kuu_vjp(K_bar, None, Z0, None, of_covariance)
            covariance_bar = plus(covariance_bar, at_Z0)
        if new.mean is not None:
            at_rows = np.stack(at_rows).reshape(*self.axes, -1)
            mean_bar, _ = new.mean.vjp(at_rows, self.rows, ("mean",))
        noise_bar = in_dtype(noise_bar / (2 * self.noise), self.y.dtype)
        return restricted(SGPR(covariance_bar, inducing_bar, noise_bar, mean_bar), wrt)


def _log_constant(b, B):
    """Return n(b, B), chol(B) and B^-1 b."""
    R = kernels.cholesky(B)
    c = kernels.solve_triangular(R, b[:, None])
    value = 0.5 * total(np.square(c)) - total(np.log(R.diagonal()))
    return value, R, kernels.solve_triangular(R, c, transpose=True)[:, 0]
