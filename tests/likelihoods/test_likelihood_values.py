"""Every likelihood against its definition: densities of scipy.stats, adaptive integrals, brute-force sums."""

import numpy as np
import pytest
from oracles import likelihoods as oracle
from scipy.integrate import quad

from fastsvgp import likelihoods as lk
from fastsvgp.records import Marginals

MEANS, VARS = np.array([-1.7, 0.0, 0.4, 2.5, 0.3]), np.array([0.03, 1.0, 0.4, 1.0, 0.2])
REAL, LABEL, COUNT = np.array([0.3, 0.0, -2.0, 2.4, 9.0]), np.array([1.0, 0, 1, 0, 1]), np.array([0.0, 1, 3, 11, 2])

# likelihood, its log density, targets, and the errors allowed to the expected log density and to the predictive one
CASES = {
    "gaussian": (lk.Gaussian(0.3), lambda y, f: oracle.gaussian(y, f, 0.3), REAL, 1e-10, 1e-10),
    "probit": (lk.BernoulliProbit(), oracle.probit, LABEL, 2e-9, 1e-10),
    "logit": (lk.BernoulliLogit(), oracle.logit, LABEL, 2e-9, 2e-10),
    "poisson": (lk.Poisson(exposure=2.5), lambda y, f: oracle.poisson(y, f, 2.5), COUNT, 1e-10, 1e-7),
    "laplace": (lk.Laplace(0.4), lambda y, f: oracle.laplace(y, f, 0.4), REAL, 1e-10, 1e-10),
    "student_t": (lk.StudentT(1.4, df=3.5), lambda y, f: oracle.student_t(y, f, 1.4, 3.5), REAL, 2e-6, 1e-9),
    "student_t, 100 nodes": (
        lk.StudentT(0.7, df=3.5, num_nodes=100),
        lambda y, f: oracle.student_t(y, f, 0.7, 3.5),
        REAL,
        2e-7,
        1e-9,
    ),
    "sharp student_t, 100 nodes": (
        lk.StudentT(0.3, df=30.0, num_nodes=100),
        lambda y, f: oracle.student_t(y, f, 0.3, 30.0),
        REAL,
        1e-4,
        1e-9,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_expected_and_predictive_log_density(name):
    likelihood, log_density, Y, expected_error, predictive_error = CASES[name]
    f = Marginals(MEANS, VARS)
    expected = [oracle.expected_log_prob(log_density, *row) for row in zip(Y, MEANS, VARS, strict=True)]
    assert abs(likelihood.expected_log_prob(Y, f)[0] - sum(expected)) <= 5 * expected_error
    predictive = [oracle.log_density(log_density, *row) for row in zip(Y, MEANS, VARS, strict=True)]
    np.testing.assert_allclose(likelihood.predict_log_density(Y, f), predictive, rtol=0, atol=predictive_error)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "student_t"])
def test_densities_integrate_to_one_with_the_predicted_moments(name):
    likelihood = CASES[name][0]
    for m, v in zip(MEANS, VARS, strict=True):
        f = Marginals(np.array([m]), np.array([v]))

        edges = [-np.inf, -30, -5, m, 5, 30, np.inf]

        def moment(g, f=f, edges=edges):
            def integrand(y):
                return g(y) * np.exp(likelihood.predict_log_density(np.array([y]), f)[0])

            return sum(quad(integrand, a, b, limit=300)[0] for a, b in zip(edges, edges[1:], strict=False))

        mean, var = likelihood.predict_mean_and_var(f)
        assert abs(moment(lambda y: 1.0) - 1) < 1e-8
        assert abs(moment(lambda y: y) - mean[0]) < 1e-7
        assert abs(moment(lambda y, m=m: (y - m) ** 2) - var[0]) < 1e-3 * var[0]  # df = 3.5: the tails converge slowly


@pytest.mark.parametrize("name", ["probit", "logit", "poisson"])
def test_discrete_moments_are_those_of_the_density(name):
    likelihood = CASES[name][0]
    f = Marginals(MEANS, 0.1 * VARS)
    y = np.arange(400 if name == "poisson" else 2)
    p = np.array([np.exp(likelihood.predict_log_density(np.full(5, float(k)), f)) for k in y])
    np.testing.assert_allclose(p.sum(axis=0), 1, rtol=1e-7)
    mean, var = likelihood.predict_mean_and_var(f)
    np.testing.assert_allclose(mean, y @ p, rtol=1e-6)
    np.testing.assert_allclose(var, (y**2) @ p - mean**2, rtol=1e-5)


def test_the_derivatives_approach_those_of_the_integral(rng):
    """Bonnet and Price: E f' and E f'' / 2 of log Phi; here the rule has converged."""
    mean, var = rng.standard_normal(7), 0.5 * rng.random(7)
    _, f_bar, _ = lk.BernoulliProbit(num_nodes=60).expected_log_prob(np.ones(7), Marginals(mean, var))
    h = 1e-3
    for i in range(7):
        d = [
            oracle.expectation(lambda f, s=s: oracle.probit(1, f + s), mean[i], var[i]) for s in (-2 * h, -h, 0, h, 2 * h)
        ]
        first = (8 * (d[3] - d[1]) - (d[4] - d[0])) / (12 * h)
        second = (16 * (d[3] + d[1]) - (d[4] + d[0]) - 30 * d[2]) / (12 * h * h)
        np.testing.assert_allclose([f_bar.mean[i], f_bar.var[i]], [first, second / 2], atol=1e-7)


def test_log_normal_rate_and_wide_counts():
    """The adapted rule follows counts far from where q(f) is: errors that a rule over q(f) would put at order one."""
    likelihood = lk.Poisson()
    for y, m, v in ((100.0, 0.0, 1.0), (1000.0, 3.0, 4.0), (0.0, 3.0, 2.0), (7.0, 2.0, 1e-9)):
        got = likelihood.predict_log_density(np.array([y]), Marginals(np.array([m]), np.array([v])))[0]
        grid = m + np.sqrt(v) * np.linspace(-14, 14, 40001)
        logs = np.array([oracle.poisson(y, g, 1.0) for g in grid]) - 0.5 * (grid - m) ** 2 / v
        top = logs.max()
        exact = top + np.log(np.exp(logs - top).sum() * (grid[1] - grid[0]) / np.sqrt(2 * np.pi * v))
        assert abs(got - exact) < 1e-5


def test_robust_max():
    mean, var = np.array([[0.3, -1.0], [-0.2, 0.5], [1.1, 0.4]]), np.array([[0.5, 1.2], [0.9, 1.0], [0.4, 0.7]])
    likelihood = lk.RobustMax(3, epsilon=0.01)
    Y = np.array([2, 0])
    P = np.stack([oracle.largest(mean[:, i], var[:, i]) for i in range(2)], axis=1)
    chosen = P[Y, [0, 1]]
    ell = np.sum(chosen * np.log(0.99) + (1 - chosen) * np.log(0.005))
    f = Marginals(mean, var)
    assert abs(likelihood.expected_log_prob(Y, f)[0] - ell) < 5e-5
    exact = 0.99 * P + 0.005 * (1 - P)
    np.testing.assert_allclose(likelihood.predict_mean_and_var(f)[0], exact, atol=1e-5)
    np.testing.assert_allclose(likelihood.predict_log_density(Y, f), np.log(exact[Y, [0, 1]]), atol=5e-5)


def test_softmax():
    mean, var = np.array([[0.3, -1.0], [-0.2, 2.5], [1.1, 0.4]]), np.array([[0.5, 0.2], [0.9, 0.3], [0.4, 0.7]])
    Y, f = np.array([2, 0]), Marginals(mean, var)
    exact = [oracle.softmax(mean[:, i], var[:, i]) for i in range(2)]
    for num_samples, error in ((128, 2e-3), (4096, 1e-4)):
        likelihood = lk.Softmax(3, num_samples=num_samples)
        ell = sum(mean[Y[i], i] - exact[i][0] for i in range(2))
        assert abs(likelihood.expected_log_prob(Y, f)[0] - ell) < error
        for i in range(2):
            np.testing.assert_allclose(likelihood.predict_mean_and_var(f)[0][:, i], exact[i][1], atol=error)


def test_softmax_far_from_the_label(rng):
    mean, var = rng.standard_normal((3, 600)), 0.1 + rng.random((3, 600))
    likelihood, Y = lk.Softmax(3), rng.integers(0, 3, 600)
    p = likelihood.predict_mean_and_var(Marginals(mean, var))[0]
    np.testing.assert_allclose(likelihood.predict_log_density(Y, Marginals(mean, var)), np.log(p[Y, np.arange(600)]), rtol=1e-12)
    mean[:, 0] = -2000.0, 1000.0, 0.0
    var[:, 0] = 1e-12
    np.testing.assert_allclose(likelihood.predict_log_density(0 * Y, Marginals(mean, var))[0], -3000, rtol=1e-6)


def test_softmax_points_follow_the_random_number_generator(rng):
    likelihood, Y = lk.Softmax(3), np.array([2, 0])
    f = Marginals(rng.standard_normal((3, 2)), np.ones((3, 2)))

    def value(r):
        return likelihood.expected_log_prob(Y, f, rng=r)[0]

    assert value(None) == value(None) == value(0) != value(1) == value(1)
    generator = np.random.default_rng(5)
    first, second = value(generator), value(generator)
    assert first != second and first == value(np.random.default_rng(5))
    assert abs(first - second) < 0.05


@pytest.mark.parametrize(
    "likelihood, Y, message",
    [
        (lk.BernoulliProbit(), [1.0, -1.0, 1.0], r"`Y` must hold labels 0 or 1; got -1.0 at index 1.*map -1/\+1"),
        (lk.BernoulliLogit(), [[0, 1], [1, 2]], r"got 2 at index \(1, 1\)"),
        (lk.BernoulliProbit(), [0.0, np.nan], "got nan at index 1"),
        (lk.BernoulliProbit(), ["yes", "no"], "got yes at index 0"),
        (lk.Poisson(), [1.0, 2.5], "`Y` must hold counts; got 2.5 at index 1"),
        (lk.Poisson(), [1.0, -2.0], "got -2.0 at index 1"),
        (lk.Poisson(), [1.0, np.inf], "got inf at index 1"),
        (lk.RobustMax(3), [0, 1, 3], r"integer labels 0 \.\.\. 2 \(num_classes=3\); got 3 at index 2"),
        (lk.Softmax(3), [0, -1], "got -1 at index 1.*Number the classes from 0"),
        (lk.Softmax(3), [0.5, 1.0], "got 0.5 at index 0"),
        (lk.Softmax(3), ["a", "b"], "got a at index 0"),
    ],
)
def test_targets_that_are_none(likelihood, Y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(np.array(Y))


@pytest.mark.parametrize(
    "likelihood, message",
    [
        (lk.Softmax(1), "Softmax: `num_classes` must be a whole number of at least 2, got 1"),
        (lk.Softmax(3, num_samples=100), "`num_samples` must be a power of two, at least 2, got 100"),
        (lk.RobustMax(3.5), "RobustMax: `num_classes` must be a whole number of at least 2, got 3.5"),
        (lk.RobustMax(3, epsilon=0.0), "`epsilon` must be between 0 and 1, got 0.0"),
        (lk.StudentT(1.0, df=-2.0), "StudentT: `df` must be positive and finite, got -2.0"),
        (lk.StudentT(1.0, df=np.inf), "`df` must be positive and finite, got inf"),
        (lk.Poisson(exposure=0), "`exposure` must be positive and finite, got 0"),
        (lk.BernoulliLogit(num_nodes=0), "BernoulliLogit: `num_nodes` must be a whole number of at least 1, got 0"),
        (lk.BernoulliProbit(num_nodes="many"), "`num_nodes` must be a whole number of at least 1, got 'many'"),
    ],
)
def test_settings_that_make_no_sense(likelihood, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_settings()


def test_targets_that_are_fine():
    lk.BernoulliLogit().check_targets(np.array([True, False]))
    lk.Poisson().check_targets(np.array([0, 3]))
    lk.RobustMax(3).check_targets(np.array([0.0, 2.0]))
    lk.Gaussian(1.0).check_targets(np.array([-1.5]))
