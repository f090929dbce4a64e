"""Estimators of counts, positive numbers, proportions and grades, and of targets with columns."""

import numpy as np
import pytest
from scipy import special, stats
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import fastsvgp as fs
from fastsvgp import recipes
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor, load, save

QUICK = {"n_inducing": 12, "max_iter": 40, "learning_rate": 0.05, "random_state": 0}
N = 160


def data(rng):
    """One input, a sine, and targets of each likelihood around it."""
    x = rng.uniform(-3, 3, (N, 1))
    f = np.sin(2 * x[:, 0])
    trials, exposure = rng.integers(1, 30, N), rng.uniform(1, 9, N)
    p, sd = special.expit(2 * f), rng.uniform(5, 50, N)
    z = 100 + 50 * f
    return (x, f), {
        "negative-binomial": rng.poisson(np.exp(2 + f) * rng.gamma(8, 1 / 8, N)),
        "zero-inflated-poisson": rng.poisson(np.exp(2 + f)) * (rng.random(N) < 0.8),
        "binomial": np.stack([rng.binomial(trials, p), trials], axis=1),
        "gamma": np.exp(f - 7) * rng.gamma(9, 1 / 9, N),
        "exponential": np.exp(f + 5) * rng.exponential(size=N),
        "beta": rng.beta(9 * p, 9 - 9 * p),
        "known-noise": np.stack([z + sd * rng.standard_normal(N), sd**2], axis=1),
        "censored": np.stack([np.minimum(z, 120) + rng.standard_normal(N), z > 120], axis=1),
        "exposure": np.stack([rng.poisson(exposure * np.exp(f)), exposure], axis=1),
    }


OF_RECORDS = {"exposure": fs.likelihoods.NegativeBinomial(2.0, exposure="column")}
NAMES = [
    "negative-binomial", "zero-inflated-poisson", "binomial", "gamma", "exponential", "beta",
    "known-noise", "censored", "exposure",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_likelihood_of_numbers(rng, tmp_path, name):
    (x, f), targets = data(rng)
    y = targets[name]
    model = SVGPRegressor(likelihood=OF_RECORDS.get(name, name), **QUICK).fit(x, y)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (N,) and np.corrcoef(mean, f)[0, 1] > 0.8
    assert model.score(x, y) > 0.1
    draws = model.sample_y(x, n_samples=300)
    assert draws.shape == (N, 300)
    np.testing.assert_allclose(np.median(draws.std(axis=1) / std), 1, atol=0.15)
    density = model.log_predictive_density(x, y)
    assert density.shape == (N,) and np.isfinite(density).all()
    path = tmp_path / "model.npz"
    save(path, model)
    again = load(path)
    np.testing.assert_array_equal(again.predict(x, return_std=True)[0], mean)
    np.testing.assert_allclose(again.predict(x), mean, rtol=1e-9, atol=1e-9)  # without variances
    np.testing.assert_array_equal(again.log_predictive_density(x, y), density)


def test_starts_are_at_the_moments_of_the_targets(rng):
    (x, _), targets = data(rng)

    def start(name, y=None, **settings):
        y = targets[name] if y is None else y
        return recipes.regression(x, y, 10, likelihood=name, rng=0, **settings)

    for name in ("gamma", "exponential", "negative-binomial"):
        mean = start(name).model.mean.value
        np.testing.assert_allclose(mean, np.log(targets[name].mean()))
    np.testing.assert_allclose(
        start("beta").model.mean.value, special.logit(targets["beta"].mean())
    )
    y, trials = targets["binomial"].T
    np.testing.assert_allclose(
        start("binomial").model.mean.value, special.logit(y.sum() / trials.sum())
    )
    probit = start(fs.likelihoods.Binomial(link="probit"), targets["binomial"])
    np.testing.assert_allclose(probit.model.mean.value, special.ndtri(y.sum() / trials.sum()))
    y, exposure = targets["exposure"].T
    column = start(fs.Poisson(exposure="column"), targets["exposure"]).model
    np.testing.assert_allclose(column.mean.value, np.log(y.sum() / exposure.sum()))
    np.testing.assert_allclose(
        start(fs.likelihoods.NegativeBinomial(exposure=4.0), y).model.mean.value,
        np.log(y.mean() / 4),
    )
    assert start("known-noise").model.mean is None
    # weights are repeated rows
    w = rng.integers(0, 3, N)
    for name in ("gamma", "binomial"):
        one = start(name, weights=w).model
        two = recipes.regression(
            np.repeat(x, w, axis=0), np.repeat(targets[name], w, axis=0), 10, likelihood=name, rng=0
        ).model
        np.testing.assert_allclose(one.mean.value, two.mean.value)
    # outputs have their own means, also mixed
    Y = np.stack([targets["gamma"], 3 * targets["gamma"]], axis=1)
    for latents in (None, 2):
        mean = start("gamma", Y, latents=latents).model.mean.value
        np.testing.assert_allclose(mean, np.log(Y.mean(axis=0)))
    # all counts 0, all trials successes
    for likelihood, y in (
        (fs.likelihoods.NegativeBinomial(), np.zeros(N)),
        (fs.likelihoods.Binomial(), np.full((N, 2), 3.0)),
        ("zero-inflated-poisson", np.zeros(N)),
    ):
        found = start(likelihood, y).model
        assert np.isfinite(found.mean.value)


def test_columns_are_in_the_units_of_the_data(rng):
    (x, _), targets = data(rng)
    y = targets["known-noise"]
    scale = recipes.regression(x, y, 10, likelihood="known-noise", rng=0).scale
    y_mean, y_scale = y[:, 0].mean(), y[:, 0].std()
    np.testing.assert_allclose(
        scale.y(y), np.stack([(y[:, 0] - y_mean) / y_scale, y[:, 1] / y_scale**2], axis=1)
    )
    # in other units the model and its predictions are those of the other units
    one, ten = (
        SVGPRegressor(likelihood="known-noise", **QUICK).fit(x, y * [k, k * k]) for k in (1, 10)
    )
    np.testing.assert_allclose(10 * one.predict(x), ten.predict(x), rtol=1e-6)
    np.testing.assert_allclose(
        one.log_predictive_density(x, y),
        ten.log_predictive_density(x, y * [10, 100]) + np.log(10),
        rtol=1e-6,
    )
    # a limit has a probability, which has no units
    y = targets["censored"]
    one, ten = (SVGPRegressor(likelihood="censored", **QUICK).fit(x, y * [k, 1]) for k in (1, 10))
    np.testing.assert_allclose(
        one.log_predictive_density(x, y),
        ten.log_predictive_density(x, y * [10, 1]) + np.log(10) * (y[:, 1] == 0),
        rtol=1e-5, atol=1e-8,
    )  # fmt: skip


def test_scores_are_of_units(rng):
    (x, _), targets = data(rng)
    y, trials = targets["binomial"].T
    model = SVGPRegressor(likelihood="binomial", **QUICK).fit(x, targets["binomial"])
    p = model.predict(x)
    assert ((p > 0) & (p < 1)).all()
    rate = np.sum(y) / np.sum(trials)
    left = np.sum(trials * (y / trials - p) ** 2) / np.sum(trials * (y / trials - rate) ** 2)
    np.testing.assert_allclose(model.score(x, targets["binomial"]), 1 - left)
    censored = SVGPRegressor(likelihood="censored", **QUICK).fit(x, targets["censored"])
    y, side = targets["censored"].T
    seen = side == 0
    left = np.sum((y - censored.predict(x))[seen] ** 2) / np.sum((y[seen] - y[seen].mean()) ** 2)
    np.testing.assert_allclose(censored.score(x, targets["censored"]), 1 - left)


def test_early_stopping_warm_starts_and_cross_validation(rng):
    (x, _), targets = data(rng)
    y = targets["binomial"]
    model = SVGPRegressor(likelihood="binomial", early_stopping=True, **QUICK).fit(x, y)
    assert (cross_val_score(clone(model), x, y, cv=2) > 0.3).all()
    warm = model.set_params(warm_start=True, early_stopping=False).fit(x, y)
    assert warm.lower_bound_ > -500 and np.isfinite(warm.predict(x)).all()


def test_grades(rng, tmp_path):
    (x, f), _ = data(rng)
    grades = np.array([2, 3, 5, 9])[np.digitize(f + 0.3 * rng.standard_normal(N), (-0.5, 0, 0.5))]
    model = SVGPClassifier(likelihood="ordinal", **QUICK).fit(x, grades)
    p = model.predict_proba(x)
    assert p.shape == (N, 4) and (p > 0).all() and model.score(x, grades) > 0.5
    np.testing.assert_allclose(p.sum(axis=1), 1)
    codes = np.searchsorted(model.classes_, grades)
    np.testing.assert_allclose(
        np.exp(model.log_predictive_density(x, grades)), p[np.arange(N), codes]
    )
    draws = model.sample_y(x, n_samples=400)
    assert np.isin(draws, grades).all()
    np.testing.assert_allclose((draws == 9).mean(axis=1), p[:, 3], atol=0.12)
    save(tmp_path / "model.npz", model)
    np.testing.assert_array_equal(load(tmp_path / "model.npz").predict_proba(x), p)
    # f = 0 gives the frequencies
    start = recipes.classification(x, grades, 10, likelihood="ordinal", rng=0).model
    edges = start.likelihood.first + np.append(0, np.cumsum(start.likelihood.gaps))
    shares = np.cumsum(np.bincount(codes) + 1)[:-1] / (N + 4)
    np.testing.assert_allclose(stats.norm.cdf(edges / np.sqrt(2)), shares)


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("gamma", lambda y: y - y.max(), "`y` must hold positive numbers; got"),
        ("beta", lambda y: 2 * y, "`y` must hold"),
        ("negative-binomial", lambda y: y + 0.5, "`y` must hold counts; got"),
        ("binomial", lambda y: y[:, 0], r"`y` has shape \(160,\), and the likelihood reads the"),
        ("binomial", lambda y: y * [1, 0], "of its column trials|in its column|at most its trials"),
        ("known-noise", lambda y: y * [1, -1], "positive variances in its column known; got"),
        ("censored", lambda y: y + [0, 1], "sides -1, 0 or 1 in its column side; got"),
        ("exposure", lambda y: y * [1, 0], "positive numbers in its column exposure; got 0.0"),
    ],
)  # fmt: skip
def test_bad_targets_are_named(rng, name, spoil, message):
    (x, _), targets = data(rng)
    model = SVGPRegressor(likelihood=OF_RECORDS.get(name, name), **QUICK)
    with pytest.raises(ValueError, match=message):
        model.fit(x, spoil(targets[name]))


def test_bad_settings_are_named(rng):
    (x, f), targets = data(rng)
    with pytest.raises(ValueError, match="did you mean 'negative-binomial'"):
        SVGPRegressor(likelihood="negativebinomial").fit(x, f)
    with pytest.raises(ValueError, match="'censored', 'poisson', 'negative-binomial'"):
        SVGPRegressor(likelihood="cauchy").fit(x, f)
    with pytest.raises(ValueError, match="did you mean 'gaussian'"):
        SVGPRegressor(likelihood="normal").fit(x, f)
    with pytest.raises(ValueError, match="Ordinal has 3 classes, but `y` has 2"):
        SVGPClassifier(likelihood=fs.likelihoods.Ordinal(0.0, np.ones(1))).fit(x, f > 0)
    with pytest.raises(ValueError, match="exposure; it is for Poisson and NegativeBinomial"):
        recipes.likelihood_of("gamma", targets["exposure"], exposure=True)
    model = SVGPRegressor(likelihood="binomial", **QUICK | {"max_iter": 2})
    model.fit(x, targets["binomial"])
    with pytest.raises(ValueError, match="reads the columns y, trials, in this order"):
        model.log_predictive_density(x, f)
