"""Likelihoods of two latent functions: closed forms, quadrature, predictions against plain sums."""

import math

import numpy as np
import pytest
from scipy import special, stats
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.kernels.common.quadrature_rules import rule
from fastsvgp.likelihoods.two_functions.negative_binomial import _log_rising
from fastsvgp.records import Marginals

GAUSSIAN, COUNTS = (
    fs.likelihoods.HeteroskedasticGaussian(),
    fs.likelihoods.HeteroskedasticNegativeBinomial(),
)


def gaussian_log_density(y, f, h):
    return -0.5 * (np.log(2 * np.pi) + h + (y - f) ** 2 * np.exp(-h))


def count_log_density(y, f, h):
    a = np.exp(h)
    return stats.nbinom.logpmf(y, a, a / (a + np.exp(f)))


TABLE = {"gaussian": (GAUSSIAN, gaussian_log_density), "counts": (COUNTS, count_log_density)}
each = pytest.mark.parametrize("name", TABLE)


def problem(rng, N, name="gaussian"):
    f = Marginals(rng.standard_normal((2, N)), rng.uniform(0.05, 0.8, (2, N)))
    draw = 1.5 * rng.standard_normal(N)
    return f, np.floor(np.exp(draw)) if name == "counts" else draw


@each
def test_the_expectation_is_that_of_a_fine_rule(name, rng):
    likelihood, log_density = TABLE[name]
    f, Y = problem(rng, 9, name)
    z, w = rule(60)
    F, H = (m + np.sqrt(v) * z[:, None] for m, v in zip(f.mean, f.var, strict=True))
    due = np.einsum("i,j,ijn->", w, w, log_density(Y, F[:, None], H[None]))
    assert likelihood.expected_log_prob(Y, f)[0] == pytest.approx(due, rel=1e-9)


@each
def test_the_expectation_is_the_average_of_joint_draws(name):
    """The two functions of a target are independent under q."""
    rng = generator(7)
    likelihood, log_density = TABLE[name]
    f, Y = problem(rng, 1, name)
    draws = f.mean + np.sqrt(f.var) * rng.standard_normal((10**6, 2, 1))
    values = log_density(Y, draws[:, 0], draws[:, 1])
    error = values.std() / 1e3
    assert abs(likelihood.expected_log_prob(Y, f)[0] - values.mean()) < 5 * error


@pytest.mark.parametrize("u", [1e-3, 1e-2, 1.0, 4.0, 16.0, 1e3])
@pytest.mark.parametrize("v", [0.0, 1e-2, 1.0, 100.0])
def test_gaussian_densities_are_dense_sums(u, v):
    """Near the target and 1,000 units from it, in long double."""
    r, g, sd = np.array([0.01, 1.0, 3.0, 10.0, 1e3]), -1.2, math.sqrt(u)
    z = np.linspace(-14 - sd, 14 + max(0, 14 - g) / sd, 60001, dtype=np.longdouble)[:, None]
    T = v + np.exp(g + sd * z)
    logs = -0.5 * (np.log(T) + r**2 / T + z * z)
    top = logs.max(axis=0)
    exact = top + np.log(np.exp(logs - top).sum(axis=0) * (z[1] - z[0])) - np.log(2 * np.pi)
    f = Marginals(np.stack([0 * r, 0 * r + g]), np.stack([0 * r + v, 0 * r + u]))
    found = GAUSSIAN.predict_log_density(r, f)
    assert (np.abs(found - exact) <= np.maximum(1e-10, 1e-12 * np.abs(exact))).all()


def test_a_far_target_under_nearly_known_noise():
    """The density is exp(-4e5) there; it takes many nodes."""
    f = Marginals(np.zeros((2, 1)), np.array([[0.0], [1e-6]]))
    h = np.linspace(0.2, 0.5, 200001, dtype=np.longdouble)
    logs = -0.5 * (h + 1e6 * np.exp(-h)) - h * h / 2e-6
    top = logs.max()
    exact = top + np.log(np.exp(logs - top).sum() * (h[1] - h[0])) - np.log(2 * np.pi * 1e-3)
    found = GAUSSIAN.predict_log_density(np.array([1e3]), f)
    np.testing.assert_allclose(found, float(exact), rtol=1e-12)


def test_gaussian_predictions_agree_with_each_other(rng):
    f = Marginals(rng.standard_normal((2, 6)), 10 ** rng.uniform(-3, 1.0, (2, 6)))
    levels = [1e-6, 0.001, 0.05, 0.3, 0.4999999, 0.5, 0.7, 0.95, 1 - 1e-6]
    q = GAUSSIAN.predict_quantiles(levels, f)
    assert q.shape == (9, 6) and (np.diff(q, axis=0) > 0).all() and (q[5] == f.mean[0]).all()
    for level, y in zip(levels, q, strict=True):
        np.testing.assert_allclose(GAUSSIAN.predict_cdf(y, f), level, rtol=0, atol=1e-12)
    # Simpson's rule of the density is the difference of the distribution function
    low, high = q[2], q[7]
    s = np.linspace(0, 1, 801)
    density = [np.exp(GAUSSIAN.predict_log_density(low + (high - low) * x, f)) for x in s]
    weight = np.r_[1, np.tile([4, 2], 400)[:-1], 1] / 2400
    np.testing.assert_allclose((high - low) * (weight @ density), 0.9, atol=1e-7)
    mean, var = GAUSSIAN.predict_mean_and_var(f)
    np.testing.assert_allclose(mean, f.mean[0])
    np.testing.assert_allclose(var, f.var[0] + np.exp(f.mean[1] + f.var[1] / 2))


@pytest.mark.parametrize("h", [-300.0, -10.0, -1.0, 0.0, 2.0, 5.0, 12.0, 30.0, 300.0])
def test_gamma_functions_of_any_dispersion(h):
    """log(Gamma(y + a) / Gamma(a)) - y log(a) is a sum of log(1 + j / a), without cancellation."""
    a = math.exp(h)
    for y in (0, 1, 2, 7, 100, 10**5):
        j = np.arange(y)
        A, A_bar = (float(x[0]) for x in _log_rising(np.array([float(y)]), np.array([a]), h))
        due, due_bar = math.fsum(np.log1p(j / a)), -math.fsum(j / (a + j))
        assert abs(A - due) <= 2e-14 * (1 + y + abs(y * h))
        assert abs(A_bar - due_bar) <= 4e-14 * (1 + y)


def test_counts_are_negative_binomial_and_tend_to_poisson(rng):
    Y, f, h = rng.poisson(3.0, 20).astype(float), rng.standard_normal(20), rng.uniform(-2, 4, 20)
    g, g_f, g_h = (x[0, 0] for x in COUNTS.log_density(Y, f[None, None], h[None, None]))
    np.testing.assert_allclose(g, count_log_density(Y, f, h), rtol=1e-11)
    e = 1e-5
    for bar, up, down in (
        (g_f, (f + e, h), (f - e, h)),
        (g_h, (f, h + e), (f, h - e)),
    ):
        slope = (count_log_density(Y, *up) - count_log_density(Y, *down)) / (2 * e)
        np.testing.assert_allclose(bar, slope, atol=1e-7)
    mean, var = COUNTS.conditional_mean_and_var(f, h)
    a = np.exp(h)
    np.testing.assert_allclose((mean, var), stats.nbinom.stats(a, a / (a + np.exp(f))))
    poisson = COUNTS.log_density(Y, f[None, None], np.full((1, 1, 20), 40.0))[0][0, 0]
    np.testing.assert_allclose(poisson, stats.poisson.logpmf(Y, np.exp(f)), rtol=1e-12)
    for k in (0, 3, 2000):
        due = stats.nbinom.cdf(k, a, a / (a + np.exp(f)))
        found = COUNTS.conditional_cdf(np.full(20, k + 0.5), f[None, None], h[None, None])
        np.testing.assert_allclose(found[0, 0], due, atol=1e-13)


@pytest.mark.parametrize("centre", [0.5, 6.0])
def test_counts_are_predicted_by_their_mixture(centre):
    """Against a dense sum; around 400 each count is narrower than q(f)."""
    f = Marginals(
        np.array([[centre, centre - 0.5], [1.0, 4.0]]), np.array([[0.3, 0.05], [0.4, 0.2]])
    )
    y = np.arange(40_000.0) if centre > 1 else np.arange(4000.0)
    z = np.linspace(-8, 8, 401)
    w = np.exp(-z * z / 2)
    F, H = f.mean[0] + np.sqrt(f.var[0]) * z[:, None], f.mean[1] + np.sqrt(f.var[1]) * z[::8, None]
    for n in range(2):
        some = np.array([y[0], y[1], np.floor(np.exp(centre)), np.floor(2 * np.exp(centre))])
        one = Marginals(*(np.repeat(x[:, n : n + 1], len(some), axis=1) for x in (f.mean, f.var)))
        dense = count_log_density(some[:, None, None], F[:, n, None], H[None, :, n])
        due = np.einsum("i,j,kij->k", w, w[::8], np.exp(dense)) / (w.sum() * w[::8].sum())
        found = np.exp(COUNTS.predict_log_density(some, one))
        np.testing.assert_allclose(found, due, rtol=1e-4, atol=1e-9)
        if centre < 1:
            every = Marginals(*(np.repeat(x[:, n : n + 1], 4000, axis=1) for x in (f.mean, f.var)))
            p = np.exp(COUNTS.predict_log_density(y, every))
            np.testing.assert_allclose(p.sum(), 1, atol=1e-5)
            at = np.array([0, 1, 5, 30])
            few = Marginals(every.mean[:, at], every.var[:, at])
            np.testing.assert_allclose(COUNTS.predict_cdf(y[at], few), np.cumsum(p)[at], atol=1e-5)
            mean, var = COUNTS.predict_mean_and_var(Marginals(one.mean[:, :1], one.var[:, :1]))
            np.testing.assert_allclose(mean, p @ y, rtol=1e-3)


def test_quantiles_of_counts_are_the_smallest_that_reach_the_level(rng):
    f = Marginals(rng.uniform(-3, 6, (2, 12)), 10 ** rng.uniform(-3, 0.2, (2, 12)))
    levels = [0.001, 0.05, 0.5, 0.95, 0.999]
    q = COUNTS.predict_quantiles(levels, f)
    assert (q == np.floor(q)).all() and (q >= 0).all() and (np.diff(q, axis=0) >= 0).all()
    for level, y in zip(levels, q, strict=True):
        assert (COUNTS.predict_cdf(y, f) >= level).all()
        assert (COUNTS.predict_cdf(y - 1, f) < level).all()
    assert COUNTS.predict_quantiles([], f).shape == (0, 12)
    assert (COUNTS.predict_cdf(np.full(12, -1.0), f) == 0).all()


@fs.records.record
class VaryingWeibull(fs.likelihoods.TwoLatents):
    """Positive y with scale exp(f) and shape exp(h): all of it has plain formulas."""

    num_nodes: int = fs.records.static(default=20)

    def log_density(self, Y, f, h):
        k, t = np.exp(h), np.log(Y) - f
        x = np.exp(np.clip(k * t, -300, 300))
        return h - np.log(Y) + k * t - x, k * (x - 1), 1 + k * t * (1 - x)

    def conditional_mean_and_var(self, f, h):
        scale = np.exp(-np.maximum(h, -4))  # moments of smaller shapes overflow
        first, second = (np.exp(f) ** n * special.gamma(1 + n * scale) for n in (1, 2))
        return first, second - first**2

    def conditional_cdf(self, Y, f, h):
        t = np.log(np.maximum(Y, 1e-300)) - f
        return np.where(Y > 0, -np.expm1(-np.exp(np.clip(np.exp(h) * t, -700, 300))), 0)

    def width(self, Y, h):
        return np.exp(-h)


def test_quantiles_of_the_base_invert_the_distribution_function(rng):
    likelihood, levels = VaryingWeibull(), [0.001, 0.05, 0.5, 0.95, 0.999]
    f = Marginals(rng.uniform(-1, 1, (2, 2, 5)), rng.uniform(0.01, 0.3, (2, 2, 5)))
    q = likelihood.predict_quantiles(levels, f)
    assert q.shape == (5, 2, 5) and (q > 0).all() and (np.diff(q, axis=0) > 0).all()
    for level, y in zip(levels, q, strict=True):
        np.testing.assert_allclose(likelihood.predict_cdf(y, f), level, atol=1e-12)
    y, e = q[2], 1e-5
    slope = (likelihood.predict_cdf(y + e, f) - likelihood.predict_cdf(y - e, f)) / (2 * e)
    density = np.exp(likelihood.predict_log_density(y, f))
    np.testing.assert_allclose(density, slope.prod(axis=0), rtol=1e-5)
    small = Marginals(f.mean.astype(np.float32), f.var.astype(np.float32))
    found = likelihood.predict_quantiles(levels, small)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, q, rtol=1e-4)


def test_what_a_subclass_lacks_is_named():
    @fs.records.record
    class WithScale(fs.likelihoods.TwoLatents):
        scale: float = fs.records.leaf("positive", default=1.0)

    with pytest.raises(TypeError, match="WithScale: `scale` is a parameter, and .*TwoLatents has"):
        WithScale().check_settings()
    f = Marginals(np.zeros((2, 3)), np.ones((2, 3)))
    with pytest.raises(TypeError, match="a WithScale likelihood has no distribution function"):
        WithScale().predict_cdf(np.zeros(3), f)
    with pytest.raises(ValueError, match="`num_nodes` must be a whole number of at least 1"):
        fs.likelihoods.HeteroskedasticNegativeBinomial(num_nodes=0).check_settings()
    for bad in (-1.0, 0.5, np.inf):
        with pytest.raises(ValueError, match="Negative binomial targets are whole numbers"):
            COUNTS.check_targets(np.array([1.0, bad]))
