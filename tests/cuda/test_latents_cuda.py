"""Several latent functions on device arrays: the results of the CPU, and few copies to the host."""

import numpy as np
import pytest
from support.device_models import Copies, assert_same, check_bound, moved
from support.latent_problems import D, N, P, layer, mixing, problem

import fastsvgp as fs

f8 = np.float64
NAMES = "lmc", "separate", "icm", "wide", "pairs", "inverse-free", "noise", "dispersed", "classes"


def arrays_of(model):
    """Return Python numbers as NumPy's, for comparison with gradients on a device."""
    return fs.records.tree_map(lambda leaf: f8(leaf) if isinstance(leaf, float) else leaf, model)


def both(gpu, rng, name):
    """Return ``(model, X, Y)`` on the host and on the device, and options of the bound."""
    model, X, Y, options = problem(rng, name)
    here = arrays_of(model), X, Y
    return here, moved(gpu, *here), options


@pytest.mark.parametrize("name", NAMES)
def test_bounds(gpu, rng, name):
    here, there, options = both(gpu, rng, name)
    check_bound(gpu, fs.elbo_and_grad, here, there, inputs=True, **options)
    wrt = "latents.0.inducing" if here[0].latents[0].inducing is not None else "inducing"
    check_bound(gpu, fs.bounds.data_term_and_grad, here, there, wrt=(wrt, "likelihood"), **options)
    check_bound(gpu, fs.bounds.kl_term_and_grad, here[:1], there[:1], jitter=options["jitter"])
    with Copies(gpu, 1):
        value = fs.elbo(*there, **options)
    assert value == pytest.approx(fs.elbo(*here, **options), rel=1e-10)


@pytest.mark.parametrize("name", ["lmc", "noise"])
def test_missing_outputs(gpu, rng, name):
    (model, X, Y), there, options = both(gpu, rng, name)
    weights = rng.uniform(0.5, 2, Y.shape) * (rng.uniform(size=Y.shape) < 0.7)
    Y = np.where(weights > 0, Y, np.nan)
    due, due_grad = fs.elbo_and_grad(model, X, Y, weights=weights, **options)
    value, grad = fs.elbo_and_grad(*there[:2], gpu.there(Y), weights=gpu.there(weights), **options)
    assert value == pytest.approx(due, rel=1e-10)
    assert_same(grad, due_grad)


@pytest.mark.parametrize("name", ["lmc", "icm", "noise", "one output"])
def test_predictions(gpu, rng, name):
    here, there, options = both(gpu, rng, name)
    settings = {"jitter": options["jitter"]}
    for call in (
        fs.predict_f,
        fs.predict_y,
        lambda *given, **more: fs.predict_f(*given, full_cov=True, **more),
        lambda *given, **more: fs.predict_f(*given, full_output_cov=True, **more),
    ):
        with Copies(gpu, 1):
            found = call(*there[:2], **settings)
        assert_same(found, call(*here[:2], **settings))
    density = fs.predict_log_density(*there, **settings)
    assert_same(density, fs.predict_log_density(*here, **settings))
    draws = [fs.sample_f(*side[:2], 2, rng=0, **settings) for side in (there, here)]
    assert_same(*draws, 1e-8)
    mean, var, pull = fs.bounds.predict_f_and_vjp(*there[:2], **settings)
    due_mean, due_var, due_pull = fs.bounds.predict_f_and_vjp(*here[:2], **settings)
    assert_same((mean, var), (due_mean, due_var))
    bars = rng.standard_normal((2, *due_mean.shape))
    assert_same(pull(*map(gpu.there, bars)), due_pull(*bars))


def assert_posteriors(there, here, tolerance):
    """Compare what is read: of factors and of symmetric matrices the lower triangles."""
    for one, other in zip(there.latents, here.latents, strict=True):
        there, here = fs.to_host(one.posterior), other.posterior
        for (path, kind, a), (_, _, b) in zip(
            fs.records.leaves(there), fs.records.leaves(here), strict=True
        ):
            a, b = (np.tril(x) if kind in ("tril", "symmetric") else x for x in (a, b))
            atol = tolerance * max(1, np.abs(b).max())
            np.testing.assert_allclose(a, b, rtol=0, atol=atol, err_msg=path)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("name", ["lmc", "icm", "separate", "noise", "sites"])
def test_natural_steps(gpu, rng, name, monotone):
    here, there, options = both(gpu, rng, name)
    options |= {"step_size": 0.5, "monotone": monotone}
    (found, info), (due, due_info) = (fs.natural_step(*side, **options) for side in (there, here))
    assert info.value == pytest.approx(due_info.value, rel=1e-10) and info[1:] == due_info[1:]
    assert_posteriors(found, due, 1e-8)
    *_, value, grad = fs.optim.natural_step_and_grad(*there, **options)
    *_, due_value, due_grad = fs.optim.natural_step_and_grad(*here, **options)
    assert value == pytest.approx(due_value, rel=1e-9)
    assert_same(grad, due_grad, 1e-7)
    found, infos = fs.sites.natural_steps(*there, steps=2, **options)
    due, due_infos = fs.sites.natural_steps(*here, steps=2, **options)
    assert [one[1:] for one in infos] == [one[1:] for one in due_infos]
    assert_posteriors(found, due, 1e-7)


@pytest.mark.parametrize(
    "name, options", [("lmc", {"natural_step_size": 0.2}), ("inverse-free", {}), ("noise", {})]
)
def test_training(gpu, rng, name, options):
    model, X, Y, _ = problem(rng, name, N=30)
    model, options = arrays_of(model), {"batch_size": 12, "rng": 3, "steps": 3, **options}
    expected, info = fs.fit(model, X, Y, **options)
    found, found_info = fs.fit(fs.to_device(model), X, Y, **options)
    np.testing.assert_allclose(found_info.values, info.values, rtol=1e-8)
    assert_same(found, expected, 1e-7)


def test_parallel_layers(gpu, rng):
    hidden = fs.layers.ParallelLayers(
        (layer(rng, outputs=(2,)), layer(rng)), mixing(rng, D, 3), fs.means.IdentityMean()
    )
    model = arrays_of(fs.DeepGP((hidden, layer(rng, outputs=None)), fs.Gaussian(0.2)))
    here = model, rng.uniform(-2, 2, (N, D)), rng.standard_normal(N)
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, rng=1, inputs=True, jitter=1e-2)
    assert_same(
        fs.predict_f(*there[:2], jitter=1e-2, num_samples=4),
        fs.predict_f(*here[:2], jitter=1e-2, num_samples=4),
    )


def test_a_start_is_that_of_the_cpu(gpu, rng):
    X, Y = rng.standard_normal((30, D)), rng.standard_normal((30, P))
    weights = (rng.uniform(size=Y.shape) < 0.8) * 1.0
    for num_latents in (2, "separate"):
        here = fs.layers.multi_gp(X, Y, num_latents, 5, weights=weights, rng=0)
        there = fs.layers.multi_gp(
            gpu.there(X), gpu.there(Y), num_latents, 5, weights=gpu.there(weights), rng=0
        )
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(there), fs.records.leaves(here), strict=True
        ):
            if b is not None:
                a = a.get() if hasattr(a, "get") else a
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11, err_msg=path)
        fs.elbo(there, gpu.there(X), gpu.there(Y))


def test_a_device_in_one_layer_only(gpu, rng):
    here, there, options = both(gpu, rng, "lmc")
    latents = there[0].latents[0], here[0].latents[1]
    mixed = fs.replace(there[0], latents=latents)
    with pytest.raises(TypeError, match=r"`latents\.1\..*"):
        fs.elbo(mixed, *there[1:], **options)
    with pytest.raises(TypeError, match="`mixing`"):
        fs.elbo(fs.replace(there[0], mixing=here[0].mixing), *there[1:], **options)


def test_a_failure_names_its_layer(gpu, rng):
    here, there, _ = both(gpu, rng, "lmc")
    twice = np.repeat(here[0].latents[1].inducing[:1], 5, axis=0)
    model = fs.records.replace_at(there[0], "latents.1.inducing", gpu.there(twice))
    said = r"`latents\[1\]`: `inducing\[1\]` and `inducing\[0\]`"
    for call in (fs.elbo, fs.elbo_and_grad, fs.natural_step):
        with pytest.raises(fs.NotPositiveDefinite, match=said):
            call(model, *there[1:], jitter=0.0)
