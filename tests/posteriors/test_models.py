"""Every posterior inside a model: predictions in all forms, files, dtypes and field names."""

import numpy as np
import pytest
from support.gp_problems import assert_moments
from support.posterior_problems import JITTER, ROWS, in_model

import fastsvgp as fs

each_posterior = pytest.mark.parametrize("name", ROWS)
each_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
one_or_two = pytest.mark.parametrize("P", [None, 2])


def model_of(rng, name, P=None, dtype=np.float64):
    """``(model, X, Y, random quantities)``."""
    Z, X = rng.uniform(-2, 2, (7, 2)), rng.uniform(-2, 2, (11, 2)).astype(dtype)
    batch = () if P is None else (P,)
    model = fs.SVGP(
        fs.Matern52(1.3, np.array([0.9, 1.4])),
        Z,
        None,
        fs.Gaussian(0.2),
        fs.means.ConstantMean(0.3),
    )
    model, random = in_model(rng, name, model, batch)
    return (
        fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], model),
        X,
        rng.standard_normal((11, *batch)).astype(dtype),
        random,
    )


@one_or_two
@each_posterior
def test_predictions_of_all_forms_agree(rng, name, P):
    model, X, Y, _ = model_of(rng, name, P)
    options = {"jitter": JITTER}
    mean, var = fs.predict_f(model, X, **options)
    joint_mean, cov = fs.predict_f(model, X, full_cov=True, **options)
    assert mean.shape == var.shape == Y.shape and cov.shape == (*((P,) if P else ()), 11, 11)
    np.testing.assert_allclose(joint_mean, mean, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(cov, axis1=-2, axis2=-1).T, var, atol=1e-12)
    y_mean, y_var = fs.predict_y(model, X, **options)
    np.testing.assert_allclose(y_mean, mean, atol=1e-12)
    np.testing.assert_allclose(y_var, var + 0.2, atol=1e-12)
    density = -0.5 * (np.log(2 * np.pi * y_var) + (Y - y_mean) ** 2 / y_var)
    expected = density if P is None else density.sum(axis=1)
    np.testing.assert_allclose(
        fs.predict_log_density(model, X, Y, **options), expected, rtol=1e-9, atol=1e-10
    )
    blocks = model.covariance.blocks(model.inducing, X, full_cov=True)
    for full_cov, truth in ((False, (mean, var)), (True, (joint_mean, cov))):
        found = fs.bounds.predict_from_blocks(blocks, model.posterior, full_cov=full_cov, **options)
        np.testing.assert_allclose(found[0] + 0.3, truth[0], atol=1e-12)
        np.testing.assert_allclose(found[1], truth[1], atol=1e-12)


@each_posterior
def test_samples_have_the_joint_moments(rng, name):
    model, X, _, _ = model_of(rng, name)
    samples = fs.sample_f(model, X[:4], 4000, rng=1, jitter=JITTER)
    mean, cov = fs.predict_f(model, X[:4], full_cov=True, jitter=JITTER)
    assert_moments(samples, mean, cov + JITTER * np.eye(4))


@one_or_two
@each_dtype
@each_posterior
def test_a_file_gives_back_the_model(rng, name, dtype, P, tmp_path):
    model, X, Y, random = model_of(rng, name, P, dtype)
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    assert type(loaded.posterior) is type(model.posterior)
    settings = [field for field, kind in model.posterior._record_fields if kind == "static"]
    assert [getattr(loaded.posterior, s) for s in settings] == [
        getattr(model.posterior, s) for s in settings
    ]
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(loaded), fs.records.leaves(model), strict=True
    ):
        assert a.dtype == b.dtype == dtype, path
        np.testing.assert_array_equal(a, b, err_msg=path)
    options = {"jitter": JITTER, **random}
    assert fs.elbo(loaded, X, Y, **options) == fs.elbo(model, X, Y, **options)


@one_or_two
@each_posterior
def test_float32_stays_float32_and_near_the_truth(rng, name, P):
    model, X, Y, random = model_of(rng, name, P, np.float32)
    wide, options = fs.records.tree_map(np.float64, model), {"jitter": JITTER, **random}
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    truth = fs.elbo(wide, X.astype(float), Y.astype(float), **options)
    assert value == pytest.approx(truth, rel=1e-4, abs=1e-3)
    predictions = [
        *fs.predict_f(model, X),
        *fs.predict_f(model, X, full_cov=True),
        *fs.predict_y(model, X),
        fs.sample_f(model, X, rng=0),
        fs.predict_log_density(model, X, Y),
        fs.predict_quantiles(model, X, 0.3),
    ]
    assert {
        a.dtype for a in (X_bar, *predictions, *(bar for _, _, bar in fs.records.leaves(grad)))
    } == {np.dtype(np.float32)}


@each_posterior
def test_a_step_along_the_gradient_of_any_field_climbs(rng, name):
    model, X, Y, random = model_of(rng, name)
    _, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER, **random)
    for (path, _, bar), (_, _, value) in zip(
        fs.records.leaves(grad), fs.records.leaves(model), strict=True
    ):
        # compare both directions: near a maximum, curvature can make each of them go down
        step = 1e-4 / np.abs(bar).max() * bar
        both = (fs.records.replace_at(model, path, moved) for moved in (value + step, value - step))
        ahead, back = (fs.elbo(moved, X, Y, jitter=JITTER, **random) for moved in both)
        assert ahead > back, path


@each_posterior
def test_posterior_declares_its_fields(rng, name):
    q = ROWS[name].make(rng, np.eye(3))
    fields = {field for field, _ in q._record_fields}
    assert {*q.natural_fields, *q.held_fields} <= fields and (
        q.inverse_field is None or q.inverse_field in fields
    )
    assert q.num_sets == 1 and set(ROWS[name].random(rng, 3)) <= set(q.random_quantities)
