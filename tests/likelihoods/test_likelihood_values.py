"""Compare likelihoods with densities of scipy.stats, adaptive integrals and brute-force sums."""

import math

import numpy as np
import pytest
from oracles import likelihoods as oracle
from scipy.integrate import quad
from support.numerics import five_point

from fastsvgp import likelihoods as lk
from fastsvgp.records import Marginals

MEANS, VARS = np.array([-1.7, 0.0, 0.4, 2.5, 0.3]), np.array([0.03, 1.0, 0.4, 1.0, 0.2])
REAL, LABEL, COUNT = (
    np.array([0.3, 0.0, -2.0, 2.4, 9.0]),
    np.array([1.0, 0, 1, 0, 1]),
    np.array([0.0, 1, 3, 11, 2]),
)

# likelihood, log density, targets, and the errors allowed for the expected log density and for the
# predictive one
CASES = {
    "gaussian": (lk.Gaussian(0.3), lambda y, f: oracle.gaussian(y, f, 0.3), REAL, 1e-10, 1e-10),
    "probit": (lk.BernoulliProbit(), oracle.probit, LABEL, 2e-9, 1e-10),
    "logit": (lk.BernoulliLogit(), oracle.logit, LABEL, 2e-9, 1e-10),
    "poisson": (
        lk.Poisson(exposure=2.5),
        lambda y, f: oracle.poisson(y, f, 2.5),
        COUNT,
        1e-10,
        1e-10,
    ),
    "laplace": (lk.Laplace(0.4), lambda y, f: oracle.laplace(y, f, 0.4), REAL, 1e-10, 1e-10),
    "student_t": (
        lk.StudentT(1.4, df=3.5),
        lambda y, f: oracle.student_t(y, f, 1.4, 3.5),
        REAL,
        2e-6,
        1e-9,
    ),
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
    expected = [
        oracle.expected_log_prob(log_density, *row) for row in zip(Y, MEANS, VARS, strict=True)
    ]
    assert abs(likelihood.expected_log_prob(Y, f)[0] - sum(expected)) <= 5 * expected_error
    predictive = [oracle.log_density(log_density, *row) for row in zip(Y, MEANS, VARS, strict=True)]
    np.testing.assert_allclose(
        likelihood.predict_log_density(Y, f), predictive, rtol=0, atol=predictive_error
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("var", [4.0, 16.0, 50.0])
def test_predictive_log_density_under_a_wide_posterior(name, var):
    likelihood, log_density, Y = CASES[name][:3]
    predictive = [oracle.log_density(log_density, y, m, var) for y, m in zip(Y, MEANS, strict=True)]
    got = likelihood.predict_log_density(Y, Marginals(MEANS, np.full(5, var)))
    np.testing.assert_allclose(got, predictive, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "student_t"])
def test_densities_integrate_to_one_with_the_predicted_moments(name):
    likelihood = CASES[name][0]
    for m, v in zip(MEANS, VARS, strict=True):
        f = Marginals(np.array([m]), np.array([v]))

        edges = [-np.inf, -30, -5, m, 5, 30, np.inf]

        def moment(g, f=f, edges=edges):
            def integrand(y):
                return g(y) * np.exp(likelihood.predict_log_density(np.array([y]), f)[0])

            return sum(
                quad(integrand, a, b, limit=300)[0] for a, b in zip(edges, edges[1:], strict=False)
            )

        mean, var = likelihood.predict_mean_and_var(f)
        assert abs(moment(lambda y: 1.0) - 1) < 1e-8
        assert abs(moment(lambda y: y) - mean[0]) < 1e-7
        # df = 3.5: the tails converge slowly
        assert abs(moment(lambda y, m=m: (y - m) ** 2) - var[0]) < 1e-3 * var[0]


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
    """By Bonnet and Price they are E f' and E f'' / 2 of log Phi; the rule has converged here."""
    mean, var = rng.standard_normal(7), 0.5 * rng.random(7)
    _, f_bar, _ = lk.BernoulliProbit(num_nodes=60).expected_log_prob(
        np.ones(7), Marginals(mean, var)
    )
    h = 1e-3
    for i in range(7):
        d = [
            oracle.expectation(lambda f, s=s: oracle.probit(1, f + s), mean[i], var[i])
            for s in (-2 * h, -h, 0, h, 2 * h)
        ]
        first = (8 * (d[3] - d[1]) - (d[4] - d[0])) / (12 * h)
        second = (16 * (d[3] + d[1]) - (d[4] + d[0]) - 30 * d[2]) / (12 * h * h)
        np.testing.assert_allclose([f_bar.mean[i], f_bar.var[i]], [first, second / 2], atol=1e-7)


DEGREES = [
    0.5,
    1.0,
    4.0,
    31.0,
    63.9,
    64.0,
    64.1,
    1e3,
    1e8,
    1e10,
    1e15,
    1e20,
    1e99,
    1e100,
    1e101,
    1e300,
]


@pytest.mark.parametrize("df", DEGREES)
def test_student_t_with_any_degrees_of_freedom(df):
    """Compare with the rule in long double, from fat tails to a normal distribution."""
    z, w = np.polynomial.hermite_e.hermegauss(20)
    z, w = z.astype(np.longdouble), (w / w.sum()).astype(np.longdouble)
    Y, mean = np.array([0.3, 1.0, -7.0, 1e-9]), np.array([0.3, -2.0, 5.0, 0.0])
    for scale in (0.01, 0.7, 30.0):
        for var in (1e-8, 0.1, 100.0):
            ell, f_bar, bar = lk.StudentT(scale, df=df, num_nodes=20).expected_log_prob(
                Y, Marginals(mean, np.full(4, var))
            )
            root, long_df = np.sqrt(np.longdouble(var)), np.longdouble(df)
            f = mean[:, None] + root * z
            r = (Y[:, None] - f) / np.longdouble(scale)
            slope = (long_df + 1) * r / (long_df + r * r) / scale
            expected = [
                (w * oracle.student_t_wide(Y[:, None], f, scale, df)).sum(),
                (w * slope).sum(axis=1),
                (w * z * slope).sum(axis=1) / (2 * root),
                (w * (slope * r * scale - 1)).sum() / scale,
            ]
            found, tolerances = (ell, f_bar.mean, f_bar.var, bar.scale), (1e-14, 1e-10, 1e-10, 1e-9)
            for got, exact, tolerance in zip(found, expected, tolerances, strict=True):
                assert np.abs(got - exact).max() <= tolerance * max(1, np.abs(exact).max()), (
                    scale,
                    var,
                    got,
                    exact,
                )


@pytest.mark.parametrize("df", [1e20, 1e101, 1e300])
@pytest.mark.parametrize("var", [0.0, 1e-30, 1e-12, 1.0])
def test_student_t_becomes_a_normal_distribution(df, var, rng):
    Y, f = rng.standard_normal(17), Marginals(rng.standard_normal(17), np.full(17, var))
    student_t, gaussian = lk.StudentT(0.7, df=df), lk.Gaussian(0.49)
    ell, f_bar, bar = student_t.expected_log_prob(Y, f)
    expected, expected_bar, own = gaussian.expected_log_prob(Y, f)
    np.testing.assert_allclose(ell, expected, rtol=1e-13)
    np.testing.assert_allclose(f_bar.mean, expected_bar.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(f_bar.var, expected_bar.var, rtol=1e-9)
    np.testing.assert_allclose(bar.scale, 1.4 * own.variance, rtol=1e-9)
    for got, exact in zip(
        student_t.predict_mean_and_var(f), gaussian.predict_mean_and_var(f), strict=True
    ):
        np.testing.assert_allclose(got, exact, rtol=1e-14)
    np.testing.assert_allclose(
        student_t.predict_log_density(Y, f),
        gaussian.predict_log_density(Y, f),
        rtol=1e-12,
        atol=1e-12,
    )


def test_log_normal_rate_and_wide_counts():
    """The rule follows counts far from q(f), where a rule over q(f) has errors of order one."""
    likelihood = lk.Poisson()
    for y, m, v in ((100.0, 0.0, 1.0), (1000.0, 3.0, 4.0), (0.0, 3.0, 2.0), (7.0, 2.0, 1e-9)):
        got = likelihood.predict_log_density(
            np.array([y]), Marginals(np.array([m]), np.array([v]))
        )[0]
        grid = m + np.sqrt(v) * np.linspace(-14, 14, 40001)
        logs = np.array([oracle.poisson(y, g, 1.0) for g in grid]) - 0.5 * (grid - m) ** 2 / v
        top = logs.max()
        exact = top + np.log(
            np.exp(logs - top).sum() * (grid[1] - grid[0]) / np.sqrt(2 * np.pi * v)
        )
        assert abs(got - exact) < 1e-8


def test_robust_max():
    mean, var = (
        np.array([[0.3, -1.0], [-0.2, 0.5], [1.1, 0.4]]),
        np.array([[0.5, 1.2], [0.9, 1.0], [0.4, 0.7]]),
    )
    likelihood = lk.RobustMax(num_classes=3, epsilon=0.01)
    Y = np.array([2, 0])
    P = np.stack([oracle.largest(mean[:, i], var[:, i]) for i in range(2)], axis=1)
    chosen = P[Y, [0, 1]]
    ell = np.sum(chosen * np.log(0.99) + (1 - chosen) * np.log(0.005))
    f = Marginals(mean, var)
    assert abs(likelihood.expected_log_prob(Y, f)[0] - ell) < 5e-5
    exact = 0.99 * P + 0.005 * (1 - P)
    np.testing.assert_allclose(likelihood.predict_mean_and_var(f)[0], exact, atol=1e-5)
    np.testing.assert_allclose(
        likelihood.predict_log_density(Y, f), np.log(exact[Y, [0, 1]]), atol=5e-5
    )


@pytest.mark.parametrize(
    "likelihood",
    [lk.RobustMax(num_classes=3), lk.Softmax(num_classes=3)],
    ids=["robust_max", "softmax"],
)
@pytest.mark.parametrize("var", [1e-6, 1.0])
def test_classes_far_from_zero(likelihood, var, rng):
    """Only differences of latent functions matter; results are bitwise equal at exact shifts."""
    near = np.round(3 * math.sqrt(var) * rng.standard_normal((3, 17)) * 2**30) / 2**30
    Y, variances = rng.integers(0, 3, 17), var * (0.5 + rng.random((3, 17)))
    results = []
    for shift in (0.0, 1e4):
        f = Marginals(near + shift, variances)
        ell, f_bar, _ = likelihood.expected_log_prob(Y, f)
        results.append(
            [
                ell,
                f_bar.mean,
                f_bar.var,
                *likelihood.predict_mean_and_var(f),
                likelihood.predict_log_density(Y, f),
            ]
        )
    for here, there in zip(*results, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-12 * np.abs(here).max())


def test_robust_max_far_from_zero():
    """A label that leads by many standard deviations is almost certain at any means."""
    mean = 1e4 + np.array([[0.02], [0.0], [-0.01]])
    f = Marginals(mean, np.full((3, 1), 1e-6))
    ell, f_bar, _ = lk.RobustMax(num_classes=3).expected_log_prob(np.array([0]), f)
    assert (
        abs(ell - np.log1p(-1e-3)) < 1e-12
        and np.abs(f_bar.mean).max() < 1e-40
        and np.abs(f_bar.var).max() < 1e-35
    )
    ell = lk.RobustMax(num_classes=3).expected_log_prob(np.array([1]), f)[0]
    assert abs(ell - np.log(0.5e-3)) < 1e-12


def test_derivatives_of_robust_max_far_from_zero(rng):
    likelihood, Y = lk.RobustMax(num_classes=3), rng.integers(0, 3, 17)
    grid = 2.0**-20
    f = Marginals(
        1e4 + grid * rng.integers(-1000, 1000, (3, 17)), 1e-6 * (0.5 + rng.random((3, 17)))
    )
    _, f_bar, _ = likelihood.expected_log_prob(Y, f)
    d, e = grid * rng.integers(-1000, 1000, (3, 17)), f.var * rng.standard_normal((3, 17))

    def value(s):
        return likelihood.expected_log_prob(Y, Marginals(f.mean + s * d, f.var))[0]

    forward = five_point(value, h=2.0**-10)
    assert abs(forward - (f_bar.mean * d).sum()) < 1e-8 * max(1, abs(forward))
    forward = five_point(
        lambda s: likelihood.expected_log_prob(Y, Marginals(f.mean, f.var + s * e))[0]
    )
    assert abs(forward - (f_bar.var * e).sum()) < 1e-8 * max(1, abs(forward))


def test_softmax():
    mean, var = (
        np.array([[0.3, -1.0], [-0.2, 2.5], [1.1, 0.4]]),
        np.array([[0.5, 0.2], [0.9, 0.3], [0.4, 0.7]]),
    )
    Y, f = np.array([2, 0]), Marginals(mean, var)
    exact = [oracle.softmax(mean[:, i], var[:, i]) for i in range(2)]
    for num_samples, error in ((128, 2e-3), (4096, 1e-4)):
        likelihood = lk.Softmax(num_classes=3, num_samples=num_samples)
        ell = sum(mean[Y[i], i] - exact[i][0] for i in range(2))
        assert abs(likelihood.expected_log_prob(Y, f)[0] - ell) < error
        for i in range(2):
            np.testing.assert_allclose(
                likelihood.predict_mean_and_var(f)[0][:, i], exact[i][1], atol=error
            )


def test_softmax_far_from_the_label(rng):
    mean, var = rng.standard_normal((3, 600)), 0.1 + rng.random((3, 600))
    likelihood, Y = lk.Softmax(num_classes=3), rng.integers(0, 3, 600)
    p = likelihood.predict_mean_and_var(Marginals(mean, var))[0]
    np.testing.assert_allclose(
        likelihood.predict_log_density(Y, Marginals(mean, var)),
        np.log(p[Y, np.arange(600)]),
        rtol=1e-12,
    )
    mean[:, 0] = -2000.0, 1000.0, 0.0
    var[:, 0] = 1e-12
    np.testing.assert_allclose(
        likelihood.predict_log_density(0 * Y, Marginals(mean, var))[0], -3000, rtol=1e-6
    )


def test_softmax_points_follow_the_random_number_generator(rng):
    likelihood, Y = lk.Softmax(num_classes=3), np.array([2, 0])
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
        (
            lk.BernoulliProbit(),
            [1.0, -1.0, 1.0],
            r"`Y` must hold labels 0 or 1; got -1.0 at index 1.*map -1/\+1",
        ),
        (lk.BernoulliLogit(), [[0, 1], [1, 2]], r"got 2 at index \(1, 1\)"),
        (lk.BernoulliProbit(), [0.0, np.nan], "got nan at index 1"),
        (lk.BernoulliProbit(), ["yes", "no"], "got yes at index 0"),
        (lk.Poisson(), [1.0, 2.5], "`Y` must hold counts; got 2.5 at index 1"),
        (lk.Poisson(), [1.0, -2.0], "got -2.0 at index 1"),
        (lk.Poisson(), [1.0, np.inf], "got inf at index 1"),
        (
            lk.RobustMax(num_classes=3),
            [0, 1, 3],
            r"integer labels 0 \.\.\. 2 \(num_classes=3\); got 3 at index 2",
        ),
        (lk.Softmax(num_classes=3), [0, -1], "got -1 at index 1.*Number the classes from 0"),
        (lk.Softmax(num_classes=3), [0.5, 1.0], "got 0.5 at index 0"),
        (lk.Softmax(num_classes=3), ["a", "b"], "got a at index 0"),
    ],
)
def test_invalid_targets_are_refused(likelihood, Y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(np.array(Y))


@pytest.mark.parametrize(
    "likelihood, message",
    [
        (
            lk.Softmax(num_classes=1),
            "Softmax: `num_classes` must be a whole number of at least 2, got 1",
        ),
        (
            lk.Softmax(num_classes=3, num_samples=100),
            "`num_samples` must be a power of two, at least 2, got 100",
        ),
        (
            lk.RobustMax(num_classes=3.5),
            "RobustMax: `num_classes` must be a whole number of at least 2, got 3.5",
        ),
        (lk.RobustMax(num_classes=3, epsilon=0.0), "`epsilon` must be between 0 and 1, got 0.0"),
        (lk.StudentT(1.0, df=-2.0), "StudentT: `df` must be positive and finite, got -2.0"),
        (lk.StudentT(1.0, df=np.inf), "`df` must be positive and finite, got inf"),
        (lk.Poisson(exposure=0), "`exposure` must be positive and finite, got 0"),
        (
            lk.BernoulliLogit(num_nodes=0),
            "BernoulliLogit: `num_nodes` must be a whole number of at least 1, got 0",
        ),
        (
            lk.BernoulliProbit(num_nodes="many"),
            "`num_nodes` must be a whole number of at least 1, got 'many'",
        ),
    ],
)
def test_invalid_settings_are_refused(likelihood, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_settings()


def test_valid_targets_are_accepted():
    lk.BernoulliLogit().check_targets(np.array([True, False]))
    lk.Poisson().check_targets(np.array([0, 3]))
    lk.RobustMax(num_classes=3).check_targets(np.array([0.0, 2.0]))
    lk.Gaussian().check_targets(np.array([-1.5]))
