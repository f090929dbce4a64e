"""Layers side by side in a deep GP: hidden ones with covariances of their own, and last ones."""

import numpy as np
import pytest
from support.derivatives import assert_restricted
from support.fit_problems import assert_same
from support.gp_problems import assert_records_close
from support.latent_problems import JITTER, D, M, layer, mixing

import fastsvgp as fs
from fastsvgp.testing import assert_gradient

N, P = 7, 3
OPTIONS = {"jitter": JITTER, "num_data": 2.5 * N}


def mixed(rng, J=D):
    """Two covariances, three functions, and J outputs."""
    mean = fs.means.IdentityMean() if J == D else fs.means.ConstantMean(rng.standard_normal(J))
    return fs.layers.ParallelLayers(
        (layer(rng, outputs=(2,)), layer(rng, M=5)), mixing(rng, J, 3), mean
    )


def plain(rng):
    Z = rng.uniform(-2, 2, (M, D))
    latents = layer(rng, Z=Z, shares=True), layer(rng, "likelihood", outputs=(1,))
    return fs.layers.ParallelLayers(latents, inducing=Z)


def with_means(rng):
    shift = fs.means.LinearMean(rng.standard_normal((D, D)), rng.standard_normal(D))
    latents = layer(rng, mean=fs.means.ConstantMean(0.3)), layer(rng, "marginal")
    return fs.layers.ParallelLayers(latents, mean=shift)


def one_mean(rng):
    """One mean function for all outputs."""
    return fs.replace(mixed(rng), mean=fs.means.LinearMean(rng.standard_normal(D), 0.3))


def ordinary(rng, outputs=(D,)):
    return layer(rng, outputs=outputs, mean=fs.means.IdentityMean() if outputs == (D,) else None)


def narrow(rng):
    """A layer on one column."""
    Z = rng.uniform(-2, 2, (M, 1))
    return layer(rng, Z=Z, covariance=fs.RBF(1.1, 2.0))


def identity(rng):
    """One function of one column, added to it."""
    return fs.layers.ParallelLayers(
        (narrow(rng), narrow(rng)), np.ones((1, 2)), fs.means.IdentityMean()
    )


def last(rng):
    return layer(rng, outputs=None)


CHAINS = {
    "mixed": lambda rng: (mixed(rng), last(rng)),
    "plain": lambda rng: (plain(rng), last(rng)),
    "means": lambda rng: (with_means(rng), last(rng)),
    "one mean": lambda rng: (one_mean(rng), one_mean(rng), last(rng)),
    "above": lambda rng: (ordinary(rng), mixed(rng), last(rng)),
    "below": lambda rng: (mixed(rng), ordinary(rng), last(rng)),
    "twice": lambda rng: (mixed(rng), with_means(rng), last(rng)),
    "last": lambda rng: (ordinary(rng), mixed(rng, P)),
    "all": lambda rng: (mixed(rng), mixed(rng, P)),
    "alone": lambda rng: (mixed(rng, P),),
}
CHAINS |= {  # one output keeps its axis
    "one": lambda rng: (mixed(rng, 1), narrow(rng)),
    "one below one": lambda rng: (mixed(rng, 1), identity(rng), narrow(rng)),
    "last one": lambda rng: (ordinary(rng), mixed(rng, 1)),
}
OF_P = {"last": P, "all": P, "alone": P, "last one": 1}  # with targets (N, P)
each_chain = pytest.mark.parametrize("name", CHAINS)


def problem(rng, name, N=N):
    model = fs.DeepGP(CHAINS[name](rng), fs.StudentT(0.4))
    Y = rng.standard_normal((N, OF_P[name]) if name in OF_P else N)
    return model, rng.uniform(-2, 2, (N, D)), Y


@each_chain
def test_gradients_are_those_of_differences(rng, name):
    model, X, Y = problem(rng, name)
    options = OPTIONS | {"rng": 3, "num_samples": 2}
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    assert fs.elbo(model, X, Y, **options) == pytest.approx(value, rel=1e-13)
    assert_gradient(lambda moved: fs.elbo(moved, X, Y, **options), model, grad)
    assert_gradient(lambda moved: fs.elbo(model, moved, Y, **options), X, X_bar)
    for wrt in (("layers.0",), ("likelihood", f"layers.{len(model.layers) - 1}"), ()):
        _, some = fs.elbo_and_grad(model, X, Y, wrt=wrt, **options)
        assert_restricted(some, grad, wrt, atol=1e-12)


@pytest.mark.parametrize(
    "wrt", ["layers.0.mixing", "layers.0.latents.1", "layers.0.latents.0.posterior.mean"]
)
def test_gradients_of_single_fields(rng, wrt):
    model, X, Y = problem(rng, "mixed")
    options = OPTIONS | {"rng": 3, "num_samples": 2}
    _, grad = fs.elbo_and_grad(model, X, Y, **options)
    _, some = fs.elbo_and_grad(model, X, Y, wrt=wrt, **options)
    assert_restricted(some, grad, wrt, atol=1e-12)


@pytest.mark.parametrize("name", ["mixed", "plain", "all"])
def test_chunks_and_single_precision(rng, tune, name):
    model, X, Y = problem(rng, name, N=13)
    options = {"jitter": JITTER, "rng": 3, "num_samples": 2}
    whole = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    found = fs.elbo_and_grad(single, X.astype(np.float32), Y.astype(np.float32), **options)
    assert found[0] == pytest.approx(whole[0], rel=1e-4)
    assert found[1].layers[0].latents[0].inducing is None or found[1].layers[0].latents[
        0
    ].inducing.dtype == np.dtype(np.float32)
    assert_records_close(found[1], whole[1], 1e-3)
    tune(bound_chunk_numbers=1, bound_chunk_columns=3)
    parts = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    assert_records_close(parts[1], whole[1], 1e-11)
    np.testing.assert_allclose(parts[2], whole[2], rtol=1e-9, atol=1e-11)


def test_parts_of_a_layer_are_the_layer(rng):
    """Outputs in two layers with one covariance are those of one layer of two."""
    one, top = ordinary(rng), last(rng)
    q = one.posterior
    halves = tuple(
        fs.replace(one, posterior=type(q)(q.mean[i], q.scale_tril[i]), mean=None) for i in range(D)
    )
    split = fs.layers.ParallelLayers(halves, mean=fs.means.IdentityMean())
    X, y = rng.uniform(-2, 2, (N, D)), rng.standard_normal(N)
    draws = (rng.standard_normal((3, N, D)),)
    options = {"draws": draws, "inputs": True, **OPTIONS}
    due, due_grad, due_bar = fs.elbo_and_grad(
        fs.DeepGP((one, top), fs.Gaussian(0.2)), X, y, **options
    )
    value, grad, X_bar = fs.elbo_and_grad(
        fs.DeepGP((split, top), fs.Gaussian(0.2)), X, y, **options
    )
    assert value == pytest.approx(due, rel=1e-13)
    np.testing.assert_allclose(X_bar, due_bar, rtol=1e-9, atol=1e-11)
    bars = [bar.posterior.mean for bar in grad.layers[0].latents]
    np.testing.assert_allclose(
        np.stack(bars), due_grad.layers[0].posterior.mean, rtol=1e-9, atol=1e-11
    )
    total = sum(bar.inducing for bar in grad.layers[0].latents)
    np.testing.assert_allclose(total, due_grad.layers[0].inducing, rtol=1e-9, atol=1e-11)


def test_alone_they_are_a_multi_gp(rng):
    """The bound of one layer draws nothing."""
    model, X, Y = problem(rng, "alone")
    own = model.layers[0]
    other = fs.MultiGP(own.latents, model.likelihood, own.mixing, own.mean)
    value, grad = fs.elbo_and_grad(model, X, Y, rng=0, **OPTIONS)
    due, due_grad = fs.elbo_and_grad(other, X, Y, **OPTIONS)
    assert value == pytest.approx(due, rel=1e-13)
    for name in ("mixing", "mean", "latents"):
        a, b = getattr(grad.layers[0], name), getattr(due_grad, name)
        if name == "mixing":
            np.testing.assert_allclose(a, b, rtol=1e-12)
        else:
            for one, two in zip(
                *(x if isinstance(x, tuple) else (x,) for x in (a, b)), strict=True
            ):
                assert_records_close(one, two, 1e-12)
    for a, b in zip(fs.predict_f(model, X), fs.predict_f(other, X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@each_chain
def test_predictions_draws_and_given_draws(rng, name):
    model, X, Y = problem(rng, name)
    for call in (fs.predict_f, fs.predict_y):
        mean, var = call(model, X, num_samples=4, rng=0)
        assert mean.shape == var.shape == Y.shape and (var > 0).all()
    assert fs.predict_log_density(model, X, Y, num_samples=4, rng=0).shape == (N,)
    samples = fs.sample_f(model, X, 2, rng=0)
    assert samples.shape == (2, *Y.shape)
    np.testing.assert_array_equal(samples, fs.sample_f(model, X, 2, rng=0))
    # numbers that are drawn per row: the latent functions of a layer, not its outputs
    widths = [getattr(one, "draws_each", D) for one in model.layers[:-1]]
    draws = tuple(rng.standard_normal((2, N, width)) for width in widths)
    assert np.isfinite(fs.elbo(model, X, Y, draws=draws, **OPTIONS))
    if draws:
        with pytest.raises(ValueError, match=r"draws\[0\]. must have shape"):
            fs.elbo(model, X, Y, draws=(draws[0][..., :-1], *draws[1:]))


@pytest.mark.parametrize("name", ["mixed", "twice", "below"])
def test_training_and_resuming(rng, tmp_path, name):
    model, X, Y = problem(rng, name, N=30)
    for more in ({}, {"natural_step_size": 0.1}):
        options = {"batch_size": 12, "rng": 3, "optimiser": fs.adam(0.02), "fixed": (), **more}
        straight, info = fs.fit(model, X, Y, steps=6, **options)
        path = tmp_path / "half.npz"
        fs.fit(model, X, Y, steps=3, checkpoint=path, **options)
        resumed, again = fs.fit(model, X, Y, steps=6, resume=path, **options)
        assert_same(resumed, straight)
        np.testing.assert_array_equal(again.values, info.values)
        before = dict((path, leaf) for path, _, leaf in fs.records.leaves(model))
        for path, _, leaf in fs.records.leaves(straight):
            assert leaf is None or not np.array_equal(leaf, before[path]), path


def test_natural_steps_are_of_a_last_layer_that_is_a_layer(rng):
    model, X, Y = problem(rng, "mixed")
    stepped, info = fs.natural_step(model, X, Y, step_size=0.5, monotone=True, rng=0, **OPTIONS)
    assert_same(stepped.layers[0], model.layers[0])
    assert not np.array_equal(stepped.layers[1].posterior.mean, model.layers[1].posterior.mean)
    model, X, Y = problem(rng, "last")
    with pytest.raises(TypeError, match="the last layer of this DeepGP is ParallelLayers"):
        fs.natural_step(model, X, Y)
    with pytest.raises((TypeError, ValueError), match="ParallelLayers"):
        fs.fit(model, X, Y, steps=1, natural_step_size=0.1)
    fs.fit(model, X, Y, steps=1)


def test_inverses_of_hidden_layers_are_refreshed(rng):
    Z = rng.uniform(-2, 2, (M, D))
    latents = layer(rng), layer(rng, "relaxed", Z=Z, shares=True)
    hidden = fs.layers.ParallelLayers(latents, inducing=Z)
    model = fs.DeepGP((hidden, layer(rng, "relaxed", outputs=None)), fs.Gaussian(0.2))
    X, y = rng.uniform(-2, 2, (N, D)), rng.standard_normal(N)
    refreshed, infos = fs.optim.update_inverse_factor(model)
    assert [one is None for one in infos] == [True, False, False]
    seen = []
    fs.fit(
        model, X, y, steps=2, rng=0, callback=lambda step, value, info: seen.append(info.inverse)
    )
    assert all([one is None for one in step] == [True, False, False] for step in seen)
    assert_same(refreshed.layers[0].latents[0], hidden.latents[0])


def test_names_of_posteriors(rng):
    model, _, _ = problem(rng, "twice")
    assert model.posterior_paths == (
        "layers.0.latents.0.posterior",
        "layers.0.latents.1.posterior",
        "layers.1.latents.0.posterior",
        "layers.1.latents.1.posterior",
        "layers.2.posterior",
    )
