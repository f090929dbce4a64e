"""Several targets of an estimator, some of which are NaN."""

import numpy as np
import pytest

from fastsvgp.sklearn import SVGPRegressor

FEW = {"n_inducing": 12, "max_iter": 60, "random_state": 0}


@pytest.fixture
def holed(rng):
    """Two waves of other sizes, without noise to speak of; a third of the cells is missing."""
    x = rng.uniform(-2, 2, (80, 1))
    Y = np.column_stack([5 + np.sin(2 * x[:, 0]), 100 + 50 * np.cos(2 * x[:, 0])])
    Y += 0.02 * Y.std(axis=0) * rng.standard_normal(Y.shape)
    return x, Y, np.where(rng.random(Y.shape) < 0.33, np.nan, Y)


@pytest.mark.parametrize("latents", [None, 2])
def test_missing_targets_have_no_part(holed, latents):
    X, Y, holes = holed
    model = SVGPRegressor(n_latents=latents, **FEW).fit(X, holes)
    np.testing.assert_allclose(model.scale_.y_mean, np.nanmean(holes, axis=0))
    np.testing.assert_allclose(model.scale_.y_scale, np.nanstd(holes, axis=0))
    left = (model.predict(X) - Y) / Y.std(axis=0)
    assert np.sqrt(np.mean(left**2)) < 0.3


def test_rows_without_a_target_and_of_weight_0_are_left_out(holed):
    X, _, holes = holed
    holes[:5] = np.nan
    weights = np.where(np.arange(80) < 10, 0.0, 2.0)
    there = ~np.isnan(holes).all(axis=1) & (weights > 0)
    few = FEW | {"max_iter": 2}
    whole = SVGPRegressor(**few).fit(X, holes, weights)
    part = SVGPRegressor(**few).fit(X[there], holes[there], weights[there])
    np.testing.assert_allclose(whole.scale_.y_scale, part.scale_.y_scale, rtol=0.2)
    assert whole.predict(X).shape == (80, 2)


def test_what_cannot_leave_a_target_out(holed):
    X, Y, holes = holed
    for setting in ({"solver": "lbfgs"}, {"early_stopping": True}, {"neighbours": 5}):
        with pytest.raises(ValueError, match="`y` has missing targets, which .* cannot leave out"):
            SVGPRegressor(**setting).fit(X, holes)
    for y in (holes[:, 0], np.where([True, False], np.nan, Y)):
        with pytest.raises(ValueError, match="contains NaN"):
            SVGPRegressor().fit(X, y)
