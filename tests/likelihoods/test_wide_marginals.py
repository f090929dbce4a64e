"""Expected log densities under wide q(f): the stated errors, gradients, and where rules meet."""

import re

import numpy as np
import pytest
from scipy.special import expit, gammaln, log_expit, log_ndtr, ndtr
from support.looped import looped
from support.numerics import nine_point

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.likelihoods import wide
from fastsvgp.records import Marginals

VARIANCES = 1.0, 4.0, 10.0, 30.0, 100.0
EDGES = np.array([-np.inf, -0.5, 0.5, 4.5, np.inf])


def negative_binomial(y, f):
    rising = gammaln(y + 1.5) - gammaln(1.5) - gammaln(y + 1)
    return rising + y * f + 1.5 * np.log(1.5) - (1.5 + y) * np.logaddexp(np.log(1.5), f)


def beta(y, f, scale=20.0):
    A, B = np.maximum(scale * expit(f), 1e-300), np.maximum(scale * expit(-f), 1e-300)
    constant = gammaln(scale) - gammaln(A) - gammaln(B)
    return constant + (A - 1) * np.log(y) + (B - 1) * np.log1p(-y)


def between(y, f, edges=EDGES):
    """Log Phi of an interval, by the tail in which it lies."""
    above, below = edges[int(y) + 1] - f, edges[int(y)] - f
    above, below = (
        np.where(above + below > 0, *pair) for pair in ((-below, above), (-above, below))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        top, low = log_ndtr(above), log_ndtr(below)
        return top + np.log1p(-np.exp(np.where(np.isneginf(low), -np.inf, low - top)))


def zero_inflated(p):
    def log_p(y, f):
        return np.logaddexp(np.log(p), np.log1p(-p) - np.exp(np.minimum(f, 700)))

    return log_p


def binomial(y, f):
    choices = gammaln(6) - gammaln(y + 1) - gammaln(6 - y)
    return choices + y * log_expit(f) + (5 - y) * log_expit(-f)


def two_columns(y, second):
    return np.stack([np.atleast_1d(y), np.full(np.size(y), second)]).astype(float)


# likelihood, log density, targets, their columns, and the class and row of the docstring with the
# errors, which are in the given units
CASES = {
    "probit": (
        fs.BernoulliProbit(),
        lambda y, f: log_ndtr((2 * y - 1) * f),
        (0, 1),
        np.atleast_1d,
        (fs.likelihoods.OneLatent, "20 nodes of BernoulliProbit", 1),
    ),
    "logit": (
        fs.likelihoods.BernoulliLogit(),
        lambda y, f: log_expit((2 * y - 1) * f),
        (0, 1),
        np.atleast_1d,
        (fs.likelihoods.OneLatent, "20 nodes of BernoulliLogit", 1),
    ),
    "student_t": (
        fs.StudentT(0.5, df=4.0),
        lambda y, f: gammaln(2.5) - gammaln(2) - 0.5 * np.log(np.pi) - 2.5 * np.log1p((y - f) ** 2),
        (0.3,),
        np.atleast_1d,
        (fs.likelihoods.OneLatent, "20 nodes of StudentT", 2.5),
    ),
    "negative_binomial": (
        fs.likelihoods.NegativeBinomial(1.5),
        negative_binomial,
        (3.0,),
        np.atleast_1d,
        (fs.likelihoods.OneLatent, "20 nodes of BernoulliLogit", 4.5),
    ),
    "binomial": (
        fs.likelihoods.Binomial(),
        binomial,
        (0.0, 2.0),
        lambda y: two_columns(y, 5),
        (fs.likelihoods.OneLatent, "20 nodes of BernoulliLogit", 5),
    ),
    "censored": (
        fs.likelihoods.Censored(1.0),
        lambda y, f: log_ndtr(f - y),
        (0.4,),
        lambda y: two_columns(y, 1),
        (fs.likelihoods.OneLatent, "20 nodes of BernoulliProbit", 1),
    ),
    "ordinal": (
        fs.likelihoods.Ordinal(-0.5, np.array([1.0, 4.0])),
        between,
        (0, 1, 2, 3),
        np.atleast_1d,
        (fs.likelihoods.OneLatent, "20 nodes of Ordinal", 1),
    ),
    "beta": (
        fs.likelihoods.Beta(20.0),
        beta,
        (0.05, 0.5),
        np.atleast_1d,
        (fs.likelihoods.OneLatent, "20 nodes of Beta", 20),
    ),
    **{
        f"zeros, {p}": (
            fs.likelihoods.ZeroInflatedPoisson(float(p)),
            zero_inflated(float(p)),
            (0.0,),
            np.atleast_1d,
            (fs.likelihoods.ZeroInflatedPoisson, f"20 nodes, probability {p}", 1),
        )
        for p in ("0.3", "0.01", "1e-8")
    },
}
each = pytest.mark.parametrize("name", CASES)


def exact(log_p, y, mean, var):
    """E log p under N(mean, var) by a trapezoidal rule of many nodes."""
    sd = np.sqrt(var)
    f = np.arange(mean - 9 * sd, mean + 9 * sd, min(0.02, 0.05 * sd))
    weight = np.exp(-0.5 * ((f - mean) / sd) ** 2)
    return (weight * log_p(y, f)).sum() / weight.sum()


def largest_error(name, var, **changes):
    """Return the largest error over means and targets."""
    likelihood, log_p, targets, columns, _ = CASES[name]
    likelihood, worst, sd = fs.replace(likelihood, **changes), 0.0, np.sqrt(var)
    for y in targets:
        for mean in sd * np.array([*np.linspace(-2.5, 2.5, 21), -6, -4, 4, 6]):
            f = Marginals(np.array([mean]), np.array([var]))
            found = likelihood.expected_log_prob(columns(y), f, need=False)[0]
            worst = max(worst, abs(found - exact(log_p, y, mean, var)))
    return worst


def stated(kind, row):
    """Return the numbers of a row of the table in the docstring."""
    (line,) = re.findall(rf"^ *{re.escape(row)}  +(.*)$", kind.__doc__, re.M)
    return [float(number) for number in line.split()]


@each
def test_errors_are_those_of_the_docstring(name):
    kind, row, unit = CASES[name][-1]
    ours = "by default" if kind is fs.likelihoods.OneLatent else "error"
    claims = zip(VARIANCES, stated(kind, ours), stated(kind, row), strict=True)
    for var, bound, coarse in claims:
        assert largest_error(name, var) <= bound * unit
        assert coarse * unit / 5 <= largest_error(name, var, num_nodes=20) <= coarse * unit


@each
@looped("var", [0.03, 0.1, 0.3, 0.8, 0.95, 1.1, 1.5, 300.0])
def test_errors_at_other_variances(name, var):
    """Both sides of the threshold of each likelihood are among these."""
    assert largest_error(name, var) <= 1e-9 * CASES[name][-1][-1]


def test_beyond_the_table_the_error_is_relative():
    """Values are about 1e5 and 5e7, and means lie up to 6 standard deviations out."""
    for var, bound in ((1e4, 1e-7), (1e6, 1e-4)):
        for mean in np.sqrt(var) * np.array([-6.0, -2, 0, 2, 6]):
            f = Marginals(np.array([mean]), np.array([var]))
            found = fs.BernoulliProbit().expected_log_prob(np.array([1]), f, need=False)[0]
            assert abs(found - exact(lambda y, f: log_ndtr(f), 1, mean, var)) <= bound


# --- both sides of each condition -----------------------------------------------------------------


def both(likelihood, columns, y, mean, var):
    """Return a value by default, and by 20 nodes."""
    f = Marginals(np.array([mean]), np.array([var]))
    return [
        fs.replace(likelihood, num_nodes=num).expected_log_prob(columns(y), f)[0]
        for num in (None, 20)
    ]


WIDTHS = {
    "probit": (2.82, 1.92),
    "logit": (np.pi, 0.0),
    "student_t": (1.0, 0.3),
    "negative_binomial": (np.pi, np.log(1.5)),
    "beta": (2.5, 0.0),
}


@pytest.mark.parametrize("name", WIDTHS)
def test_narrow_data_have_the_bits_of_20_nodes(name):
    likelihood, log_p, targets, columns, (*_, unit) = CASES[name]
    y, (width, centre) = targets[-1], WIDTHS[name]
    threshold = (wide.LIMIT * width) ** 2
    narrow, coarse = both(likelihood, columns, y, centre, threshold * (1 - 1e-6))
    assert narrow == coarse
    table, coarse = both(likelihood, columns, y, centre, threshold * (1 + 1e-6))
    assert table != coarse
    # so a bound that crosses the threshold does not jump by more than the error of the coarse rule
    assert abs(table - coarse) <= 1e-9 * unit
    # the same where the feature lies far out
    sd, half = 3 * width, np.ceil(np.log(21)) if name == "beta" else 0
    inside, coarse = both(likelihood, columns, y, centre + half + 6.49 * sd, sd * sd)
    assert inside != coarse
    assert abs(inside - coarse) <= 1e-8 * unit
    outside, coarse = both(likelihood, columns, y, centre + half + 6.51 * sd, sd * sd)
    assert outside == coarse


@each
def test_a_given_number_of_nodes_is_in_force_at_any_variance(name):
    likelihood, _, targets, columns, _ = CASES[name]
    f = Marginals(np.array([0.4]), np.array([50.0]))
    values = [
        fs.replace(likelihood, num_nodes=num).expected_log_prob(columns(targets[-1]), f)[0]
        for num in (None, 5, 20, 21)
    ]
    assert len(set(values)) == 4


def test_variances_beyond_the_nodes(rng):
    """The nodes end 1e8 widths out: beyond them 20 Gauss-Hermite nodes serve, without a warning."""
    mean, var = rng.standard_normal(3), np.array([1e13, 1e17, 1e30])
    value, d_mean, d_var = wide.expectation("log1p_square", mean, var, None)
    coarse = wide.expectation("log1p_square", mean, var, 20)
    assert (value == coarse[0]).tolist() == [False, True, True]
    # E log f^2 = log var - log 2 - Euler's constant
    np.testing.assert_allclose(value[0], np.log(1e13) - np.log(2) - np.euler_gamma, rtol=1e-6)
    assert np.isfinite(d_mean).all() and np.isfinite(d_var).all()


def test_missing_numbers_stay_missing():
    with np.errstate(invalid="ignore"):
        value, _, _ = wide.expectation(
            "log_sigmoid", np.array([0.0, np.nan]), np.array([9.0, 9.0]), None
        )
    assert np.isfinite(value[0]) and np.isnan(value[1])


# --- derivatives, batches, dtypes -----------------------------------------------------------------


def batch(name, rng, N=60):
    """Targets, and marginals of which some are wide and some are narrow."""
    likelihood, _, targets, columns, _ = CASES[name]
    Y = columns(rng.choice(targets, N))
    return likelihood, Y, Marginals(2 * rng.standard_normal(N), np.exp(rng.uniform(-4, 5, N)))


@each
def test_gradients_are_those_of_the_value(name, rng):
    likelihood, Y, f = batch(name, rng)
    _, f_bar, own = likelihood.expected_log_prob(Y, f)

    def value(mean, var, moved=likelihood):
        return moved.expected_log_prob(Y, Marginals(mean, var), need=False)[0]

    d = rng.standard_normal((2, f.mean.size))
    for bar, move, forward in (
        (f_bar.mean, d[0], nine_point(lambda s: value(f.mean + s * d[0], f.var))),
        (f_bar.var, d[1] * f.var, nine_point(lambda s: value(f.mean, f.var * (1 + s * d[1])))),
    ):
        np.testing.assert_allclose((bar * move).sum(), forward, rtol=1e-7, atol=1e-6)
    for path, _, leaf in fs.records.leaves(likelihood):
        move = 0.1 * np.asarray(leaf)

        def moved(s, path=path, leaf=leaf, move=move):
            return value(f.mean, f.var, fs.replace(likelihood, **{path: leaf + s * move}))

        slope = np.sum(move * getattr(own, path))
        np.testing.assert_allclose(slope, nine_point(moved), rtol=1e-7, atol=1e-6)


@each
def test_a_datum_does_not_depend_on_its_batch(name, rng):
    likelihood, Y, f = batch(name, rng)
    _, whole, _ = likelihood.expected_log_prob(Y, f)
    for at in (slice(0, 1), slice(1, 30), slice(30, None, 2)):
        _, part, _ = likelihood.expected_log_prob(Y[..., at], Marginals(f.mean[at], f.var[at]))
        np.testing.assert_array_equal(part.mean, whole.mean[at])
        np.testing.assert_array_equal(part.var, whole.var[at])


@each
def test_float32_and_outputs(name, rng):
    likelihood, Y, f = batch(name, rng)
    single = Marginals(*(x.astype(np.float32).reshape(2, 30) for x in (f.mean, f.var)))
    double = Marginals(*(x.astype(np.float64) for x in (single.mean, single.var)))
    Y = Y.reshape(*Y.shape[:-1], 2, 30)
    found, expected = (likelihood.expected_log_prob(Y, f) for f in (single, double))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    for field in ("mean", "var"):
        one, other = (getattr(side[1], field) for side in (found, expected))
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@looped("first", [-1e3, 0.0, 1e3])
@looped("gap", [0.01, 3.8, 3.9, 40.0])
def test_edges_near_and_far_from_each_other(first, gap):
    """Both features of a label are resolved, wherever they are."""
    edges = np.array([-np.inf, first, first + gap, np.inf])
    likelihood = fs.likelihoods.Ordinal(first, np.array([gap]))
    for mean in first + np.array([-20.0, 0.0, 0.5 * gap, gap, gap + 30]):
        truth = exact(lambda y, f: between(y, f, edges), 1, mean, 30.0)
        f = Marginals(np.array([mean]), np.array([30.0]))
        found = likelihood.expected_log_prob(np.array([1]), f, need=False)[0]
        np.testing.assert_allclose(found, truth, rtol=1e-9, atol=1e-9)


# --- what the other rules state -------------------------------------------------------------------


def exact_of_two(likelihood, y, mean, var):
    """E log p of two functions by a trapezoidal rule of many nodes in either."""
    z = np.linspace(-8.5, 8.5, 2 * int(8.5 * max(5, 4 * np.sqrt(var))) + 1)
    weight = np.exp(-0.5 * z * z)
    weight /= weight.sum()
    F, H = (m + np.sqrt(var) * z for m in mean)
    return weight @ likelihood.log_density(y, F[:, None, None], H[:, None])[0][..., 0] @ weight


def test_errors_of_two_functions():
    likelihood = fs.likelihoods.HeteroskedasticNegativeBinomial()
    claims = stated(fs.likelihoods.HeteroskedasticNegativeBinomial, "error with 20 nodes")
    for var, claim in zip(VARIANCES, claims, strict=True):
        worst = 0.0
        for y in (0.0, 3.0, 20.0):
            for mean in ((-2.0, 0.0), (0.0, -2.0), (0.0, 0.0), (2.0, 0.0), (2.0, 2.0)):
                f = Marginals(np.array(mean)[:, None], np.full((2, 1), var))
                found = likelihood.expected_log_prob(np.array([y]), f, need=False)[0]
                truth = exact_of_two(likelihood, np.array([y]), mean, var)
                worst = max(worst, abs(found - truth) / max(1, abs(truth)))
        assert claim / 100 <= worst <= claim


def test_errors_of_robust_max(rng):
    for ratio, claim in zip(
        (1, 10, 100), stated(fs.likelihoods.RobustMax, "error with 20 nodes"), strict=True
    ):
        worst = 0.0
        for C in (2, 3, 10):
            for case in range(20):
                var, label = np.ones(C), case % 2
                var[0] = ratio
                mean = np.sqrt(ratio) * rng.standard_normal(C) * (0.3 if case % 4 < 2 else 1.0)
                f = Marginals(mean[:, None], var[:, None])
                p = fs.likelihoods.RobustMax(num_classes=C).expected_log_prob(
                    np.array([label]), f, need=False
                )
                low, high = np.log(1e-3 / (C - 1)), np.log1p(-1e-3)

                def others(y, f, mean=mean, var=var, label=label):
                    Phi = ndtr((f[:, None] - mean) / np.sqrt(var))
                    Phi[:, label] = 1
                    return Phi.prod(axis=1)

                truth = exact(others, label, mean[label], var[label])
                worst = max(worst, abs((p[0] - low) / (high - low) - truth))
        assert worst <= claim


def test_errors_of_softmax(rng):
    """Against averages over 2^13 other points, whose errors are a fifth of these."""
    mean, variances = rng.standard_normal((10, 100)), (0.3, 3.0, 10.0, 100.0)
    few, many = kernels.normal_points(10, 128), kernels.normal_points(10, 2**13, 7)
    for var, claim in zip(variances, stated(fs.Softmax, "error with 128 samples"), strict=True):
        values = (
            kernels.expected_logsumexp(mean, np.full((10, 100), var), points, need=False)[0]
            for points in (few, many)
        )
        assert claim / 4 <= np.sqrt(np.mean(np.square(np.subtract(*values)))) <= claim
