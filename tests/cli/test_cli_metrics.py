"""Metrics against their definitions, and the table that is printed."""

import numpy as np
import pytest
from scipy import stats

from fastsvgp.cli import metrics
from fastsvgp.cli.task import Standardisation


def test_regression_in_both_scales(rng):
    y = rng.normal(7, 3, 65)
    scale = Standardisation.of(np.ones((65, 1)), y, scale_target=True)
    mean, sd = y + rng.normal(0, 1, 65), 1.2
    standard = scale.target(y), scale.target(mean), stats.norm.logpdf(scale.target(y), scale.target(mean), sd / scale.y_scale)
    result = metrics.regression(*standard, scale)
    original = result["original_scale"]["model"]
    assert original["rmse"] == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)), rel=1e-12)
    assert original["nlpd"] == pytest.approx(-stats.norm.logpdf(y, mean, sd).mean(), rel=1e-12)
    trivial = result["original_scale"]["trivial"]
    assert trivial["rmse"] == pytest.approx(y.std(), rel=1e-12)
    assert trivial["nlpd"] == pytest.approx(-stats.norm.logpdf(y, y.mean(), y.std()).mean(), rel=1e-12)
    assert result["trivial"]["rmse"] == pytest.approx(1, rel=1e-12)
    text = metrics.table(result)
    assert "standardised" in text and "original scale" in text and "mean and sd" in text


def test_counts(rng):
    y = rng.poisson(3, 65).astype(float)
    result = metrics.counts(y, y, np.zeros(65), 3.0)
    assert result["trivial"]["nlpd"] == pytest.approx(-stats.poisson.logpmf(y, 3.0).mean(), rel=1e-12)
    assert result["model"] == {"rmse": 0.0, "nlpd": 0.0}


def test_classification():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2]])
    y, train = np.array([0, 1, 2]), np.array([0, 0, 0, 1])
    result = metrics.classification(y, probabilities, np.log(probabilities[np.arange(3), y]), train)
    assert result["model"]["accuracy"] == pytest.approx(2 / 3)
    assert result["model"]["nlpd"] == pytest.approx(-np.log([0.7, 0.8, 0.2]).mean())
    assert result["trivial"]["accuracy"] == pytest.approx(1 / 3)
    assert result["trivial"]["nlpd"] == pytest.approx(-np.log([4 / 7, 2 / 7, 1 / 7]).mean())
    assert "class frequencies" in metrics.table(result)
