"""Newton-Schulz kernels: the update of eq. (6), its residual, curvature and reverse rule."""

import numpy as np
import pytest
from oracles import inverse_factor as oracle
from support.numerics import assert_adjoint, assert_as_accurate_as

from fastsvgp import kernels

SIZES = [1, 3, 17, 65, 130, 300]


def problem(rng, M, batch=(), dtype=np.float64):
    """Return a positive definite matrix and a lower factor close to that of its inverse."""
    A = rng.standard_normal((*batch, M, M + 2))
    A = A @ A.swapaxes(-1, -2) / M + 0.5 * np.eye(M)
    L = np.linalg.cholesky(np.linalg.inv(A)) @ (
        np.eye(M) + np.tril(rng.standard_normal((*batch, M, M))) * 0.3 / (M + 1)
    )
    return A.astype(dtype), L.astype(dtype)


def unread(A):
    return np.tril(A) + np.triu(np.full(A.shape[-2:], np.nan, A.dtype), 1)


def each(f, *stacks):
    batch = stacks[0].shape[:-2]
    results = [f(*(S[i] for S in stacks)) for i in np.ndindex(batch)]
    return np.reshape(results, (*batch, *np.shape(results[0])))


@pytest.mark.parametrize("batch", [(), (2,), (2, 2)])
@pytest.mark.parametrize("M", SIZES)
def test_gram_and_step(rng, M, batch):
    A, L = problem(rng, M, batch)
    before = A.copy(), L.copy()
    D, stats = kernels.newton_schulz_gram(unread(A), unread(L))
    E = L.swapaxes(-1, -2) @ A @ L
    truth = each(oracle.deviation, A, L)
    np.testing.assert_allclose(D, np.tril(truth), rtol=0, atol=1e-12)
    diagonal = np.diagonal(E, axis1=-2, axis2=-1)
    trace = np.trace(truth, axis1=-2, axis2=-1)
    expected = [np.linalg.norm(truth, axis=(-2, -1)), diagonal.min(-1), diagonal.max(-1), trace]
    np.testing.assert_allclose(stats, np.stack(expected, -1), rtol=1e-12, atol=1e-11)
    stepped = kernels.newton_schulz_step(unread(A), unread(L), 0.7)
    np.testing.assert_allclose(
        stepped, each(lambda A, L: oracle.step(A, L, 0.7), A, L), rtol=0, atol=1e-12
    )
    assert not np.triu(stepped, 1).any()
    np.testing.assert_array_equal((A, L), before)


@pytest.mark.parametrize("M", [1, 17, 130])
def test_a_loop_needs_no_new_arrays(rng, M):
    A, L = problem(rng, M)
    work = np.full((M, M), np.nan)
    D, _ = kernels.newton_schulz_gram(A, L, out=work)
    assert D is work
    copy = D.copy()
    apart = kernels.newton_schulz_update(L, unread(D), 0.5)
    np.testing.assert_array_equal(D, copy)
    assert kernels.newton_schulz_update(L, D, 0.5, overwrite_d=True) is work
    np.testing.assert_array_equal(work, apart)
    np.testing.assert_array_equal(
        kernels.newton_schulz_step(A, L, 0.5, out=np.full((M, M), np.nan)), apart
    )


def test_batches_broadcast_and_may_have_step_sizes_of_their_own(rng):
    A, L = problem(rng, 20, (3,))
    sizes = np.array([0.2, 1.0, 1.5])
    stepped = kernels.newton_schulz_step(A, L[0], sizes)
    for i, g in enumerate(sizes):
        np.testing.assert_allclose(stepped[i], oracle.step(A[i], L[0], g), rtol=0, atol=1e-12)


def test_strided_and_read_only_arguments(rng):
    A, L = problem(rng, 70)
    expected = kernels.newton_schulz_step(A, L, 1.0)
    wide = np.zeros((140, 140))
    wide[::2, ::2] = A
    fortran = np.asfortranarray(L)
    fortran.flags.writeable = False
    np.testing.assert_allclose(
        kernels.newton_schulz_step(wide[::2, ::2], fortran, 1.0), expected, rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("M", SIZES)
def test_tril_congruence(rng, M, batch):
    S, L = problem(rng, M, batch)
    S = S - 0.7 * np.eye(M)  # not definite
    got = kernels.symmetrise(kernels.tril_congruence(unread(L), unread(S)))
    np.testing.assert_allclose(got, L @ S @ L.swapaxes(-1, -2), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(got, got.swapaxes(-1, -2))


@pytest.mark.parametrize("M", [1, 3, 65, 200])
def test_curvature_along_the_step(rng, M):
    """<Phi, E Phi> gives the objective along the step.

    It is c2 g^2 / 2 - <E, Phi> g - sum log(1 - g Phi_ii) + const.
    """
    A, L = problem(rng, M)
    D, stats = kernels.newton_schulz_gram(A, L)
    P, curvature = kernels.newton_schulz_curvature(unread(A), unread(L), unread(D))
    phi = np.tril(D) - np.diag(np.diag(D)) / 2
    np.testing.assert_allclose(P, L @ phi, rtol=0, atol=1e-12)
    np.testing.assert_allclose(curvature, np.sum(phi * ((L.T @ A @ L) @ phi)), rtol=1e-10)
    linear = stats[0] ** 2 / 2 + stats[3] / 2
    for g in (0.3, 1.0):
        change = oracle.objective(A, L - g * P) - oracle.objective(A, L)
        predicted = curvature * g**2 / 2 - linear * g - np.log(1 - g * np.diag(phi)).sum()
        np.testing.assert_allclose(predicted, change, rtol=0, atol=1e-10)


@pytest.mark.parametrize("M", [1, 3, 65, 200])
def test_power_iteration_finds_the_largest_eigenvalue(rng, M):
    A, _ = problem(rng, M)
    A[0, 0] += 50  # one well-separated eigenvalue
    size, v = kernels.power_iteration(unread(A), rng.standard_normal(M), shift=2.0, iterations=12)
    np.testing.assert_allclose(size, np.linalg.eigvalsh(A)[-1] + 2, rtol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(v), size, rtol=1e-12)
    both, _ = kernels.power_iteration(np.stack([A, 2 * A]), np.ones((2, M)), iterations=12)
    np.testing.assert_allclose(both, np.linalg.eigvalsh(A)[-1] * np.array([1, 2]), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_power_iteration_of_zero_is_zero(dtype):
    """D = -I, from a factor that is negligible beside the identity: D + I is zero."""
    size, v = kernels.power_iteration(
        -np.eye(5, dtype=dtype), np.ones(5, dtype), shift=1.0, iterations=3
    )
    assert size == 0 and size.dtype == np.float64
    np.testing.assert_array_equal(v, np.zeros(5, dtype))
    assert v.dtype == dtype


def test_walk_converges_and_stops(rng):
    """From far away; each item of a batch stops separately, and then does not change."""
    A, L = problem(rng, 40, (2,))
    L[0] = 3 * np.eye(40)
    factors, D, rows, _ = kernels.newton_schulz_walk(
        unread(A), unread(L), np.ones((2, 40)), 1e-6, 40, iterations=(10, 3)
    )
    sizes = rows[..., 5]
    np.testing.assert_array_equal(sizes[-2:], 0)
    np.testing.assert_array_equal(factors[-1], factors[-2])
    assert (
        sizes[0, 0] < 0.45
        and ((sizes > 0).sum(0) > 2).all()
        and (sizes[:, 1] > 0).sum() < (sizes[:, 0] > 0).sum()
    )
    for i in range(2):
        assert oracle.residual(A[i], factors[-1, i]) <= 1e-6
    for at, step in ((L, 0), (factors[4], 5)):
        expected = kernels.newton_schulz_gram(A, at)[1]
        np.testing.assert_array_equal(rows[step, :, :4], expected)
        np.testing.assert_allclose(
            rows[step, :, 4], 2 * np.log(np.diagonal(at, axis1=1, axis2=2)).sum(-1)
        )
    # the same in two calls
    v, start, walked = np.ones((2, 40)), kernels.newton_schulz_gram(A, L), L
    for first, steps in ((10, 3), (3, 2)):
        some, D, part, v = kernels.newton_schulz_walk(A, walked, v, 1e-6, steps, start, (first, 3))
        walked, start = some[-1], (D, part[-1, :, :4])
    np.testing.assert_array_equal(walked, factors[4])
    L[0, 3, 3] = np.inf
    assert kernels.newton_schulz_walk(A, L, v, 1e-6, 1)[2][0, 0, 5] == 0
    L[0, 3, 3] = -1
    assert kernels.newton_schulz_walk(A, L, v, 1e-6, 0)[2][0, 0, 4] == -np.inf


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("M", [1, 3, 70])
def test_reverse_rule(rng, M, batch):
    A, L = problem(rng, M, batch)
    bar, one, two = rng.standard_normal((3, *A.shape))
    D, _ = kernels.newton_schulz_gram(A, L)
    A_bar, L_bar = kernels.newton_schulz_step_vjp(unread(bar), unread(A), unread(L), unread(D), 0.8)
    np.testing.assert_array_equal(A_bar, A_bar.swapaxes(-1, -2))
    directions = [one + one.swapaxes(-1, -2), np.tril(two)]
    step = lambda A, L: kernels.newton_schulz_step(A, L, 0.8)  # noqa: E731
    assert_adjoint(step, (A, L), (A_bar, L_bar), np.tril(bar), rng, directions=directions)
    only, none = kernels.newton_schulz_step_vjp(bar, A, L, D, 0.8, need=("A",))
    assert none is None
    np.testing.assert_allclose(only, A_bar, rtol=0, atol=1e-12)


def test_reverse_rule_sums_over_what_was_broadcast(rng):
    A, L = problem(rng, 5, (3,))
    bar = rng.standard_normal(A.shape)
    D, _ = kernels.newton_schulz_gram(A, L[0])
    A_bar, L_bar = kernels.newton_schulz_step_vjp(bar, A, L[0], D, 1.0)
    apart = [kernels.newton_schulz_step_vjp(bar[i], A[i], L[0], D[i], 1.0) for i in range(3)]
    np.testing.assert_allclose(A_bar, [a for a, _ in apart], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(L_bar, sum(b for _, b in apart), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("M", [3, 65, 200])
def test_float32_is_as_accurate_as_numpy(rng, M):
    A, L = problem(rng, M, dtype=np.float32)
    wide = A.astype(float), L.astype(float)
    D, stats = kernels.newton_schulz_gram(A, L)
    assert D.dtype == np.float32 and stats.dtype == np.float64
    assert_as_accurate_as(
        D, np.tril(L.T @ A @ L - np.eye(M, dtype=np.float32)), np.tril(oracle.deviation(*wide))
    )
    E = L.T @ A @ L
    phi = np.tril(E) - (np.eye(M, dtype=np.float32) + np.diag(np.diag(E))) / 2
    stepped = kernels.newton_schulz_step(A, L, 0.5)
    assert stepped.dtype == np.float32
    assert_as_accurate_as(stepped, L - np.float32(0.5) * L @ phi, oracle.step(*wide, 0.5))


def test_unit_steps_converge_to_the_factorised_inverse(rng):
    A, _ = problem(rng, 130)
    W = kernels.cholesky_of_inverse(A)
    near = W + 1e-6 * np.tril(rng.standard_normal(A.shape))
    np.testing.assert_allclose(kernels.newton_schulz_step(A, near, 1.0), W, rtol=0, atol=1e-9)


def test_infinity_makes_the_norms_infinite(rng):
    A, L = problem(rng, 70)
    L[60, 3] = np.inf
    _, stats = kernels.newton_schulz_gram(A, L)
    assert not np.isfinite(stats[0])
