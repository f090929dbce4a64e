"""Predictive distribution functions and quantiles against averages, simulation, and in tails."""

from functools import partial

import numpy as np
import pytest
from oracles import predictive
from scipy import special, stats

from fastsvgp import likelihoods as lk
from fastsvgp.records import Marginals

TABLE = {
    "gaussian": (lk.Gaussian(0.3), partial(predictive.gaussian, variance=0.3)),
    "laplace": (lk.Laplace(0.6), partial(predictive.laplace, scale=0.6)),
    "student_t": (lk.StudentT(0.7, df=3.0), partial(predictive.student_t, scale=0.7, df=3.0)),
    "cauchy": (lk.StudentT(0.7, df=1.0), partial(predictive.student_t, scale=0.7, df=1.0)),
    "poisson": (lk.Poisson(exposure=1.7), partial(predictive.poisson, exposure=1.7)),
}
REAL = [name for name in TABLE if name != "poisson"]
LEVELS = [1e-6, 0.001, 0.05, 0.3, 0.4999999, 0.5, 0.5000001, 0.7, 0.95, 0.999, 1 - 1e-6]
each = pytest.mark.parametrize("name", TABLE)
real = pytest.mark.parametrize("name", REAL)


def marginals(rng, shape):
    return Marginals(rng.standard_normal(shape), 10 ** rng.uniform(-4, 1.5, shape))


def repeated(f, at, count):
    return Marginals(np.full(count, f.mean[at]), np.full(count, f.var[at]))


@each
def test_cdf_is_the_average_of_conditional_cdfs(name, rng):
    likelihood, conditional = TABLE[name]
    f = marginals(rng, 40)
    Y = f.mean + np.sqrt(f.var + 0.3) * rng.standard_t(2, 40)
    Y = np.floor(np.exp(np.clip(Y, -2, 9))) if name == "poisson" else Y
    truth = [predictive.cdf(conditional, *row) for row in zip(Y, f.mean, f.var, strict=True)]
    grid_meets_a_kink = name == "laplace"
    np.testing.assert_allclose(
        likelihood.predict_cdf(Y, f), truth, atol=3e-8 if grid_meets_a_kink else 1e-10
    )
    np.testing.assert_array_less(-1e-15, likelihood.predict_cdf(Y - 1e6, f))
    np.testing.assert_allclose(likelihood.predict_cdf(Y + 1e30, f), 1, atol=1e-9)


@real
@pytest.mark.parametrize("var", [0.0, 1e-12, 1e-3, 1.0, 1e3, 1e8])
def test_quantiles_invert_the_distribution_function_and_increase(name, var):
    likelihood, _ = TABLE[name]
    q = likelihood.predict_quantiles(LEVELS, Marginals(np.full(2, 0.25), np.full(2, var)))
    assert q.shape == (len(LEVELS), 2) and (np.diff(q, axis=0) > 0).all() and (q[5] == 0.25).all()
    np.testing.assert_allclose(q[::-1, 0] - 0.25, 0.25 - q[:, 0], rtol=1e-6)  # 1 - level is rounded
    found = likelihood.predict_cdf(q[:, 0], Marginals(np.full(len(q), 0.25), np.full(len(q), var)))
    np.testing.assert_allclose(found, LEVELS, rtol=0, atol=1e-12)


def test_quantiles_of_the_noise_alone_and_of_a_normal_sum():
    sharp, wide = Marginals(np.zeros(1), np.zeros(1)), Marginals(np.full(1, 2.0), np.full(1, 0.7))
    noise = {
        "gaussian": stats.norm(0, 0.3**0.5),
        "laplace": stats.laplace(0, 0.6),
        "student_t": stats.t(3, 0, 0.7),
        "cauchy": stats.cauchy(0, 0.7),
    }
    for name, law in noise.items():
        np.testing.assert_allclose(
            TABLE[name][0].predict_quantiles(LEVELS, sharp)[:, 0],
            law.ppf(LEVELS),
            rtol=1e-8,
            atol=1e-15,
        )
    for likelihood in (lk.Gaussian(0.3), lk.StudentT(0.3**0.5, df=1e12)):
        found = likelihood.predict_quantiles(LEVELS, wide)[:, 0]
        np.testing.assert_allclose(found, stats.norm.ppf(LEVELS, 2, 1), rtol=1e-9)


def test_counts_are_the_smallest_that_reach_the_level(rng):
    likelihood, conditional = TABLE["poisson"]
    f = Marginals(rng.uniform(-4, 12, 200), 10 ** rng.uniform(-8, 1.6, 200))
    q = likelihood.predict_quantiles(LEVELS, f)
    assert (q == np.floor(q)).all() and (q >= 0).all() and (np.diff(q, axis=0) >= 0).all()
    for level, counts in zip(LEVELS, q, strict=True):
        assert (likelihood.predict_cdf(counts, f) >= level - 1e-12).all()
        assert (likelihood.predict_cdf(counts - 1, f) < level + 1e-12).all()
    for mean in (-3.0, 0.0, 4.0):
        sharp = likelihood.predict_quantiles(LEVELS, Marginals(np.full(1, mean), np.zeros(1)))[:, 0]
        np.testing.assert_array_equal(sharp, stats.poisson.ppf(LEVELS, 1.7 * np.exp(mean)))


def test_quantiles_of_huge_counts_and_of_no_events():
    likelihood = lk.Poisson()
    q = likelihood.predict_quantiles(
        [0.025, 0.5, 0.975], Marginals(np.array([40.0, 800.0, -800.0]), np.full(3, 0.25))
    )
    np.testing.assert_allclose(
        q[:, 0], np.exp(40 + 0.5 * special.ndtri([0.025, 0.5, 0.975])), rtol=1e-12
    )
    assert (q[:, 1] == np.inf).all() and (q[:, 2] == 0).all()
    # the bracket ends where float64 no longer separates counts
    f = Marginals(np.linspace(7.0, 8.0, 9), np.full(9, 33.5))
    q = likelihood.predict_quantiles([1 - 1e-6], f)
    assert (q < 2**52).all() and (q == np.floor(q)).all()


@each
def test_intervals_hold_what_they_promise(name, rng):
    """Intervals hold nine of ten simulated targets; Gaussian ones mostly hold another share."""
    likelihood, _ = TABLE[name]
    f = Marginals(rng.standard_normal(4000), rng.gamma(1.0, 0.3, 4000))
    F = f.mean + np.sqrt(f.var) * rng.standard_normal(4000)
    Y = {
        "gaussian": lambda: F + 0.3**0.5 * rng.standard_normal(4000),
        "laplace": lambda: F + rng.laplace(0, 0.6, 4000),
        "student_t": lambda: F + 0.7 * rng.standard_t(3, 4000),
        "cauchy": lambda: F + 0.7 * rng.standard_cauchy(4000),
        "poisson": lambda: rng.poisson(1.7 * np.exp(F)).astype(float),
    }[name]()
    low, high = likelihood.predict_quantiles([0.05, 0.95], f)
    share = np.mean((low <= Y) & (Y <= high))
    # an interval holds the full probability of its counts
    assert abs(share - 0.9) < 0.03 or name == "poisson" and 0.88 < share < 0.98
    if name != "poisson":
        assert stats.kstest(likelihood.predict_cdf(Y, f), "uniform").pvalue > 1e-9


def test_heavy_tails_stay_heavy():
    """Far out the Student-t outweighs f; df = 0.01 has quantiles that overflow."""
    f = Marginals(np.zeros(1), np.ones(1))
    (far,) = lk.StudentT(0.7, df=2.0).predict_quantiles([0.9999], f)
    np.testing.assert_allclose(far, 0.7 * special.stdtrit(2.0, 0.9999), rtol=0.01)
    q = lk.StudentT(0.7, df=0.01).predict_quantiles([1e-6, 0.4, 0.6, 1 - 1e-6], f)[:, 0]
    assert q[0] == -np.inf and q[3] == np.inf and np.isfinite(q[1:3]).all()
    np.testing.assert_allclose(
        lk.StudentT(0.7, df=0.01).predict_cdf(q[1:3], Marginals(np.zeros(2), np.ones(2))),
        [0.4, 0.6],
    )


@each
def test_outputs_float32_and_no_data(name, rng):
    likelihood, _ = TABLE[name]
    f = marginals(rng, (2, 9))
    q = likelihood.predict_quantiles([0.1, 0.8], f)
    for p in range(2):
        np.testing.assert_allclose(
            q[:, p],
            likelihood.predict_quantiles([0.1, 0.8], Marginals(f.mean[p], f.var[p])),
            rtol=1e-12,
        )
    small = Marginals(f.mean.astype(np.float32), f.var.astype(np.float32))
    q32, p32 = (
        likelihood.predict_quantiles([0.1, 0.8], small),
        likelihood.predict_cdf(q[0].astype(np.float32), small),
    )
    assert q32.dtype == p32.dtype == np.float32
    np.testing.assert_allclose(q32, q, rtol=1e-4, atol=1e-5 if name != "poisson" else 1)
    none = Marginals(np.empty((2, 0)), np.empty((2, 0)))
    assert likelihood.predict_quantiles([0.1, 0.8], none).shape == (2, 2, 0)
    assert likelihood.predict_cdf(np.empty((2, 0)), none).shape == (2, 0)


OF_CLASSES = (
    lk.BernoulliProbit(),
    lk.BernoulliLogit(),
    lk.RobustMax(num_classes=3),
    lk.Softmax(num_classes=3),
)


@pytest.mark.parametrize("likelihood", OF_CLASSES)
def test_classes_have_no_quantiles(likelihood):
    f = Marginals(np.zeros((3, 2)), np.ones((3, 2)))
    for call in (
        lambda: likelihood.predict_quantiles([0.5], f),
        lambda: likelihood.predict_cdf(np.zeros(2), f),
    ):
        with pytest.raises(
            TypeError, match="are classes, which have no quantiles; predict_y gives probabilities"
        ):
            call()


@pytest.mark.parametrize("df", [1e13, 1e100, 1e300])
def test_student_t_with_large_df_is_normal(df):
    """It needs no more nodes or memory than df = 100."""
    f = Marginals(np.array([0.3, -2.0]), np.array([1.5, 1e-4]))
    likelihood, sd = lk.StudentT(scale=0.7, df=df), np.sqrt(f.var + 0.49)
    Y = np.array([1.2, -2.5])
    np.testing.assert_allclose(
        likelihood.predict_cdf(Y, f), special.ndtr((Y - f.mean) / sd), rtol=0, atol=1e-12
    )
    levels = [0.001, 0.5, 0.975]
    expected = f.mean + sd * special.ndtri(levels)[:, None]
    np.testing.assert_allclose(
        likelihood.predict_quantiles(levels, f), expected, rtol=0, atol=1e-11
    )
