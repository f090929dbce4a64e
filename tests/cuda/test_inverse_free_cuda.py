"""Bounds without factorisations on device arrays: the CPU's results from products only.

There is one copy to the host.
"""

import numpy as np
import pytest
from cuda_host import cupy_on_host

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cuda import (
    factorisations as cuda_factorisations,
    triangular as cuda_triangular,
)

JITTER = 1e-3


@pytest.fixture
def cupy(gpu):
    return gpu.cupy


def copied(cupy, before, number):
    """Return whether ``number`` copies to the host were made; a real device does not count them."""
    return cupy is not cupy_on_host.cupy or cupy_on_host.copies.to_host == before + number


def problem(rng, kind, M=12, N=15):
    Z, X = rng.uniform(-2, 2, (M, 2)), rng.uniform(-2, 2, (N, 2))
    mean, W = rng.standard_normal(M), np.tril(0.2 * rng.standard_normal((M, M))) + 0.6 * np.eye(M)
    posterior = (
        fs.posteriors.Relaxed(mean, np.full(M, 0.1), np.eye(M))
        if kind == "Relaxed"
        else fs.posteriors.InverseFreeWhitened(mean, W, np.eye(M))
    )
    model = fs.SVGP(fs.RBF(1.2, np.array([0.9, 1.1])), Z, posterior, fs.Gaussian(0.1))
    return (
        fs.optim.update_inverse_factor(model, jitter=JITTER, tolerance=0.05)[0],
        X,
        np.sin(X.sum(axis=1)),
    )


def there(cupy, model, *arrays):
    return fs.records.tree_map(cupy.asarray, model), *map(cupy.asarray, arrays)


@pytest.mark.parametrize("kind, bound, copies", [
    ("Relaxed", fs.elbo_and_grad, 1),
    ("Relaxed", fs.bounds.lsvgp_direction, 1),
    ("InverseFreeWhitened", fs.elbo_and_grad, 1),
])  # fmt: skip
def test_iteration_has_only_products_and_waits_for_the_value(
    cupy, rng, monkeypatch, kind, bound, copies
):
    model, X, Y = problem(rng, kind)
    device, X, Y = there(cupy, model, X, Y)
    field = device.posterior.inverse_field
    everything_else = tuple(
        path for path, _, _ in fs.records.leaves(device) if path != f"posterior.{field}"
    )

    def refused(*_, **__):
        raise AssertionError("this path has no decompositions and no solves")

    for module in (kernels, cuda_factorisations, cuda_triangular):
        for name, function in vars(module).copy().items():
            if (
                callable(function)
                and any(w in name for w in ("chol", "solve", "inv", "whiten"))
                and name != "cholesky_product"
            ):
                monkeypatch.setattr(module, name, refused)
    before = cupy_on_host.copies.to_host
    A, _ = device.posterior.inverse_of(device.covariance.matrix(device.inducing), JITTER)
    L = kernels.newton_schulz_step(A, getattr(device.posterior, field), 1.0)
    assert copied(cupy, before, 0)
    device = fs.records.replace_at(device, f"posterior.{field}", L)
    value, grad = bound(device, X, Y, num_data=40, jitter=JITTER, wrt=everything_else)
    assert copied(cupy, before, copies) and np.isfinite(value)
    assert getattr(grad.posterior, field) is None


def test_refreshed_there(cupy, rng):
    model, _, _ = problem(rng, "Relaxed")
    expected, truth = fs.optim.update_inverse_factor(model, jitter=JITTER)
    fresh, info = fs.optim.update_inverse_factor(there(cupy, model)[0], jitter=JITTER)
    assert info.steps == truth.steps and info.converged
    np.testing.assert_allclose(
        fresh.posterior.inverse_tril.get(), expected.posterior.inverse_tril, atol=1e-10
    )


def test_intervals_and_gaps_of_the_cpu(cupy, rng):
    model, X, _ = problem(rng, "Relaxed")
    k, s = model.covariance, 0.1
    A, _ = model.posterior.inverse_of(k.matrix(model.inducing), 0.0)
    arguments = A, model.posterior.inverse_tril, k.matrix(model.inducing, X), k.diag(X)
    expected = fs.optim.variance_interval(*arguments, s)
    got = fs.optim.variance_interval(*map(cupy.asarray, arguments), s)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.get(), b, atol=1e-12)
    infos = [
        fs.optim.inverse_factor(
            array(A),
            gap=fs.optim.variance_gap(array(arguments[2]), s, noise_variance=0.1, tolerance=1e-3),
        )[1]
        for array in (np.asarray, cupy.asarray)
    ]
    assert infos[0].steps == infos[1].steps and infos[1].gap == pytest.approx(
        infos[0].gap, rel=1e-6
    )


def test_a_root_that_is_too_far_is_named_as_on_the_cpu(cupy, rng):
    model, X, Y = problem(rng, "InverseFreeWhitened")
    device, X, Y = there(
        cupy, fs.records.replace_at(model, "posterior.inverse_root", 10 * np.eye(12)), X, Y
    )
    with pytest.raises(ValueError, match="`posterior.inverse_root` is too far"):
        fs.elbo_and_grad(device, X, Y, jitter=JITTER)
