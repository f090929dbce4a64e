"""Training of deep GPs on device arrays: the results of the host, also after resuming."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.runtime import deferred_checks

N = 40


def problem(rng, posterior):
    X = rng.uniform(-2, 2, (N, 2))
    return (
        fs.layers.deep_gp(X, fs.Gaussian(variance=0.1), 2, 4, posterior=posterior, rng=1),
        X,
        np.sign(X[:, 0]),
    )


def assert_same(a, b, rtol):
    for (path, _, x), (_, _, y) in zip(fs.records.leaves(a), fs.records.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol, err_msg=path, strict=True)


@pytest.mark.parametrize(
    "kind, options", [(fs.Whitened, {"natural_step_size": 0.2}), (fs.posteriors.Relaxed, {})]
)
def test_on_a_device(gpu, rng, tmp_path, kind, options):
    model, X, Y = problem(rng, kind)
    options, saved = {"batch_size": 16, "rng": 3, **options}, tmp_path / "state.npz"
    expected, info = fs.fit(model, X, Y, steps=4, **options)
    there = fs.to_device(model)
    found, found_info = fs.fit(there, X, Y, steps=4, **options)
    np.testing.assert_allclose(found_info.values, info.values, rtol=1e-9)
    assert_same(fs.to_host(found), expected, 1e-7)
    assert all(
        deferred_checks.on_device(value)
        for _, _, value in fs.records.leaves(found)
        if np.ndim(value)
    )
    fs.fit(there, X, Y, steps=2, checkpoint=saved, **options)
    resumed = fs.fit(there, gpu.there(X), gpu.there(Y), steps=4, resume=saved, **options)[0]
    assert_same(fs.to_host(resumed), fs.to_host(found), 1e-12)
