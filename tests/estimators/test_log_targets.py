"""``target="log"``: predictions of y from a model of log y, against log-normal distributions."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from support.estimator_data import QUICK, real

import fastsvgp as fs
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor, load, save

LEVELS = 0.05, 0.5, 0.9


def positive(rng, P=None):
    """Return X, and y (N,) or (N, P) of very different sizes."""
    X, y = real(rng)
    y = y if P is None else np.stack([y * (p + 1) - p for p in range(P)], axis=1)
    return X, np.exp(3 * y + 5)


def pair(X, y, **settings):
    """Return a model of log y with predictions of y, and the same model of its logarithms."""
    settings = QUICK | settings
    return (
        SVGPRegressor(target="log", **settings).fit(X, y),
        SVGPRegressor(**settings).fit(X, np.log(y)),
    )


@pytest.mark.parametrize(
    "P, settings", [(None, {}), (1, {}), (3, {}), (3, {"n_latents": 2}), (None, {"solver": "adam"})]
)
def test_predictions_are_those_of_a_log_normal_distribution(rng, P, settings):
    X, y = positive(rng, P)
    model, plain = pair(X, y, **settings)
    mu, s = plain.predict(X, return_std=True)
    law = stats.lognorm(s, scale=np.exp(mu))
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == y.shape
    np.testing.assert_allclose(mean, law.mean(), rtol=1e-8)
    np.testing.assert_allclose(std, law.std(), rtol=1e-8)
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-12)
    quantiles = model.predict_quantiles(X, LEVELS)
    assert quantiles.shape == (3, *y.shape)
    for level, found in zip(LEVELS, quantiles, strict=True):
        np.testing.assert_allclose(found, law.ppf(level), rtol=1e-7)
        np.testing.assert_allclose(model.predict_quantiles(X, level), found, rtol=1e-12)
    density = law.logpdf(y)
    density = density if P is None else density.sum(axis=1)
    np.testing.assert_allclose(model.log_predictive_density(X, y), density, rtol=1e-8, atol=1e-8)
    draws = model.sample_y(X, 5, random_state=3)
    np.testing.assert_allclose(np.log(draws), plain.sample_y(X, 5, random_state=3), rtol=1e-8)
    # of the function: that of log y has no noise
    mu, s = plain.predict(X, return_std=True, include_noise=False)
    mean, std = model.predict(X, return_std=True, include_noise=False)
    np.testing.assert_allclose(mean, stats.lognorm(s, scale=np.exp(mu)).mean(), rtol=1e-8)
    np.testing.assert_allclose(std, stats.lognorm(s, scale=np.exp(mu)).std(), rtol=1e-6)
    np.testing.assert_allclose(model.predict(X, include_noise=False), mean, rtol=1e-12)


@pytest.mark.parametrize("include_noise", [True, False])
@pytest.mark.parametrize("P", [None, 1, 2])
def test_covariances(rng, P, include_noise):
    X, y = positive(rng, P)
    model, plain = pair(X, y)
    mean, cov = model.predict(X[:4], return_cov=True, include_noise=include_noise)
    mu, C = plain.predict(X[:4], return_cov=True, include_noise=include_noise)
    assert mean.shape == mu.shape and cov.shape == C.shape
    for p in range(P or 1):
        at = ... if P is None else (..., p)
        m, K = mu[at], C[at]
        centre = np.exp(m + np.diag(K) / 2)
        np.testing.assert_allclose(mean[at], centre, rtol=1e-8)
        np.testing.assert_allclose(cov[at], np.outer(centre, centre) * np.expm1(K), rtol=1e-7)
    _, std = model.predict(X[:4], return_std=True, include_noise=include_noise)
    variances = np.diagonal(cov).T  # (4,), or (4, P)
    np.testing.assert_allclose(np.sqrt(variances), std, rtol=1e-6)


def test_the_units_of_y_do_not_matter(rng):
    X, y = positive(rng)
    model, other = (SVGPRegressor(target="log", **QUICK).fit(X, unit * y) for unit in (1.0, 1e6))
    np.testing.assert_allclose(1e6 * model.predict(X), other.predict(X), rtol=1e-6)
    np.testing.assert_allclose(
        model.log_predictive_density(X, y) - np.log(1e6),
        other.log_predictive_density(X, 1e6 * y),
        atol=1e-6,
    )
    assert model.score(X, y) == pytest.approx(other.score(X, 1e6 * y))


def test_single_precision(rng):
    X, y = (a.astype(np.float32) for a in positive(rng))
    model = SVGPRegressor(target="log", **QUICK).fit(X, y)
    for found in (*model.predict(X, return_std=True), *model.predict(X[:3], return_cov=True)):
        assert found.dtype == np.float32 and np.isfinite(found).all()
    assert model.predict_quantiles(X, 0.5).dtype == np.float32


def test_files_copies_and_warm_starts_keep_it(rng, tmp_path):
    X, y = positive(rng)
    model = SVGPRegressor(target="log", **QUICK).fit(X, y)
    assert clone(model).target == "log"
    save(tmp_path / "model.npz", model)
    again = load(tmp_path / "model.npz")
    assert again.target == "log" and type(again.scale_) is fs.recipes.LogScale
    for found, expected in zip(
        again.predict(X, return_std=True), model.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    before = model.score(X, y)
    model.set_params(warm_start=True, max_iter=30).fit(X, y)
    assert model.score(X, y) >= before - 0.05
    np.testing.assert_allclose(model.scale_.y_mean, again.scale_.y_mean)
    with pytest.raises(ValueError, match="`target` is None, but the model to continue from"):
        model.set_params(target=None).fit(X, y)
    model = SVGPRegressor(**QUICK, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="`target` is 'log', but the model to continue from"):
        model.set_params(target="log").fit(X, y)


def test_the_recipe_alone(rng):
    X, y = positive(rng)
    start = fs.recipes.regression(X, y, 12, target="log", rng=0)
    np.testing.assert_allclose(start.scale.y(y).std(), 1)
    values = rng.standard_normal(60)
    np.testing.assert_allclose(start.scale.back(start.scale.y(y)), y)
    mean, var = start.scale.back(values, np.full(60, 0.3))
    law = stats.lognorm(
        np.sqrt(0.3) * start.scale.y_scale, scale=np.exp(values * start.scale.y_scale)
    )
    scale = np.exp(start.scale.y_mean)
    np.testing.assert_allclose((mean, var), (law.mean() * scale, law.var() * scale**2), rtol=1e-9)
    unit = fs.recipes.regression(X, y, 12, target="log", normalize_y=False).scale
    assert (unit.y_mean, unit.y_scale) == (0, 1)


def test_rows_without_a_logarithm_are_named(rng):
    X, y = positive(rng)
    y[[7, 3, 20]] = 0, -2.5, -1
    refused = r"`y` must be positive for target='log', but is -2.5 in row 3 \(rows 3, 7, 20\);"
    with pytest.raises(ValueError, match=refused):
        SVGPRegressor(target="log", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match=refused):
        fs.recipes.regression(X, y, target="log")
    weights = np.ones(60)
    weights[[7, 3, 20]] = 0  # these rows are not used
    model = SVGPRegressor(target="log", **QUICK).fit(X, y, sample_weight=weights)
    with pytest.raises(ValueError, match="but is 0 in row 1"):
        model.log_predictive_density(X[6:8], [1.0, 0.0])
    with pytest.raises(ValueError, match=r"rows 0, 1, 2, 3, 4 and 55 more"):
        SVGPRegressor(target="log", **QUICK).fit(X, -np.ones(60))
    with pytest.raises(ValueError, match="but is 0 in row 2"):
        SVGPRegressor(target="log", **QUICK).fit(X[:5], [[1, 2], [1, 3], [1, 0], [2, 2], [3, 1]])


@pytest.mark.parametrize("likelihood", ["student-t", "laplace", "heteroskedastic", "poisson"])
def test_noise_under_which_the_mean_is_infinite(rng, likelihood):
    X, y = positive(rng)
    with pytest.raises(ValueError, match="`target='log'` is for the likelihood 'gaussian'"):
        SVGPRegressor(target="log", likelihood=likelihood, **QUICK).fit(X, np.ceil(y))
    with pytest.raises(ValueError, match="`target='log'` is for the likelihood 'gaussian'"):
        pairs = np.stack([y, np.ones(60)], axis=1)
        SVGPRegressor(target="log", likelihood="known-noise", **QUICK).fit(X, pairs)


@pytest.mark.parametrize("target", ["Log", "sqrt", np.log, True])
def test_other_targets_are_refused(rng, target):
    X, y = positive(rng)
    with pytest.raises(ValueError, match="`target` must be None, or 'log' for a model of log y"):
        SVGPRegressor(target=target, **QUICK).fit(X, y)
    with pytest.raises(TypeError, match="no setting `target`"):
        SVGPClassifier(target=target)


def test_quantiles_without_a_log_target(rng):
    X, y = real(rng)
    model = SVGPRegressor(**QUICK).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(
        model.predict_quantiles(X, LEVELS),
        stats.norm(mean, std).ppf(np.array(LEVELS)[:, None]),
        rtol=1e-7,
    )
    counts = SVGPRegressor(likelihood="poisson", **QUICK).fit(X, rng.poisson(5.0, 60))
    assert (counts.predict_quantiles(X, 0.5) % 1 == 0).all()


def test_what_it_is_for(rng):
    """scikit-learn's wrapper has no standard deviations, and its mean is the median of y."""
    X, y = positive(rng)
    model, plain = pair(X, y)
    wrapped = TransformedTargetRegressor(
        SVGPRegressor(**QUICK), func=np.log, inverse_func=np.exp
    ).fit(X, y)
    np.testing.assert_allclose(wrapped.predict(X), model.predict_quantiles(X, 0.5), rtol=1e-6)
    assert (model.predict(X) > wrapped.predict(X)).all()
