"""Compare predictive log densities with dense sums in long double.

q(f) is narrow and wide, near the target and far from it."""

import math

import numpy as np
import pytest
from oracles import likelihoods as oracle

from fastsvgp import likelihoods as lk
from fastsvgp.records import Marginals

VARIANCES = (1e-6, 1e-3, 0.1, 1.0, 4.0, 16.0, 50.0, 100.0)


def predicted(likelihood, Y, mean, var, dtype=np.float64):
    Y = np.asarray(Y, dtype)
    f = Marginals(np.full(Y.shape, mean, dtype), np.full(Y.shape, var, dtype))
    return likelihood.predict_log_density(Y, f)


def exact_poisson(y, mean, var, exposure):
    def slope(f):
        return y - exposure * np.exp(f) - (f - mean) / np.longdouble(var)

    rate = exposure * math.exp(mean)
    centre = oracle.mode(slope, mean - var * rate - 1, mean + var * y + 1)
    width = 1 / math.sqrt(1 / var + exposure * math.exp(centre))
    return oracle.log_density_by_sinh(
        lambda f: oracle.poisson_wide(y, f, exposure), mean, var, centre, width, 2001
    )


@pytest.mark.parametrize("exposure", [1.0, 250.0])
@pytest.mark.parametrize("var", VARIANCES)
def test_poisson(var, exposure):
    Y = np.array([0, 1, 2, 7, 100, 1e4, 1e5])
    for mean in (-30.0, -3.0, -0.5, 0.0, 1.0, 3.0, 8.0, 30.0):
        exact = np.array([exact_poisson(y, mean, var, exposure) for y in Y])
        error = np.abs(predicted(lk.Poisson(exposure=exposure), Y, mean, var) - exact)
        assert (error <= np.maximum(1e-9, 1e-13 * np.abs(exact))).all(), (
            mean,
            Y[error.argmax()],
            error.max(),
        )


@pytest.mark.parametrize("var", [16.0, 50.0])
def test_poisson_where_the_rate_sets_in_far_from_the_mode(var):
    """Zero counts if only the upper tail of q(f) reaches a rate of one: two scales at once."""
    means = np.linspace(-45, 0, 91)
    exact = np.array([exact_poisson(0, m, var, 1.0) for m in means])
    got = lk.Poisson().predict_log_density(np.zeros(91), Marginals(means, np.full(91, var)))
    np.testing.assert_allclose(got, exact.astype(float), rtol=0, atol=1e-10)


def test_poisson_in_float32():
    Y = np.array([0, 1, 7, 100, 1e4])
    for var in (1e-3, 1.0, 16.0, 100.0):
        for mean in (-30.0, -0.5, 0.0, 3.0, 8.0):
            got = predicted(lk.Poisson(), Y, mean, var, np.float32)
            assert got.dtype == np.float32
            exact = [float(exact_poisson(y, mean, float(np.float32(var)), 1.0)) for y in Y]
            np.testing.assert_allclose(got, exact, rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize("num_nodes, error", [(3, 0.05), (5, 0.01), (10, 1e-5), (20, 1e-12)])
def test_fewer_nodes_of_poisson_are_a_coarser_rule(num_nodes, error):
    likelihood = lk.Poisson(num_nodes=num_nodes)
    for var in (0.1, 1.0, 16.0):
        for y in (0, 3, 100):
            assert (
                abs(predicted(likelihood, [y], 1.0, var)[0] - exact_poisson(y, 1.0, var, 1.0))
                < error
            )


def test_poisson_probabilities_add_up():
    """Most of the mass is the probability of no events; it is one minus the others."""
    Y = np.arange(200_000.0)
    p = np.exp(predicted(lk.Poisson(), Y, -2.0, 4.0))
    assert 0.5 < p[0] < 0.9 and abs(math.fsum(p) - 1) < 1e-9


def exact_logit(y, mean, var):
    sign = 2 * y - 1
    centre = oracle.mode(
        lambda g: 1 / (1 + np.exp(g)) - (g - sign * mean) / np.longdouble(var),
        sign * mean,
        sign * mean + var,
    )
    return oracle.log_density_by_sinh(
        lambda f: oracle.logit_wide(y, f), mean, var, sign * centre, min(1, math.sqrt(var)), 8001
    )


@pytest.mark.parametrize("var", [1e-12, 1e-6, 1e-3, 0.1, 1.0, 4.0, 16.0, 50.0, 100.0, 1e4])
def test_logit(var):
    """Both probabilities have relative accuracy at any size; they sum to one."""
    likelihood = lk.BernoulliLogit()
    means = np.array([-30.0, -7, -2, -0.3, 0, 0.3, 2, 7, 30])
    f = Marginals(means, np.full(9, var))
    exact = np.array([[exact_logit(y, m, var) for m in means] for y in (0, 1)])
    for y in (0, 1):
        got = likelihood.predict_log_density(np.full(9, float(y)), f)
        against = exact[y] < -0.7
        np.testing.assert_allclose(got[against], exact[y][against].astype(float), rtol=1e-12)
        np.testing.assert_allclose(
            -np.expm1(got[~against]), np.exp(exact[1 - y][~against]).astype(float), rtol=1e-10
        )
    p, spread = likelihood.predict_mean_and_var(f)
    np.testing.assert_allclose(p, np.exp(exact[1]).astype(float), rtol=3e-13)
    np.testing.assert_allclose(spread, np.exp(exact[0] + exact[1]).astype(float), rtol=3e-13)


def test_logit_in_float32():
    means = np.array([-30.0, -2, 0, 2, 7], np.float32)
    for var in (1e-3, 1.0, 50.0):
        f = Marginals(means, np.full(5, var, np.float32))
        for y in (0, 1):
            got = lk.BernoulliLogit().predict_log_density(np.full(5, y, np.float32), f)
            exact = [float(exact_logit(y, float(m), float(np.float32(var)))) for m in means]
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, exact, rtol=3e-7, atol=1e-10)
        p, spread = lk.BernoulliLogit().predict_mean_and_var(f)
        assert p.dtype == spread.dtype == np.float32
        np.testing.assert_allclose(
            p,
            np.exp([float(exact_logit(1, float(m), float(np.float32(var)))) for m in means]),
            rtol=3e-7,
        )


@pytest.mark.parametrize("num_nodes", [1, 20])
def test_logit_predictions_do_not_depend_on_num_nodes(num_nodes, rng):
    f = Marginals(rng.standard_normal((2, 17)), 10 * rng.random((2, 17)))
    Y = rng.integers(0, 2, (2, 17))
    one, other = lk.BernoulliLogit(num_nodes=num_nodes), lk.BernoulliLogit(num_nodes=7)
    np.testing.assert_array_equal(one.predict_log_density(Y, f), other.predict_log_density(Y, f))
    np.testing.assert_array_equal(one.predict_mean_and_var(f)[0], other.predict_mean_and_var(f)[0])
    assert one.expected_log_prob(Y, f)[0] != other.expected_log_prob(Y, f)[0]


def exact_student_t(y, mean, var, scale, df):
    centre, width = (mean, math.sqrt(var)) if var < scale * scale else (y, scale)
    return oracle.log_density_by_sinh(
        lambda f: oracle.student_t_wide(y, f, scale, df), mean, var, centre, width
    )


@pytest.mark.parametrize(
    "df", [0.5, 1.0, 4.0, 30.0, 63.999, 64.0, 1e3, 1e6, 1e10, 1e15, 1e99, 1e101, 1e300]
)
def test_student_t(df):
    for scale, var in (
        (0.01, 1.0),
        (0.01, 100.0),
        (1.0, 1e-4),
        (1.0, 0.1),
        (1.0, 16.0),
        (30.0, 50.0),
    ):
        Y = 0.3 + np.array([0, 1, 10, 100]) * max(scale, math.sqrt(var))
        exact = np.array([exact_student_t(y, 0.3, var, scale, df) for y in Y])
        error = np.abs(predicted(lk.StudentT(scale, df=df), Y, 0.3, var) - exact)
        assert (error <= np.maximum(1e-10, 1e-12 * np.abs(exact))).all(), (scale, var, error, exact)


def test_far_targets_of_student_t_with_many_nodes():
    """Nodes as many as scales between target and mean, in chunks; also a density of exp(-2e7)."""
    for df, r in ((1e3, 1e5), (1e7, 5e3), (1e8, 1e4)):
        exact = exact_student_t(r, 0.0, 1e-4, 1.0, df)
        np.testing.assert_allclose(
            predicted(lk.StudentT(1.0, df=df), [r, 0.0], 0.0, 1e-4)[0], float(exact), rtol=1e-12
        )
