"""Targets and settings that likelihoods refuse, with what to do."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import likelihoods as lk


def two(*columns):
    return np.array(columns, float)


SWITCHED = lk.Switched((lk.Gaussian(), lk.Poisson()))


@pytest.mark.parametrize(
    "likelihood, Y, message",
    [
        (lk.NegativeBinomial(), two(1, 2.5), "`Y` must hold counts; got 2.5 at index 1"),
        (lk.NegativeBinomial(), two(1, -2), "got -2.0 at index 1. Negative binomial targets"),
        (
            lk.Poisson(exposure="column"),
            two((1, 2), (1, 0)),
            r"positive numbers in its column exposure; got 0.0 at index \(1, 1\)",
        ),
        (
            lk.NegativeBinomial(exposure="column"),
            two((1.5, 2), (1, 2)),
            r"counts in its column y; got 1.5 at index \(0, 0\)",
        ),
        (lk.Binomial(), two((1, 2), (1, 1)), r"at most its trials in its column y; got 2.0"),
        (lk.Binomial(), two((0, 0), (1, 0)), "numbers of trials in its column trials; got 0.0"),
        (lk.Binomial(), two((0, 0), (1, 1.5)), "in its column trials; got 1.5"),
        (lk.Gamma(), two(1, 0), "`Y` must hold positive numbers; got 0.0 at index 1. Gamma"),
        (lk.Exponential(), two(1, -1), "got -1.0 at index 1. Exponential targets"),
        (lk.Ordinal(0.0, [1.0]), two(0, 3), r"labels 0 \.\.\. 2, because there are 2 edges; got 3"),
        (lk.Ordinal(0.0, [1.0]), two(0, 0.5), "got 0.5 at index 1"),
        (lk.KnownNoise(), two((1, 2), (1, 0)), "positive variances in its column known; got 0.0"),
        (lk.Beta(), two(0.5, 0.0), "numbers between 0 and 1; got 0.0 at index 1. Beta targets"),
        (lk.Beta(), two(1.0, 0.5), "got 1.0 at index 0"),
        (lk.ZeroInflatedPoisson(), two(1, 0.5), "`Y` must hold counts; got 0.5 at index 1"),
        (SWITCHED, two((1, 0.5), (0, 2)), r"numbers of parts 0 ... 1 in its column part; got 2.0"),
        (SWITCHED, two((1, 0.5), (1, 1)), r"`Y` must hold counts; got 0.5 at index \(0, 1\)"),
        (SWITCHED, two((1, 0.5), (0, np.nan)), "in its column part; got nan"),
        (lk.Censored(), two((1, 2), (1, 2)), "sides -1, 0 or 1 in its column side; got 2.0"),
    ],
)
def test_invalid_targets_are_refused(likelihood, Y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(Y)


@pytest.mark.parametrize(
    "likelihood, message",
    [
        (lk.Poisson(exposure="columns"), "Poisson: `exposure` must be a positive number, or"),
        (lk.Poisson(exposure=np.ones(99)), "`exposure` must be .* got an array of shape"),
        (lk.NegativeBinomial(exposure=[1.0, 2.0]), "`exposure` must be .* got an array of shape"),
        (lk.NegativeBinomial(exposure=-1.0), "`exposure` must be positive and finite, got -1.0"),
        (lk.Binomial(link="cauchy"), '`link` must be "logit" or "probit", got \'cauchy\''),
        (lk.Ordinal(np.zeros(2), np.ones(1)), "Ordinal: give `first`, one number, and `gaps`"),
        (lk.Ordinal(0.0, np.ones(1), num_nodes=0), "`num_nodes` must be a whole number"),
        (lk.Censored(np.ones(2)), "Censored: `variance` has shape"),
        (lk.Switched(()), "`parts` must be a tuple of at least one likelihood"),
        (lk.Switched((lk.Gaussian,)), r"`parts\[0\]` must be a likelihood, got Gaussian"),
        (
            lk.Switched((lk.Gaussian(), lk.Binomial())),
            "is a Binomial of the columns y, trials; each",
        ),
        (lk.Switched((lk.Softmax(num_classes=3),)), "is a Softmax, which reads several functions"),
        (lk.Switched((lk.HeteroskedasticGaussian(),)), "which reads several functions"),
        (lk.Switched((lk.StudentT(1.0, df=-1.0),)), "StudentT: `df` must be positive"),
    ],
)
def test_invalid_settings_are_refused(likelihood, message):
    with pytest.raises((ValueError, TypeError), match=message):
        likelihood.check_settings()


def test_formulas_that_miss_a_derivative_are_named():
    @fs.records.record
    class MissingSlope(fs.likelihoods.OneLatent):
        scale: object = fs.records.leaf("positive", default=1.0)

        def log_density(self, Y, f, need=True):
            return -np.square(Y - f) / self.scale, 2 * (Y - f) / self.scale

    @fs.records.record
    class MissingAverage(MissingSlope):
        def expected(self, Y, f, need=True):
            return f.mean, f.var, f.mean

    f = fs.records.Marginals(np.zeros(3), np.ones(3))
    for likelihood, message in (
        (MissingSlope(), "MissingSlope.log_density returned 2 .* the derivatives in f, scale are"),
        (MissingAverage(), "MissingAverage.expected returned 3 arrays, .* in f.mean, f.var, scale"),
    ):
        assert np.isfinite(likelihood.expected_log_prob(np.ones(3), f, need=False)[0])
        with pytest.raises(TypeError, match=message):
            likelihood.expected_log_prob(np.ones(3), f)
