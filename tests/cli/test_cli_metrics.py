"""Metrics against their definitions, and the printed table."""

import numpy as np
import pytest
from scipy import stats

from fastsvgp.cli.report import metrics, plots
from fastsvgp.recipes.scaling import Scale


def test_regression_in_both_scales(rng):
    y = rng.normal(7, 3, 65)
    scale = Scale.fit(np.ones((65, 1)), y, scale_target=True)
    mean, sd = y + rng.normal(0, 1, 65), 1.2
    standard = (
        scale.y(y),
        scale.y(mean),
        stats.norm.logpdf(scale.y(y), scale.y(mean), sd / scale.y_scale),
    )
    result = metrics.regression(*standard, scale)
    original = result["original_scale"]["model"]
    assert original["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-12)
    assert original["nlpd"] == pytest.approx(-stats.norm.logpdf(y, mean, sd).mean(), rel=1e-12)
    trivial = result["original_scale"]["trivial"]
    assert trivial["rmse"] == pytest.approx(y.std(), rel=1e-12)
    assert trivial["nlpd"] == pytest.approx(
        -stats.norm.logpdf(y, y.mean(), y.std()).mean(), rel=1e-12
    )
    assert result["trivial"]["rmse"] == pytest.approx(1, rel=1e-12)
    text = metrics.table(result)
    assert "standardised" in text and "original scale" in text and "mean and sd" in text


def test_the_trivial_predictor_of_numbers_in_a_range(rng):
    y = rng.beta(2, 3, 65)
    m, sd = y.mean(), y.std()
    found = metrics.trivial_densities("gamma", y, None, (m, sd))
    np.testing.assert_allclose(found, stats.gamma.logpdf(y, (m / sd) ** 2, scale=sd**2 / m))
    worth = m * (1 - m) / sd**2 - 1
    found = metrics.trivial_densities("beta", y, None, (m, sd))
    np.testing.assert_allclose(found, stats.beta.logpdf(y, m * worth, (1 - m) * worth))


def test_the_trivial_predictor_of_counts(rng):
    n = rng.integers(1, 30, 65)
    y = rng.binomial(n, 0.3)
    for likelihood, second, expected in (
        ("binomial", n, stats.binom.logpmf(y, n, 0.3)),
        ("poisson", n, stats.poisson.logpmf(y, 0.3 * n)),
        ("poisson", None, stats.poisson.logpmf(y, 0.3)),
    ):
        found = metrics.trivial_densities(likelihood, y, second, (0.3, None))
        np.testing.assert_allclose(found, expected)


def test_classification():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2]])
    y, train = np.array([0, 1, 2]), np.array([0, 0, 0, 1])
    result = metrics.classification(y, probabilities, np.log(probabilities[np.arange(3), y]), train)
    assert result["model"]["accuracy"] == pytest.approx(2 / 3)
    assert result["model"]["nlpd"] == pytest.approx(-np.log([0.7, 0.8, 0.2]).mean())
    assert result["trivial"]["accuracy"] == pytest.approx(1 / 3)
    assert result["trivial"]["nlpd"] == pytest.approx(-np.log([4 / 7, 2 / 7, 1 / 7]).mean())
    assert "class frequencies" in metrics.table(result)


def test_coverage_of_a_calibrated_model_is_the_level(rng):
    levels = np.linspace(0, 1, 11)
    at = (np.arange(1000) + 0.5) / 1000
    np.testing.assert_allclose(metrics.coverage(at, at, levels), levels, atol=1e-3)
    # too wide intervals: the distribution function stays near one half
    assert (metrics.coverage(0.25 + at / 2, 0.25 + at / 2, levels)[5:] == 1).all()
    y = rng.poisson(1.3, 200_000)
    below, at = stats.poisson.cdf(y - 1, 1.3), stats.poisson.cdf(y, 1.3)
    np.testing.assert_allclose(metrics.coverage(below, at, levels), levels, atol=0.01)
    # a count has positive probability
    assert abs(metrics.coverage(at, at, np.array([0.5]))[0] - 0.5) > 0.05


@pytest.mark.parametrize(
    "count, merged",
    [
        ([9, 9, 9], [0, 1, 2]),
        ([1, 9, 9], [0, 0, 1]),
        ([9, 1, 9], [0, 1, 1]),
        ([9, 9, 1], [0, 1, 1]),
        ([0, 0, 3], [0, 0, 0]),
        ([2, 2, 2], [0, 0, 0]),
        ([3, 3, 3, 3], [0, 0, 1, 1]),
        ([5, 0, 0, 5], [0, 1, 1, 1]),
    ],
)
def test_bins_of_few_rows_are_merged(count, merged):
    found = plots.merge_bins(np.array(count))
    assert found.tolist() == merged
    rows = np.bincount(found, count)
    assert len(rows) == 1 or rows.min() >= plots.LEAST


@pytest.mark.parametrize(
    "scale, model, trivial, rows, said",
    [
        ("standardised", (0.5, 0.2), (1.0, 1.4), 100, None),
        (
            "standardised",
            (1.1, 1.6),
            (1.0, 1.4),
            100,
            "in RMSE and NLPD: L-BFGS has converged; try --method svgp, --inducing 90",
        ),
        (
            "standardised",
            (1.1, 1.6),
            (1.0, 1.4),
            12,
            "in RMSE and NLPD (with 12 held-out rows this can be chance): L-BFGS",
        ),
        (
            "standardised",
            (1.0, 1.3),
            (1.0, 1.4),
            100,
            "in RMSE: L-BFGS has converged; try --method svgp",
        ),
        (
            "standardised",
            (0.9, 1.6),
            (1.0, 1.4),
            100,
            "in NLPD: its intervals are off: try another --likelihood (student-t",
        ),
        (
            "counts",
            (0.9, 1.6),
            (1.0, 1.4),
            100,
            "in NLPD: its intervals are off: L-BFGS has converged; try",
        ),
        ("classes", (0.9, 0.2), (0.9, 0.4), 100, None),
        ("classes", (0.8, 0.5), (0.9, 0.4), 100, "in accuracy and NLPD: L-BFGS has converged"),
        ("classes", (0.9, 0.5), (0.9, 0.4), 100, "in NLPD: its probabilities are off"),
    ],
)
def test_a_model_no_better_than_the_trivial_predictor_is_noted(scale, model, trivial, rows, said):
    names = ("accuracy" if scale == "classes" else "rmse", "nlpd")
    result = {
        "scale": scale,
        "model": dict(zip(names, model, strict=True)),
        "trivial": dict(zip(names, trivial, strict=True)),
    }
    outcome = {
        "solver": "lbfgs",
        "ended": "converged",
        "collapses": True,
        "rows": 90,
        "inputs": 2,
        "inducing": 20,
    }
    text = metrics.advice(result, rows, outcome)
    assert text is None or "longer" not in text and len(text) < 260
    assert (
        text is None
        if said is None
        else text.startswith("no better than the trivial predictor") and said in text
    )
