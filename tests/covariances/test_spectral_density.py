"""Spectral densities: their cosine transform is the covariance, their gradient the complex step."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.records import leaves, replace_at

KINDS = fs.RBF, fs.Matern12, fs.Matern32, fs.Matern52


@pytest.mark.parametrize("kind", KINDS)
def test_the_transform_is_the_covariance(kind):
    covariance = kind(1.3, 0.7)
    omega = np.linspace(0, 4000, 400_001)
    S = np.exp(covariance.log_spectral_density(omega[:, None] ** 2))
    for r in (0.3, 0.9):
        value = np.trapezoid(S * np.cos(omega * r), omega) / np.pi
        truth = covariance.matrix(np.zeros((1, 1)), np.full((1, 1), r))[0, 0]
        assert abs(value - truth) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_two_columns_marginalise_to_one(kind):
    """The integral over the second frequency is the density of the first column."""
    both, one = kind(1.3, np.array([0.7, 0.4])), kind(1.3, 0.7)
    t = np.linspace(-9, 9, 20_001)
    omega = np.sinh(t)  # far tails
    squares = np.stack([np.full_like(omega, 1.7), omega], 1) ** 2
    value = np.trapezoid(np.exp(both.log_spectral_density(squares)) * np.cosh(t), t) / (2 * np.pi)
    assert abs(np.log(value) - one.log_spectral_density(np.array([[1.7**2]]))[0]) < 1e-3


@pytest.mark.parametrize("lengthscales", [0.6, [0.6, 1.7]])
@pytest.mark.parametrize("kind", [*KINDS, None])
def test_gradient(rng, kind, lengthscales):
    ell = np.array(lengthscales)[()]
    covariance = kind(1.3, ell) if kind else fs.RBF(0.8, ell) + fs.Matern32(0.5, 2.0 * ell)
    squares, bar = rng.uniform(0, 9, (11, 2)), rng.standard_normal(11)
    grad = covariance.log_spectral_density_vjp(bar, squares)
    found = {path: value for path, _, value in leaves(grad)}
    for path, _, value in leaves(covariance):
        slope = np.zeros(np.shape(value))
        for at in np.ndindex(np.shape(value)):
            h = np.zeros(np.shape(value))
            h[at] = 1e-5
            up, down = (
                (bar * replace_at(covariance, path, value + e).log_spectral_density(squares)).sum()
                for e in (h, -h)
            )
            slope[at] = (up - down) / 2e-5
        np.testing.assert_allclose(found[path], slope, rtol=1e-7, atol=1e-8)


def test_a_part_alone(rng):
    covariance, squares = fs.RBF(0.8, 1.0) + fs.Matern32(0.5, 2.0), rng.uniform(0, 9, (5, 1))
    grad = covariance.log_spectral_density_vjp(
        np.ones(5), squares, ("covariance.parts.1.variance",)
    )
    assert grad.parts[0].variance is None and grad.parts[1].variance > 0


@pytest.mark.parametrize("covariance", [fs.Linear(), fs.RBF() * fs.RBF(), fs.Periodic(fs.RBF())])
def test_others_are_refused_by_name(covariance):
    with pytest.raises(TypeError, match=f"{type(covariance).__name__} has no spectral density"):
        covariance.spectral_terms(1)


SUMS = {
    "on": fs.RBF(0.8, 0.7).on(1) + fs.Matern52(0.5, np.array([0.4, 1.2])).on(2, 0),
    "twice": fs.RBF(0.8, 0.7).on(1) + fs.Matern32(0.3, 0.2).on(1),
    "additive": fs.covariances.Additive([0.8, 0.5], np.array([0.7, 0.4, 1.1])),
    "one scale": fs.covariances.Additive([0.8, 0.5, 0.1], 0.7),
}


@pytest.mark.parametrize("name", SUMS)
def test_terms_of_some_columns(rng, name):
    """Each row has the density of the terms of its columns, and the gradient of differences."""
    covariance = SUMS[name]
    rows = []
    for columns, *_ in covariance.spectral_terms(3):
        row = np.full(3, np.nan)
        row[list(columns)] = rng.uniform(0, 3, len(columns))
        rows.append(row)
    squares = np.array(rows)
    logs = covariance.log_spectral_density(squares)
    assert np.isfinite(logs).all()
    none = np.full((1, 3), np.nan)
    assert covariance.log_spectral_density(none)[0] == -np.inf
    bar = rng.standard_normal(len(rows))
    grad = covariance.log_spectral_density_vjp(bar, squares)
    found = {path: value for path, _, value in leaves(grad)}
    for path, _, value in leaves(covariance):
        for at in np.ndindex(np.shape(value)):
            h = np.zeros(np.shape(value))
            h[at] = 1e-5
            up, down = (
                (bar * replace_at(covariance, path, value + e).log_spectral_density(squares)).sum()
                for e in (h, -h)
            )
            np.testing.assert_allclose(
                np.asarray(found[path])[at], (up - down) / 2e-5, rtol=1e-7, atol=1e-8
            )


def test_an_additive_covariance_is_its_sum_of_terms():
    additive = fs.covariances.Additive([0.8, 0.5], np.array([0.7, 0.4]))
    terms = fs.RBF(0.8, 0.7).on(0) + fs.RBF(0.8, 0.4).on(1) + fs.RBF(0.5, np.array([0.7, 0.4]))
    squares = np.array([[0.3, np.nan], [np.nan, 1.2], [0.5, 2.0]])
    np.testing.assert_allclose(
        additive.log_spectral_density(squares), terms.log_spectral_density(squares)
    )
