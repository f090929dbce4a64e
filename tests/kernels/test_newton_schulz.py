"""Newton-Schulz kernels: the update of eq. (6), its residual, curvature and reverse rule.

``tests/cuda`` imports the bodies that take ``twin_of``, and runs them on a device.
"""

import numpy as np
import pytest
from oracles import inverse_factor as oracle
from support import newton_schulz_problems as problems
from support.looped import looped
from support.numerics import assert_adjoint

from fastsvgp import kernels

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@every_dtype
@pytest.mark.parametrize("M, batch", problems.SHAPES)
def test_against_dense_matrices(twin_of, rng, M, batch, dtype):
    problems.check_all(twin_of("newton_schulz"), rng, M, batch, dtype)


def test_step_sizes_and_broadcasting(twin_of, rng):
    """Cotangents of what was broadcast are summed; each is computed only if needed."""
    A, L, _, bar, _ = problems.problem(rng, 20, (3,), float)
    twin, sizes = twin_of("newton_schulz"), np.array([0.2, 1.0, 1.5])
    stepped = twin.newton_schulz_step(A, L[0], sizes)
    D, _ = twin.newton_schulz_gram(A, L[0])
    for i, g in enumerate(sizes):
        np.testing.assert_allclose(stepped[i], oracle.step(A[i], L[0], g), rtol=0, atol=1e-12)
    for given in (sizes, np.full(3, 0.3)):
        each = [problems.definition(A[i], L[0], A[i], bar[i], A[i, 0], given[i]) for i in range(3)]
        A_bar, L_bar = np.stack([one[6] for one in each]), sum(one[7] for one in each)
        for need in (("A", "L"), ("A",), ("L",)):
            bars = twin.newton_schulz_step_vjp(bar, A, L[0], D, given, need)
            for name, found, truth in zip("AL", bars, (A_bar, L_bar), strict=True):
                assert (found is None) == (name not in need)
                if found is not None:
                    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-11)


def test_strided_and_read_only_arguments(twin_of, rng):
    A, L, *_ = problems.problem(rng, 70, (), float)
    step, wide, fortran = (
        twin_of("newton_schulz").newton_schulz_step, np.zeros((140, 140)), np.asfortranarray(L)
    )  # fmt: skip
    wide[::2, ::2] = A
    fortran.flags.writeable = False
    askew = np.empty(70 * 70 + 1)[1:].reshape(70, 70)  # rows not aligned for 128-bit loads
    askew[:] = A
    expected = step(A, L, 1.0)
    for given in ((wide[::2, ::2], fortran), (askew, L)):
        np.testing.assert_allclose(step(*given, 1.0), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("M", [1, 17, 70])
def test_an_update_may_overwrite_the_residual(twin_of, rng, M):
    A, L, *_ = problems.problem(rng, M, (), float)
    twin, before = twin_of("newton_schulz"), (A.copy(), L.copy())
    D, _ = twin.newton_schulz_gram(A, L)
    copy = D.copy()
    apart = twin.newton_schulz_update(L, problems.unread(D), 0.5)
    np.testing.assert_array_equal(D, copy)
    np.testing.assert_array_equal(twin.newton_schulz_update(L, D, 0.5, True), apart)
    np.testing.assert_array_equal(twin.newton_schulz_step(A, L, 0.5), apart)
    np.testing.assert_array_equal((A, L), before)


def test_empty_arrays(twin_of):
    twin, none = twin_of("newton_schulz"), np.zeros((0, 5, 5))
    D, stats = twin.newton_schulz_gram(none, none)
    assert D.shape == (0, 5, 5) and stats.shape == (0, 4)
    assert twin.newton_schulz_step(none, none, 1.0).shape == (0, 5, 5)


@pytest.mark.parametrize("M", [1, 3, 65])
def test_curvature_along_the_step(twin_of, rng, M):
    """<Phi, E Phi> gives the objective along the step.

    It is c2 g^2 / 2 - <E, Phi> g - sum log(1 - g Phi_ii) + const.
    """
    A, L, *_ = problems.problem(rng, M, (), float)
    best = np.linalg.cholesky(np.linalg.inv(A))
    L = best + 0.2 * (L - best)  # near enough for positive diagonals after a unit step
    twin = twin_of("newton_schulz")
    D, stats = twin.newton_schulz_gram(A, L)
    P, curvature = twin.newton_schulz_curvature(A, L, D)
    linear = stats[0] ** 2 / 2 + stats[3] / 2
    for g in (0.3, 1.0):
        change = oracle.objective(A, L - g * P) - oracle.objective(A, L)
        predicted = curvature * g**2 / 2 - linear * g
        predicted -= np.log(1 - g * np.diag(problems.phi(D))).sum()
        np.testing.assert_allclose(predicted, change, rtol=0, atol=1e-10)


@pytest.mark.parametrize("M", [1, 3, 65, 200])
def test_power_iteration_finds_the_largest_eigenvalue(twin_of, rng, M):
    power_iteration = twin_of("newton_schulz").power_iteration
    A, _, _, _, v = problems.problem(rng, M, (), float)
    A[0, 0] += 50  # one well-separated eigenvalue
    size, v = power_iteration(problems.unread(A), v, 2.0, 12)
    np.testing.assert_allclose(size, np.linalg.eigvalsh(A)[-1] + 2, rtol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(v), size, rtol=1e-12)
    both, _ = power_iteration(np.stack([A, 2 * A]), np.ones((2, M)), 0.0, 12)
    np.testing.assert_allclose(both, np.linalg.eigvalsh(A)[-1] * np.array([1, 2]), rtol=1e-6)


def test_power_iteration_of_no_matrices(twin_of):
    size, v = twin_of("newton_schulz").power_iteration(np.zeros((0, 2, 3, 3)), np.zeros(3), 1.0, 3)
    assert size.shape == (0, 2) and v.shape == (0, 2, 3)


@every_dtype
def test_power_iteration_of_zero_is_zero(twin_of, dtype):
    """D = -I, from a factor that is negligible beside the identity: D + I is zero."""
    size, v = twin_of("newton_schulz").power_iteration(
        -np.eye(5, dtype=dtype), np.ones(5, dtype), 1.0, 3
    )
    assert size == 0 and size.dtype == np.float64
    np.testing.assert_array_equal(v, np.zeros(5, dtype))
    assert v.dtype == dtype


def test_unit_steps_converge_to_the_factorised_inverse(twin_of, rng):
    A, *_ = problems.problem(rng, 130, (), float)
    W = oracle.inverse_factor(A)
    near = W + 1e-6 * np.tril(rng.standard_normal(A.shape))
    stepped = twin_of("newton_schulz").newton_schulz_step(A, near, 1.0)
    np.testing.assert_allclose(stepped, W, rtol=0, atol=1e-9)


def test_infinity_makes_the_norms_infinite(twin_of, rng):
    A, L, *_ = problems.problem(rng, 70, (), float)
    L[60, 3] = np.inf
    assert not np.isfinite(twin_of("newton_schulz").newton_schulz_gram(A, L)[1][0])


# --- only on the CPU: sizes that an emulation is too slow for, whole walks, and differences -------


@pytest.mark.parametrize("M, batch", [(200, (2,)), (300, ())])
def test_more_blocks(rng, M, batch):
    arrays = problems.problem(rng, M, batch, float)
    found, truth = problems.results_of(kernels, *arrays, 0.7), problems.definition(*arrays, 0.7)
    for one, other in zip(found, truth, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1, np.abs(other).max()))
    if batch:
        problems.check_all(kernels, rng, M, (), np.float32)


def test_walk_converges_and_stops(rng):
    """From far away; each item of a batch stops separately, and then does not change."""
    A, L, *_ = problems.problem(rng, 40, (2,), float)
    L[0] = 3 * np.eye(40)
    factors, D, rows, _ = kernels.newton_schulz_walk(
        problems.unread(A), problems.unread(L), np.ones((2, 40)), 1e-6, 40, iterations=(10, 3)
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


@looped("batch", [(), (2,)])
@looped("M", [1, 3, 70])
def test_reverse_rule(rng, M, batch):
    A, L, one, two, _ = problems.problem(rng, M, batch, float)
    bar, step = rng.standard_normal(A.shape), lambda A, L: kernels.newton_schulz_step(A, L, 0.8)
    D, _ = kernels.newton_schulz_gram(A, L)
    bars = kernels.newton_schulz_step_vjp(bar, A, L, D, 0.8)
    assert_adjoint(step, (A, L), bars, np.tril(bar), rng, directions=[one, two])
