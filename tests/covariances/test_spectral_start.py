"""A spectral mixture that starts from the spectrum of the data."""

import numpy as np
import pytest

import fastsvgp as fs


def waves(rng, N):
    x = rng.uniform(5, 25, N)
    return x[:, None], (
        np.sin(2 * np.pi * 0.8 * x)
        + 0.5 * np.sin(2 * np.pi * 2.1 * x + 1)
        + 0.1 * rng.standard_normal(N)
    )


@pytest.mark.parametrize("N", [400, 3000])  # with 200, noise hides the weak wave in 1 of 200
def test_it_finds_waves_at_irregular_places(rng, N):
    X, y = waves(rng, N)
    found = fs.inducing.spectral_start(X, y, components=2, rng=0)
    strong, weak = (part.parts for part in found.parts)
    assert strong[1].frequencies == pytest.approx(0.8, abs=0.02)
    assert weak[1].frequencies == pytest.approx(2.1, abs=0.05)
    assert strong[0].variance > weak[0].variance
    assert strong[0].lengthscales > 1  # more than a period
    total = sum(part.parts[0].variance for part in found.parts)
    assert total == pytest.approx(np.var(y), rel=0.2)


def test_a_model_starts_better(rng):
    X, y = waves(rng, 200)
    Z = fs.inducing.kmeans(X, 60, rng=0)
    bounds = [
        fs.collapsed_bound(fs.SGPR(covariance, Z, 0.05), X, y)
        for covariance in (
            fs.inducing.spectral_start(X, y, 2, rng=0),
            fs.RBF(1.0, 3.0),
            fs.RBF(1.0, 0.3),
        )
    ]
    assert bounds[0] > max(bounds[1:]) + 50


def test_other_columns_and_constants(rng):
    X, y = waves(rng, 100)
    found = fs.inducing.spectral_start(np.hstack([X, rng.standard_normal((100, 1))]), y, rng=0)
    assert len(found.parts) == 4
    found.check_dim(2)
    flat = fs.inducing.spectral_start(np.zeros((5, 1)), np.zeros(5), 3)
    assert np.isfinite(flat.matrix(np.zeros((2, 1)))).all()


@pytest.mark.parametrize(
    "X, y, message",
    [
        (np.zeros(3), np.zeros(3), r"must have shape \(N, D\) and `y` \(N,\)"),
        (np.zeros((3, 1)), np.zeros(2), r"must have shape \(N, D\) and `y` \(N,\)"),
        (np.zeros((2, 1)), np.array([0.0, np.nan]), "`y` contains nan"),
        (np.array([[0.0], [np.inf]]), np.zeros(2), "contains inf"),
    ],
)
def test_bad_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        fs.inducing.spectral_start(X, y)
    with pytest.raises(ValueError, match="`components` must be a whole number"):
        fs.inducing.spectral_start(np.zeros((3, 1)), np.zeros(3), components=0)


def test_shapes_of_a_mixture():
    with pytest.raises(ValueError, match=r"`weights` must have shape \(Q,\) and `means` \(Q, D\)"):
        fs.covariances.spectral_mixture([1.0], [0.1], [0.1])
    with pytest.raises(ValueError, match="`scales` must have the shape of `means`"):
        fs.covariances.spectral_mixture([1.0], [[0.1]], [[0.1, 0.2]])
