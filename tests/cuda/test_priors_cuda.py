"""Training with priors on device arrays: the results of the host."""

import numpy as np
import pytest

import fastsvgp as fs

PRIOR = fs.priors.LogNormal(0.5, 0.4)


def problem(rng):
    X = rng.uniform(-2, 2, (30, 2))
    Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(30)
    return fs.SGPR(fs.RBF(np.float64(1.0), np.ones(2)), X[:5].copy(), np.float64(0.1)), X, Y


@pytest.mark.parametrize("kind, options", [
    ("SGPR", {}), ("SVGP", {"rng": 0}), ("SVGP", {"rng": 0, "natural_step_size": 0.2}),
])  # fmt: skip
def test_on_a_device(gpu, rng, kind, options):
    model, X, Y = problem(rng)
    model = model if kind == "SGPR" else fs.optimal_svgp(model, X, Y)
    options = {"steps": 3, "priors": {"covariance.lengthscales": PRIOR}, **options}
    expected, info = fs.fit(model, X, Y, **options)
    found, found_info = fs.fit(fs.to_device(model), X, Y, **options)
    np.testing.assert_allclose(found_info.values, info.values, rtol=1e-9)
    for (path, _, a), (_, _, b) in zip(
        *map(fs.records.leaves, (fs.to_host(found), expected)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7, err_msg=path)


def test_steps_with_priors_are_not_captured_and_averages_are_of_the_host(gpu, rng):
    model, X, Y = problem(rng)
    there = fs.to_device(fs.optimal_svgp(model, X, Y))
    with pytest.raises(ValueError, match="`priors` are summed on the host"):
        fs.fit(there, X, Y, steps=1, graph=True, priors={"covariance": PRIOR})
    with pytest.raises(TypeError, match=r"laplace works on the host.*fastsvgp.to_host\(model\)"):
        fs.laplace(there, X, Y)
