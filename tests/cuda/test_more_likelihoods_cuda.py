"""Likelihoods on device arrays: the results of the CPU, also where nodes depend on the data."""

import numpy as np
import pytest
from support.device_models import B, D, assert_same, check_bound, f8, moved, small_model

import fastsvgp as fs


def trials(rng, *axes):
    return np.stack([rng.integers(0, 4, (B, *axes)), np.full((B, *axes), 4)], axis=-1)


CASES = {  # and targets, and outputs
    "negative_binomial": (
        fs.likelihoods.NegativeBinomial(f8(1.5)),
        lambda rng: rng.integers(0, 6, B),
        (),
    ),
    "poisson": (fs.Poisson(exposure="column"), trials, ()),
    "binomial": (fs.likelihoods.Binomial(), lambda rng: trials(rng, 2), (2,)),
    "gamma": (fs.likelihoods.Gamma(f8(2.5)), lambda rng: rng.gamma(2.0, 1.0, B), ()),
    "ordinal": (
        fs.likelihoods.Ordinal(f8(-0.5), np.ones(1)),
        lambda rng: rng.integers(0, 3, B),
        (),
    ),
    "censored": (
        fs.likelihoods.Censored(f8(0.3)),
        lambda rng: 1.0 * rng.integers(-1, 2, (B, 2)),
        (),
    ),
    "beta": (fs.likelihoods.Beta(f8(5.0)), lambda rng: rng.beta(2.0, 3.0, B), ()),
    "zero_inflated": (
        fs.likelihoods.ZeroInflatedPoisson(f8(0.3)),
        lambda rng: rng.integers(0, 4, B),
        (),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bound_and_predictions(gpu, rng, name):
    likelihood, targets, outputs = CASES[name]
    model = small_model(rng, outputs, likelihood=likelihood)
    here = model, rng.standard_normal((B, D)), targets(rng)
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, inputs=True)
    for predict, count in ((fs.predict_y, 2), (fs.predict_log_density, 3), (fs.predict_cdf, 3)):
        assert_same(predict(*there[:count], chunk_size=40), predict(*here[:count]))
    levels = 0.05, 0.5, 0.9
    assert_same(fs.predict_quantiles(*there[:2], levels), fs.predict_quantiles(*here[:2], levels))


WIDE = CASES | {
    "probit": (fs.BernoulliProbit(), lambda rng: rng.integers(0, 2, B), ()),
    "student_t": (fs.StudentT(f8(0.1)), lambda rng: rng.standard_normal(B), ()),
    "few zeros": (
        fs.likelihoods.ZeroInflatedPoisson(f8(1e-9)),
        lambda rng: rng.integers(0, 2, B),
        (),
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_expectations_under_wide_marginals(gpu, rng, name):
    """Wide and narrow data in one batch; no decision waits for the device."""
    likelihood, targets, outputs = WIDE[name]
    Y, shape = targets(rng).T, (*outputs, B)
    f = fs.records.Marginals(2 * rng.standard_normal(shape), np.exp(rng.uniform(-3, 5, shape)))
    f_there = fs.records.Marginals(*map(gpu.there, (f.mean, f.var)))
    here, there = (likelihood, Y, f), (*moved(gpu, likelihood, Y), f_there)
    for need in (True, False):
        (value, *bars), (found, *theirs) = (
            side[0].expected_log_prob(*side[1:], need=need) for side in (here, there)
        )
        assert float(found) == pytest.approx(value, rel=1e-10)
        for one, other in zip(theirs, bars, strict=True):
            assert_same(one, other)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_weights_of_several_columns(gpu, rng, outputs):
    model, Y = (
        small_model(rng, outputs, likelihood=fs.likelihoods.Binomial()),
        1.0 * trials(rng, *outputs),
    )
    w = rng.integers(0, 3, (B, *outputs)).astype(float)
    Y[w == 0] = np.nan
    here = model, rng.standard_normal((B, D)), Y, w
    there = moved(gpu, *here)
    (value, grad), (found, theirs) = (
        fs.elbo_and_grad(*side[:3], weights=side[3]) for side in (here, there)
    )
    assert found == pytest.approx(value, rel=1e-10)
    assert_same(theirs, grad)


def test_parts_of_a_switch(gpu, rng):
    both = fs.likelihoods.Switched((fs.Gaussian(f8(0.3)), fs.Poisson()))
    Y = np.stack([rng.integers(0, 4, B), rng.integers(0, 2, B)], axis=1)
    here = small_model(rng, (), likelihood=both), rng.standard_normal((B, D)), Y
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, num_data=1000, inputs=True)
    assert_same(fs.predict_cdf(*there), fs.predict_cdf(*here))
