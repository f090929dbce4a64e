"""Predictions of several functions at uncertain inputs, against a dense rule."""

import numpy as np
import pytest
from support.uncertain_problems import (
    GRID,
    GRID_WEIGHTS,
    LONG,
    PERIODIC,
    SHORT,
    D,
    M,
    N,
    assert_same,
    diagonal,
    whitened,
    with_inputs_by_rule,
)

import fastsvgp as fs


def layer(rng, covariance, axes=(), mean=None):
    return fs.layers.Layer(covariance, rng.uniform(-2, 2, (M, D)), whitened(rng, *axes), mean)


def model_of(rng, mixing=None, slopes=True, likelihood=None, mean=None):
    first = fs.means.LinearMean(rng.standard_normal((2, D))) if slopes else None
    layers = layer(rng, LONG, (2,), first), layer(rng, SHORT + fs.Linear(0.3) + PERIODIC)
    return fs.MultiGP(layers, likelihood or fs.Gaussian(0.1), mixing, mean)


def inputs(rng):
    return rng.uniform(-2, 2, (N, D)), rng.uniform(0.02, 0.4, (N, D))


def by_rule(model, mean, roots):
    """Return means (N, J) and covariances (N, J, J) over the functions."""
    found = []
    for mu, root in zip(mean, roots, strict=True):
        x = mu + (root * GRID[:, None]).sum(-1)
        m, cov = fs.predict_f(model, x, full_output_cov=True)
        m = m.reshape(len(x), -1)
        centre = GRID_WEIGHTS @ m
        apart = m - centre
        total = np.tensordot(GRID_WEIGHTS, cov, 1) + (apart * GRID_WEIGHTS[:, None]).T @ apart
        found.append((centre, total))
    return tuple(map(np.array, zip(*found, strict=True)))


@pytest.mark.parametrize("means", [False, True])
@pytest.mark.parametrize("J", [None, 1, 4])
def test_mixed_functions_depend_on_each_other_through_the_input(rng, J, means):
    mixing = None if J is None else rng.standard_normal((J, 3))
    mean_function = fs.means.LinearMean(rng.standard_normal((J or 3, D))) if means else None
    if J == 1:
        mean_function = fs.means.LinearMean(rng.standard_normal(D)) if means else None
    model = model_of(rng, mixing, means, mean=mean_function)
    mean, var = inputs(rng)
    Xs = fs.GaussianInputs(mean, var)
    centre, cov = by_rule(model, mean, diagonal(var))
    m, c = fs.predict_f(model, Xs, full_output_cov=True)
    assert_same((m.reshape(centre.shape), c), (centre, cov))
    own = np.diagonal(cov, axis1=1, axis2=2)
    m, v = fs.predict_f(model, Xs)
    assert_same((m.reshape(own.shape), v.reshape(own.shape)), (centre, own))
    assert_same([fs.predict_f(model, Xs, var=False)], [m], 1e-14)
    assert_same(fs.predict_f(model, Xs, chunk_size=1), (m, v), 1e-12)
    assert_same(fs.predict_y(model, Xs), (m, v + 0.1), 1e-13)
    shared = fs.bounds.input_covariance(model, Xs)
    assert_same([shared], [with_inputs_by_rule(model, mean, diagonal(var))])


def test_rows_are_independent(rng):
    model = model_of(rng, rng.standard_normal((2, 3)))
    mean, var = inputs(rng)
    var *= 0.1
    nodes = fs.GaussianInputs(mean, var, nodes=16)
    ours = fs.predict_f(model, fs.GaussianInputs(mean, var), full_cov=True)
    assert_same(ours, fs.predict_f(model, nodes, full_cov=True), 1e-6)
    across = fs.predict_f(model, fs.GaussianInputs(mean, var), full_output_cov=True)
    assert_same(across, fs.predict_f(model, nodes, full_output_cov=True), 1e-6)


def test_correlated_errors_and_exact_inputs(rng):
    layers = layer(rng, LONG, (2,)), layer(rng, LONG + SHORT)
    mean_function = fs.means.LinearMean(rng.standard_normal(D))
    model = fs.MultiGP(layers, fs.Gaussian(0.1), rng.standard_normal((2, 3)), mean_function)
    mean, _ = inputs(rng)
    roots = 0.4 * rng.standard_normal((N, D, D))
    S = (roots[:, :, None] * roots[:, None]).sum(-1)
    ours = fs.predict_f(model, fs.GaussianInputs(mean, S), full_output_cov=True)
    assert_same(ours, by_rule(model, mean, roots))
    exact = fs.GaussianInputs(mean, np.zeros((N, D)))
    assert_same(fs.predict_f(model, exact), fs.predict_f(model, mean))


def test_likelihoods_of_two_functions(rng):
    layers = layer(rng, LONG), layer(rng, SHORT)
    model = fs.MultiGP(layers, fs.likelihoods.HeteroskedasticGaussian())
    mean, var = inputs(rng)
    Xs = fs.GaussianInputs(mean, var)
    (f, spread), y = fs.predict_f(model, Xs), fs.predict_y(model, Xs)
    assert_same(y, (f[:, 0], spread[:, 0] + np.exp(f[:, 1] + spread[:, 1] / 2)))


def test_what_is_not_served_is_said(rng):
    model = model_of(rng)
    Xs = fs.GaussianInputs(*inputs(rng))
    with pytest.raises(TypeError, match="no pullback to uncertain inputs for a MultiGP"):
        fs.predict_f_and_vjp(model, Xs)
    with pytest.raises(TypeError, match="sample_f: f at uncertain inputs is not normal"):
        fs.sample_f(model, Xs)
    rough = fs.replace(model, latents=(*model.latents, layer(rng, fs.Matern32())))
    with pytest.raises(TypeError, match="Matern32 has no closed-form"):
        fs.predict_f(rough, Xs)
    assert fs.predict_f(rough, fs.GaussianInputs(Xs.mean, Xs.var, nodes=3))[0].shape == (N, 4)
