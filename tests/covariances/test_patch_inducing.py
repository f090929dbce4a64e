"""Initial inducing patches, and the patches of images."""

import numpy as np
import pytest
from oracles import patches
from support.convolutional_problems import COLUMNS, SHAPE, D, N, problem

import fastsvgp as fs


def test_inducing_patches_are_distinct(rng):
    X = rng.standard_normal((30, 7, 5, 2))
    X[:, :5] = 0.0  # black patches are one patch
    X, names = X.reshape(30, -1), ("rbf", "rbf, places")
    for covariance in (problem(rng, name)[0] for name in names):
        columns = D if covariance.location_covariance is None else D + 2
        Z = fs.inducing.patches(X, 12, covariance, rng=0)
        assert Z.shape == (12, columns) and len(np.unique(Z, axis=0)) == 12
        np.testing.assert_array_equal(Z, fs.inducing.patches(X, 12, covariance, rng=0))
        pair = fs.inducing.patches(X.astype(np.float32), (7, 5), covariance, rng=0)
        assert (
            pair.Z.shape == (7, columns)
            and pair.O.shape == (5, columns)
            and pair.O.dtype == np.float32
        )
        if columns > D:
            places = Z[:, D:]  # means of scaled ones, so that rounding shows
            assert (
                places.min() > -1e-12
                and (places <= np.array([4, 2]) + 1e-12).all()
                and np.ptp(places, axis=0).min() > 0
            )
    assert (
        np.abs(fs.inducing.patches(X, 12, problem(rng, "rbf")[0], rng=0)).max(1) == 0
    ).sum() <= 1
    with pytest.raises(ValueError, match="400 inducing patches .* only 1 distinct"):
        fs.inducing.patches(np.zeros((30, COLUMNS)), 400, covariance=problem(rng, "rbf")[0])
    with pytest.raises(
        TypeError, match="`covariance` must be a fastsvgp.covariances.Convolutional, got RBF"
    ):
        fs.inducing.patches(X, 12, fs.RBF())


def test_extracted_patches(rng):
    X = rng.standard_normal((N, COLUMNS))
    found = fs.covariances.extract_patches(
        X, SHAPE["image_shape"], SHAPE["patch_shape"], SHAPE["stride"]
    )
    np.testing.assert_array_equal(found, patches.gather(X, (7, 5, 2, 3, 2, 2)))
    assert fs.covariances.extract_patches(np.arange(12).reshape(1, 12), (3, 4), [2, 2]).shape == (
        1,
        6,
        4,
    )
