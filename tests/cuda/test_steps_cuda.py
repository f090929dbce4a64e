"""Training on device arrays, from initialisation to ``fit``: the CPU's steps, copies counted."""

import numpy as np
import pytest
from cuda_host import cupy_on_host
from support.device_models import B, Copies, D, M, assert_same, f8, model_of_row, moved, small_model
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp.train.kinds import sgpr as lbfgs

CHOOSERS = {
    "kmeans": lambda X, covariance: fs.inducing.kmeans(X, M, 3),
    "greedy": lambda X, covariance: fs.inducing.greedy_variance(X, M, covariance, 3),
    "lengthscales": lambda X, covariance: fs.inducing.median_lengthscales(X, 3),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("choose", CHOOSERS)
def test_inducing_inputs_are_chosen_on_the_device(gpu, rng, choose, dtype):
    """For device data the choice of the host, on the device, from one copy of the rows in use."""
    gpu, X, covariance = (
        gpu,
        rng.standard_normal((B, D)).astype(dtype),
        fs.RBF(1.3, np.ones(D, dtype)),
    )
    there = gpu.there(X), fs.to_device(covariance)
    # of the rows, and of each field of the covariance
    with Copies(gpu, 1 if choose != "greedy" else 3):
        found = CHOOSERS[choose](*there)
    assert_same(found, CHOOSERS[choose](X, covariance), 0)
    spoilt = X.copy()
    spoilt[9, 2] = np.nan
    with pytest.raises(ValueError, match=r"`X` contains nan at index \(9, 2\)"):
        CHOOSERS[choose](gpu.there(spoilt), there[1])


def test_where_to_start_with_a_covariance_elsewhere(gpu, rng):
    X, covariance = rng.standard_normal((B, D)), fs.RBF(1.3, np.ones(D))
    with pytest.raises(TypeError, match="`X` on the GPU, `covariance.lengthscales` on the CPU"):
        fs.inducing.greedy_variance(gpu.there(X), M, covariance)
    with pytest.raises(TypeError, match="`covariance.lengthscales` on the GPU, `X` on the CPU"):
        fs.inducing.greedy_variance(X, M, fs.to_device(covariance))
    # numbers are always accepted
    assert fs.inducing.greedy_variance(gpu.there(X), M, fs.RBF(1.3, 0.8)).shape == (M, D)
    assert type(fs.inducing.median_lengthscales(gpu.there(X), ard=False)) is float


@pytest.mark.parametrize("posterior", [fs.Whitened, fs.Marginal])
def test_natural_step(gpu, rng, posterior):
    gpu, here = (
        gpu,
        (
            small_model(rng, (2,), posterior),
            rng.standard_normal((B, D)),
            rng.standard_normal((B, 2)),
        ),
    )
    there = moved(gpu, *here)
    expected, info = fs.natural_step(*here, step_size=0.4, num_data=500)
    with Copies(gpu, 2):  # the value, and whether the step stayed in the cone
        found, found_info = fs.natural_step(*there, step_size=0.4, num_data=500)
    assert_same(found, expected, 1e-9)
    assert found_info.step_size == info.step_size
    *_, value, grad = fs.optim.natural_step_and_grad(*here, step_size=0.4, num_data=500)
    with Copies(gpu, 3):  # plus the value there
        *_, found_value, found_grad = fs.optim.natural_step_and_grad(
            *there, step_size=0.4, num_data=500
        )
    np.testing.assert_allclose(found_value, value, rtol=1e-9)
    assert_same(found_grad, grad, 1e-8)


@pytest.mark.parametrize("posterior", ["whitened", "marginal", "absorbed-sites", "dual-sites"])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_natural_steps_and_sites(gpu, rng, posterior, outputs):
    gpu, (model, _) = gpu, model_of_row(rng, posterior, outputs)
    here = model, rng.standard_normal((B, D)), rng.standard_normal((B, *outputs))
    there = moved(gpu, *here)
    expected, infos = fs.sites.natural_steps(*here, steps=3, step_size=0.4, jitter=JITTER)
    # two per step; Kuu at the beginning, a factor at the end
    with Copies(gpu, 7 if "sites" in posterior else 8):
        found, found_infos = fs.sites.natural_steps(*there, steps=3, step_size=0.4, jitter=JITTER)
    assert_same(found, expected, 1e-8)
    assert [info[1:] for info in found_infos] == [info[1:] for info in infos]
    with Copies(gpu, 1):
        sites = fs.sites.dual_parameters(*there, jitter=JITTER)
    assert_same(sites, fs.sites.dual_parameters(*here, jitter=JITTER), 1e-9)
    for kind in (fs.Whitened, fs.posteriors.AbsorbedDualSites):
        with Copies(gpu, 1):
            found = fs.posteriors.convert(there[0], kind, jitter=JITTER)
        assert_same(found, fs.posteriors.convert(model, kind, jitter=JITTER), 1e-8)
    best, _ = fs.natural_step(*here, step_size=1.0, jitter=JITTER)
    found = fs.sites.leave_one_out(fs.to_device(best), *there[1:], jitter=JITTER)
    np.testing.assert_allclose(
        found.get(), fs.sites.leave_one_out(best, *here[1:], jitter=JITTER), rtol=1e-8, atol=1e-9
    )


def test_faults_in_later_steps_are_named(gpu, rng):
    """Errors in a later batch, and in Kuu, are found and named, as on the CPU."""
    gpu, (model, _) = gpu, model_of_row(rng, "whitened")
    X, Y = rng.standard_normal((B, D)), rng.standard_normal(B)
    Y[25] = np.nan
    there = moved(gpu, model, X, Y)
    with pytest.raises(ValueError, match="`Y` contains nan at index 25"):
        fs.sites.natural_steps(
            *there, rows=(np.arange(i, i + 10) for i in range(0, 50, 10)), jitter=JITTER
        )
    with pytest.raises(ValueError, match="`Y` contains nan at index 25"):
        fs.fit(there[0], X, Y, steps=9, batch_size=10, e_steps=3, natural_step_size=0.1, rng=0)
    Y[25] = 0.0
    with pytest.raises(fs.NotPositiveDefinite):
        fs.sites.natural_steps(
            *moved(gpu, fs.replace(model, inducing=0 * model.inducing), X, Y), steps=2, jitter=0.0
        )


@pytest.mark.parametrize("natural", [None, 0.2])
def test_fit(gpu, rng, natural, tmp_path):
    gpu, model, X = gpu, small_model(rng), rng.standard_normal((B, D))
    Y, settings = np.sin(X[:, 0]), {"batch_size": 20, "rng": 3, "natural_step_size": natural}
    expected, info = fs.fit(model, X, Y, steps=4, **settings)
    there, saved = fs.to_device(model), tmp_path / "state.npz"
    found, found_info = fs.fit(there, X, Y, steps=4, **settings)
    np.testing.assert_allclose(found_info.values, info.values, rtol=1e-9)
    assert_same(found, expected, 1e-9)
    assert_same(fs.fit(there, gpu.there(X), gpu.there(Y), steps=4, **settings)[0], expected, 1e-9)
    fs.fit(there, X, Y, steps=2, checkpoint=saved, **settings)
    assert_same(fs.fit(there, X, Y, steps=4, resume=saved, **settings)[0], expected, 1e-9)
    whole = settings | {"batch_size": B}
    assert_same(
        fs.fit(there, X, Y, steps=2, **whole)[0], fs.fit(model, X, Y, steps=2, **whole)[0], 1e-9
    )


@pytest.mark.parametrize("outputs", [(), (3,)])
@pytest.mark.parametrize("settings, copies", [
    ({}, 1),  # the value, and flags of value and gradient
    ({"graph": False}, 1),
    # plus the value at the natural step, and whether that stayed in the cone
    ({"natural_step_size": 0.2}, 3),
    # its step size depends on the value
    ({"optimiser": fs.adam(fs.optim.schedules.plateau(0.01))}, 2),
    ({"natural_step_size": 0.2, "fixed": ("covariance", "inducing", "likelihood")}, 2),
])  # fmt: skip
def test_copies_of_a_training_step(gpu, rng, settings, copies, outputs):
    """Whatever the number of outputs."""
    model, X, counts = small_model(rng, outputs), rng.standard_normal((B, D)), []
    fs.fit(fs.to_device(model), X, np.sin(X) if outputs else X[:, 0], steps=4, batch_size=20, rng=3,
           callback=lambda *_: counts.append(cupy_on_host.copies.to_host), **settings)  # fmt: skip
    if gpu.cupy is cupy_on_host.cupy:
        assert set(np.diff(counts)) == {copies}


def test_fit_collapsed(gpu, rng, monkeypatch):
    model, X, calls = small_model(rng), rng.standard_normal((B, D)), []
    sgpr = fs.SGPR(model.covariance, model.inducing, f8(0.3))
    expected, _ = fs.fit(sgpr, X, X[:, 0], steps=3)
    plain = lbfgs.collapsed_bound_and_grad
    monkeypatch.setattr(
        lbfgs,
        "collapsed_bound_and_grad",
        lambda *a, **s: calls.append(copies.to_host) or plain(*a, **s),
    )
    copies = cupy_on_host.copies
    found, _ = fs.fit(fs.to_device(sgpr), X, X[:, 0], steps=3)
    assert_same(found, expected, 1e-6)
    if gpu.cupy is cupy_on_host.cupy:
        # per evaluation the value, and the gradient, which SciPy needs on the host
        assert set(np.diff(calls)) == {2}


def test_numbers_beside_arrays_on_a_device(gpu, rng):
    """Python numbers keep their type in flat vectors and steps."""
    gpu, X = gpu, rng.standard_normal((B, D))
    model = small_model(rng, covariance=fs.RBF(1.3, np.ones(D)), likelihood=fs.Gaussian(0.3))
    there = fs.replace(moved(gpu, model)[0], likelihood=fs.Gaussian(0.3))
    vector, unravel = fs.ravel(there)
    np.testing.assert_allclose(vector.get(), fs.ravel(model)[0], rtol=1e-12)
    assert type(unravel(vector).likelihood.variance) is not np.ndarray
    adam = fs.adam(0.01)
    _, grad = fs.elbo_and_grad(model, X, X[:, 0])
    expected, _ = adam.step(model, grad, adam.init(model))
    found, _ = adam.step(there, moved(gpu, grad)[0], adam.init(there))
    np.testing.assert_allclose(found.inducing.get(), expected.inducing, rtol=1e-10)
