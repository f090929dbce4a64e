"""Distances of points order rows as the covariance does."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.near.points import points_of, scales_moved
from fastsvgp.recipes.beyond_range import BeyondRange

C = fs.covariances
ARD = np.array([0.5, 1.0, 2.0])
EXACT = {
    "RBF": fs.RBF(1.3, ARD),
    "Matern12": fs.Matern12(1.0, 0.4),
    "Matern32": fs.Matern32(1.0, ARD),
    "Matern52": fs.Matern52(1.0, ARD),
    "RationalQuadratic": C.RationalQuadratic(1.0, ARD, alpha=0.7),
    "columns": fs.Matern32(2.0, ARD[:2]).on(2, 0),
    "circles": fs.Periodic(fs.RBF(1.0, ARD), period=np.array([0.7, 1.0, 3.0])),
    "wave": C.Cosine(1.0, frequencies=0.3),
    "product": fs.RBF(1.0, 0.5).on(0) * fs.RBF(3.0, 2.0).on(0, 1) * C.Constant(2.0),
    "decaying period": fs.Periodic(fs.RBF(), period=0.7).on(1) * fs.RBF(1.0, 3.0).on(1),
    "features": C.OnFeatures(fs.RBF(1.0, ARD[:2]), C.Network.random((3, 8, 2), rng=0)),
}
NEARLY = {
    "sum": fs.RBF(1.0, 0.8).on(0) + fs.RBF(3.0, 1.5).on(0, 1, 2),
    "additive": C.Additive(variances=[1.0, 0.5], lengthscales=2.0),
    "mixture": C.spectral_mixture([1.0, 0.5], np.full((2, 3), 0.05), np.full((2, 3), 0.1)),
    "changes": C.ChangePoints((fs.RBF(1.0, 2.0), fs.RBF(2.0, 3.0)), at=[0.0], steepness=0.5),
    "linear trend": fs.RBF(1.0, ARD) + fs.Linear(0.01),
}


def order_of_nearest(covariance, X, points, i, k):
    K = covariance.matrix(X)
    scale = np.sqrt(np.diag(K))
    by_correlation = np.argsort(-K[i] / scale)[:k]
    return by_correlation, np.argsort(np.square(points - points[i]).sum(1))[:k]


@pytest.mark.parametrize("name", EXACT)
def test_distances_order_as_correlations(name, rng):
    X = rng.standard_normal((60, 3))
    X[0] = 0
    points = points_of(EXACT[name], X)
    assert points.codes is None
    for i in range(60):
        np.testing.assert_array_equal(*order_of_nearest(EXACT[name], X, points.points, i, 15))


@pytest.mark.parametrize("name", NEARLY)
def test_most_of_the_nearest_rows_of_sums_are_found(name, rng):
    X = rng.standard_normal((80, 3))
    points = points_of(NEARLY[name], X).points
    found = [order_of_nearest(NEARLY[name], X, points, i, 12) for i in range(80)]
    assert np.mean([np.isin(*pair).mean() for pair in found]) > 0.75


@pytest.mark.parametrize(
    "covariance", [fs.Linear(2.0), C.Constant(), C.Polynomial(), C.ArcCosine()]
)
def test_covariances_without_lengthscales_take_columns_as_they_are(covariance):
    X = np.arange(12.0).reshape(4, 3) - 3
    np.testing.assert_array_equal(points_of(covariance, X).points, X)


CODES = {
    "Categorical": (C.Categorical(1.0).on(1, 3) * fs.RBF(1.0, 0.5).on(0), [1, 3]),
    "Coregion": (C.Coregion(np.ones((3, 1)), np.ones(3)).on(2) * fs.RBF(1.0, 2.0).on(0, 1), [2]),
    "codes alone": (C.Categorical(1.0), [0, 1, 2, 3]),
}


@pytest.mark.parametrize("name", CODES)
def test_codes_are_numbers_not_coordinates(name, rng):
    covariance, columns = CODES[name]
    X = np.rint(rng.uniform(0, 2, (50, 4)))
    points = points_of(covariance, X)
    assert points.points.shape[1] == {"Categorical": 1, "Coregion": 2, "codes alone": 0}[name]
    same = (X[:, None, columns] == X[:, columns]).all(-1)
    np.testing.assert_array_equal(points.codes[:, None] == points.codes, same)
    # those of other rows, of which a prediction has some, are the same
    np.testing.assert_array_equal(points_of(covariance, X[7:9]).codes, points.codes[7:9])


@pytest.mark.parametrize("name", EXACT)
def test_points_depend_on_their_row_alone(name, rng):
    X = rng.standard_normal((9, 3))
    np.testing.assert_allclose(
        points_of(EXACT[name], X[4:]).points, points_of(EXACT[name], X).points[4:], rtol=1e-12
    )


def test_a_covariance_of_a_part_of_the_range(rng):
    X = rng.standard_normal((9, 3))
    ends = (-1.0,) * 3, (0.0,) * 3, (1.0,) * 3
    beyond = BeyondRange(EXACT["RBF"], *ends, 1.0)
    np.testing.assert_array_equal(points_of(beyond, X).points, points_of(EXACT["RBF"], X).points)


def test_images_have_no_near_rows():
    images = C.Convolutional(fs.RBF(), weights=np.ones(9), image_shape=(4, 4), patch_shape=(2, 2))
    with pytest.raises(TypeError, match="near rows need distances between rows"):
        points_of(images, np.zeros((2, 16)))


def test_scales_move_with_ratios_of_lengthscales(rng):
    X = rng.standard_normal((5, 3))

    def scales(*lengthscales):
        return points_of(fs.RBF(1.0, np.array(lengthscales)), X).scales

    before = scales(1, 2, 3)
    assert not scales_moved(before, scales(7, 14, 21))
    assert not scales_moved(before, scales(1, 2.3, 3))
    assert scales_moved(before, scales(1, 2.5, 3))
    assert not scales_moved(scales(1, 2, 1e3), scales(1, 2, 1e4))  # of no weight
    assert scales_moved(before, before[:2])
    slow, fast = (fs.Periodic(fs.RBF(), period=p) for p in (1.0, 2.0))
    assert scales_moved(points_of(slow, X).scales, points_of(fast, X).scales)
