"""Certified interval of a variance, and the stopping rule from its width."""

import numpy as np
import pytest
from oracles import inverse_factor as oracle

import fastsvgp as fs


def problem(rng, M, N, s=0.05, D=2):
    """Return Kuu + diag(s), Kuf, kff and the exact variances; some points are inducing inputs."""
    Z = rng.uniform(-2, 2, (M, D))
    X = np.concatenate([Z[: M // 2], rng.uniform(-3, 3, (N, D))])[:N]
    rbf = lambda A, B: np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / 2)  # noqa: E731
    A, Kuf, kff = rbf(Z, Z) + np.diag(s * (1 + rng.random(M))), rbf(Z, X), np.ones(N)
    return A, Kuf, kff, s, oracle.variances(A, Kuf, kff)


@pytest.mark.parametrize("M, N", [(1, 1), (3, 7), (17, 40), (65, 30)])
def test_the_interval_holds_the_exact_variance_for_every_factor(rng, M, N):
    A, Kuf, kff, s, exact = problem(rng, M, N)
    best = oracle.inverse_factor(A)
    holes = np.triu(np.full((M, M), np.nan), 1)
    tried = [
        best,
        1e-3 * np.eye(M),
        np.eye(M),
        5 * np.eye(M),
        np.diag(np.diag(A) ** -0.5),
        np.tril(rng.standard_normal((M, M))),
    ]
    tried += [best + e * np.tril(rng.standard_normal((M, M))) for e in (1e-8, 1e-4, 1e-2, 1.0)]
    tried += [fs.optim.inverse_factor(A, max_steps=n)[0] for n in range(8)]
    for L in tried:
        lower, upper = fs.optim.variance_interval(A, L + holes, Kuf, kff, s)
        assert (lower <= exact).all() and (exact <= upper).all()
        U, low = oracle.variance_bounds(A, L, Kuf, kff, s)  # eq. (3) and (9) as printed
        size = 1 + np.abs(U).max() + np.abs(low).max()
        np.testing.assert_allclose(upper, U, rtol=0, atol=1e-10 * size)
        np.testing.assert_allclose(lower, low, rtol=0, atol=1e-10 * size)
    lower, upper = fs.optim.variance_interval(A, best, Kuf, kff, s)
    assert (upper - lower).max() < 1e-10


@pytest.mark.parametrize("spread", [0.0, 1e-12, 1e-6])
def test_the_interval_survives_rounding(rng, spread):
    """Close points, small diagonal: without an allowance U would fall below the exact variance."""
    Z = np.linspace(0, 1, 40)[:, None]
    K = np.exp(-((Z - Z.T) ** 2) / 2)
    s = 1e-7
    A = K + s * np.eye(40)
    L = fs.kernels.cholesky_of_inverse(A) + spread * np.tril(rng.standard_normal((40, 40)))
    exact = oracle.variances(A, K, np.ones(40), dtype=np.longdouble)
    lower, upper = fs.optim.variance_interval(A, L, K, np.ones(40), 0.9 * s)
    assert (lower <= exact).all() and (exact <= upper).all()
    assert spread or (upper - lower).max() < 1e-3


def test_float32_arguments_give_a_float64_interval(rng):
    A, Kuf, kff, s, _ = problem(rng, 30, 20)
    A, Kuf, kff = (a.astype("f") for a in (A, Kuf, kff))
    L = fs.optim.inverse_factor(A)[0]
    lower, upper = fs.optim.variance_interval(A, L, Kuf, kff, s)
    exact = oracle.variances(*(a.astype(float) for a in (A, Kuf, kff)))
    assert lower.dtype == upper.dtype == np.float64
    assert (lower <= exact).all() and (exact <= upper).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("tolerance", [1.0, 1e-2, 1e-4])
def test_rule_stops_when_the_bound_loses_at_most_the_tolerance(rng, tolerance, dtype):
    A, Kuf, kff, s, exact = problem(rng, 50, 60)
    noise = 0.1
    rule = fs.optim.variance_gap(Kuf, s, noise_variance=noise, tolerance=tolerance, num_data=180)
    L, info = fs.optim.inverse_factor(A.astype(dtype), gap=rule)
    assert info.converged and info.reason == "converged" and L.dtype == dtype
    G = 3 * (oracle.slack(A, L.astype(float), Kuf) / s).sum()
    assert info.gap == pytest.approx(G, rel=1e-3, abs=1e-6)
    assert G <= 2 * noise * tolerance * 1.001
    U, _ = oracle.variance_bounds(A, L.astype(float), Kuf, kff, s)
    assert 3 * (U - exact).sum() / (2 * noise) <= tolerance
    _, before = fs.optim.inverse_factor(A.astype(dtype), gap=rule, max_steps=info.steps - 1)
    assert before.reason == "steps" and not before.converged and before.gap > 2 * noise * tolerance


def test_rule_reports_when_rounding_ends_the_iteration(rng):
    A, Kuf, _, s, _ = problem(rng, 40, 20, s=1e-3)
    rule = fs.optim.variance_gap(Kuf, s, noise_variance=0.1, tolerance=1e-9)
    L, info = fs.optim.inverse_factor(A.astype("f"), gap=rule)
    assert (
        info.reason == "rounding"
        and not info.converged
        and info.steps < 40
        and np.isfinite(L).all()
    )
    assert 2e-10 < info.gap < np.inf and info.certified


def test_bad_arguments_of_variance_gap_are_rejected(rng):
    A, Kuf, kff, s, _ = problem(rng, 4, 3)
    L = np.eye(4)
    for call, message in [
        (
            lambda: fs.optim.variance_interval(A + np.triu(np.ones((4, 4)), 1), L, Kuf, kff, s),
            "`A` must be symmetric",
        ),
        (
            lambda: fs.optim.variance_interval(A, np.diag([1.0, 0.0, 1.0, 1.0]), Kuf, kff, s),
            "`L` has a zero on its diagonal",
        ),
        (
            lambda: fs.optim.variance_interval(A, np.diag([1.0, np.nan, 1.0, 1.0]), Kuf, kff, s),
            "diagonal of L.*nan",
        ),
        (
            lambda: fs.optim.variance_interval(np.stack([A, A]), L, Kuf, kff, s),
            "must be single matrices",
        ),
        (
            lambda: fs.optim.variance_interval(A, L, Kuf[:3], kff, s),
            r"`Kuf` must have shape \(M, N\) with M = 4, got \(3, 3\)",
        ),
        (
            lambda: fs.optim.variance_interval(A, L, Kuf, kff[:2], s),
            r"`kff` must have one entry.*\(2,\) for \(4, 3\)",
        ),
        (lambda: fs.optim.variance_interval(A, L, Kuf * np.inf, kff, s), "`Kuf` contains"),
        (
            lambda: fs.optim.variance_interval(A, L, Kuf, kff, 0.0),
            "`smallest` must be a positive lower bound",
        ),
        (
            lambda: fs.optim.variance_gap(Kuf, -1.0, noise_variance=1.0, tolerance=1.0),
            "`smallest` must be a positive lower bound",
        ),
        (
            lambda: fs.optim.variance_gap(Kuf, s, noise_variance=0.0, tolerance=1.0),
            "`noise_variance` must be positive",
        ),
        (
            lambda: fs.optim.variance_gap(Kuf, s, noise_variance=1.0, tolerance=0.0),
            "`tolerance` must be positive",
        ),
        (
            lambda: fs.optim.variance_gap(Kuf, s, noise_variance=1.0, tolerance=1.0, num_data=2),
            "`num_data` is 2, smaller",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="`L` must hold real numbers"):
        fs.optim.variance_interval(A, None, Kuf, kff, s)
    rule = fs.optim.variance_gap(Kuf, s, noise_variance=1.0, tolerance=1.0)
    with pytest.raises(ValueError, match="either `tolerance` or `gap`"):
        fs.optim.inverse_factor(A, tolerance=1e-3, gap=rule)
    for other in (np.eye(5), np.stack([A, A])):
        with pytest.raises(ValueError, match="belongs to a single matrix A of as many rows"):
            fs.optim.inverse_factor(other, gap=rule)
