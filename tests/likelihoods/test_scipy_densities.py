"""Compare likelihoods with the distributions of SciPy; a new likelihood adds a row to CASES.

Expectations are averages over many nodes of q(f), predictions sums over a dense grid.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from oracles import likelihoods as oracle, predictive
from scipy import special, stats
from support.looped import looped

from fastsvgp import likelihoods as lk
from fastsvgp.records import Marginals, leaves

N = 12


def two(*columns):
    return np.array(columns, float)


A, EDGES, SD = 1.7, np.array([-np.inf, -1.0, -0.2, 0.9, np.inf]), 0.6
LEVELS = [1e-6, 0.05, 0.3, 0.5, 0.9, 1 - 1e-6]


class Case(NamedTuple):
    """A likelihood, and what SciPy says of y given f; the columns of Y come one by one."""

    likelihood: Any
    law: Any  # (f, *other columns) -> a distribution of SciPy, or what has its methods
    targets: Any  # (rng, mean) -> Y, (N,) or (C, N)
    tolerance: float  # of the expected log density of all data
    ends: Any = None  # y, others -> (lowest, highest): a limit instead of a density
    unit: tuple = ()  # the other columns of predictions


class Probit:
    """Ordered labels; or counts of successes, if the trials are given."""

    def __init__(self, f, n=None):
        self.f, self.n = f, n

    def logpmf(self, y):
        k, f = y.astype(int), self.f
        if self.n is not None:
            rest = special.log_ndtr(f) * y + special.log_ndtr(-f) * (self.n - y)
            return rest - special.betaln(self.n - y + 1, y + 1) - np.log1p(self.n)
        u, low = EDGES[k + 1] - f, EDGES[k] - f
        flip = u + low > 0
        u, low = np.where(flip, -low, u), np.where(flip, -u, low)
        log_u = special.log_ndtr(u)
        return log_u + np.log1p(-np.exp(special.log_ndtr(low) - log_u))

    def cdf(self, y):
        if self.n is not None:
            return stats.binom.cdf(y, self.n, special.ndtr(self.f))
        return special.ndtr(EDGES[np.asarray(y, int) + 1] - self.f)

    def rvs(self, random_state):
        if self.n is not None:
            return random_state.binomial(1, special.ndtr(self.f))
        noisy = self.f + random_state.standard_normal(self.f.shape)
        return np.searchsorted(EDGES[1:-1], noisy)


class Limited:
    """A normal distribution whose density is a probability beyond a limit."""

    def __init__(self, f, side):
        self.law, self.side = stats.norm(f, SD), side

    def logpdf(self, y):
        known = np.where(self.side > 0, self.law.logsf(y), self.law.logcdf(y))
        return np.where(self.side == 0, self.law.logpdf(y), known)

    def __getattr__(self, name):
        return getattr(self.law, name)


class Inflated:
    """Poisson counts, and three zeros in ten beside theirs."""

    def __init__(self, f):
        self.law = stats.poisson(np.exp(f))

    def logpmf(self, y):
        logs = np.log(0.7) + self.law.logpmf(y)
        return np.where(y == 0, np.logaddexp(np.log(0.3), logs), logs)

    def cdf(self, y):
        return 0.3 + 0.7 * self.law.cdf(y)

    def rvs(self, random_state):
        counts = self.law.rvs(random_state=random_state)
        return counts * (random_state.random(counts.shape) > 0.3)


def negative_binomial(f, c=1.0):
    return stats.nbinom(A, A / (A + c * np.exp(f)))


def counts(rng, mean):
    return rng.poisson(2.0, N).astype(float)


def exposed(rng, mean):
    return np.stack([counts(rng, mean), rng.uniform(0.3, 3.0, N)])


def trials(rng, mean):
    n = rng.integers(1, 30, N)
    return np.stack([rng.binomial(n, 0.4), n]).astype(float)


def positive(rng, mean):
    return rng.gamma(2.0, 1.0, N)


def measured(rng, mean):
    return np.stack([mean + rng.standard_normal(N), rng.uniform(0.01, 2.0, N)])


def limited(rng, mean):
    return np.stack([mean + rng.standard_normal(N), rng.integers(-1, 2, N)])


CASES = {
    "negative_binomial": Case(lk.NegativeBinomial(A), negative_binomial, counts, 1e-8),
    "negative_binomial, exposure": Case(
        lk.NegativeBinomial(A, exposure=1.6), lambda f: negative_binomial(f, 1.6), counts, 1e-8
    ),
    "negative_binomial, exposures": Case(
        lk.NegativeBinomial(A, exposure="column"), negative_binomial, exposed, 1e-8, unit=(1.0,)
    ),
    "poisson, exposures": Case(
        lk.Poisson(exposure="column"),
        lambda f, c: stats.poisson(c * np.exp(f)),
        exposed,
        1e-10,
        unit=(1.0,),
    ),
    "binomial": Case(
        lk.Binomial(),
        lambda f, n: stats.binom(np.asarray(n, int), special.expit(f)),
        trials,
        1e-8,
        unit=(1.0,),
    ),
    "binomial, probit": Case(lk.Binomial(link="probit"), Probit, trials, 1e-8, unit=(1.0,)),
    "gamma": Case(
        lk.Gamma(2.5), lambda f: stats.gamma(2.5, scale=np.exp(f) / 2.5), positive, 1e-10
    ),
    "gamma of a small shape": Case(
        lk.Gamma(0.3), lambda f: stats.gamma(0.3, scale=np.exp(f) / 0.3), positive, 1e-10
    ),
    "exponential": Case(lk.Exponential(), lambda f: stats.expon(scale=np.exp(f)), positive, 1e-10),
    "ordinal": Case(
        lk.Ordinal(-1.0, np.array([0.8, 1.1])),
        Probit,
        lambda rng, mean: rng.integers(0, 4, N).astype(float),
        1e-6,
    ),
    "known_noise": Case(
        lk.KnownNoise(SD**2),
        lambda f, s: stats.norm(f, np.sqrt(SD**2 + s)),
        measured,
        1e-10,
        unit=(0.0,),
    ),
    "beta": Case(
        lk.Beta(5.0),
        lambda f: stats.beta(5 * special.expit(f), 5 * special.expit(-f)),
        lambda rng, mean: rng.beta(2.0, 3.0, N),
        1e-6,
    ),
    "sharp beta": Case(
        lk.Beta(300.0),
        lambda f: stats.beta(300 * special.expit(f), 300 * special.expit(-f)),
        lambda rng, mean: rng.beta(2.0, 3.0, N),
        1e-4,
    ),
    "zero_inflated": Case(
        lk.ZeroInflatedPoisson(0.3, num_nodes=40),
        Inflated,
        lambda rng, mean: counts(rng, mean) * rng.integers(0, 2, N),
        1e-6,
    ),
    "censored": Case(lk.Censored(SD**2, num_nodes=40), Limited, limited, 1e-6, unit=(0.0,)),
}
COUNTS = [name for name, case in CASES.items() if case.likelihood.counts]
each = pytest.mark.parametrize("name", CASES)


def problem(name, rng, least=0.05, most=0.8):
    case = CASES[name]
    f = Marginals(rng.standard_normal(N), rng.uniform(least, most, N))
    Y = case.targets(rng, f.mean)
    case.likelihood.check_targets(Y)
    return case, f, Y, *(Y if Y.ndim > 1 else Y[None])


def log_of(law, y):
    try:
        return law.logpmf(y)
    except AttributeError:
        return law.logpdf(y)


@each
def test_expected_log_density(name, rng):
    case, f, Y, y, *others = problem(name, rng)
    z, w = np.polynomial.hermite_e.hermegauss(200)
    F = f.mean + np.sqrt(f.var) * z[:, None]
    truth = (w / w.sum()) @ log_of(case.law(F, *others), y)
    assert abs(case.likelihood.expected_log_prob(Y, f)[0] - truth.sum()) <= case.tolerance


@each
@looped("var", [1e-8, 0.03, 0.8, 4.0, 40.0])
def test_predictive_log_density(name, var, rng):
    case, f, Y, y, *others = problem(name, rng)
    z = np.linspace(-25, 25, 20_001)[:, None]
    with np.errstate(all="ignore"):  # some of the grid is far out
        logs = log_of(case.law(f.mean + np.sqrt(var) * z, *others), y) - 0.5 * z * z
    logs = np.where(np.isnan(logs), -np.inf, logs)
    truth = special.logsumexp(logs, axis=0) + np.log((z[1, 0] - z[0, 0]) / np.sqrt(2 * np.pi))
    found = case.likelihood.predict_log_density(Y, Marginals(f.mean, np.full(N, var)))
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-9)


@each
@looped("var", [0.0, 0.03, 0.8, 40.0])
def test_distribution_function(name, var, rng):
    case, f, Y, y, *others = problem(name, rng)
    found = case.likelihood.predict_cdf(Y, Marginals(f.mean, np.full(N, var)))
    truth = [
        predictive.cdf(lambda t, F, o=o: case.law(F, *o).cdf(t), t, m, var, 4001)
        for t, m, *o in zip(y, f.mean, *others, strict=True)
    ]
    np.testing.assert_allclose(found, truth, rtol=0, atol=1e-11)


@each
@looped("var", [0.0, 0.5, 9.0])
def test_quantiles_invert_the_distribution_function(name, var, rng):
    case, f, _, _, *others = problem(name, rng)
    f = Marginals(f.mean[:5], np.full(5, var))
    q = case.likelihood.predict_quantiles(LEVELS, f)
    assert q.shape == (len(LEVELS), 5) and (np.diff(q, axis=0) >= 0).all()

    def cdf(y):
        Y = np.stack([y, *(np.full(5, one) for one in case.unit)]) if others else y
        return case.likelihood.predict_cdf(Y, f)

    for level, y in zip(LEVELS, q, strict=True):
        if name in COUNTS:
            assert (y == np.floor(y)).all() and (cdf(y) >= level - 1e-12).all()
            assert (cdf(y - 1) < level + 1e-12).all()
        else:
            # float64 cannot separate shares of a beta distribution near 0 and 1 by their mass
            resolved = (y > 1e-290) & (y < 0.99) if "beta" in name else y > -np.inf
            np.testing.assert_allclose(cdf(y)[resolved], level, rtol=0, atol=1e-12)


def variance_of(law, Y):
    """Return variances from samples of f; a law that has its own gives those of heavy tails."""
    if hasattr(law, "var"):
        return law.var().mean(axis=0) + law.mean().var(axis=0)
    return Y.var(axis=0)


@each
def test_moments_are_those_of_samples(name, rng):
    case, f, *_ = problem(name, rng, 0.05, 0.3)
    mean, var = case.likelihood.predict_mean_and_var(f)
    F = f.mean + np.sqrt(f.var) * rng.standard_normal((40_000, N))
    law = case.law(F, *case.unit)
    Y = np.asarray(law.rvs(random_state=rng), float)
    np.testing.assert_array_less(np.abs(Y.mean(axis=0) - mean) / Y.std(axis=0), 5 / 200)
    np.testing.assert_allclose(variance_of(law, Y).sum(), var.sum(), rtol=0.1)


@looped("var", [0.1, 1.0, 30.0])
@looped("mean", [-20.0, 0.0, 6.0])
def test_densities_of_far_targets(mean, var):
    """The mode is found wherever it is, and both tails of the integrand are covered."""
    y, n, a, size = np.array([0.0, 3, 200]), np.array([1e4, 3, 1e3]), 40.0, [1e-8, 1.0, 1e5]
    f = Marginals(np.full(3, mean), np.full(3, var))
    binomial = special.gammaln(n + 1) - special.gammaln(y + 1) - special.gammaln(n - y + 1)
    rising = special.gammaln(y + a) - special.gammaln(a) - special.gammaln(y + 1)
    for likelihood, Y, constant, log_p, slope in (
        (
            lk.Binomial(),
            np.stack([y, n]),
            binomial,
            lambda t, k: y[k] * t - n[k] * np.logaddexp(0, t),
            lambda t, k: y[k] - n[k] / (1 + np.exp(-t)),
        ),
        (
            lk.NegativeBinomial(a),
            y,
            rising,
            lambda t, k: y[k] * (t - np.log(a)) - (y[k] + a) * np.logaddexp(0, t - np.log(a)),
            lambda t, k: y[k] - (y[k] + a) / (1 + a * np.exp(-t)),
        ),
        (
            lk.Gamma(a),
            np.array(size),
            np.full(3, a * np.log(a) - special.gammaln(a)),
            lambda t, k: (a - 1) * np.log(size[k]) - a * (t + size[k] * np.exp(-t)),
            lambda t, k: a * (size[k] * np.exp(-t) - 1),
        ),
    ):
        found = likelihood.predict_log_density(Y, f)
        for k in range(3):
            with np.errstate(over="ignore"):
                centre = oracle.mode(
                    lambda t, k=k, slope=slope: slope(t, k) - (t - mean) / var, -600, 600
                )
                scale = 1 / np.sqrt(1 / var + max(a, y[k] * (1 - y[k] / n[k])))
                truth = oracle.log_density_by_sinh(
                    lambda t, k=k, log_p=log_p: log_p(t, k), mean, var, centre, scale
                )
            assert abs(found[k] - constant[k] - truth) <= max(1e-9, 1e-12 * abs(found[k])), k


def test_special_cases_are_those_of_other_likelihoods(rng):
    # a share of zeros of 1e-200 counts from exp(f) = 460 on, which these f do not reach
    f = Marginals(0.5 * rng.standard_normal(N), rng.uniform(0.1, 0.5, N))
    labels, y = rng.integers(0, 2, N).astype(float), rng.poisson(2.0, N).astype(float)
    ones, real = np.ones(N), rng.standard_normal(N)
    for one, Y, other, targets, tolerance in (
        (lk.Binomial(), np.stack([labels, ones]), lk.BernoulliLogit(), labels, 1e-12),
        (lk.Binomial(link="probit"), np.stack([labels, ones]), lk.BernoulliProbit(), labels, 1e-12),
        (lk.Ordinal(0.0, np.empty(0)), labels, lk.BernoulliProbit(), labels, 1e-12),
        (lk.Poisson(exposure="column"), np.stack([y, 1.7 * ones]), lk.Poisson(exposure=1.7), y, 0),
        (lk.NegativeBinomial(1e12), y, lk.Poisson(), y, 1e-7),
        (lk.Exponential(), 1 + y, lk.Gamma(1.0), 1 + y, 0),
        (lk.KnownNoise(0.2), np.stack([real, 0.1 * ones]), lk.Gaussian(0.3), real, 1e-13),
        (lk.KnownNoise(extra=False), np.stack([real, ones]), lk.Gaussian(1.0), real, 1e-13),
        (lk.Censored(0.3), np.stack([real, 0 * ones]), lk.Gaussian(0.3), real, 1e-13),
        (lk.ZeroInflatedPoisson(1e-200, num_nodes=60), y, lk.Poisson(), y, 1e-4),
        (lk.Switched((lk.Poisson(), lk.Gaussian(0.3))), two(real, ones), lk.Gaussian(0.3), real, 0),
    ):
        ours, due = one.expected_log_prob(Y, f), other.expected_log_prob(targets, f)
        np.testing.assert_allclose(ours[0], due[0], rtol=max(tolerance, 1e-14))
        np.testing.assert_allclose(ours[1].mean, due[1].mean, atol=max(tolerance, 1e-13))
        np.testing.assert_allclose(
            one.predict_log_density(Y, f),
            other.predict_log_density(targets, f),
            rtol=0,
            atol=max(tolerance, 1e-9),
        )


@pytest.mark.parametrize("shape", [(N,), (2, N)])
def test_each_part_of_a_switch_has_its_rows(shape, rng):
    f = Marginals(rng.standard_normal(shape), rng.uniform(0.1, 1.0, shape))
    y, part, w = rng.poisson(2.0, shape), rng.integers(0, 2, shape), rng.integers(0, 3, shape)
    Y = np.stack([y, part]).astype(float)
    parts = lk.NegativeBinomial(1.7), lk.Gaussian(0.3)
    both = lk.Switched(parts)
    both.check_targets(Y)
    assert both.log_concave and not lk.Switched([lk.StudentT(1.0)]).log_concave
    ell, f_bar, bar = both.expected_log_prob(Y, f, weights=w.astype(float))
    density, below, due = np.empty(shape), both.predict_cdf(Y, f), 0.0
    for j, one in enumerate(parts):
        at = part == j
        own = Marginals(f.mean[at], f.var[at])
        value, own_bar, bar_of_part = one.expected_log_prob(
            Y[0][at], own, weights=w[at].astype(float)
        )
        due += value
        np.testing.assert_array_equal(f_bar.mean[at], own_bar.mean)
        np.testing.assert_array_equal(f_bar.var[at], own_bar.var)
        for (_, _, ours), (_, _, theirs) in zip(
            leaves(bar.parts[j]), leaves(bar_of_part), strict=True
        ):
            assert ours == theirs
        density[at] = one.predict_log_density(Y[0][at], own)
        np.testing.assert_array_equal(below[at], one.predict_cdf(Y[0][at], own))
    assert ell == pytest.approx(due, rel=1e-14)
    assert both.expected_log_prob(Y, f, need=False, weights=w.astype(float))[0] == ell
    summed = density if len(shape) == 1 else density.sum(axis=0)
    np.testing.assert_allclose(both.predict_log_density(Y, f), summed, rtol=1e-14)
    for call in (lambda: both.predict_mean_and_var(f), lambda: both.predict_quantiles([0.5], f)):
        with pytest.raises(TypeError, match="have no part; put the one you mean into the model"):
            call()


@each
def test_log_concavity_is_stated_correctly(name, rng):
    """Of all targets by second differences; Beta and the zeros of ZeroInflatedPoisson are not."""
    case, _, _, y, *others = problem(name, rng)
    f = np.linspace(-5, 5, 401)[:, None]
    bend = np.diff(log_of(case.law(f, *others), y), 2, axis=0).max()
    assert case.likelihood.log_concave == (bend < 1e-9)
