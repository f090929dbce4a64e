"""Few rows: a search ends with an average over the parameters, unless told not to."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes import averages
from fastsvgp.recipes.model_search import regression_answer
from fastsvgp.sklearn import SVGPRegressor, load, save

DRAWS = averages.DRAWS


def table(rng, N=40, D=2):
    X = rng.standard_normal((N, D)) * np.array([1.0, 30.0])[:D]
    return X, 50 + 7 * np.sin(X[:, 0]) + X[:, -1] / 30 + rng.standard_normal(N)


def test_the_answer_is_a_mixture_of_exact_processes(rng):
    X, y = table(rng)
    found = fs.search(X, y, 5.0, rng=3, by_work=True)
    assert type(found.model) is fs.Mixture and len(found.model.models) == DRAWS
    assert found.story[-1] == f"average over {DRAWS} draws of the parameters"
    Xs = found.scale.X(X)
    for one in found.model.models:
        np.testing.assert_array_equal(np.sort(one.inducing, axis=0), np.sort(Xs, axis=0))
    mean, _ = found.scale.back(*fs.predict_y(found.model, Xs))
    assert np.sqrt(np.mean((mean - y) ** 2)) < y.std()
    again = fs.search(X, y, 5.0, rng=3, by_work=True, plan=found.plan)
    np.testing.assert_array_equal(again.model.models[-1].inducing, found.model.models[-1].inducing)
    np.testing.assert_array_equal(fs.predict_y(again.model, Xs), fs.predict_y(found.model, Xs))


def test_it_is_around_the_mode_with_priors(rng):
    """Antithetic draws of logarithms: their mean is the mode, where the gradient vanishes."""
    X, y = table(rng, 60)
    found = fs.search(X, y, 5.0, rng=0, by_work=True)
    draws = [fs.ravel(one, transform="log", fixed=("inducing", "posterior"))[0] for one in
             found.model.models]  # fmt: skip
    one = found.model.models[0]
    _, unravel = fs.ravel(one, transform="log", fixed=("inducing", "posterior"))
    mode = unravel(np.mean(draws, axis=0))
    sgpr = fs.SGPR(mode.covariance, mode.inducing, mode.likelihood.variance)
    Xs, ys = found.scale.X(X), found.scale.y(y)
    priors = averages.priors_of(sgpr)
    assert priors and all(path.endswith("lengthscales") for path in priors)
    # ``laplace`` refuses what is no mode
    fs.priors.laplace(sgpr, Xs, ys, priors=priors, rng=0)


def test_a_point_estimate_if_asked_for_or_where_rows_are_many(rng, monkeypatch):
    X, y = table(rng)
    alone = fs.search(X, y, 5.0, rng=3, by_work=True, average=False)
    assert type(alone.model) is fs.SVGP and not any("average" in line for line in alone.story)
    equal = fs.search(X, np.ones(len(X)), 5.0, rng=3, by_work=True)
    assert type(equal.model) is fs.SVGP
    monkeypatch.setattr(regression_answer, "ROWS", len(X) - 1)
    many = fs.search(X, y, 5.0, rng=3, by_work=True)
    np.testing.assert_array_equal(many.model.posterior.mean, alone.model.posterior.mean)


def test_a_point_estimate_where_the_average_fails_or_has_no_time(rng, monkeypatch):
    X, y = table(rng)
    late = fs.search(X, y, 1e-9, rng=3, by_work=True)
    assert type(late.model) is fs.SVGP
    assert late.story[-1] == "no average over the parameters: no time"

    def refused(*_, **__):
        raise ValueError("laplace: `model` is 9 standard deviations from a mode. Train on")

    monkeypatch.setattr(averages, "laplace", refused)
    found = fs.search(X, y, 5.0, rng=3, by_work=True)
    assert type(found.model) is fs.SVGP
    assert "no average over the parameters (laplace: `model` is 9" in found.story[-1]


def test_weights_are_repeated_rows(rng):
    X, y = table(rng, 30)
    counts = 1 + rng.integers(3, size=len(X))
    weighted = fs.search(X, y, 5.0, rng=3, by_work=True, weights=counts)
    repeated = fs.search(np.repeat(X, counts, 0), np.repeat(y, counts), 5.0, rng=3, by_work=True)
    at = weighted.scale.X(X)
    for one, other in zip(
        fs.predict_y(weighted.model, at), fs.predict_y(repeated.model, at), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0.1, atol=0.02)


def test_an_estimator_averages_and_all_it_does_takes_the_average(rng, tmp_path):
    X, y = table(rng)
    model = SVGPRegressor(random_state=0).fit(X, y)
    assert type(model.model_) is fs.Mixture and len(model.model_.models) == DRAWS
    alone = SVGPRegressor(random_state=0, average=False).fit(X, y)
    assert type(alone.model_) is fs.SVGP and alone.plan_ is not None  # still a search
    mean, sd = model.predict(X, return_std=True)
    _, cov = model.predict(X[:3], return_cov=True)
    np.testing.assert_allclose(np.diag(cov), sd[:3] ** 2)
    assert model.sample_y(X[:5], 3).shape == (5, 3)
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    low, high = model.predict_quantiles(X, [0.05, 0.95])
    assert (low < mean).all() and (mean < high).all()
    save(tmp_path / "m.npz", model)
    np.testing.assert_array_equal(load(tmp_path / "m.npz").predict(X), model.predict(X))
    model.export(tmp_path / "many.py")
    alone.export(tmp_path / "one.py")
    sizes = [(tmp_path / f"{name}.npz").stat().st_size for name in ("many", "one")]
    assert sizes[0] > 10 * sizes[1]
    model.partial_fit(X[:4] + 0.1, y[:4])
    assert type(model.model_) is fs.Mixture and np.isfinite(model.predict(X)).all()
    with pytest.raises(TypeError, match="`average` must be"):
        SVGPRegressor(average="no").fit(X, y)
