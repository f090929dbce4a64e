"""Blocks of the dual: single steps by their definition, and the bounds that they move."""

import numpy as np
import pytest
from oracles import dual_blocks as oracle
from support.weight_problems import basis_of, weights

import fastsvgp as fs
from fastsvgp.qsgp.dual_blocks import blocks_of

N, M, NOISE = 40, 24, 0.2


def problem(rng, name):
    """Return ``(basis, phi, X, Y)``; phi phi' is the K of the dual of an ``InducingBasis`` too."""
    X, Y = rng.standard_normal((N, 2)), rng.standard_normal(N)
    if name == "fourier":
        basis = basis_of(rng, name, M)
        return basis, basis.features(X), X, Y
    basis = fs.qsgp.InducingBasis(basis_of(rng, name, 3).covariance, X)
    return basis, np.linalg.cholesky(basis.features(X) + 1e-12 * np.eye(N)), X, Y


def test_dual_bounds_what_the_mean_can_gain(rng):
    """The dual is an upper bound, tight at the optimum, and the residual measures the gap."""
    _, phi, _, y = problem(rng, "fourier")
    best = oracle.optimal_mean(phi, y, NOISE)
    a, K = rng.standard_normal(N), phi @ phi.T
    residual = y - phi @ (phi.T @ a) - NOISE * a
    gap = oracle.dual(K, y, NOISE, a) - oracle.primal(phi, y, NOISE, phi.T @ a)
    np.testing.assert_allclose(gap, residual @ residual / (2 * NOISE), rtol=1e-9)
    assert oracle.dual(K, y, NOISE, a) > oracle.primal(phi, y, NOISE, best)
    optimum = (y - phi @ best) / NOISE
    np.testing.assert_allclose(phi.T @ optimum, best, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("name", ["fourier", "inducing"])
def test_a_step_is_the_best_along_its_direction(rng, name, products, tune):
    tune(basis_panel_numbers=7)  # several panels
    basis, phi, X, y = problem(rng, name)
    K, rows = phi @ phi.T, np.sort(rng.choice(N, 9, replace=False))
    a = rng.standard_normal(N)
    system = blocks_of(basis, NOISE)
    mean = phi.T @ a if name == "fourier" else a
    residual = system.residual(X[rows], y[rows], a[rows], mean)
    np.testing.assert_allclose(residual, (y - K @ a - NOISE * a)[rows], rtol=1e-8, atol=1e-10)
    step = system.step(X[rows], residual, products)
    stand_in = K[np.ix_(rows, rows)] if products else basis.covariance.matrix(X[rows])
    expected = oracle.block_step(K, stand_in, y, NOISE, a, rows)
    after = a.copy()
    after[rows] += step.dual
    np.testing.assert_allclose(after, expected, rtol=1e-8, atol=1e-10)
    fall = oracle.dual(K, y, NOISE, a) - oracle.dual(K, y, NOISE, after)
    np.testing.assert_allclose(step.gain, fall, rtol=1e-7)
    if name == "fourier":
        np.testing.assert_allclose(mean + step.mean, phi.T @ after, rtol=1e-9, atol=1e-11)
    else:
        assert step.mean is None
    exact = name == "inducing" or products
    assert step.gain > 0 and (abs(step.size - 1) < 1e-8) == exact


def test_float32_steps_keep_the_mean_of_the_dual_variables(rng):
    basis, phi, X, y = problem(rng, "fourier")
    single = fs.records.tree_map(lambda value: np.asarray(value, np.float32)[()], basis)
    phi32 = single.features(X.astype(np.float32)).astype(float)
    system = blocks_of(single, NOISE)
    step = system.step(X.astype(np.float32), y.copy(), False)
    assert step.mean.dtype == step.dual.dtype == np.float64
    np.testing.assert_allclose(
        step.mean, phi32.T @ step.dual, atol=1e-5 * np.abs(step.dual).sum() / np.sqrt(M)
    )


def test_other_bases_have_no_blocks(rng):
    with pytest.raises(TypeError, match="not for a RelevanceBasis"):
        blocks_of(basis_of(rng, "relevance", 4), 0.1)
    model = fs.QSGP(basis_of(rng, "relevance", 4), weights(rng, 4, 0), fs.Gaussian(0.1))
    with pytest.raises(TypeError, match='use "conjugate_gradients"'):
        fs.qsgp.optimal_weights(model, np.zeros((5, 2)), np.zeros(5), method="blocks")
