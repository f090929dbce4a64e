"""Counts in float32, between whole numbers and without end; levels next to zero and one."""

import numpy as np
import pytest
from likelihoods.test_likelihood_contract import TABLE
from scipy import special

from fastsvgp.records import Marginals

COUNTS = [name for name, (likelihood, _) in TABLE.items() if likelihood.counts]
REAL = [
    name
    for name, (likelihood, _) in TABLE.items()
    if likelihood.num_latent is None and name not in ("probit", "logit")
]


@pytest.mark.parametrize("name", COUNTS)
def test_counts_in_float32_are_as_good_as_in_float64(name):
    """A million has no digits to spare in float32, and its products none at all."""
    likelihood, columns = TABLE[name][0], len(TABLE[name][0].target_columns)
    if name == "ordinal":
        pytest.skip("labels are small")
    K, N = likelihood.latents_per_output, 100
    binomial = "trials" in likelihood.target_columns
    y = np.full(N, 1e6, np.float32)
    Y = y if columns == 1 else np.stack([y, y * 4 if binomial else y / 1e6])
    centre = special.logit(0.25) if binomial else np.log(1e6)
    f = Marginals(np.full((K, N), centre, np.float32), np.full((K, N), 1e-4, np.float32))
    f = f if K > 1 else Marginals(f.mean[0], f.var[0])
    same = Marginals(f.mean.astype(float), f.var.astype(float))
    found = likelihood.expected_log_prob(Y, f)
    due = likelihood.expected_log_prob(Y.astype(float), same)
    assert found[0] == pytest.approx(due[0], rel=1e-7)
    # a derivative in the mean is a difference of counts, whose float32 result is rounded
    np.testing.assert_allclose(found[1].mean, due[1].mean, rtol=1e-5, atol=1e-2)
    np.testing.assert_allclose(
        likelihood.predict_log_density(Y, f),
        likelihood.predict_log_density(Y.astype(float), same),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        likelihood.predict_cdf(Y, f), likelihood.predict_cdf(Y.astype(float), same), atol=1e-6
    )
    for one, other in zip(
        likelihood.predict_mean_and_var(f), likelihood.predict_mean_and_var(same), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", COUNTS)
def test_distribution_functions_of_counts_are_steps(name, rng):
    likelihood = TABLE[name][0]
    K, N = likelihood.latents_per_output, 6
    f = Marginals(rng.standard_normal((K, N)), rng.uniform(0.1, 1.0, (K, N)))
    f = f if K > 1 else Marginals(f.mean[0], f.var[0])
    other = 4.0 if "trials" in likelihood.target_columns else 1.3

    def cdf(y):
        y = np.asarray(y, float)
        return likelihood.predict_cdf(
            y if len(likelihood.target_columns) == 1 else np.stack([y, 0 * y + other]), f
        )

    whole = np.array([0.0, 1, 2, 3, 0, 1])
    np.testing.assert_array_equal(cdf(whole + 0.5), cdf(whole))
    np.testing.assert_array_equal(cdf(whole + (1 - 2.0**-40)), cdf(whole))
    np.testing.assert_array_equal(cdf(np.full(N, -0.5)), 0)
    np.testing.assert_allclose(cdf(np.full(N, 1e300)), 1, rtol=1e-11)


@pytest.mark.parametrize("name", REAL)
def test_levels_next_to_zero_and_one(name, rng):
    likelihood = TABLE[name][0]
    K, N = likelihood.latents_per_output, 3
    f = Marginals(rng.standard_normal((K, N)), rng.uniform(0.1, 1.0, (K, N)))
    f = f if K > 1 else Marginals(f.mean[0], f.var[0])
    q = likelihood.predict_quantiles([1e-100, 2.0**-53, 0.5, 1 - 2.0**-53], f)
    assert not np.isnan(q).any() and (np.diff(q, axis=0) >= 0).all()
