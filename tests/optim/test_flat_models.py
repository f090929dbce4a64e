"""The flat vector on real models: the gradient by differences, and SciPy's optimiser."""

import numpy as np
import pytest
from gp_problems import lower_factor
from numerics import five_point
from scipy.optimize import minimize

import fastsvgp as fs


def svgp(rng, posterior=fs.Whitened, M=5, outputs=(), dtype=np.float64):
    X = rng.uniform(-2, 2, (17, 2)).astype(dtype)
    Y = np.sin(2 * X[:, 0]).astype(dtype)
    if outputs:
        Y = np.stack([Y + p for p in range(outputs[0])], axis=1)
    tril = lower_factor(rng, *outputs, M, off=0.2)
    model = fs.SVGP(
        covariance=fs.Sum((fs.Matern32(0.8, np.array([0.6, 1.2], dtype)), fs.Product((fs.Linear(0.5), fs.RBF(1.1, 0.9))))),
        inducing=X[:M] + dtype(0.1), posterior=posterior(rng.standard_normal(outputs + (M,)).astype(dtype), tril.astype(dtype)),
        likelihood=fs.StudentT(scale=0.3, df=4), mean=fs.LinearMean(np.array([0.3, -0.2], dtype), 0.1),
    )  # fmt: skip
    return model, X, Y


@pytest.mark.parametrize("posterior", [fs.Whitened, fs.Marginal])
@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("transform", ["softplus", "log"])
def test_gradient_of_the_flat_vector(rng, posterior, outputs, transform):
    model, X, Y = svgp(rng, posterior, outputs=outputs)
    if outputs:
        model = fs.replace(model, mean=fs.LinearMean(rng.standard_normal((2, 2)), np.zeros(2)))
    vector, unravel = fs.ravel(model, transform=transform)

    def bound(vector):
        return fs.elbo(unravel(vector), X, Y, num_data=40)

    value, grad = fs.elbo_and_grad(unravel(vector), X, Y, num_data=40)
    vector_bar = unravel.pullback(vector, grad)
    for _ in range(5):
        direction = rng.standard_normal(vector.size) / np.sqrt(vector.size)
        numeric = five_point(lambda s, d=direction: bound(vector + s * d))
        assert abs(vector_bar @ direction - numeric) <= 1e-8 * max(1.0, np.abs(vector_bar).max())


def test_each_part_of_the_flat_vector(rng):
    """One leaf at a time, so that none hides behind the others."""
    model, X, Y = svgp(rng)
    vector, unravel = fs.ravel(model)
    vector_bar = unravel.pullback(vector, fs.elbo_and_grad(model, X, Y)[1])
    for path, at in unravel.slices.items():
        direction = np.zeros_like(vector)
        direction[at] = rng.standard_normal(at.stop - at.start)
        numeric = five_point(lambda s, d=direction: fs.elbo(unravel(vector + s * d), X, Y))
        assert abs(vector_bar @ direction - numeric) <= 1e-8 * max(1.0, np.abs(vector_bar).max()), path


def test_only_what_is_free_is_differentiated(rng):
    model, X, Y = svgp(rng)
    vector, unravel = fs.ravel(model, fixed=("inducing", "posterior.mean"))
    value, grad = fs.elbo_and_grad(model, X, Y, wrt=unravel.paths)
    assert grad.inducing is None and grad.posterior.mean is None
    _, full = fs.elbo_and_grad(model, X, Y)
    np.testing.assert_allclose(unravel.pullback(vector, grad), unravel.pullback(vector, full), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scipy_fits_an_svgp(rng, dtype):
    X = rng.uniform(-2, 2, (40, 1)).astype(dtype)
    Y = np.sin(2 * X[:, 0]).astype(dtype)
    model = fs.SVGP(
        fs.RBF(1.0, np.ones(1, dtype)), np.linspace(-2, 2, 6, dtype=dtype)[:, None],
        fs.Whitened(np.zeros(6, dtype), np.eye(6, dtype=dtype)), fs.Gaussian(0.1),
    )  # fmt: skip
    vector, unravel = fs.ravel(model, fixed="inducing")

    def loss(vector):
        value, grad = fs.elbo_and_grad(unravel(vector), X, Y, wrt=unravel.paths)
        return -value, -unravel.pullback(vector, grad)

    found = minimize(loss, vector, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    fitted = unravel(found.x)
    assert fitted.posterior.scale_tril.dtype == dtype
    sgpr = fs.SGPR(fitted.covariance, fitted.inducing, fitted.likelihood.variance)
    best = fs.collapsed_bound(sgpr, X, Y)
    assert best - 0.05 * abs(best) - 0.5 < -found.fun < best + 1e-2


def test_sgpr(rng):
    model, X, Y = svgp(rng)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.2, model.mean)
    vector, unravel = fs.ravel(sgpr, fixed="inducing")
    vector_bar = unravel.pullback(vector, fs.collapsed_bound_and_grad(sgpr, X, Y)[1])
    direction = rng.standard_normal(vector.size)
    numeric = five_point(lambda s: fs.collapsed_bound(unravel(vector + s * direction), X, Y), h=1e-3)
    assert abs(vector_bar @ direction - numeric) <= 1e-8 * max(1.0, np.abs(vector_bar).max())
