"""Iteration towards chol(A^-1): known numbers of steps, no divergence, and a correct report."""

import pathlib

import numpy as np
import pytest
from oracles import inverse_factor as oracle

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.optim import schedules
from fastsvgp.optim.inverse.factor import inverse_factor
from fastsvgp.optim.inverse.iteration import CERTIFICATE

VECTORS = (
    pathlib.Path(__file__).resolve().parents[3] / "shared" / "vectors" / "rsvgp_natgrad_near.npz"
)


def rbf(Z, diagonal):
    squares = ((Z[:, None] - Z[None]) ** 2).sum(-1)
    return np.exp(-squares / 2) + diagonal * np.eye(len(Z))


def with_condition(rng, M, cond, kind="geometric"):
    """Return a random symmetric matrix with eigenvalues between 1 and 1 / cond."""
    U = np.linalg.qr(rng.standard_normal((M, M)))[0]
    values = {
        "geometric": np.geomspace(1, 1 / cond, M),
        "halves": np.where(np.arange(M) < M / 2, 1, 1 / cond),
        "one large": np.where(np.arange(M) < 1, 1, 1 / cond),
        "one small": np.where(np.arange(M) < M - 1, 1, 1 / cond),
    }[kind]
    A = (U * values) @ U.T
    return (A + A.T) / 2


def with_diagonal_for(Z, cond):
    """Return the covariance of Z with a diagonal that gives this condition number."""
    K = rbf(Z, 0.0)
    return K + np.linalg.eigvalsh(K)[-1] / cond * np.eye(len(Z))


# --- one step -----------------------------------------------------------------


@pytest.mark.parametrize("M", [1, 3, 17, 65])
@pytest.mark.parametrize("g", [0.3, 1.0])
def test_step_is_the_update_of_the_paper(rng, M, g):
    A, L = with_condition(rng, M, 10.0), np.tril(rng.standard_normal((M, M)) / M + np.eye(M))
    stepped = fs.optim.newton_schulz_step(A, L, g)
    np.testing.assert_allclose(stepped, oracle.step(A, L, g), rtol=0, atol=1e-13)
    hidden = L + np.triu(np.full((M, M), np.nan), 1)
    np.testing.assert_array_equal(
        fs.optim.newton_schulz_step(np.stack([A, A]), hidden, g), [stepped, stepped]
    )
    assert fs.optim.newton_schulz_step(A.astype("f"), L.astype("f"), g).dtype == np.float32


def test_step_and_loop_against_the_authors_program():
    if not VECTORS.is_file():
        pytest.skip("no reference vectors here")
    data = np.load(VECTORS)
    A, L = data["out.K_tilde"], data["in.T_sqrt"]
    np.testing.assert_allclose(
        fs.optim.newton_schulz_step(A, L, 1.0), data["out.T_sqrt_g1"], rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(
        fs.optim.newton_schulz_step(A, L, 0.3), data["out.T_sqrt_g03"], rtol=0, atol=1e-10
    )
    assert oracle.residual(A, L) == pytest.approx(float(data["out.criterion_frobenius"]), rel=1e-9)
    for name in ("loglinear5", "loglinear12"):
        walked = L
        for g in data[f"out.gammas_{name}"]:
            walked = fs.optim.newton_schulz_step(A, walked, g)
        np.testing.assert_allclose(walked, data[f"out.T_sqrt_{name}"], rtol=0, atol=1e-10)
    ramp = schedules.log_linear(1e-5, 1.0, 10)
    np.testing.assert_allclose(
        [ramp.size(t, None) for t in range(12)], data["out.gammas_loglinear12"], rtol=1e-12
    )
    found, info = inverse_factor(A, L, step_size=ramp, tolerance=1e-6, max_steps=12)
    assert info.converged and info.steps == int(data["out.stopped_reported_steps"]) - 1
    np.testing.assert_allclose(found, data["out.T_sqrt_stopped"], rtol=0, atol=1e-10)
    assert info.residual == pytest.approx(float(data["out.stopped_criterion"]), rel=1e-4)


# --- the loop -----------------------------------------------------------------

# Steps to a residual of 1e-3 as measured for the rule before (its faster form), and a small margin.
MARGIN = 1


@pytest.mark.parametrize(
    "start, M, cond, steps",
    [
        ("small", 50, 1e3, 10),
        ("small", 300, 6e5, 15),
        ("small", 300, 6e7, 19),
        ("diagonal", 300, 6e5, 16),
        ("default", 50, 1e3, 10),
        ("default", 300, 6e5, 15),
        ("default", 300, 6e7, 19),
    ],
)
def test_cold_starts_take_no_more_steps_than_known(rng, start, M, cond, steps):
    """The median of three draws: a rare one takes six steps more."""
    taken = []
    for _ in range(3):
        A = with_diagonal_for(rng.uniform(-2, 2, (M, 2)), cond)
        L = {"small": 1e-3 * np.eye(M), "diagonal": np.diag(np.diag(A) ** -0.5)}.get(start)
        W, info = inverse_factor(A, L)
        assert info.converged and info.certified and info.reason == "converged"
        assert info.searches == 0 and info.residual <= 1e-3
        assert info.residual == pytest.approx(oracle.residual(A, W), rel=1e-5)
        taken.append(info.steps)
    assert sorted(taken)[1] <= steps + MARGIN


@pytest.mark.parametrize("move, steps", [(0.001, 4), (0.005, 11), (0.05, 17)])
def test_warm_starts_take_no_more_steps_than_known(rng, move, steps):
    Z = rng.uniform(-2, 2, (300, 2))
    before = np.linalg.cholesky(np.linalg.inv(rbf(Z, 1e-4)))
    A = rbf(Z + move * rng.standard_normal(Z.shape), 1e-4)
    W, info = inverse_factor(A, before)
    assert info.converged and info.steps <= steps + MARGIN
    assert oracle.residual(A, W) <= 1e-3


@pytest.mark.parametrize("kind", ["geometric", "halves", "one large", "one small"])
@pytest.mark.parametrize("cond", [1e2, 1e4, 1e6, 1e8, 1e10])
@pytest.mark.parametrize("M", [3, 60])
def test_iteration_never_diverges(rng, M, cond, kind):
    A = with_condition(rng, M, cond, kind)
    far = np.tril(rng.standard_normal((M, M))) + 30 * np.eye(M)
    for start in (None, np.eye(M), 100 * np.eye(M), far):
        W, info = inverse_factor(A, start, tolerance=1e-4)
        assert info.converged, (info, cond)
        assert (np.diag(W) > 0).all() and not np.triu(W, 1).any()
        assert oracle.residual(A, W) < 2e-4  # the dense residual rounds too


@pytest.mark.parametrize(
    "M, cond, steps",
    [(600, 1e2, 8), (600, 1e6, 16), (600, 1e8, 20), (600, 1e10, 25), (1000, 1e10, 25)],
)
def test_iteration_never_diverges_on_large_covariances(rng, M, cond, steps):
    """From cold starts.

    cond(A) is at most ``cond``, because the eigenvalues of a correlation matrix add up to M.
    """
    A = rbf(rng.uniform(-2, 2, (M, 2)), M / cond)
    W, info = inverse_factor(A)
    assert info.converged and info.certified and info.steps <= steps and info.searches == 0
    assert (np.diag(W) > 0).all() and np.isfinite(W).all()
    x = rng.standard_normal(M)
    assert np.linalg.norm(W.T @ (A @ (W @ x)) - x) < 0.01 * np.linalg.norm(x)
    if M < 1000:  # rounding to single makes the worst of these matrices indefinite
        W, info = inverse_factor(A.astype("f"))
        assert (
            info.converged == (cond < 1e6) and np.isfinite(W).all() and np.isfinite(info.residual)
        )
        assert info.converged or (
            info.reason in ("rounding", "indefinite") and info.reachable > 1e-3
        )


def test_log_determinant_of_the_factor(rng):
    A = with_condition(rng, 40, 1e4)
    W, info = inverse_factor(A, tolerance=1e-10)
    assert info.log_det == pytest.approx(-np.linalg.slogdet(A)[1], rel=1e-9)
    assert info.gap == np.inf  # not requested
    half = W * np.where(np.arange(40) % 2, 0.5, -0.5)
    assert inverse_factor(A, half, max_steps=0)[1].log_det == pytest.approx(
        info.log_det - 80 * np.log(2)
    )


def test_the_objective_falls_and_the_end_is_quadratic(rng):
    A = with_diagonal_for(rng.uniform(-2, 2, (80, 2)), 1e5)
    walked = [inverse_factor(A, max_steps=n, tolerance=1e-9) for n in range(20)]
    values = [oracle.objective(A, L) for L, _ in walked]
    assert (np.diff(values) <= 1e-9).all()
    d = np.array([info.residual for _, info in walked]) * np.sqrt(80)
    certified = d[:-1] < CERTIFICATE
    assert certified.sum() >= 3
    bound = d[:-1] ** 2 * (1.92 + d[:-1] / 2) + 1e-10
    assert (d[1:] <= np.maximum(bound, 1e-9 * np.sqrt(80)))[certified].all()


def test_the_factor_is_the_one_of_the_inverse(rng):
    A = with_condition(rng, 130, 1e3)
    W, info = inverse_factor(A, tolerance=1e-11)
    assert info.converged
    np.testing.assert_allclose(W, kernels.cholesky_of_inverse(A), rtol=0, atol=1e-8)
    again, info = inverse_factor(A, W, tolerance=1e-10)
    assert info.steps == 0 and info.converged
    np.testing.assert_array_equal(again, W)


@pytest.mark.parametrize(
    "step_size",
    [1.0, 0.5, schedules.log_linear(1e-5, 1.0, 10), lambda t: 3.0],
    ids=["1", "0.5", "ramp", "function"],
)
def test_any_schedule_is_safe(rng, step_size):
    """A unit step from the diagonal diverges; the line search replaces steps that raise the KL."""
    A = rbf(rng.uniform(-2, 2, (60, 2)), 1e-3)
    W, info = inverse_factor(A, np.diag(np.diag(A) ** -0.5), step_size=step_size, max_steps=200)
    assert info.converged, info
    assert oracle.residual(A, W) < 1.1e-3


def test_exact_line_search_alone_converges(rng):
    """A step size that is always rejected leaves only the fallback."""
    A = rbf(rng.uniform(-2, 2, (50, 2)), 0.02)
    W, info = inverse_factor(A, step_size=lambda t: 1e6, max_steps=200)
    assert info.converged and info.searches == info.steps


def test_columns_of_a_start_may_have_either_sign(rng):
    A = with_condition(rng, 20, 100.0)
    W, _ = inverse_factor(A)
    flipped, info = inverse_factor(A, W * np.where(np.arange(20) % 2, 1, -1))
    assert info.steps == 0
    np.testing.assert_array_equal(flipped, W)


def test_batches_equal_single_matrices(rng):
    A = np.stack([with_condition(rng, 17, c) for c in (1e1, 1e3, 1e5, 1e2)]).reshape(2, 2, 17, 17)
    W, info = inverse_factor(A)
    assert W.shape == A.shape and info.steps.shape == (2, 2) and info.converged.all()
    for i in np.ndindex(2, 2):
        alone, one = inverse_factor(A[i])
        np.testing.assert_array_equal(W[i], alone)
        assert one.steps == info.steps[i] and info.reason[i] == "converged"
    shared, info = inverse_factor(A[0], np.eye(17))
    assert shared.shape == (2, 17, 17) and info.converged.all()


@pytest.mark.parametrize("cond", [1e2, 1e4, 1e6, 1e8])
def test_float32_reports_the_reachable_residual(rng, cond):
    A = with_condition(rng, 60, cond).astype("f")
    W, info = inverse_factor(A, tolerance=2e-7)
    assert W.dtype == np.float32 and np.isfinite(W).all()
    assert not info.converged and info.reason in ("rounding", "indefinite") and info.steps < 30
    if cond <= 1e6:
        assert info.reason == "rounding" and info.certified
        assert info.residual < 10 * info.reachable
        assert 2e-9 * cond < info.reachable < 2e-7 * cond
    loose, info = inverse_factor(A, tolerance=max(1e-3, 1e-8 * cond))
    assert info.converged or cond == 1e8


def test_float64_stops_at_its_rounding(rng):
    A = with_condition(rng, 60, 1e8)
    W, info = inverse_factor(A, tolerance=1e-14)
    assert info.reason == "rounding" and not info.converged and info.certified
    assert info.residual < 1e-7 and info.steps < 30


def test_a_matrix_that_is_not_definite_is_reported(rng):
    A = np.diag([1.0, 1.0, 1.0])
    A[0, 1] = A[1, 0] = 1.5
    W, info = inverse_factor(A)
    assert info.reason == "indefinite" and not info.converged and np.isfinite(W).all()


# --- starts of any size -------------------------------------------------------


@pytest.mark.parametrize(
    "dtype, size", [(np.float32, 1e-4), (np.float32, 1e-9), (np.float64, 1e-6), (np.float64, 1e-12)]
)
@pytest.mark.parametrize("step_size", [None, 1.0])
def test_small_starts_converge(rng, dtype, size, step_size):
    """E = L' A L loses its digits in D = E - I; small entries of E must not be read from D."""
    covariance = with_diagonal_for(rng.uniform(-2, 2, (17, 2)), 1e3)
    for A in (np.array([[1, 0.5], [0.5, 1]]), covariance, 1e-8 * with_condition(rng, 5, 10)):
        W, info = inverse_factor(
            A.astype(dtype), size * np.eye(len(A), dtype=dtype), step_size=step_size
        )
        assert info.converged and info.steps < 30, info
        assert oracle.residual(A, W.astype(float)) < 1.1e-3


def test_starts_whose_columns_differ_by_many_orders_of_magnitude(rng):
    A = with_condition(rng, 20, 1e4)
    W, info = inverse_factor(A, np.diag(np.geomspace(1e-14, 1e6, 20)))
    assert info.converged and info.steps < 20 and oracle.residual(A, W) <= 1e-3
    W, info = inverse_factor(A.astype("f"), np.diag(np.geomspace(1e-9, 1e6, 20)).astype("f"))
    assert info.converged and info.steps < 20


def test_random_starts_converge(rng):
    """For any scale of the matrix, size of the start and dtype the result is the factor."""
    for case in range(200):
        dtype, M = (np.float64, np.float32)[case % 2], int(rng.choice([1, 2, 5, 17]))
        cond, scale = (
            10 ** rng.uniform(0, 8 if dtype == np.float64 else 4),
            10 ** rng.uniform(-10, 10),
        )
        A = (scale * with_condition(rng, M, cond)).astype(dtype)
        size = 10 ** rng.uniform(-13 if dtype == np.float64 else -6, 4)
        triangle = np.tril(rng.standard_normal((M, M)), -1) / M + np.diag(
            rng.choice([-1, 1], M) * rng.uniform(0.5, 2, M)
        )
        W, info = inverse_factor(A, (size * triangle).astype(dtype))
        assert info.converged and info.steps <= 25, (case, dtype, M, cond, scale, size, info)
        assert np.isfinite(W).all() and (np.diag(W) > 0).all()


def test_a_good_start_is_left_as_it_is(rng):
    """A start whose columns are about right is not scaled: no bit of it changes."""
    A = with_condition(rng, 17, 1e3)
    W, _ = inverse_factor(A, tolerance=1e-8)
    for start in (W, W * rng.uniform(0.5, 2, 17)):
        unmoved, info = inverse_factor(A, start, max_steps=0)
        np.testing.assert_array_equal(unmoved, start)
    half, info = inverse_factor(A, 1e-3 * W, max_steps=0)
    # the unit diagonal of L' A L
    np.testing.assert_allclose(half, W, rtol=0, atol=1e-6 * np.abs(W).max())


@pytest.mark.parametrize("size", [1e-200, 1e120])
def test_a_hopeless_start_is_replaced(rng, size):
    A = with_condition(rng, 17, 100.0)
    W, info = inverse_factor(A, size * np.eye(17))
    assert info.converged and info.steps < 15


def test_number_of_steps_is_a_limit():
    A = np.array([[1.0, 0.9999], [0.9999, 1.0]])
    W, info = inverse_factor(A, np.eye(2), max_steps=2)
    assert info.steps == 2 and info.reason == "steps" and not info.converged and not info.certified


@pytest.mark.parametrize(
    "call", [lambda A, L: fs.optim.newton_schulz_step(A, L, 1.0), lambda A, L: inverse_factor(A, L)]
)
def test_bad_arguments_of_inverse_factor_are_rejected(call):
    A, L = np.eye(3), np.eye(3)
    for bad, message in [
        ((A[:2], L), r"`A` must have shape.*\(2, 3\)"),
        ((np.zeros((0, 0)), np.zeros((0, 0))), "`A` must have shape"),
        ((A, np.eye(4)), r"`L` must have shape.*\(4, 4\)"),
        ((np.stack([A, A]), np.stack([L, L, L])), "do not broadcast"),
        ((A + np.triu(np.ones((3, 3)), 1), L), "`A` must be symmetric.*by up to 1"),
        ((A * np.nan, L), "`A` contains nan"),
        ((A, np.diag([1.0, 0.0, 1.0])), "`L` has a zero on its diagonal"),
        ((A, np.diag([1.0, np.inf, 1.0])), "diagonal of L.*inf"),
        ((A, L + np.tril(np.full((3, 3), np.nan), -1)), "`L` contains nan"),
    ]:
        with pytest.raises(ValueError, match=message):
            call(*bad)
    with pytest.raises(TypeError, match="`A` must hold real numbers"):
        call(A + 1j, L)


def test_bad_settings_of_inverse_factor_are_rejected():
    A = np.eye(3)
    for size in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="step_size"):
            fs.optim.newton_schulz_step(A, A, size)
    with pytest.raises(ValueError, match="`tolerance` is 1e-09, less than float32 can reach"):
        inverse_factor(A.astype("f"), tolerance=1e-9)
    with pytest.raises(ValueError, match="max_steps"):
        inverse_factor(A, max_steps=2.5)
    with pytest.raises(ValueError, match="diagonal of A"):
        inverse_factor(-A)
    with pytest.raises(ValueError, match="step_size"):
        inverse_factor(A, step_size=-1.0)
