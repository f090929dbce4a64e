"""How far the bound of a sparse process is from the evidence of the exact one.

Gaussian noise. K = Kff, Q = Kfu Kuu^-1 Kuf, R = K - Q, A_s = Q + s W^-1 with W = diag(w) the data
weights, or I; s2 the noise variance, t = tr(W R). Jitter makes Q smaller, so R >= 0 holds with it.
The evidence of the exact process is, up to terms of s2 and w that all bounds share,

    -1/2 log|K + s2 W^-1| - 1/2 y' (K + s2 W^-1)^-1 y.

From below: the collapsed bound, -1/2 log|A_s2| - 1/2 y' A_s2^-1 y - t / (2 s2). From above, term by
term:

    |K + s2 W^-1| >= |A_s2|                                   because R >= 0
    y' C^-1 y = max_v (y'v)^2 / v'C v >= (y'v)^2 / v'C v      C = K + s2 W^-1, for any v

The best v is C^-1 y. R is unknown, and replacing W^1/2 R W^1/2 by its mean eigenvalue r = t / sum w
gives v = A_s^-1 y with s = s2 + r. One product v'K v: the *product bound*. Or, without it,
W^1/2 R W^1/2 <= t I gives C <= A_s with s = s2 + t: the bound of Titsias 2014.

With G = Lam W Lam', m = (G + s I)^-1 Lam W y and e = y - Lam' m,

    Lam W e  = Lam W y - G m = s m
    A_s W e  = Lam' Lam W e + s e = s (Lam' m + e) = s y        so A_s^-1 y = W e / s.

The quotient does not depend on the length of v, so v = W e. In the names of ``forward_pass``, B = I
+ beta G and R c = beta Lam W y, so m = (B + beta (s - s2) I)^-1 R c. And

    y'v      = (e + Lam' m)' W e = e'W e + s |m|^2
    v'C v    = v'K v + s2 e'W e                                 product bound
    v'A_s v  = s y'v                                            so Titsias' quotient is y'v / s.

y'v is summed from v itself: the product bound holds for any v, so rounding in v does not harm it.

Both bounds from above exceed the one from below by t / (2 s2) or more, because C >= A_s2. This is
known first. If it is wider than what is asked for, no product is made.

Counts and positive numbers with log link. For fixed y the expected log density E(m, v) of a datum
with marginal N(m, v) is concave in (m, v) for Poisson, Exponential and Gamma: it is linear up to
-exp(m + v / 2) or -y exp(-m + v / 2), times a positive factor. So it lies below its tangent at the
marginals (m0, v0) of any q, with slopes a = dE/dm and -lam / 2 = dE/dv:

    sum E(m, v) - KL(q | prior) <= sum (E0 - a m0 + lam v0 / 2) + sum (a m - lam v / 2) - KL.

The maximum of the right side over all Gaussians q(f) = N(mu + g, V), mu the mean function, is

    max_g a'(mu + g) - g'K^-1 g / 2 = a'mu + a'K a / 2
    max_V -tr(diag(lam) V) / 2 + log|K^-1 V| / 2 - tr(K^-1 V) / 2 + n / 2
        = -1/2 log|I + lam^1/2 K lam^1/2|               at V^-1 = K^-1 + diag(lam)
        <= -1/2 log|I + Lam diag(lam) Lam'|             because K >= Q

again with one product a'K a. It bounds what the full VGP, with all data as inducing inputs, can
reach. Weights multiply E, and so a and lam.
"""

from dataclasses import dataclass, fields

import numpy as np

from .. import check, kernels, models
from ..bounds.protocol import kind_of
from ..bounds.relay import Call, subtract_kl, sweep
from ..bounds.svgp import SVGP
from ..check.scale import ALL_ROWS
from ..distributed.reduce import call_on_ranks
from ..likelihoods import Exponential, Gamma, Gaussian, Poisson
from ..likelihoods.base import log, total, weighted
from ..posteriors.base import add_to_diagonals, covariance_factor
from ..records.decorator import format_record
from ..records.inducing_sets import naming_repeated, stack_sets
from ..records.typed import ArrayLike, Group, Record
from ..runtime import tuning
from ..runtime.edge import public_call
from .forward_pass import forward
from .sgpr import SGPR, check_sgpr, check_weighted_sgpr

LOG_LINK = Poisson, Exponential, Gamma


@dataclass(frozen=True, repr=False)
class Certificate:
    """Interval of the evidence of the exact process, in nats.

    Parameters
    ----------
    lower, upper : float
        The evidence is between them. Several outputs are summed.
    num_data : float
        Number of rows, or sum of the weights.
    within : float or None
        As given.

    Examples
    --------
    >>> found = fs.certificate(sgpr, X, Y, within=0.05)
    >>> found.enough, found.upper - found.lower < 0.05 * found.num_data
    (True, True)
    """

    lower: float
    upper: float
    num_data: float
    within: float | None = None

    @property
    def per_row(self) -> float:
        """Width of the interval, divided by ``num_data``."""
        return (self.upper - self.lower) / self.num_data

    @property
    def enough(self) -> bool | None:
        """Whether ``per_row`` is at most ``within``; None without ``within``."""
        return None if self.within is None else self.per_row <= self.within

    def __repr__(self) -> str:
        names = [field.name for field in fields(self)]
        return format_record(self, (*names[:3], "per_row", names[3], "enough"))


@public_call(SGPR)
def certificate(
    model: Record,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    within: float | None = None,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
    group: Group | None = None,
) -> Certificate:
    """Bound the evidence of the exact process from both sides, to judge the inducing inputs.

    Parameters
    ----------
    model : SGPR or SVGP
        An ``SVGP`` has a ``Gaussian`` likelihood, and counts as the ``SGPR`` of its parameters,
        whatever its q(u) is; or one of ``Poisson``, ``Exponential`` and ``Gamma``.
    X : (N, D) array
        All data.
    Y : (N,) or (N, P) array
    within : float, optional
        Width in nats a row that is narrow enough. If the cheap half of the work answers the
        question, the interval is the wider one that it gives.
    jitter : float, optional
        Absolute amount added to the diagonal of Kuu; default 1e-6. It does not change the exact
        process.
    weights : (N,) array, optional
        As in ``collapsed_bound``; for Poisson, Exponential and Gamma as in ``elbo``.
    group : group of ``fs.distributed``, optional
        As in ``elbo``, with Gaussian noise only. Each rank holds the inputs of all rows for the
        time of the call, and makes its part of the product.

    Returns
    -------
    Certificate
        ``lower``, ``upper``, ``num_data``, ``per_row`` and ``enough``. With Gaussian noise the
        interval holds the log marginal likelihood of the exact process with the parameters of
        ``model``, and ``lower`` is the collapsed bound. With the others it holds the largest bound
        that any Gaussian q(f) reaches, that of all rows as inducing inputs, and ``lower`` is
        ``elbo``: train q(u) first, for instance by ``fit(..., collapsed=True)``.

    Raises
    ------
    TypeError
        No certificate is known for the likelihood.
    ValueError, NotPositiveDefinite
        As in ``collapsed_bound``.

    Notes
    -----
    First 2 M^2 N flops, as for the bound. Then N^2 D flops for a product of Kff with a vector, in
    blocks of rows; no (N, N) array exists. All is computed in float64, whatever the dtypes are. The
    interval is a statement about the parameters of ``model``, and not about their choice.
    Source: Titsias 2009, and 2014 for the bound from above without a product.

    Examples
    --------
    >>> found = fs.certificate(sgpr, X, Y)
    >>> found.lower == fs.collapsed_bound(sgpr, X, Y), found.upper > found.lower
    (True, True)
    >>> round(found.per_row, 3)
    0.004
    """
    options = dict(within=check_width(within), jitter=jitter, weights=weights)
    if group is not None:
        return call_on_ranks("certificate", _of_sgpr, model, X, Y, group, None, options)
    return _of_sgpr(model, X, Y, **options)


def _of_svgp(model, X, Y, *, within=None, jitter=None, weights=None, group=None):
    """Serve ``certificate`` for an SVGP, by its SGPR or by duality."""
    if not isinstance(model.likelihood, LOG_LINK):
        options = dict(within=within, jitter=jitter, weights=weights, group=group)
        return certificate(sgpr_of("certificate", model), X, Y, **options)
    kind = type(model.likelihood).__name__
    if group is not None:
        raise ValueError(f"certificate: with {kind} it is for one process; leave `group` out")
    return _by_duality(model, X, Y, check_width(within), jitter, weights)


models.register(SVGP, certificate=_of_svgp)


def sgpr_of(name, model):
    """Return the SGPR of the parameters of an SVGP with Gaussian noise; refuse others."""
    likelihood = model.likelihood
    if type(likelihood) is not Gaussian:
        others = ", Poisson, Exponential and Gamma" if name == "certificate" else ""
        raise TypeError(
            f"{name}: none is known for {type(likelihood).__name__}; one is for Gaussian"
            f" noise{others}"
        )
    return SGPR(model.covariance, stack_sets(model.inducing), likelihood.variance, model.mean)


def check_width(within):
    """Check a width in nats a row; None stays None."""
    if within is None:
        return None
    within = check.scalar("within", within)
    if within <= 0:
        raise ValueError(f"`within` must be above 0, got {within:g}: a width in nats a row")
    return within


def in_float64(X):
    """Return X in float64, and with it, by promotion, the model and all that follows."""
    return check.inputs("X", X).astype(np.float64, copy=False)


def _of_sgpr(sgpr, X, Y, scale=ALL_ROWS, *, within, jitter, weights):
    sgpr, X, Y, jitter, weights = check_weighted_sgpr(
        weights, check_sgpr, sgpr, in_float64(X), Y, jitter
    )
    s = forward(sgpr, X, Y, jitter, weights, scale, keep=False)
    lower, trace = check.result(s.value, sgpr), max(float(s.t), 0.0)
    P, count, noise = len(s.y), float(s.count), 1 / float(s.beta)
    log_det = count * log(2 * np.pi * noise) + 2 * total(np.log(np.diagonal(s.R), dtype=float))

    def upper(ridge, product):
        V, rows, Vy = _vectors(s, sgpr, X, ridge, weights, scale)
        if not product:
            fit = Vy.sum() / (noise + ridge)
        else:
            lengths = _products(sgpr.covariance, X, V, scale) + noise * rows
            fit = (Vy * (Vy / np.where(Vy > 0, lengths, 1))).sum()
        value = check.result(-0.5 * (P * float(log_det) + float(fit)), sgpr)
        return max(lower, value)  # by rounding alone it can be below

    if within is not None:
        cheap, gap = upper(trace, False), P * trace / (2 * noise)
        if gap > within * count or cheap - lower <= within * count:
            return Certificate(lower, cheap, count, within)
    return Certificate(lower, upper(trace / count, True), count, within)


def _vectors(s, sgpr, X, ridge, weights, scale):
    """Return ``(V, squares, Vy)``: v = W e (P, N) of these rows, and e'W e and y'v of all rows.

    ridge : s - s2 in the module's text
    """
    S = s.B.copy()
    add_to_diagonals(S, s.beta * ridge)
    root = kernels.cholesky(S)
    m = kernels.solve_triangular(
        root, kernels.solve_triangular(root, kernels.matmul(s.R, s.c)), transpose=True
    )
    w = kernels.solve_triangular(s.L, m, transpose=True)
    V = kernels.empty(s.y.shape, s.y)
    squares = Vy = 0.0
    for rows in _chunks(X, s.L):
        e = s.y[:, rows] - kernels.matmul(
            w, sgpr.covariance.Kuf(sgpr.inducing, X[rows]), transpose_a=True
        )
        V[:, rows] = weighted(e, None if weights is None else weights[rows])
        squares = squares + (e * V[:, rows]).sum(axis=1)
        Vy = Vy + (s.y[:, rows] * V[:, rows]).sum(axis=1)
    return V, *scale.all_reduce(squares, Vy)


def _chunks(X, L):
    size = max(tuning.current.collapsed_chunk_rows, kernels.chunk_numbers(X) // len(L))
    return [slice(start, start + size) for start in range(0, len(X), size)]


def _products(covariance, X, V, scale):
    """Return v' Kff v of the rows v of V (P, N), in blocks: each pair of rows of X once."""
    X, V = scale.gather_rows(X, V)
    size, found = tuning.current.tighter_block_rows, np.zeros(len(V), like=V)
    for start in range(scale.rank * size, len(X), scale.size * size):
        block = slice(start, start + size)
        ours = np.ascontiguousarray(V[:, block], like=V)
        KV = kernels.matmul(ours, covariance.Kff(X[block], X[start:]))
        KV[:, size:] *= 2
        KV *= V[:, start:]
        found += KV.sum(axis=1)
    return scale.all_reduce(found)[0]


def _by_duality(model, X, Y, within, jitter, weights):
    kind = kind_of(model)
    call = Call.from_arguments(
        kind, model, in_float64(X), Y, ALL_ROWS, weights=weights, jitter=jitter, rng=None
    )
    model, X, layer = call.model, call.batch.X, call.begin(kind)
    covariance, Z = model.covariance, stack_sets(model.inducing)
    with naming_repeated(model.inducing):
        L = covariance_factor(covariance.Kuu(Z), call.jitter)
    data, tangent, slopes, grams, start = 0.0, 0.0, [], None, 0
    for chunk in sweep(model, layer, call.batch):
        N = chunk.f.mean.shape[-1]
        rows = X[start : start + N]
        a, minus_half_lam = (one.reshape(-1, N) for one in (chunk.f_bar.mean, chunk.f_bar.var))
        data += chunk.ell
        prior = 0.0 if model.mean is None else model.mean(rows)
        tangent -= total(chunk.f_bar.mean * (chunk.f.mean - prior))
        tangent -= total(chunk.f_bar.var * chunk.f.var)
        slopes.append(a)
        Lam = kernels.solve_triangular(L, covariance.Kuf(Z, rows))
        more = [kernels.weighted_gram(Lam, -2 * one) for one in minus_half_lam]
        grams = more if grams is None else [old + new for old, new in zip(grams, more, strict=True)]
        start += N
    log_det = 0.0
    for B in grams:
        kernels.symmetrise(B)
        add_to_diagonals(B, 1)
        log_det += 2 * total(np.log(np.diagonal(kernels.cholesky(B)), dtype=float))
    squares = _products(covariance, X, np.concatenate(slopes, axis=1), ALL_ROWS).sum()
    lower = check.result(subtract_kl(data, layer), model)
    upper = check.result(data + tangent + 0.5 * (squares - log_det), model)
    w = call.batch.weights
    count = len(X) if w is None else total(w) / len(grams)
    return Certificate(lower, max(lower, upper), float(count), within)  # max: as above
