"""Likelihoods at parameters, counts and variances far from one, against long double and limits."""

import numpy as np
import pytest
from oracles import likelihoods as oracle, wide
from scipy import special
from support.looped import looped

from fastsvgp import likelihoods as lk
from fastsvgp.likelihoods.averages import SHARP as SHARP_BETA, beta_survival
from fastsvgp.likelihoods.stirling import (
    SERIES_FROM,
    SHARP,
    exp_remainder,
    gamma_chance,
    log_less_digamma,
    remainder,
)
from fastsvgp.records import Marginals

EPS = np.finfo(float).eps


def one(mean, var):
    """Return marginals of one datum, or of two functions."""
    mean, var = np.asarray(mean, float)[..., None], np.asarray(var, float)[..., None]
    return Marginals(mean, var)


def long(x):
    return np.longdouble(x)


def float64(x):
    return np.asarray(x, np.float64)


def remainder_of_exp(u):
    """exp(u) - 1 - u in long double, by 20 terms near 0."""
    u = long(u)
    term, near = u, long(0)
    for k in range(2, 22):
        term = term * u / k
        near = near + term
    return np.where(np.abs(u) < 0.1, near, np.expm1(u) - u)


def deviance(y, z, d):
    """y log(mu / p) + z log((1 - mu) / (1 - p)) of log odds that differ by d, in long double."""
    y, z, d = long(y), long(z), long(d)
    return y * d - (y + z) * np.log1p(y / (y + z) * np.expm1(d))


def chance(loss, t, width, left=0.0, right=0.0):
    """P(T > t) of a density proportional to exp(-loss(t)) around 0, in long double."""
    z, w = (long(x) for x in np.polynomial.legendre.leggauss(400))

    def mass(a, b):
        ends = np.linspace(a, b, 9)
        middle, half = (ends[1:] + ends[:-1]) / 2, (b - a) / 16
        return (w * np.exp(-loss(middle[:, None] + half * z))).sum() * half

    low, high = -12 * width - left, 12 * width + right
    below, above = mass(low, t), mass(t, high)
    return float(above / (below + above))


@looped("x", [1e-9, 0.3, 2.0, SERIES_FROM - 1e-9, SERIES_FROM, 1e3, 1e9, 1e15])
def test_remainders_of_gamma_functions(x):
    """Both sides of where the series begins."""
    due = wide.decimals(
        lambda log_gamma: (
            log_gamma(x)
            - (wide.Decimal(x) - wide.Decimal("0.5")) * wide.Decimal(x).ln()
            + wide.Decimal(x)
            - (2 * wide.PI).ln() / 2
        )
    )
    size = 1 + abs(special.gammaln(min(x, SERIES_FROM)))
    assert abs(float(remainder(x)) - due) <= 4 * EPS * size
    if x >= SERIES_FROM:
        np.testing.assert_allclose(float(remainder(x)), float(due), rtol=1e-14)
        due = 1 / (2 * x) + 1 / (12 * x**2) - 1 / (120 * x**4) + 1 / (252 * x**6)
        np.testing.assert_allclose(float(log_less_digamma(x)), due, rtol=1e-9 if x < 1e3 else 1e-14)
    else:
        due = np.log(x) - special.digamma(x)
        np.testing.assert_allclose(float(log_less_digamma(x)), due, rtol=1e-13)


def test_the_remainder_of_an_exponential():
    u = np.array([-800.0, -3, -0.0200001, -0.0199999, -1e-9, 0, 1e-9, 0.0199999, 0.0200001, 3])
    np.testing.assert_allclose(exp_remainder(u), remainder_of_exp(u).astype(float), rtol=3e-14)


@looped("a", [1.0, 30.0, SHARP - 1, SHARP + 1, 1e8, 1e12])
def test_chances_of_gamma_variables(a):
    """Both sides of where SciPy's function is replaced; it is off by 3e-7 at a = 1e12."""
    for k in (-5.5, -3.0, -0.4, 0.0, 1.0, 5.5):
        u, left = k / np.sqrt(a), 45 / a
        above = chance(lambda s: a * remainder_of_exp(s), u, 1 / np.sqrt(a), left)
        found = gamma_chance(np.array([a]), np.array([u]), above=True)[0]
        # of x = a exp(u), which is rounded below SHARP
        assert abs(found - above) <= 20 * EPS * np.sqrt(min(a, SHARP)) + 2e-14
        assert abs(gamma_chance(np.array([a]), np.array([u]))[0] - (1 - above)) <= 2e-13
    tiny = gamma_chance(np.array([1e-3]), np.array([-1e3, -1e4]))
    np.testing.assert_allclose(
        tiny, np.exp(-np.array([1.0, 10]) - special.gammaln(1.001)) * 1e-3**1e-3
    )
    ends = gamma_chance(np.array([a]), np.array([-1e5, 1e5]))
    np.testing.assert_array_equal(ends, [0, 1])


@pytest.mark.parametrize(
    "p, q",
    [
        (1.0, 1.0),
        (4.0, 0.5),
        (26.0, 1e8),
        (26.0, 1e16),
        (1e9, 10.0),
        (0.99 * SHARP_BETA, 1e16),
        (1.01 * SHARP_BETA, 1e16),
        (1.99 * SHARP_BETA, 2 * SHARP_BETA),
        (2.01 * SHARP_BETA, 2 * SHARP_BETA),
        (1e12, 3e12),
    ],
)
def test_chances_of_log_odds(p, q):
    """Relative accuracy where B and where 1 - B are tiny, and where both parameters are large."""
    width, centre = np.sqrt(1 / p + 1 / q), np.log(p / q)
    for k in (-5.0, -1.0, 0.0, 0.3, 1.0, 5.0):
        t = centre + k * width
        due = chance(lambda d: -deviance(p, q, d), t - centre, width, 45 / p, 45 / q)
        found = beta_survival(np.array([t]), np.array([p]), np.array([q]))[0]
        rounding = 4 * EPS * max(abs(t), 1) / width  # of the log odds
        assert abs(found - due) <= rounding + 1e-11
        assert abs(found - due) <= 1e-6 * due


def test_far_log_odds_are_a_power():
    """B of Beta(p, 1) is above x with probability 1 - x^p, also where x underflows."""
    t, p, q = np.array([-1e4, -1e3, -701.0, -699.0, -1.0]), np.full(5, 1e-3), np.ones(5)
    due = -np.expm1(1e-3 * special.log_expit(t))
    np.testing.assert_allclose(beta_survival(t, p, q), due, rtol=1e-12)
    np.testing.assert_allclose(beta_survival(-t, q, p), np.exp(1e-3 * special.log_expit(t)))


@looped("a", [1e-2, 3.0, 1e4, 1e8, 1e11, 1e14])
@looped("var", [1e-18, 1e-6, 0.3])
def test_gamma_noise_of_any_shape(a, var):
    mean, width = 0.4 / np.sqrt(a + 1), 1 / np.sqrt(a)
    f, Y, likelihood = one(mean, var), np.ones(1), lk.Gamma(a)
    ell, bar, own = likelihood.expected_log_prob(Y, f)
    constant, u = wide.gamma_constant(a), long(var) / 2 - long(mean)
    loss = remainder_of_exp(u) + long(var) / 2
    due = float(constant - a * loss)
    assert abs(ell - due) <= 20 * EPS * (1 + np.abs(constant) + a * loss)
    np.testing.assert_allclose(bar.mean[0], float(a * np.expm1(u)), rtol=1e-14)
    if a >= 1e4:
        slope = 1 / (2 * long(a)) + 1 / (12 * long(a) ** 2) - loss
        np.testing.assert_allclose(own.shape, float(slope), rtol=1e-13)
    # log E p, and E of the distribution function at y = 1, as P(f < T)
    bend = max(1 / var, a)
    centre = oracle.mode(lambda t: a * np.expm1(-t) - (t - long(mean)) / long(var), -3, 3)
    exact = constant + oracle.log_density_by_sinh(
        lambda t: -a * remainder_of_exp(-t), mean, var, centre, 1 / np.sqrt(bend), 2001
    )
    assert abs(likelihood.predict_log_density(Y, f)[0] - exact) <= 1e-10
    if np.sqrt(var) < 1e-6 * width:
        below = 1 - chance(lambda s: a * remainder_of_exp(s), -mean, width, 45 / a)
    elif np.sqrt(var) > 3e-3 * width and a > 1:
        t = np.linspace(-20 * width - 45 / a, 20 * width + 45 / a, 40_001)
        density = np.exp(-a * remainder_of_exp(-t)).astype(float)
        below = density @ special.ndtr((t - mean) / np.sqrt(var)) / density.sum()
    else:
        return
    assert abs(likelihood.predict_cdf(Y, f)[0] - below) <= 1e-11


@pytest.mark.parametrize("name", ["beta of a scale", "gamma of a shape"])
@looped("size", [1e-6, 1e-2, 5.0, 1e8])
def test_quantiles_are_in_order(name, size):
    """Below 1e-308 too, where shares and sizes underflow before their chances do."""
    likelihood = lk.Beta(size) if name == "beta of a scale" else lk.Gamma(size)
    levels = [1e-12, 0.05, 0.5, 1 - 1e-6]
    f = Marginals(np.array([-800.0, -2.0, 3.0]), np.array([1.0, 9.0, 100.0]))
    q = likelihood.predict_quantiles(levels, f)
    assert (np.diff(q, axis=0) >= 0).all()
    for level, y in zip(levels, q, strict=True):
        inside = (y > 1e-300) & (y < 0.9)
        found = likelihood.predict_cdf(y, f)
        np.testing.assert_allclose(found[inside], level, rtol=0, atol=1e-11)


@looped("scale", [10.0, 1e4, 1e8, 1e12, 1e14])
def test_beta_noise_of_any_scale(scale):
    y, mean, var = 0.3, -0.85, 1e-8
    likelihood, f, Y = lk.Beta(scale), one(mean, var), np.array([y])
    z, w = (long(x) for x in np.polynomial.hermite_e.hermegauss(20))
    w = w / w.sum()
    F = long(mean) + np.sqrt(long(var)) * z
    mu, rest = 1 / (1 + np.exp(-F)), 1 / (1 + np.exp(F))
    A, B, log_y, log_rest = scale * mu, scale * rest, np.log(long(y)), np.log1p(-long(y))
    K = mu * (log_y - np.log(mu)) + rest * (log_rest - np.log(rest))

    def R(x):  # four terms of Stirling's series are enough in long double from 1e3 on
        if scale < 1e4:
            value = wide.decimals
            x = wide.Decimal(str(x))
            half = wide.Decimal("0.5")
            return value(
                lambda log_gamma: log_gamma(x) - (x - half) * x.ln() + x - (2 * wide.PI).ln() / 2
            )
        return 1 / (12 * x) - 1 / (360 * x**3) + 1 / (1260 * x**5)

    rests = np.array([R(long(scale)) - R(a) - R(b) for a, b in zip(A, B, strict=True)])
    half = 0.5 * np.log(A * B / (2 * long(np.pi) * scale))
    due = half + rests - log_y - log_rest + scale * K
    ell, _, own = likelihood.expected_log_prob(Y, f)
    rounding = 20 * EPS * np.sqrt(scale * np.abs(scale * K).max() + 1)
    assert abs(ell - float((w * due).sum())) <= 1e-13 * (1 + np.abs(due).max()) + rounding
    if scale >= 1e4:

        def D(x):
            return 1 / (2 * x) + 1 / (12 * x**2) - 1 / (120 * x**4)

        slope = (w * (mu * D(A) + rest * D(B) - D(long(scale)) + K)).sum()
        np.testing.assert_allclose(own.scale, float(slope), rtol=1e-9)


@looped("scale", [1e2, 1e4, 1e7])
@looped("var", [0.3, 10.0, 1e3, 1e5])
def test_a_sharp_beta_under_a_wide_function(scale, var):
    """Densities and distribution functions, whose edge is up to 1e6 times narrower than q(f)."""
    likelihood, f, y = lk.Beta(scale), one(-1.0, var), np.array([0.02])
    odds, width = special.logit(0.02), 1 / np.sqrt(scale * 0.02 * 0.98)

    def below(t):
        A, B = (np.maximum(scale * special.expit(s * t), 1e-300) for s in (1, -1))
        return special.betainc(A, B, 0.02)

    due = wide.average(below, -1.0, var, odds, min(width, 1.0))
    assert abs(likelihood.predict_cdf(y, f)[0] - due) <= 1e-11

    def density(t):
        A, B = (np.maximum(scale * special.expit(s * t), 1e-300) for s in (1, -1))
        constant = special.gammaln(scale) - special.gammaln(A) - special.gammaln(B)
        return np.exp(constant + (A - 1) * np.log(0.02) + (B - 1) * np.log(0.98))

    due = np.log(wide.average(density, -1.0, var, odds, min(width, 1.0)))
    rounding = 10 * EPS * scale * np.log(scale)  # of the densities above
    assert abs(likelihood.predict_log_density(y, f)[0] - due) <= 1e-10 + rounding


@looped("y", [0.0, 1.0, 1e3, 1e6, 1e9, 1e12, 1e15])
@looped("var", [1e-12, 1e-3, 1.0])
def test_poisson_counts_of_any_size(y, var):
    mean = np.log(max(y, 1.0)) + 0.3 * np.sqrt(var)
    constant = wide.poisson_constant(y) if y else long(0)

    def loss(u):  # at the log rate log(y) + u
        return y * remainder_of_exp(u) if y else np.exp(u)

    u = long(mean) - np.log(long(max(y, 1.0)))
    due = constant - loss(u + long(var) / 2) - y * long(var) / 2
    ell, bar, _ = lk.Poisson().expected_log_prob(np.array([y]), one(mean, var))
    # of the logarithms: their errors are multiplied by y (exp(u) - 1)
    slope = y * abs(np.expm1(u + long(var) / 2)) * (1 + abs(mean))
    assert abs(ell - due) <= 10 * EPS * (1 + abs(due) + slope)
    inflated = lk.ZeroInflatedPoisson(0.25).expected_log_prob(np.array([y]), one(mean, var))[0]
    if y:
        assert inflated == pytest.approx(ell + np.log(0.75), rel=1e-14)
    bend = 1 / np.sqrt(1 / var + y)
    exact = constant + oracle.log_density_by_sinh(
        lambda t: -loss(t),
        u,
        var,
        oracle.mode(
            lambda t: (
                -y * np.expm1(t) - (t - u) / long(var) if y else -np.exp(t) - (t - u) / long(var)
            ),
            -9,
            9,
        ),
        bend,
        2001,
    )
    found = lk.Poisson().predict_log_density(np.array([y]), one(mean, var))[0]
    assert abs(found - exact) <= 1e-9 + 10 * EPS * slope


@pytest.mark.parametrize("link", ["logit", "probit"])
@looped("n", [10.0, 1e3, 1e6, 1e9])
def test_any_number_of_trials(link, n):
    for y in (1.0, np.floor(0.3 * n), n - 1):
        inverse = special.logit if link == "logit" else special.ndtri
        mean, var = inverse(y / n) + 0.01, 1e-6
        constant = wide.binomial_constant(y, n - y)
        odds = np.log(long(y)) - np.log(long(n - y))

        def log_odds(t):
            if link == "logit":
                return long(t)
            return long(special.log_ndtr(float64(t))) - long(special.log_ndtr(-float64(t)))

        rule = np.polynomial.hermite_e.hermegauss(20)
        z, w = (long(x) for x in rule)
        F = mean + np.sqrt(var) * z
        due = constant + (w / w.sum() * deviance(y, n - y, log_odds(F) - odds)).sum()
        found = lk.Binomial(link=link).expected_log_prob(np.array([[y], [n]]), one(mean, var))[0]
        # products of y and n - y with rounded logarithms
        rounding = 30 * EPS * (y * (1 + abs(np.log(y / n))) + (n - y) * (1 + abs(np.log1p(-y / n))))
        assert abs(found - due) <= 1e-9 + rounding
        if link == "logit":
            exact = constant + oracle.log_density_by_sinh(
                lambda t, y=y, odds=odds: deviance(y, n - y, t - odds),
                mean,
                var,
                oracle.mode(
                    lambda t, y=y, m=mean, v=var: (
                        y - n / (1 + np.exp(-t)) - (t - long(m)) / long(v)
                    ),
                    -40,
                    40,
                ),
                1 / np.sqrt(1 / var + y * (n - y) / n),
                2001,
            )
            found = lk.Binomial().predict_log_density(np.array([[y], [n]]), one(mean, var))[0]
            assert abs(found - exact) <= 1e-9


@looped("n", [1.0, 2.0, 10.0, 100.0, 1e4, 1e6, 1e9, 1e15])
@looped("mean, var", [(-0.5, 10.0), (3.0, 100.0), (-3.0, 1.0), (1.0, 1e3)])
def test_edges_of_probit_trials(n, mean, var):
    """All of n or none: an edge of width 1 / sqrt(2 log n)."""
    edge = special.ndtri(1 - 0.5 / n)
    chance = wide.average(
        lambda t: np.exp(n * special.log_ndtr(-t)), mean, var, -edge, 0.5 / max(edge, 1)
    )
    likelihood, Y = lk.Binomial(link="probit"), np.array([[0.0], [n]])
    for y, sign in ((0.0, 1), (n, -1)):
        Y[0] = y
        found = likelihood.predict_log_density(Y, one(sign * mean, var))[0]
        assert abs(found - np.log(chance)) <= 1e-9
    Y[0] = 0.0
    assert abs(likelihood.predict_cdf(Y, one(mean, var))[0] - chance) <= 1e-11


@looped("dispersion", [1e8, 1e10, 1e12, 1e16])
def test_a_large_dispersion_is_poisson(dispersion):
    """The limit is approached like 1 / dispersion."""
    f, Y = one(3.0, 1e-3), np.array([25.0])
    negative_binomial, poisson = lk.NegativeBinomial(dispersion), lk.Poisson()
    for call in ("predict_cdf", "predict_log_density"):
        found, due = (getattr(x, call)(Y, f)[0] for x in (negative_binomial, poisson))
        assert abs(found - due) <= 300 / dispersion + 1e-12
    both = Marginals(np.array([[3.0], [np.log(dispersion)]]), np.array([[1e-3], [1e-9]]))
    found = lk.HeteroskedasticNegativeBinomial().predict_cdf(Y, both)[0]
    assert abs(found - poisson.predict_cdf(Y, f)[0]) <= 300 / dispersion + 1e-8


@looped("h", [-20.0, -2.0, 5.0])
@looped("f", [-3.0, 1.0, 20.0])
def test_a_distribution_function_is_the_sum_of_densities(f, h):
    """Also of counts that are almost all 0, beside a few that are huge."""
    likelihood, k = lk.HeteroskedasticNegativeBinomial(), np.arange(4.0)
    each = Marginals(np.repeat([[f], [h]], 4, 1), np.full((2, 4), 1e-4))
    found = likelihood.predict_cdf(k, each)
    due = np.cumsum(np.exp(likelihood.predict_log_density(k, each)))
    np.testing.assert_allclose(found, due, rtol=0, atol=1e-7)
    q = likelihood.predict_quantiles([0.5], Marginals(each.mean[:, :1], each.var[:, :1]))[0, 0]
    assert due[0] < 0.5 or q == 0


@looped("h, u", [(20.0, 0.01), (12.0, 9.0), (2.0, 1.0)])
@looped("y, v", [(1e3, 0.02), (1e3, 30.0), (1e6, 4.0), (1e9, 4.0)])
def test_a_large_count_under_two_wide_functions(y, v, h, u):
    """A count is up to 1e5 times narrower than q(f)."""
    likelihood, m = lk.HeteroskedasticNegativeBinomial(), np.log(y) + 0.4 * np.sqrt(v)
    z = np.linspace(-8, 8, 321)
    H, centre, width, sd = h + np.sqrt(u) * z, np.log(y), 1 / np.sqrt(y), np.sqrt(v)
    low, high = (np.arcsinh((m + k * sd - centre) / width) for k in (-9, 9))
    t = np.linspace(low, high, 1201)[:, None]
    d = width * np.sinh(t)
    weight = np.cosh(t) * np.exp(-0.5 * ((centre + d - m) / sd) ** 2 - 0.5 * z * z)
    a = np.exp(H)
    p = y / (y + a)
    loss = y * d - (y + a) * np.log1p(p * np.expm1(d))
    constant = 0.5 * (np.log(a / y) - np.log(y + a) - np.log(2 * np.pi))
    constant = constant + remainder(y + a) - remainder(y) - remainder(a)
    due = np.log((weight * np.exp(loss + constant)).sum() / weight.sum())
    both = Marginals(np.array([[m], [h]]), np.array([[v], [u]]))
    found = likelihood.predict_log_density(np.array([y]), both)[0]
    assert abs(found - due) <= 1e-5 + 1e-15 * y
    inside = beta_survival(centre + d - H, np.array(y + 1), a)
    due = (weight * inside).sum() / weight.sum()
    assert abs(likelihood.predict_cdf(np.array([y]), both)[0] - due) <= 2e-6
