"""Predictive means and variances of every likelihood against an integral with many nodes."""

import numpy as np
import pytest
from likelihoods.test_likelihood_contract import TABLE
from scipy import special
from support.looped import looped

from fastsvgp.records import Marginals

N = 7
EDGES = np.array([-0.7, 0.1, 1.4])


def of_numbers(variance):
    return lambda f: (f, variance + 0 * f)


def of_labels(p):
    return lambda f: (p(f), p(f) * p(-f))


def of_counts(exposure=1.0, dispersion=np.inf):
    def moments(f):
        mean = exposure * np.exp(f)
        return mean, mean + mean**2 / dispersion

    return moments


def of_sizes(shape):
    return lambda f: (np.exp(f), np.exp(2 * f) / shape)


def of_grades(f):
    above = special.ndtr(f - EDGES.reshape(-1, *(1,) * f.ndim))
    mean, square = above.sum(axis=0), np.tensordot([1, 3, 5], above, 1)
    return mean, square - mean**2


def of_shares(f):
    return special.expit(f), special.expit(f) * special.expit(-f) / 6


def of_zeros(f):
    rate = np.exp(f)
    return 0.7 * rate, 0.7 * (rate + 0.3 * rate**2)


# mean and variance of y given f, by the formulas of text books
GIVEN = {
    "gaussian": of_numbers(0.3),
    "probit": of_labels(special.ndtr),
    "logit": of_labels(special.expit),
    "poisson": of_counts(1.7),
    "laplace": of_numbers(2 * 0.6**2),
    "student_t": of_numbers(3 * 0.7**2),
    "heteroskedastic": lambda f, h: (f + 0 * h, np.exp(h) + 0 * f),
    "negative_binomial": lambda f, h: (np.exp(f) + 0 * h, np.exp(f) + np.exp(2 * f - h)),
    "negative_binomial, dispersion": of_counts(1.3, 1.7),
    "negative_binomial, exposures": of_counts(1.0, 30.0),
    "poisson, exposures": of_counts(),
    "binomial": of_labels(special.expit),
    "binomial, probit": of_labels(special.ndtr),
    "gamma": of_sizes(2.5),
    "exponential": of_sizes(1.0),
    "ordinal": of_grades,
    "known_noise": of_numbers(0.3),
    "known_noise, all of it": of_numbers(0.0),
    "censored": of_numbers(0.6),
    "beta": of_shares,
    "zero_inflated": of_zeros,
}
PROBABILITIES = {"robust_max", "softmax"}  # a variance is p (1 - p); test_likelihood_values.py


def test_every_likelihood_is_in_the_table():
    assert set(GIVEN) | PROBABILITIES == set(TABLE)


@pytest.mark.parametrize("name", GIVEN)
@looped("var", [0.0, 0.1, 1.0])
def test_moments_are_integrals(name, var, rng):
    likelihood, K = TABLE[name][0], TABLE[name][0].latents_per_output
    f = Marginals(rng.standard_normal((K, N)), np.full((K, N), var))
    z, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()
    sd = np.sqrt(var)
    if K == 1:
        mean, spread = GIVEN[name](f.mean[0] + sd * z[:, None])
        weight, f = w[:, None], Marginals(f.mean[0], f.var[0])
    else:
        F, H = f.mean[0] + sd * z[:, None, None], f.mean[1] + sd * z[:, None]
        mean, spread = (x.reshape(-1, N) for x in GIVEN[name](F, H))
        weight = np.multiply.outer(w, w).reshape(-1, 1)
    due = (weight * mean).sum(axis=0)
    found, found_var = likelihood.predict_mean_and_var(f)
    np.testing.assert_allclose(found, due, rtol=1e-11, atol=1e-12)
    due_var = (weight * (spread + (mean - due) ** 2)).sum(axis=0)
    np.testing.assert_allclose(found_var, due_var, rtol=1e-9, atol=1e-25)
