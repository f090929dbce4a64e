"""``optimal_weights`` by blocks of data: the mean of a dense solve, and how a run goes on."""

import numpy as np
import pytest

import fastsvgp as fs

N, D, m, NOISE = 200, 2, 60, 0.3


def problem(rng, basis="fourier", dtype=np.float64, functions=m):
    """Return a model with a posterior of ones and zeros, and data."""
    X, Y = rng.standard_normal((N, D)).astype(dtype), rng.standard_normal(N).astype(dtype)
    k, size = fs.RBF(dtype(1.2), dtype(1.1)), functions if basis == "fourier" else N
    if basis == "fourier":
        parts = fs.RandomFourier(k, num_features=functions, seed=3)
    else:
        parts = fs.InducingBasis(k, X)
    q = fs.ChevronWeights(np.zeros(size, dtype), np.ones((size, 0), dtype), np.ones(size, dtype))
    return fs.QSGP(parts, q, fs.Gaussian(dtype(NOISE))), X, Y


def dense_mean(model, X, Y):
    """Return the optimal mean by a dense solve."""
    if isinstance(model.basis, fs.InducingBasis):
        K = model.basis.covariance.matrix(X)
        return np.linalg.solve(K + NOISE * np.eye(len(X)), Y)
    Phi = model.basis.features(X)
    return np.linalg.solve(Phi.T @ Phi + NOISE * np.eye(Phi.shape[1]), Phi.T @ Y)


@pytest.mark.parametrize("basis", ["fourier", "inducing"])
@pytest.mark.parametrize("block", [20, 37, N])
def test_equals_a_dense_solve(rng, basis, block):
    model, X, Y = problem(rng, basis)
    found, info = fs.optimal_weights(
        model, X, Y, method="blocks", block=block, epochs=3000, tolerance=1e-11, rng=1
    )
    due = dense_mean(model, X, Y)
    np.testing.assert_allclose(found.posterior.mean, due, rtol=0, atol=1e-8 * np.abs(due).max())
    assert info.residual <= 1e-11
    assert all(gain >= -1e-9 for gain in info.gains)


def test_many_functions_take_the_covariance_for_their_products(rng):
    """k(X_r, X_r) stands in for phi_r phi_r' until a residual rises; the optimum is the same."""
    model, X, Y = problem(rng, functions=2000)
    found, info = fs.optimal_weights(
        model, X, Y, method="blocks", block=50, epochs=400, tolerance=1e-10, rng=1
    )
    assert info.products == (info.discarded is not None)
    due = dense_mean(model, X, Y)
    np.testing.assert_allclose(found.posterior.mean, due, rtol=0, atol=1e-8 * np.abs(due).max())
    by_gradients, _ = fs.optimal_weights(model, X, Y, tolerance=1e-10, iterations=500)
    np.testing.assert_allclose(
        found.posterior.diagonal, by_gradients.posterior.diagonal, rtol=1e-12
    )


def test_residuals_bound_what_is_left(rng):
    """The bound is at most |r|^2 / (2 noise) below that of the optimum after each epoch."""
    model, X, Y = problem(rng)
    best, _ = fs.optimal_weights(model, X, Y, tolerance=1e-12, iterations=500)
    short, info = fs.optimal_weights(model, X, Y, method="blocks", block=40, epochs=3, rng=1)
    gap = fs.weight_bound(best, X, Y) - fs.weight_bound(short, X, Y)
    residual = Y - model.basis.features(X) @ short.posterior.mean
    assert 0 <= gap <= (residual @ residual) / (2 * NOISE)
    assert len(info.residuals) == 3
    assert info.residuals[2] < info.residuals[1] < info.residuals[0]


def test_dtype_files_and_seeds(rng, tmp_path):
    model, X, Y = problem(rng, dtype=np.float32)
    options = {"method": "blocks", "block": 40, "epochs": 3, "rng": 5}
    found, _ = fs.optimal_weights(model, X, Y, **options)
    assert found.posterior.mean.dtype == np.float32
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    again, _ = fs.optimal_weights(model, mapped, Y, **options)
    np.testing.assert_array_equal(again.posterior.mean, found.posterior.mean)
    double, _ = fs.optimal_weights(*problem(np.random.default_rng(0)), **options)
    assert double.posterior.mean.dtype == np.float64


def test_a_checkpoint_goes_on_where_it_was(rng, tmp_path):
    model, X, Y = problem(rng)
    options = {"method": "blocks", "block": 40, "epochs": 4, "rng": 5}
    whole, _ = fs.optimal_weights(model, X, Y, **options)
    path = tmp_path / "blocks.npz"

    def stop(model, info):
        return info.iterations == 7

    fs.optimal_weights(model, X, Y, callback=stop, checkpoint=path, checkpoint_every=7, **options)
    resumed, _ = fs.optimal_weights(model, X, Y, resume=path, **options)
    np.testing.assert_array_equal(resumed.posterior.mean, whole.posterior.mean)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"method": "newton"}, ValueError, "`method` must be one of"),
        ({"block": N + 1}, ValueError, "`block` is 201, but there are 200 rows"),
        ({"block": 0}, ValueError, "`block`"),
        ({"epochs": -1}, ValueError, "`epochs`"),
        ({"iterations": 3}, ValueError, '`iterations` is for method="conjugate_gradients"'),
        (
            {"method": "conjugate_gradients", "block": 5},
            ValueError,
            '`block` is for method="blocks"',
        ),
        ({"callback": 3}, TypeError, "`callback` must be a function"),
    ],
)
def test_bad_options(rng, options, error, words):
    model, X, Y = problem(rng)
    with pytest.raises(error, match=words):
        fs.optimal_weights(model, X, Y, **{"method": "blocks"} | options)


def test_other_models_are_refused(rng):
    model, X, Y = problem(rng)
    counts = fs.replace(model, likelihood=fs.Poisson())
    with pytest.raises(TypeError, match="Gaussian"):
        fs.optimal_weights(counts, X, np.abs(np.rint(Y)), method="blocks")
    inducing, X, Y = problem(rng, "inducing")
    with pytest.raises(ValueError, match="`basis.inducing` to be X, row by row"):
        fs.optimal_weights(inducing, X[::-1].copy(), Y, method="blocks", block=20)
