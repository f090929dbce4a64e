"""Log densities of priors: normalised, with the derivatives of their formulas."""

import dataclasses

import numpy as np
import pytest
from scipy import integrate, stats

import fastsvgp as fs

KINDS = {
    "LogNormal": (fs.priors.LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=np.exp(0.3))),
    "Gamma": (fs.priors.Gamma(2.5, 3.0), stats.gamma(2.5, scale=1 / 3)),
    "Gamma below one": (fs.priors.Gamma(0.6, 0.2), stats.gamma(0.6, scale=5)),
    "HalfNormal": (fs.priors.HalfNormal(1.7), stats.halfnorm(scale=1.7)),
    "dimension_scaled": (
        fs.priors.dimension_scaled(8),
        stats.lognorm(np.sqrt(3), scale=np.exp(np.sqrt(2)) * np.sqrt(8)),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_densities_of_the_logarithm_are_normalised_and_those_of_scipy(kind):
    prior, known = KINDS[kind]

    def density(phi):
        return float(np.exp(prior.log_density_and_grad(np.exp(phi))[0]))

    total, _ = integrate.quad(density, -60, 20, limit=400, points=(-10, 0, 3))
    assert abs(total - 1) < 1e-7
    t = np.array([[0.03, 0.4], [1.0, 5.0]])
    np.testing.assert_allclose(
        prior.log_density_and_grad(t)[0], known.logpdf(t) + np.log(t), rtol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_those_of_a_complex_step(kind, rng):
    prior, t = KINDS[kind][0], rng.gamma(2.0, size=(2, 3))
    moved = prior.log_density_and_grad(t + 1e-30j)[0]
    np.testing.assert_allclose(prior.log_density_and_grad(t)[1], moved.imag / 1e-30, rtol=1e-12)


def test_modes_of_log_t_are_the_median_the_mean_and_the_scale():
    for prior, mode in (
        (fs.priors.LogNormal(-1.0, 2.0), np.exp(-1.0)),
        (fs.priors.Gamma(0.5, 2.0), 0.25),
        (fs.priors.HalfNormal(3.0), 3.0),
        (fs.priors.dimension_scaled(9), 3 * np.exp(np.sqrt(2))),
    ):
        assert abs(prior.log_density_and_grad(np.array(mode))[1]) < 1e-14


def test_a_log_normal_or_gamma_stands_for_its_density_of_t(rng):
    """The page says which other prior has the mode of the density of t."""
    t = rng.gamma(2.0, size=5)
    log_normal, gamma = fs.priors.LogNormal(0.4, 0.8), fs.priors.Gamma(3.0, 2.0)
    for prior, other in (
        (log_normal, fs.priors.LogNormal(0.4 - 0.8**2, 0.8)),
        (gamma, fs.priors.Gamma(2.0, 2.0)),
    ):
        np.testing.assert_allclose(
            prior.log_density_and_grad(t)[1] - 1 / t, other.log_density_and_grad(t)[1], rtol=1e-10
        )


def test_numbers_of_a_prior_are_checked():
    for make, said in (
        (lambda: fs.priors.LogNormal(0.0, 0.0), "`sd` of a prior must be positive, got 0"),
        (lambda: fs.priors.Gamma(-1, 1.0), "`shape` of a prior must be positive, got -1"),
        (lambda: fs.priors.Gamma(1.0, np.inf), "`rate` must be finite, got inf"),
        (lambda: fs.priors.HalfNormal(np.nan), "`sd` must be finite, got nan"),
    ):
        with pytest.raises(ValueError, match=said):
            make()
    with pytest.raises(TypeError, match="`mean` must be a number, got an array of shape"):
        fs.priors.LogNormal(np.zeros(2), 1.0)
    with pytest.raises(ValueError, match="`num_columns` must be a whole number of at least 1"):
        fs.priors.dimension_scaled(0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        fs.priors.HalfNormal(1.0).sd = 2.0
    with pytest.raises(NotImplementedError):
        fs.priors.Prior().log_density_and_grad(1.0)
