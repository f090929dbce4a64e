"""Near rows as a candidate of the search, and in a recipe, an estimator and a command."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes import relevance
from fastsvgp.recipes.model_search import near_rows, regression, search_models
from fastsvgp.recipes.model_search.plain_processes import Plain
from fastsvgp.recipes.model_search.plan import SearchPlan, restore, stage_of
from fastsvgp.recipes.model_search.rows import SearchRows
from fastsvgp.sklearn import SVGPRegressor

SETTINGS = {"seconds": 2.0, "by_work": True, "rng": 1}


@pytest.fixture(autouse=True)
def for_small_tables(tune, monkeypatch):
    tune(race_seconds=0.5, exact_rows=100)
    monkeypatch.setattr(regression, "FEWEST", 200)


def table(rng, N=400):
    """Make rows of many cycles, more than the inducing inputs of a short search can follow."""
    X = rng.uniform(-1, 1, (N, 2))
    return X, np.sin(9 * X[:, 0]) * np.cos(6 * X[:, 1]) + 0.02 * rng.standard_normal(N)


class NoScale:
    @staticmethod
    def X(X):
        return X


@pytest.fixture
def candidate(rng):
    """Return a trained candidate, its plan, and rows that it has not seen."""
    X, y = table(rng, 300)
    plan = SearchPlan(10.0, by_work=True)
    plain = Plain("plain", NoScale, SearchRows(X[:250], y[:250]), np.random.default_rng(0))
    plain.M = 20
    plain._begin(plan, 0.02)
    near = near_rows.Near("near rows", plain, plan, 16)
    near.take(plan, 0.02)
    return near, plan, SearchRows(X[250:], y[250:])


def leaves(model):
    return {path: np.asarray(value) for path, _, value in fs.records.leaves(model)}


def test_a_search_can_end_with_near_rows_of_all_rows(rng, monkeypatch):
    X, y = table(rng)
    monkeypatch.setattr(regression.Regression, "_networks", lambda *_: [])
    monkeypatch.setattr(Plain, "M", 16)
    monkeypatch.setattr(regression, "M", 16)
    monkeypatch.setattr(regression.Regression, "_others", lambda *_: [])  # no mixture
    search_models._rehearse(None)
    found = fs.search(X, y, **SETTINGS)
    assert found.chosen.startswith("near rows") and type(found.model) is fs.VIF
    assert len(found.model.near.X) == len(X)
    np.testing.assert_array_equal(found.model.near.X, found.scale.X(X))
    again = fs.search(X, y, **SETTINGS, plan=found.plan)
    assert again.story == found.story
    for path, value in leaves(again.model).items():
        np.testing.assert_array_equal(value, leaves(found.model)[path], err_msg=path)


def test_few_rows_and_rows_on_disk_have_no_such_candidate(rng, monkeypatch):
    X, y = table(rng, 150)
    given = SearchRows(X, y), SearchRows(X[:20], y[:20]), SearchRows(X[:20], y[:20])
    scale = fs.recipes.Start
    race = regression.Regression(
        None, given[0], *given, scale, scale, SearchPlan(5.0), 0, lambda line: None
    )
    assert race._near(None, "raw", 5.0) == []
    monkeypatch.setattr(regression, "FEWEST", 100)
    race.rows = SearchRows(memoryview(X), y)
    assert race._near(None, "raw", 5.0) == []


def test_a_candidate_resumes_to_the_bit(candidate):
    near, plan, _ = candidate
    stage = stage_of(near, None, "", plan, 0.0)
    other = near_rows.Near(near.name, near._plain, SearchPlan(10.0, True, plan.counts), 16)
    restore(stage, other, other._plan)
    for one in (near, other):
        one._trainer.take(plan, 5)
    for path, value in leaves(near.model).items():
        np.testing.assert_array_equal(value, leaves(other.model)[path], err_msg=path)


def test_all_variances_can_be_multiplied_and_means_stay(candidate):
    near, plan, unseen = candidate
    one = near_rows.Detailed(near.model)
    plan.seconds = plan.spent  # no time for another q(u)
    plain = one.of_all((1.0, 1.0), near.rows, plan)
    times = one.of_all((3.7, 3.7), near.rows, plan)
    mean, var = fs.predict_y(plain, unseen.X)
    np.testing.assert_allclose(mean, one.predict(unseen.X)[0], rtol=1e-9, atol=1e-9)
    other_mean, other_var = fs.predict_y(times, unseen.X)
    np.testing.assert_allclose(other_mean, mean, rtol=1e-4, atol=1e-4)  # jitter is not multiplied
    np.testing.assert_allclose(other_var, 3.7 * var, rtol=1e-4)


def test_the_last_pass_has_the_optimal_posterior(candidate):
    near, plan, _ = candidate
    model = near_rows.Detailed(near.model).of_all((1.0, 1.0), near.rows, plan)
    bound, grad = fs.elbo_and_grad(model, near.rows.X, near.rows.y, wrt="posterior")
    assert bound > fs.elbo(near.model, near.rows.X, near.rows.y)
    np.testing.assert_allclose(grad.posterior.mean, 0, atol=1e-6 * abs(bound))


def test_held_out_rows_choose_the_noise(candidate):
    near, _, unseen = candidate
    scores = []
    for factor in (1.0, 30.0):
        noise = fs.Gaussian(factor * near.model.likelihood.variance)
        model = fs.replace(near.model, likelihood=noise)
        first = near_rows.score_near(model, NoScale, unseen)
        best = near_rows.best_noise(model, NoScale, unseen)
        assert best.score >= first.score and best.factors[0] == best.factors[1]
        scores.append((first.score, best.score, best.collapsed.noise / first.collapsed.noise))
    assert scores[1][2] < 1 and scores[1][1] > scores[1][0]


def test_noise_that_is_too_little_for_equal_rows(candidate, monkeypatch):
    near, plan, unseen = candidate
    least = 0.3 * near.model.likelihood.variance
    score, step = near_rows.score_near, near_rows.natural_step

    def failing(function, at):
        def call(model, *args, **options):
            if model.likelihood.variance < at:
                raise fs.NotPositiveDefinite((), 3, 0.0, 9, np.float64)
            return function(model, *args, **options)

        return call

    monkeypatch.setattr(near_rows, "score_near", failing(score, least))
    best = near_rows.best_noise(near.model, NoScale, unseen)
    assert best.collapsed.noise >= least
    now = float(near.model.likelihood.variance)
    monkeypatch.setattr(near_rows, "natural_step", failing(step, 5 * now))
    model = near_rows.Detailed(near.model).of_all((1.0, 1.0), near.rows, plan)
    assert model.likelihood.variance == pytest.approx(10 * now)
    monkeypatch.setattr(near_rows, "natural_step", failing(step, 1e9))
    with pytest.raises(fs.NotPositiveDefinite):
        near_rows.Detailed(near.model).of_all((1.0, 1.0), near.rows, plan)


def test_an_exact_process_at_lengthscales_of_0_gives_no_relevance(rng, monkeypatch):
    X, y = table(rng)

    def collapse(exact, *_, **__):
        info = fs.optim.FitInfo([], 0.0, np.empty((0, 2)), 1, 0.0, "converged", 0)
        covariance = fs.replace(exact.covariance, lengthscales=np.array([1e-200, 1.0]))
        return fs.replace(exact, covariance=covariance), info

    monkeypatch.setattr(relevance, "fit", collapse)
    start = np.array([1.5, 2.5])
    found = relevance.relevant_lengthscales(fs.Matern32, start, X, y, None, rng)
    np.testing.assert_array_equal(found, start)


# --- the recipe's two numbers, an estimator ---


def test_info_has_residual_and_distance(rng):
    X, y = table(rng, 120)
    covariance, Z = fs.RBF(1.3, np.array([0.7, 0.4])), X[:6]
    q = fs.Whitened(np.zeros(6), np.eye(6))
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(0.2))
    _, info = fs.recipes.near_rows(model, X, y, neighbours=3, steps=1)
    K = covariance.matrix(Z) + 1e-6 * np.eye(6)
    Kuf = covariance.matrix(Z, X)
    left = 1.3 - np.einsum("mn,mn->n", Kuf, np.linalg.solve(K, Kuf))
    assert info.detail[0] == pytest.approx(left.mean() / 0.2, rel=1e-6)
    scaled = X / covariance.lengthscales
    apart = np.linalg.norm(scaled[:, None] - scaled, axis=2) + np.diag(np.full(120, np.inf))
    # nearest earlier rows are further away than nearest rows
    assert np.median(apart.min(axis=1)) < info.detail[1] < 3 * np.median(apart.min(axis=1))


def test_an_estimator_trains_near_rows_and_continues(rng):
    X, y = table(rng, 150)
    settings = {"n_inducing": 20, "max_iter": 5, "random_state": 0}
    with pytest.warns(UserWarning):
        plain = SVGPRegressor(**settings).fit(X, y)
        model = SVGPRegressor(neighbours=5, **settings).fit(X, y)
    assert type(model.model_) is fs.VIF and model.model_.near.earlier.shape == (150, 5)
    assert model.lower_bound_ > plain.lower_bound_
    mean, std = model.predict(X[:4], return_std=True)
    assert mean.shape == std.shape == (4,) and model.sample_y(X[:4], 2).shape == (4, 2)
    model.set_params(warm_start=True, max_iter=1)
    with pytest.warns(UserWarning):
        model.fit(X[:100], y[:100])
    assert len(model.model_.near.X) == 100
    with pytest.raises(ValueError, match="`solver` 'lbfgs': a VIF continues"):
        model.set_params(solver="lbfgs").fit(X, y)


def test_near_rows_of_a_collapsed_model_name_the_way(rng):
    X, y = table(rng, 60)
    sgpr = fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:5], 0.1)
    with pytest.raises(TypeError, match=r"got SGPR; of an SGPR give fs.optimal_svgp\(model"):
        fs.recipes.near_rows(sgpr, X, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"neighbours": 400}, "`neighbours` must be below the number of rows, got 400 and 400"),
        ({"neighbours": 2, "n_latents": 2}, "`n_latents` gives them several"),
        ({"neighbours": 0}, "`neighbours` must be"),
        ({"neighbours": 2, "time_budget": 1}, "`time_budget` lets the time choose"),
    ],
)
def test_wrong_settings_of_an_estimator(rng, settings, message):
    X, y = table(rng)
    with pytest.raises(ValueError, match=message):
        SVGPRegressor(**settings).fit(X, np.stack([y, y], 1) if "n_latents" in settings else y)
