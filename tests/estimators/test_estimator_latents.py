"""Estimators with several latent functions: covariances per target, mixing, noise that varies."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

import fastsvgp as fs
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor, load, save

QUICK = {"n_inducing": 12, "max_iter": 30, "learning_rate": 0.05, "random_state": 0}
LATENTS = [None, "separate", 2, 4]


def targets(rng, N=90):
    """Three mixtures of two functions, in different units."""
    X = rng.uniform(-2, 2, (N, 2))
    g = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2])
    Y = (np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 0.5]]) @ g).T + 0.1 * rng.standard_normal((N, 3))
    return X, Y * [1, 10, 0.1] + [0, 100, -5]


def fanned(rng, N=400):
    """A sine whose noise grows from 0.05 to 0.5."""
    x = rng.uniform(0, 1, N)
    return x[:, None], np.sin(6 * x) + (0.05 + 0.45 * x) * rng.standard_normal(N)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroskedastic"])
@pytest.mark.parametrize("n_latents", LATENTS)
def test_several_targets(rng, tmp_path, n_latents, likelihood):
    X, Y = targets(rng)
    model = SVGPRegressor(n_latents=n_latents, likelihood=likelihood, solver="natural", **QUICK)
    model.fit(X, Y)
    several = n_latents is not None or likelihood == "heteroskedastic"
    assert type(model.model_) is (fs.MultiGP if several else fs.SVGP)
    assert model.score(X, Y) > 0.8
    mean, std = model.predict(X[:7], return_std=True)
    assert mean.shape == std.shape == (7, 3) and model.inducing_.shape == (12, 2)
    assert (std.mean(axis=0) < 0.8 * Y.std(axis=0)).all()
    of_f = model.predict(X[:7], return_std=True, include_noise=False)[1]
    assert of_f.shape == (7, 3) and (of_f < std).all()
    cov = model.predict(X[:7], return_cov=True)[1]
    assert cov.shape == (7, 7, 3)
    np.testing.assert_allclose(np.einsum("nnp->np", cov), std**2, rtol=1e-6)
    assert model.sample_y(X[:7], n_samples=4).shape == (7, 3, 4)
    assert np.isfinite(model.log_predictive_density(X, Y)).all()
    low, high = fs.predict_quantiles(model.model_, model.scale_.X(X[:7]), (0.1, 0.9))
    assert low.shape == (7, 3) and (low < high).all()
    path = tmp_path / "model.npz"
    save(path, model)
    again = load(path)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("columns", [None, 1])
@pytest.mark.parametrize("n_latents", [None, 2])
def test_noise_that_varies(rng, columns, n_latents):
    X, y = fanned(rng)
    shaped = y if columns is None else y[:, None]
    settings = QUICK | {"max_iter": 120}
    model = SVGPRegressor(likelihood="heteroskedastic", n_latents=n_latents, **settings)
    model.fit(X, 100 * shaped)
    ends = np.array([[0.05], [0.95]])
    mean, std = model.predict(ends, return_std=True)
    assert mean.shape == std.shape == ((2,) if columns is None else (2, 1))
    np.testing.assert_allclose(np.ravel(std) / 100, [0.0725, 0.4775], rtol=0.35)
    of_f = model.predict(ends, return_std=True, include_noise=False)[1]
    assert of_f.shape == std.shape and (of_f < 0.5 * std).all()
    cov = model.predict(ends, return_cov=True)[1]
    assert cov.shape == ((2, 2) if columns is None else (2, 2, 1))
    draws = model.sample_y(ends, n_samples=4000)
    assert draws.shape == (*std.shape, 4000)
    np.testing.assert_allclose(draws.std(axis=-1), std, rtol=0.1)
    gaussian = SVGPRegressor(solver="natural", **settings).fit(X, 100 * shaped)
    gain = np.subtract(*(m.log_predictive_density(X, 100 * shaped) for m in (model, gaussian)))
    assert gain.mean() > 0.05


def test_units_of_the_targets_do_not_matter(rng):
    X, Y = targets(rng)
    one, other = (
        SVGPRegressor(n_latents=2, likelihood="heteroskedastic", **QUICK).fit(X, units)
        for units in (Y, 4 * Y - 8)
    )
    for ours, theirs in zip(
        one.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        scaled = 4 * ours - 8 if ours is not theirs and ours.min() < 0 else 4 * ours
        np.testing.assert_allclose(theirs, scaled, rtol=1e-5)


def test_a_start_of_mixed_functions_has_different_layers_and_held_variances(rng):
    X, Y = targets(rng)
    start = fs.recipes.regression(X, Y, 12, latents=2, rng=0)
    scales = [layer.covariance.lengthscales for layer in start.model.latents]
    np.testing.assert_allclose(scales[0], 4 * scales[1])
    assert start.model.mixing.shape == (3, 2) and start.model.mean is None
    assert start.fit["fixed"] == tuple(f"latents.{i}.covariance.variance" for i in range(2))
    linear = fs.recipes.regression(X, Y, 12, fs.Linear(np.ones(2)) + fs.RBF(), latents=2)
    assert "fixed" not in linear.fit
    linear = fs.recipes.regression(X, Y, 12, fs.Linear(np.ones(2)), latents=2)
    assert "fixed" not in linear.fit
    W, eye = fs.recipes.regression(X, Y, 12, latents=2, likelihood="heteroskedastic").model.mixing
    assert W.shape == (3, 2) and (eye == np.eye(3)).all()
    weights = rng.integers(1, 4, len(X)).astype(float)
    repeated = np.repeat(X, weights.astype(int), axis=0), np.repeat(Y, weights.astype(int), axis=0)
    for latents in (2, None):
        settings = {"latents": latents, "likelihood": "heteroskedastic", "rng": 0}
        weighted = fs.recipes.regression(X, Y, len(X), weights=weights, **settings).model
        plain = fs.recipes.regression(*repeated, len(X), **settings).model
        for name in ("mixing.0", "mean.value"):
            found = [
                dict((p, v) for p, _, v in fs.records.leaves(m)).get(name)
                for m in (weighted, plain)
            ]
            if found[0] is not None:
                np.testing.assert_allclose(*map(np.abs, found), rtol=1e-8, atol=1e-8)


def test_classes_with_covariances_of_their_own(rng):
    X = rng.standard_normal((60, 2))
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    start = fs.recipes.classification(X, labels, 10, latents="separate", rng=0)
    assert len(start.model.latents) == 3
    settings = start.fit | {"steps": 10}
    model, _ = fs.fit(start.model, start.scale.X(X), start.scale.y(labels), **settings)
    assert np.mean(fs.predict_y(model, start.scale.X(X))[0].argmax(axis=1) == labels) > 0.6
    with pytest.raises(ValueError, match="classes cannot be mixed"):
        fs.recipes.classification(X, labels, 10, latents=2)


def test_warm_starts_restarts_and_early_stopping(rng):
    X, Y = targets(rng)
    model = SVGPRegressor(n_latents=2, warm_start=True, **QUICK).fit(X, Y)
    first, variances = model.lower_bound_, [q.covariance.variance for q in model.model_.latents]
    assert model.fit(X, Y).lower_bound_ > first
    assert [q.covariance.variance for q in model.model_.latents] == variances == [1, 1]
    early = SVGPRegressor(
        n_latents="separate", early_stopping=True, n_restarts_optimizer=1, **QUICK
    ).fit(X, Y)
    assert early.score(X, Y) > 0.5
    assert (
        SVGPRegressor(n_latents=2, **QUICK)
        .fit(X.astype("f4"), Y.astype("f4"))
        .predict(X.astype("f4"))
        .dtype
        == np.float32
    )


def test_kernels_and_posteriors(rng):
    X, Y = targets(rng)
    kernel = sk.ConstantKernel(1.0) * sk.RBF([1.0, 1.0], "fixed")
    model = SVGPRegressor(kernel, n_latents=2, **QUICK).fit(X, Y)
    for layer in model.model_.latents:
        np.testing.assert_array_equal(layer.covariance.lengthscales, 1.0)
    for posterior in ("marginal", "dual_sites", "relaxed", "whitened_orthogonal"):
        settings = QUICK | {"max_iter": 20}
        found = SVGPRegressor(n_latents=2, posterior=posterior, **settings).fit(X, Y)
        kind = fs.recipes.POSTERIORS[posterior]
        assert all(type(layer.posterior) is kind for layer in found.model_.latents)
        assert found.predict(X).shape == Y.shape


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"n_latents": 0}, "`n_latents`"),
        ({"n_latents": True}, "`n_latents`"),
        ({"n_latents": 10**9}, "`n_latents` must be at most 10000"),
        ({"n_latents": "mixed"}, "`n_latents` must be a number of latent functions, or 'separate'"),
        ({"n_latents": 2, "solver": "lbfgs", "posterior": "relaxed"}, "solver 'lbfgs': natural"),
        ({"n_latents": 2, "time_budget": 5}, "`time_budget`.*`n_latents`"),
        ({"n_latents": 2, "posterior": "relaxed", "solver": "natural"}, "no natural-gradient"),
        ({"n_latents": 2, "posterior": "dual_sites", "solver": "adam"}, "natural-gradient steps"),
    ],
)
def test_settings_that_do_not_go_together(rng, settings, what):
    X, Y = targets(rng)
    with pytest.raises((ValueError, TypeError), match=what):
        SVGPRegressor(**settings).fit(X, Y)


def test_a_damaged_file_of_several_functions(rng, tmp_path):
    X, Y = targets(rng)
    model = SVGPRegressor(n_latents=2, **QUICK | {"max_iter": 1}).fit(X, Y)
    model._y_shape = (2,)
    save(tmp_path / "model.npz", model)
    with pytest.raises(fs.DataFileError, match="number of targets"):
        load(tmp_path / "model.npz")


def test_settings_survive_a_clone_and_other_estimators_do_not_have_them():
    assert clone(SVGPRegressor(n_latents="separate")).n_latents == "separate"
    with pytest.raises(TypeError):
        SVGPClassifier(n_latents=2)
