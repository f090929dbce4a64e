"""The parts of a search against references: bounds, posteriors, densities, splits, plans."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import fastsvgp as fs
from fastsvgp.recipes.model_search import (
    collapsed_posterior,
    held_out_density,
    rows as rows_of,
)
from fastsvgp.recipes.model_search.plan import RATE, SearchPlan, counts_of
from fastsvgp.recipes.model_search.rows import SearchRows

JITTER = 1e-6


@pytest.fixture(params=["inputs", "features"])
def problem(request, rng):
    X = rng.standard_normal((70, 2))
    rows = SearchRows(X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(70))
    if request.param == "inputs":
        covariance, Z = fs.Matern32(1.3, np.array([0.9, 1.4])), X[:12].copy()
    else:
        covariance = fs.covariances.OnFeatures(
            fs.RBF(1.3, np.ones(3)), fs.covariances.Network.random((2, 7, 3), rng=rng)
        )
        Z = covariance.network(X[:12])
    return covariance, Z, rows


def at(problem, s, n, weights=None, chunk=None):
    covariance, Z, rows = problem
    found = collapsed_posterior.sums(covariance, Z, rows.X, rows.y, weights, JITTER)
    return found, collapsed_posterior.Collapsed(covariance, Z, found, s, n)


@pytest.mark.parametrize("s, n", [(1.0, 0.05), (0.3, 0.01), (4.0, 1.0)])
def test_the_posterior_is_that_of_sgpr(problem, rng, s, n):
    covariance, Z, rows = problem
    _, collapsed = at(problem, s, n)
    sgpr = fs.SGPR(collapsed_posterior.rescale(covariance, s), Z, n)
    svgp = fs.optimal_svgp(sgpr, rows.X, rows.y, jitter=s * JITTER)
    X = rng.standard_normal((9, 2))
    for ours, theirs in zip(
        collapsed.predict(X), fs.predict_f(svgp, X, jitter=s * JITTER), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_tuned_variance_and_noise_maximise_the_collapsed_bound(problem):
    covariance, Z, rows = problem
    found, _ = at(problem, 1.0, 0.1)
    s, n = collapsed_posterior.maximise_bound(found, 0.1)

    def bound(log_s, log_n):
        sgpr = fs.SGPR(collapsed_posterior.rescale(covariance, np.exp(log_s)), Z, np.exp(log_n))
        return fs.collapsed_bound(sgpr, rows.X, rows.y, jitter=np.exp(log_s) * JITTER)

    here = np.log([s, n])
    for step in ([1e-3, 0.0], [-1e-3, 0.0], [0.0, 1e-3], [0.0, -1e-3]):
        assert bound(*(here + step)) < bound(*here)
    fixed = collapsed_posterior.maximise_bound(found, 0.3, fixed_noise=True)
    assert fixed[1] == pytest.approx(0.3, rel=1e-12)
    best = np.log(fixed[0])
    assert bound(best, np.log(0.3)) > max(
        bound(best + 0.01, np.log(0.3)), bound(best - 0.01, np.log(0.3))
    )


def test_slopes_of_the_bound_match_differences(problem, monkeypatch):
    found, _ = at(problem, 1.0, 0.1)
    seen = {}
    monkeypatch.setattr(
        "scipy.optimize.minimize",
        lambda loss, start, **_: seen.update(loss=loss) or minimize(lambda x: x @ x, start),
    )
    collapsed_posterior.maximise_bound(found, 0.1)
    for point in np.array([[0.0, -2.0], [1.2, -4.0], [-2.0, 0.5]]):
        _, slopes = seen["loss"](point)
        for i, step in enumerate(1e-5 * np.eye(2)):
            difference = (seen["loss"](point + step)[0] - seen["loss"](point - step)[0]) / 2e-5
            assert slopes[i] == pytest.approx(difference, rel=1e-6, abs=1e-9)


def test_sums_agree_for_chunks_and_for_repeated_rows(problem, rng, tune):
    covariance, Z, rows = problem
    whole, collapsed = at(problem, 1.0, 0.1)
    counts = rng.integers(0, 3, len(rows))
    weighted = collapsed_posterior.sums(covariance, Z, rows.X, rows.y, counts.astype(float), JITTER)
    repeated = collapsed_posterior.sums(
        covariance, Z, np.repeat(rows.X, counts, 0), np.repeat(rows.y, counts), None, JITTER
    )
    tune(search_chunk_rows=16)
    parts, again = at(problem, 1.0, 0.1)
    for one, other in ((whole, parts), (weighted, repeated)):
        for first, second in zip(one, other, strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(collapsed.predict(rows.X), again.predict(rows.X), rtol=1e-10)


@pytest.mark.parametrize("a", [0.05, 1.0, 20.0])
def test_factors_are_put_into_the_model(problem, rng, a):
    covariance, Z, rows = problem
    s, n, c = 1.7, 0.02, 3.0
    found = collapsed_posterior.sums(covariance, Z, rows.X, rows.y, None, JITTER / a / s)
    collapsed = collapsed_posterior.Collapsed(covariance, Z, found, s, n)
    svgp, factors = collapsed_posterior.make_svgp(collapsed, Z, (a, c), rows)
    assert factors == (a, c) and svgp.likelihood.variance == pytest.approx(c * n)
    X = rng.standard_normal((20, 2))
    mean, var = fs.predict_f(svgp, X)
    expected_mean, expected_var = collapsed.predict(X)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-9)
    np.testing.assert_allclose(var, a * expected_var, atol=1e-9 * a)


def test_factor_is_one_if_the_smaller_jitter_is_too_small():
    X = np.linspace(0, 1, 40)[:, None]
    rows = SearchRows(X, np.sin(X[:, 0]))
    covariance = fs.RBF(1e6, np.full(1, 3.0))
    Z = X.copy()
    found = collapsed_posterior.sums(covariance, Z, rows.X, rows.y, None, 1.0)
    collapsed = collapsed_posterior.Collapsed(covariance, Z, found, 1e-5, 0.1)
    svgp, (a, c) = collapsed_posterior.make_svgp(collapsed, Z, (1e9, 2.0), rows)
    assert (a, c) == (1.0, 2.0)
    assert np.isfinite(fs.predict_f(svgp, X)[1]).all()


def test_factors_have_the_largest_density_under_their_prior(rng):
    N = 400
    var_f, noise = rng.gamma(2.0, 0.1, N), 0.05
    mean = rng.standard_normal(N)
    y = mean + np.sqrt(3.0 * var_f + 0.5 * noise) * rng.standard_normal(N)
    a, c = held_out_density.factors_of(mean, var_f, noise, y)

    def posterior(p):
        sd = np.sqrt(np.exp(p[0]) * var_f + np.exp(p[1]) * noise)
        return stats.norm.logpdf(y, mean, sd).sum() - 0.5 * held_out_density.PRIOR_ROWS * (p @ p)

    here = np.log([a, c])
    for step in (np.eye(2)[0], np.eye(2)[1]):
        assert posterior(here) >= max(posterior(here + 0.01 * step), posterior(here - 0.01 * step))
    assert 2 < a < 4


@pytest.mark.parametrize("df", [1.5, 3.0, np.inf])
def test_student_t_noise_is_taken_where_tails_are_heavy(rng, df):
    N = 1800  # 1,200 held-out rows: df within its limits for any seed
    X = rng.uniform(-3, 3, (N, 1))
    f = np.sin(2 * X[:, 0])
    y = f + 0.1 * (rng.standard_normal(N) if df == np.inf else rng.standard_t(df, N))
    rows, held = SearchRows(X[:600], y[:600]), SearchRows(X[600:], y[600:])
    covariance, Z = fs.RBF(1.0, np.ones(1)), np.linspace(-3, 3, 15)[:, None]
    found = collapsed_posterior.sums(covariance, Z, rows.X, rows.y, None, JITTER)
    collapsed = collapsed_posterior.Collapsed(
        covariance, Z, found, *collapsed_posterior.maximise_bound(found, 0.1)
    )
    mean, var_f = collapsed.predict(held.X)
    noise = held_out_density.student_noise(held.y - mean, var_f, None)
    if df == np.inf:
        assert noise is None
        return
    assert noise.df < 2 * df + 1 and 0.05 < noise.scale < 0.2
    gaussian, _ = collapsed_posterior.make_svgp(collapsed, Z, (1.0, 1.0), rows)
    steps = held_out_density.steps_of(gaussian, noise, rows, SearchPlan(60.0))
    assert steps >= held_out_density.FEWEST
    heavy = held_out_density.train_with_tails(gaussian, noise, rows, steps, SearchPlan(60.0))
    by_density, _ = held_out_density.gains(heavy, gaussian, held.X, held.y, None)
    assert by_density > 1
    assert held_out_density.steps_of(gaussian, noise, rows, SearchPlan(1e-9)) is None


def test_fitted_student_t_recovers_df_and_scale(rng):
    z = 1.7 * stats.t(5.0).rvs(20_000, random_state=rng)
    tails = held_out_density.tails_of(z)
    assert 4.3 < tails.df < 5.8 and abs(tails.scale - 1.7) < 0.05
    density = tails.log_density(2 * z, 2.0)
    np.testing.assert_allclose(
        density, stats.t(tails.df, scale=2 * tails.scale).logpdf(2 * z), atol=1e-10
    )
    assert held_out_density.tails_of(z, lightest=8.0).df == pytest.approx(8.0, rel=1e-6)
    outlier = np.append(rng.standard_normal(500), 30.0)
    one = held_out_density.log_densities(np.zeros(501), np.ones(501), outlier)
    assert -1.6 < one.mean() < -1.3 and one[-1] > -40  # the Gaussian one has -451 there


def test_better_by_counts_paired_standard_errors(rng):
    first = rng.standard_normal(400)
    noise = rng.standard_normal(400)
    by = held_out_density.better_by(first + 0.1 + 0.5 * noise, first)
    gain = 0.1 + 0.5 * noise
    assert by == pytest.approx(gain.mean() / (gain.std(ddof=1) / 20), rel=1e-9)
    assert held_out_density.better_by(first, first) == 0


def test_equal_rows_stay_on_one_side(rng):
    X = np.repeat(rng.standard_normal((60, 3)), 5, axis=0)
    X[::7, 0] = 0.0
    X[1::7, 0] = -0.0
    rows = SearchRows(X, rng.standard_normal(300), np.arange(300.0))
    train, held = rows_of.hold_out(rows, 40, rng)
    assert len(train) + len(held) == 300 and 40 <= len(held) <= 50
    assert not {tuple(row + 0.0) for row in train.X} & {tuple(row + 0.0) for row in held.X}
    assert rows_of.distinct_count(rows) == len(np.unique(X, axis=0))
    np.testing.assert_array_equal(np.sort(np.r_[train.weights, held.weights]), np.arange(300.0))


def test_a_plan_gives_its_counts_back():
    plan = SearchPlan(1.0)
    assert plan.count("steps", lambda: 12.9) == 12
    again = SearchPlan(1.0, given=counts_of(plan.to_json()))
    assert again.count("steps", lambda: pytest.fail("the clock was read")) == 12
    assert again.count("more", lambda: 3) == 3
    with pytest.raises(ValueError, match="count 0 is of 'steps', and here 'rows'"):
        SearchPlan(1.0, given=counts_of(plan.to_json())).count("rows", lambda: 1)
    for bad in ({}, "{", {"counts": [["a"]]}, 3, {"counts": [["a", -1]]}):
        with pytest.raises(ValueError, match="`plan`"):
            counts_of(bad)


def test_plan_by_work_counts_operations():
    plan = SearchPlan(1.0, by_work=True)
    plan.did(RATE, calls=0)
    assert plan.spent == 1.0 and plan.left == 0.0
