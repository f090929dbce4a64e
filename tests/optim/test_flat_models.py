"""Flat vector of real models: the gradient by differences, and SciPy's optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from support.looped import looped
from support.numerics import five_point
from support.posterior_problems import ROWS, in_model, of_means

import fastsvgp as fs

each_posterior = pytest.mark.parametrize("posterior", ROWS)


def svgp(rng, posterior="whitened", M=5, outputs=(), dtype=np.float64):
    """Return ``(model, X, Y, random quantities)``."""
    X = rng.uniform(-2, 2, (17, 2)).astype(dtype)
    Y = np.sin(2 * X[:, 0]).astype(dtype)
    if outputs:
        Y = np.stack([Y + p for p in range(outputs[0])], axis=1)
    model = fs.SVGP(
        covariance=fs.covariances.Sum(
            (
                fs.Matern32(0.8, np.array([0.6, 1.2], dtype)),
                fs.covariances.Product((fs.Linear(0.5), fs.RBF(1.1, 0.9))),
            )
        ),
        inducing=X[:M] + dtype(0.1),
        posterior=None,
        likelihood=fs.StudentT(scale=0.3, df=4),
        mean=fs.means.LinearMean(np.array([0.3, -0.2], dtype), 0.1),
    )
    model, random = in_model(rng, posterior, model, outputs, jitter=1e-3)
    return (
        fs.replace(
            model, posterior=fs.records.tree_map(lambda a: a.astype(dtype), model.posterior)
        ),
        X,
        Y,
        random,
    )


@each_posterior
@looped("outputs", [(), (2,)])
@looped("transform", ["softplus", "log"])
@looped("dtype", [np.float32, np.float64])
def test_unravel_inverts_pack_and_every_leaf_moves(rng, posterior, outputs, transform, dtype):
    model = svgp(rng, posterior, outputs=outputs, dtype=dtype)[0]
    vector, unravel = fs.ravel(model, transform=transform)
    assert set(unravel.slices) == {path for path, _, _ in fs.records.leaves(model)}
    there, moved = (list(fs.records.leaves(unravel(v))) for v in (vector, vector + 0.1))
    for (path, kind, a), (_, _, b), (_, _, c) in zip(
        fs.records.leaves(model), there, moved, strict=True
    ):
        lower = kind in ("tril", "symmetric")
        a, b, c = (np.tril(x) if lower else np.asarray(x) for x in (a, b, c))
        np.testing.assert_allclose(
            b,
            a,
            rtol=4 * np.finfo(dtype).eps,
            atol=1e-7 if dtype == np.float32 else 1e-15,
            err_msg=path,
        )
        assert b.dtype == dtype or a.dtype == np.float64, path
        free = np.tri(a.shape[-1], dtype=bool) if lower else True
        assert (c != b)[..., free].all() if lower else (c != b).all(), path


def assert_pulled_back(vector, unravel, grad, rng):
    """Compare each part of the flat gradient with the model's gradient times differences of
    ``unravel``.
    """
    vector_bar, bars, h = (
        unravel.pullback(vector, grad),
        {path: bar for path, _, bar in fs.records.leaves(grad)},
        1e-3,
    )
    for path, at in unravel.slices.items():
        d = np.zeros_like(vector)
        d[at] = rng.standard_normal(at.stop - at.start)

        def moved(s, path=path, d=d):
            return np.vdot(
                bars[path], {p: v for p, _, v in fs.records.leaves(unravel(vector + s * d))}[path]
            )

        rounding = (
            50 * np.finfo(float).eps * np.linalg.norm(bars[path]) * np.linalg.norm(vector) / h
        )
        allowed = 1e-10 * np.linalg.norm(vector_bar[at]) * np.linalg.norm(d) + rounding
        assert abs(vector_bar @ d - five_point(moved, h)) <= allowed, path


@each_posterior
@looped("outputs", [(), (2,)])
@looped("transform", ["softplus", "log"])
def test_pullback_of_a_model_by_differences(rng, posterior, outputs, transform):
    model, X, Y, random = svgp(rng, posterior, outputs=outputs)
    if outputs:
        model = fs.replace(
            model, mean=fs.means.LinearMean(rng.standard_normal((2, 2)), np.zeros(2))
        )
    vector, unravel = fs.ravel(model, transform=transform)
    assert_pulled_back(
        vector, unravel, fs.elbo_and_grad(unravel(vector), X, Y, num_data=40, **random)[1], rng
    )


@each_posterior
def test_only_free_fields_are_differentiated(rng, posterior):
    model, X, Y, random = svgp(rng, posterior)
    vector, unravel = fs.ravel(model, fixed=("inducing", of_means(model.posterior)))
    value, grad = fs.elbo_and_grad(model, X, Y, wrt=unravel.paths, **random)
    assert grad.inducing is None and next(fs.records.leaves(grad.posterior))[2] is None
    _, full = fs.elbo_and_grad(model, X, Y, **random)
    np.testing.assert_allclose(
        unravel.pullback(vector, grad), unravel.pullback(vector, full), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scipy_fits_an_svgp(rng, dtype):
    X = rng.uniform(-2, 2, (40, 1)).astype(dtype)
    # else the best noise is zero, and far away
    Y = (np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(40)).astype(dtype)
    model = fs.SVGP(
        fs.RBF(1.0, np.ones(1, dtype)),
        np.linspace(-2, 2, 6, dtype=dtype)[:, None],
        fs.Whitened(np.zeros(6, dtype), np.eye(6, dtype=dtype)),
        fs.Gaussian(0.1),
    )
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


def test_pullback_of_an_sgpr_by_differences(rng):
    model, X, Y, _ = svgp(rng)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.2, model.mean)
    vector, unravel = fs.ravel(sgpr, fixed="inducing")
    assert_pulled_back(vector, unravel, fs.collapsed_bound_and_grad(sgpr, X, Y)[1], rng)
