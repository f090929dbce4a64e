"""Gradients of bounds of several latent functions, against differences of their values."""

import numpy as np
import pytest
from support.derivatives import assert_restricted
from support.gp_problems import assert_records_close
from support.latent_problems import MODELS, ONE, OPTIONS, N, problem

import fastsvgp as fs
from fastsvgp.testing import assert_gradient

each_model = pytest.mark.parametrize("name", MODELS)


def assert_gradients(model, X, Y, **options):
    """Compare the gradients in all fields and in X with differences; return value and gradients."""
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    assert fs.elbo(model, X, Y, **options) == pytest.approx(value, rel=1e-13)
    assert_gradient(lambda moved: fs.elbo(moved, X, Y, **options), model, grad)
    assert_gradient(lambda moved: fs.elbo(model, moved, Y, **options), X, X_bar)
    return value, grad, X_bar


@each_model
def test_gradients_are_those_of_differences(rng, name):
    model, X, Y, options = problem(rng, name)
    value, grad, _ = assert_gradients(model, X, Y, **options)
    data, data_grad = fs.bounds.data_term_and_grad(model, X, Y, **options)
    random = {key: options[key] for key in options if key != "num_data"}
    kl, kl_grad = fs.bounds.kl_term_and_grad(model, **random)
    assert data - kl == pytest.approx(value, rel=1e-13)
    assert_records_close(fs.records.tree_map(np.subtract, data_grad, kl_grad), grad, 1e-12)


@pytest.mark.parametrize("name", ["lmc", "icm", "separate", "noise", "noise of one", "dispersed"])
def test_missing_outputs_have_the_weight_zero(rng, name):
    model, X, Y, options = problem(rng, name)
    weights = rng.uniform(0.5, 2, Y.shape) * (rng.uniform(size=Y.shape) < 0.7)
    value, grad, X_bar = fs.elbo_and_grad(
        model, X, np.where(weights > 0, Y, 0), weights=weights, inputs=True, **options
    )
    holed = np.where(weights > 0, Y, np.nan)
    found, *bars = assert_gradients(model, X, holed, weights=weights, **options)
    assert found == value
    np.testing.assert_array_equal(bars[1], X_bar)
    assert_records_close(bars[0], grad, 0)


@each_model
def test_chunks_of_a_batch_add_up(rng, tune, name):
    model, X, Y, options = problem(rng, name, N=17)
    whole = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    tune(bound_chunk_numbers=1, bound_chunk_columns=6)
    parts = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    assert_records_close(parts[1], whole[1], 1e-12)
    np.testing.assert_allclose(parts[2], whole[2], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "wrt",
    [
        ("mixing",),
        ("inducing",),
        ("latents.0",),
        ("latents",),
        ("latents.2.covariance", "likelihood"),
        ("latents.0.posterior.mean", "latents.1.inducing", "latents.2.mean"),
        ("latents.1.covariance.parts.0.lengthscales",),
        (),
    ],
    ids=",".join,
)
def test_gradients_of_single_fields(rng, wrt):
    model, X, Y, options = problem(rng, "wide")
    _, whole, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    for inputs in (False, True):
        _, some, *bar = fs.elbo_and_grad(model, X, Y, wrt=wrt, inputs=inputs, **options)
        assert_restricted(some, whole, wrt, atol=1e-13)
        for one in bar:
            np.testing.assert_allclose(one, X_bar, rtol=1e-10, atol=1e-12)
    _, kl_grad = fs.bounds.kl_term_and_grad(model, jitter=options["jitter"])
    _, some = fs.bounds.kl_term_and_grad(model, jitter=options["jitter"], wrt=wrt)
    assert_restricted(some, kl_grad, wrt, atol=1e-13)


def test_shared_inducing_inputs_have_the_sum_of_the_gradients(rng):
    model, X, Y, options = problem(rng, "separate")
    _, grad = fs.elbo_and_grad(model, X, Y, **options)
    own = tuple(
        fs.replace(one, inducing=model.inducing) if one.inducing is None else one
        for one in model.latents
    )
    apart = fs.replace(model, latents=own, inducing=None)
    _, each = fs.elbo_and_grad(apart, X, Y, **options)
    assert grad.latents[0].inducing is grad.latents[2].inducing is each.inducing is None
    np.testing.assert_array_equal(grad.latents[1].inducing, each.latents[1].inducing)
    np.testing.assert_array_equal(
        grad.inducing, each.latents[2].inducing + each.latents[0].inducing
    )


@pytest.mark.parametrize("name", MODELS)
def test_single_precision(rng, name):
    model, X, Y, options = problem(rng, name)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    expected = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    data = X.astype(np.float32), (Y if Y.dtype.kind == "i" else Y.astype(np.float32))
    value, grad, X_bar = fs.elbo_and_grad(single, *data, inputs=True, **options)
    assert value == pytest.approx(expected[0], rel=1e-4)
    assert X_bar.dtype == np.float32
    least = 0.1 * max(
        np.abs(bar).max() for _, _, bar in fs.records.leaves(expected[1]) if bar is not None
    )
    for (path, kind, bar), (_, _, due) in zip(
        fs.records.leaves(grad), fs.records.leaves(expected[1]), strict=True
    ):
        if due is not None:
            assert np.asarray(bar).dtype == np.float32, path
            bar, due = (np.tril(a) if kind == "tril" else a for a in (bar, due))
            atol = 1e-4 * max(np.abs(due).max(), least)
            np.testing.assert_allclose(bar, due, rtol=0, atol=atol, err_msg=path)


def test_mixed_precision_is_the_wider_one(rng):
    """As of an SVGP: the dtype of the result is that of all arrays together."""
    model, X, Y, options = problem(rng)
    mixed = fs.records.replace_at(model, "mixing", model.mixing.astype(np.float32))
    for of_model, rows in ((mixed, X), (model, X.astype(np.float32))):
        _, grad = fs.elbo_and_grad(of_model, rows, Y, **options)
        assert grad.mixing.dtype == grad.latents[0].inducing.dtype == np.float64


@pytest.mark.parametrize("name", ["one output", "noise of one"])
def test_a_column_of_targets_is_a_vector(rng, name):
    model, X, Y, options = problem(rng, name)
    assert name in ONE and Y.shape == (N,)
    assert fs.elbo(model, X, Y[:, None], **options) == fs.elbo(model, X, Y, **options)


def test_a_generator_draws_probes_as_an_svgp(rng):
    model, X, Y, _ = problem(rng, "probes")
    values = [
        fs.elbo(model, X, Y, probes=2, rng=seed, jitter=OPTIONS["jitter"])
        for seed in (0, 0, 1, np.random.default_rng(3))
    ]
    assert values[0] == values[1] and len(set(values)) == 3
