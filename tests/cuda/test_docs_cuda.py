"""The additions that docs/ shows work on device arrays too, with the results of the CPU."""

import numpy as np
import pytest
from support.device_models import assert_same
from support.readme import ROOT, run

import fastsvgp as fs


@pytest.mark.parametrize("page", ["covariance", "likelihood", "posterior", "model"])
def test_additions_of_the_docs(gpu, page):
    names = run(ROOT / "docs" / f"{page}.md")
    X, Y = names["X"], names["Y"]
    model = fs.records.tree_map(lambda leaf: np.asarray(leaf)[()], names["model"])
    on_device = fs.to_device(model), gpu.there(X), gpu.there(Y)
    value, *bars = fs.elbo_and_grad(*on_device, inputs=True)
    exact, *exact_bars = fs.elbo_and_grad(model, X, Y, inputs=True)
    np.testing.assert_allclose(value, exact, rtol=1e-9)
    assert_same(tuple(bars), tuple(exact_bars), 1e-7)
    assert_same(fs.predict_y(*on_device[:2]), fs.predict_y(model, X), 1e-7)
    assert_same(
        fs.predict_f(*on_device[:2], full_cov=True), fs.predict_f(model, X, full_cov=True), 1e-7
    )
    assert_same(fs.predict_log_density(*on_device), fs.predict_log_density(model, X, Y), 1e-7)
