"""The table of posteriors, over which the tests of all rooms run.

A new posterior is one ``Row`` of ``ROWS``, or of ``PAIRS`` for two sets of inducing inputs;
``EVERY`` is both tables together. The definition of its bound is in ``definitions``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from oracles import inverse_free_whitened
from support.gp_problems import factor

import fastsvgp as fs

JITTER = 1e-3
ALL = "posterior", "blocks"


class Row(NamedTuple):
    """One posterior of the table, as functions that construct and evaluate it.

    make : (rng, A, batch) -> posterior
        A random posterior for the prior covariance A of u, including jitter; batch is () or (P,).
    certain : (M) -> posterior
        A posterior that is certain of u = 0, for A = I: its variance is below rounding error.
    plain : (A, Kuf, kff, q, f_bar) -> {name: array}
        The marginals of one output by plain NumPy formulas, in the dtype of the arguments: "mean",
        "var" and "bar.Kuf", the cotangent of Kuf for f_bar. It can have others ("bar.Kuu",
        "bar.posterior.mean"), which include -1 times the KL. None for pairs.
    probes : int, optional
        The number of probes that a bound is called with.
    """

    make: Callable
    certain: Callable
    plain: Callable
    probes: int | None = None

    def random(self, rng, M, dtype=float):
        """Return the random quantities in the form that passes and bounds take."""
        return (
            {}
            if self.probes is None
            else {"probes": rng.choice([-1.0, 1.0], (M, self.probes)).astype(dtype)}
        )


# --- random posteriors, with NaN in entries that must not be read: above the diagonals -----------


def near_inverse_factor(rng, A, error=0.15):
    """Return a lower factor close to that of the inverse of A."""
    M = len(A)
    noise = np.tril(rng.standard_normal((M, M)), -1) + np.diag(rng.uniform(-1, 1, M))
    return np.linalg.cholesky(np.linalg.inv(A)) @ (np.eye(M) + error / M * noise) + np.triu(
        np.full((M, M), np.nan), 1
    )


def gaussian_factor(kind):
    def make(rng, A, batch=()):
        M = len(A)
        return kind(rng.standard_normal((*batch, M)), factor(rng, *batch, M, off=0.3 / np.sqrt(M)))

    return make


def likelihood_form(preconditioned):
    def make(rng, A, batch=()):
        M = len(A)
        return fs.posteriors.LikelihoodForm(
            rng.standard_normal((*batch, M)),
            rng.uniform(0.2, 1.5, M),
            preconditioned=preconditioned,
        )

    return make


def relaxed(preconditioned):
    def make(rng, A, batch=()):
        q = likelihood_form(preconditioned)(rng, A, batch)
        L = near_inverse_factor(rng, A + np.diag(q.variance))
        return fs.posteriors.Relaxed(q.mean, q.variance, L, preconditioned=preconditioned)

    return make


def inverse_free(rng, A, batch=()):
    q = gaussian_factor(fs.Whitened)(rng, A, batch)
    return fs.posteriors.InverseFreeWhitened(q.mean, q.scale_tril, near_inverse_factor(rng, A))


LARGEST_JITTER = 1e-2


def dual_sites(kind):
    """Return a maker of valid sites whose sum is not positive semi-definite.

    The posterior is then wider than the prior in some directions. The sites are valid for every
    jitter up to that of A, at most ``LARGEST_JITTER``. Absorbed sites are bounded by the inverse of
    Kuu, which decreases with the jitter, so A can be used. Tied sites are bounded by Kuu, from
    which the jitter is subtracted.
    """

    def make(rng, A, batch=()):
        M, (values, vectors) = len(A), np.linalg.eigh(A)
        lambda1, lambda2 = np.empty((*batch, M)), np.empty((*batch, M, M))
        for p in np.ndindex(batch):
            Q = np.linalg.qr(rng.standard_normal((M, M)))[0]
            B = (Q * rng.uniform(0.5, 4, M)) @ Q.T  # I + the whitened sites
            if kind is fs.posteriors.DualSites:
                flank = vectors * np.sqrt(np.maximum(values - LARGEST_JITTER, 0))
            else:
                flank = vectors / np.sqrt(values)
            lambda2[p] = flank @ (B - np.eye(M)) @ flank.T
            lambda1[p] = flank @ rng.standard_normal(M)
        return kind(lambda1, np.tril(lambda2) + np.triu(np.full((M, M), np.nan), 1))

    return make


# --- plain formulas -----------------------------------------------------------------------------


def plain_whitened(A, Kuf, kff, q, f_bar, whiten=False):
    L, m, W = np.linalg.cholesky(A), q.mean, np.tril(q.scale_tril)
    if whiten:
        m, W = np.linalg.solve(L, m), np.linalg.solve(L, W)
    Lam = np.linalg.solve(L, Kuf)
    V = W.T @ Lam
    Lam_bar = np.outer(m, f_bar.mean) + 2 * (W @ V - Lam) * f_bar.var
    var = kff - (Lam**2).sum(0) + (V**2).sum(0)
    return {"mean": m @ Lam, "var": var, "bar.Kuf": np.linalg.solve(L.T, Lam_bar)}


def plain_marginal(*arguments):
    return plain_whitened(*arguments, whiten=True)


def plain_likelihood_form(A, Kuf, kff, q, f_bar):
    L = np.linalg.cholesky(A + np.diag(q.variance))
    Lam = np.linalg.solve(L, Kuf)
    w = np.linalg.solve(L.T, np.linalg.solve(L, q.mean)) if q.preconditioned else q.mean
    Kuf_bar = np.outer(w, f_bar.mean) - 2 * np.linalg.solve(L.T, Lam) * f_bar.var
    return {"mean": w @ Kuf, "var": kff - (Lam**2).sum(0), "bar.Kuf": Kuf_bar}


def plain_relaxed(A, Kuf, kff, q, f_bar):
    L = np.tril(q.inverse_tril)
    T, B = L @ L.T, A + np.diag(q.variance)
    P = 2 * T - T @ B @ T
    w, Psi = P @ q.mean if q.preconditioned else q.mean, P @ Kuf
    Kuf_bar = np.outer(w, f_bar.mean) - 2 * Psi * f_bar.var
    return {"mean": w @ Kuf, "var": kff - (Kuf * Psi).sum(0), "bar.Kuf": Kuf_bar}


def plain_inverse_free(A, Kuf, kff, q, f_bar):
    m, W, R = q.mean, np.tril(q.scale_tril), np.tril(q.inverse_root)
    T = inverse_free_whitened.implicit_step(A, R).astype(A.dtype)
    mean, var = inverse_free_whitened.marginals(A, T, m, W @ W.T, Kuf, kff)
    bars = inverse_free_whitened.cotangents(
        A, R, m, W, Kuf, f_bar.mean, f_bar.var, A.dtype.type(-1)
    )
    names = ("bar.posterior.mean", "bar.posterior.scale_tril", "bar.Kuu", "bar.Kuf")
    return {"mean": mean, "var": var} | dict(zip(names, bars, strict=True))


def plain_dual_sites(A, Kuf, kff, q, f_bar):
    L, lower = np.linalg.cholesky(A), np.tril(q.lambda2)
    Y, y, eye = lower + np.tril(lower, -1).T, q.lambda1, np.eye(len(A), dtype=A.dtype)
    if isinstance(q, fs.posteriors.DualSites):
        half, t = np.linalg.solve(L, Y), np.linalg.solve(L, y)
        B = eye + np.linalg.solve(L, half.T)
    else:
        B, t = eye + L.T @ Y @ L, L.T @ y
    m, Lam = np.linalg.solve(B, t), np.linalg.solve(L, Kuf)
    H_Lam = Lam - np.linalg.solve(B, Lam)
    Kuf_bar = np.linalg.solve(L.T, np.outer(m, f_bar.mean) - 2 * H_Lam * f_bar.var)
    return {"mean": m @ Lam, "var": kff - (Lam * H_Lam).sum(0), "bar.Kuf": Kuf_bar}


# --- the table ----------------------------------------------------------------------------------


def _likelihood_row(preconditioned):
    def certain(M):
        return fs.posteriors.LikelihoodForm(
            np.zeros(M), np.full(M, 1e-17), preconditioned=preconditioned
        )

    return Row(likelihood_form(preconditioned), certain, plain_likelihood_form)


def _relaxed_row(preconditioned, probes=None):
    def certain(M):
        return fs.posteriors.Relaxed(
            np.zeros(M), np.full(M, 1e-17), np.eye(M), preconditioned=preconditioned
        )

    return Row(relaxed(preconditioned), certain, plain_relaxed, probes)


# posteriors with one set of inducing inputs, by name
ROWS = {
    "whitened": Row(
        gaussian_factor(fs.Whitened),
        lambda M: fs.Whitened(np.zeros(M), 1e-12 * np.eye(M)),
        plain_whitened,
    ),
    "marginal": Row(
        gaussian_factor(fs.Marginal),
        lambda M: fs.Marginal(np.zeros(M), 1e-12 * np.eye(M)),
        plain_marginal,
    ),
    "likelihood": _likelihood_row(True),
    "likelihood-plain": _likelihood_row(False),
    "relaxed": _relaxed_row(True),
    "relaxed-plain": _relaxed_row(False),
    "relaxed-1-probe": _relaxed_row(True, 1),
    "relaxed-plain-6-probes": _relaxed_row(False, 6),
    "absorbed-sites": Row(
        dual_sites(fs.posteriors.AbsorbedDualSites),
        lambda M: fs.posteriors.AbsorbedDualSites(np.zeros(M), 1e17 * np.eye(M)),
        plain_dual_sites,
    ),
    "dual-sites": Row(
        dual_sites(fs.posteriors.DualSites),
        lambda M: fs.posteriors.DualSites(np.zeros(M), 1e17 * np.eye(M)),
        plain_dual_sites,
    ),
    "inverse-free": Row(
        inverse_free,
        lambda M: fs.posteriors.InverseFreeWhitened(np.zeros(M), 1e-12 * np.eye(M), np.eye(M)),
        plain_inverse_free,
    ),
}


def _pair_row(kind):
    """Return the row of a posterior of two sets of inducing inputs, a third of them in the second.

    ``test_orthogonal`` and ``test_orthogonal_models`` have more tests of these posteriors.
    """

    def fields(M, mean, tril):
        sizes = M - max(1, M // 3), max(1, M // 3)
        return [field for m in sizes for field in (mean(m), tril(m))][: len(kind._record_fields)]

    def make(rng, A, batch=()):
        mean, tril = (
            (lambda m: rng.standard_normal((*batch, m))),
            (lambda m: factor(rng, *batch, m, off=0.3 / np.sqrt(m))),
        )
        return kind(*fields(len(A), mean, tril))

    return Row(make, lambda M: kind(*fields(M, np.zeros, lambda m: 1e-12 * np.eye(m))), None)


# posteriors with two sets of inducing inputs, by class name
PAIRS = {
    kind.__name__: _pair_row(kind)
    for kind in (
        fs.posteriors.WhitenedOrthogonal,
        fs.posteriors.Orthogonal,
        fs.posteriors.Decoupled,
        fs.posteriors.DecoupledWeights,
    )
}
EVERY = ROWS | PAIRS


LIKELIHOODS = [  # likelihood, number of outputs, targets
    (fs.Gaussian(variance=0.2), None, lambda rng, N: rng.standard_normal(N)),
    (fs.Gaussian(variance=0.2), 2, lambda rng, N: rng.standard_normal((N, 2))),
    (fs.likelihoods.BernoulliLogit(), None, lambda rng, N: rng.integers(0, 2, N)),
    (fs.Poisson(), 1, lambda rng, N: rng.poisson(1.0, (N, 1))),
    (fs.likelihoods.RobustMax(num_classes=3), 3, lambda rng, N: rng.integers(0, 3, N)),
]


# --- problems -----------------------------------------------------------------------------------


def joint_blocks(rng, M, N):
    """Return blocks of a positive definite joint covariance."""
    A = rng.standard_normal((M + N, M + N + 3)) / np.sqrt(M + N)
    K = A @ A.T + 0.2 * np.eye(M + N)
    Kff = K[M:, M:]
    return fs.records.Blocks(K[:M, :M].copy(), K[:M, M:].copy(), Kff.diagonal().copy(), Kff.copy())


def problem(rng, name, M, N, P=None):
    """Return ``(posterior, blocks, random quantities)``."""
    blocks = joint_blocks(rng, M, N)
    posterior = EVERY[name].make(rng, blocks.Kuu + JITTER * np.eye(M), () if P is None else (P,))
    return posterior, blocks, EVERY[name].random(rng, M)


def of_means(posterior):
    """Return the dotted name of the field in which means are linear: the first."""
    return f"posterior.{posterior._record_fields[0][0]}"


def in_model(rng, name, model, batch=(), jitter=JITTER):
    """Return ``(model, random quantities)``, with a posterior of this row that fits the covariance.

    For two sets, the array of inducing inputs becomes a pair.
    """
    Kuu = model.covariance.Kuu(model.inducing)
    M = len(Kuu)
    model = fs.replace(model, posterior=EVERY[name].make(rng, Kuu + jitter * np.eye(M), batch))
    if name in PAIRS:
        split = M - max(1, M // 3)
        model = fs.replace(
            model,
            inducing=fs.posteriors.InducingPair(model.inducing[:split], model.inducing[split:]),
        )
    return model, EVERY[name].random(rng, M)


@fs.records.record
class StackedWhitened(fs.Whitened):
    """``Whitened`` over the values at two sets of inducing inputs."""

    num_sets = 2

    def check_size(self, *sizes):
        return super().check_size(sum(sizes))


class Through(NamedTuple):
    """The results of a whole pass."""

    f: Any
    kl: float
    posterior: Any
    Kuu: Any
    Kuf: Any
    clamped: int


def bars_of(f):
    """Return cotangents of marginals, of both signs."""
    return fs.records.Marginals(np.sin(3 * f.mean), -np.cos(5 * f.var))


def one_sided_bars_of(f):
    """Return cotangents of variances of one sign, as from log-concave likelihoods.

    Products use another code path for them.
    """
    return fs.records.Marginals(np.sin(3 * f.mean), -1 - f.var)


def through(
    posterior, blocks, f_bar=bars_of, kl_bar=-0.7, need=ALL, jitter=JITTER, columns=None, **more
):
    """Run forward and backward pass of ``blocks``; ``f_bar`` can be a function of marginals."""
    columns = blocks.Kuf.shape[1] if columns is None else columns
    return back_and_forth(
        posterior.start(blocks.Kuu, jitter, columns, need, **more), blocks, f_bar, kl_bar
    )


def back_and_forth(work, blocks, f_bar=bars_of, kl_bar=-0.7):
    f, rows = work.project(blocks.Kuf, blocks.kff)
    kl = work.kl()
    Kuf_bar = work.pull(rows, f_bar(f) if callable(f_bar) else f_bar)
    return Through(f, kl, *work.finish(kl_bar), Kuf_bar, work.clamped)
