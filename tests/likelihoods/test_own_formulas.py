"""Formulas of a user's own likelihood: predictions find their width, and slips are named."""

from typing import Any

import numpy as np
import pytest
import scipy

import fastsvgp as fs

SCALES = 10.0 ** np.arange(0, -9, -1)


@fs.records.record
class Gumbel(fs.likelihoods.OneLatent):
    """A number of location f and of any scale; it has no closed forms."""

    scale: Any = fs.records.leaf("positive", default=1.0)

    def log_density(self, Y, f, need=True):
        s, z = float(self.scale), (Y - f) / float(self.scale)
        e = np.exp(np.minimum(-z, 600))
        log_p = -z - e - np.log(s)
        return (log_p, (1 - e) / s, (z * (1 - e) - 1) / s) if need else (log_p,)

    def conditional_mean_and_var(self, f):
        s = float(self.scale)
        return f + np.euler_gamma * s, np.full_like(f, (np.pi * s) ** 2 / 6)

    def conditional_cdf(self, Y, f):
        return np.exp(-np.exp(np.minimum((f - Y) / float(self.scale), 600)))


@fs.records.record
class Outliers(Gumbel):
    """Nine of ten numbers are close to f: a narrow peak on a wide base."""

    def log_density(self, Y, f, need=True):
        s, r = float(self.scale), Y - f
        narrow = np.log(0.9 / s) - 0.5 * np.square(r / s)
        wide = np.log(0.1) - 0.5 * np.square(r)
        log_p = np.logaddexp(narrow, wide)
        near = np.exp(narrow - log_p)
        slope = near * r / (s * s) + (1 - near) * r
        return log_p - 0.5 * np.log(2 * np.pi), slope, near * (np.square(r / s) - 1) / s

    def conditional_cdf(self, Y, f):
        ndtr = scipy.special.ndtr
        return 0.9 * ndtr((Y - f) / float(self.scale)) + 0.1 * ndtr(Y - f)


@fs.records.record
class Sharp(Gumbel):
    """Numbers within ``scale`` of f, all equally likely: the density is 0 elsewhere."""

    def log_density(self, Y, f, need=True):
        s, r = float(self.scale), Y - f
        log_p = np.where(np.abs(r) < s, -np.log(2 * s), -np.inf)
        return log_p, np.sign(r), np.full_like(r, -1 / s)


def marginals(rng, n=40):
    f = fs.records.Marginals(rng.standard_normal(n), rng.uniform(0.05, 2.0, n))
    return f, f.mean + rng.uniform(-4, 4, n) * np.sqrt(f.var)


@pytest.mark.parametrize("scale", SCALES)
def test_predictions_resolve_any_width(rng, scale):
    f, Y = marginals(rng)
    g, w = np.linspace(-6, 45, 20001), 51 / 20000  # of the noise over its scale: no narrow feature
    p, sd = w * np.exp(-g - np.exp(-g)), np.sqrt(f.var)[:, None]
    z = (Y[:, None] - scale * g - f.mean[:, None]) / sd
    density = np.log((p * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) / sd).sum(1))
    below = (p * scipy.special.ndtr(z)).sum(1)
    likelihood = Gumbel(scale)
    np.testing.assert_allclose(likelihood.predict_log_density(Y, f), density, atol=1e-7)
    np.testing.assert_allclose(likelihood.predict_cdf(Y, f), below, atol=1e-8)
    high = likelihood.predict_quantiles([0.9], f)[0]
    np.testing.assert_allclose(likelihood.predict_cdf(high, f), 0.9, atol=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_predictions_find_a_narrow_peak_on_a_wide_base(rng, scale):
    f, Y = marginals(rng)
    parts = [(0.9, f.var + scale * scale), (0.1, f.var + 1)]
    density = sum(a * scipy.stats.norm.pdf(Y, f.mean, np.sqrt(v)) for a, v in parts)
    below = sum(a * scipy.stats.norm.cdf(Y, f.mean, np.sqrt(v)) for a, v in parts)
    likelihood = Outliers(scale)
    np.testing.assert_allclose(likelihood.predict_log_density(Y, f), np.log(density), atol=1e-7)
    np.testing.assert_allclose(likelihood.predict_cdf(Y, f), below, atol=1e-8)


def test_densities_of_zero_are_averaged_and_jumps_give_a_warning(rng):
    f, Y = marginals(rng)
    high, low = ((Y + sign * 0.3 - f.mean) / np.sqrt(f.var) for sign in (1, -1))
    exact = np.log((scipy.special.ndtr(high) - scipy.special.ndtr(low)) / 0.6)
    with pytest.warns(
        UserWarning, match="Sharp.log_density changes too fast .* write log_marginal"
    ):
        np.testing.assert_allclose(Sharp(0.3).predict_log_density(Y, f), exact, atol=0.02)
    far = fs.records.Marginals(f.mean + 100, f.var)
    assert (Sharp(0.3).predict_log_density(Y, far) == -np.inf).all()


def own(**methods):
    """Return a Gumbel likelihood with other methods."""
    return fs.records.record(type("Slip", (Gumbel,), methods))()


@pytest.mark.parametrize(
    "slip, message",
    [
        (
            own(log_density=lambda self, Y, f, need=True: Y - f),
            "log_density .* tuple.* not ndarray",
        ),
        (
            own(log_density=lambda self, Y, f, need=True: ((Y - f).sum(), Y - f, f)),
            r"log_density must .*\(nodes, N\) = .* as f, got \(\)",
        ),
        (
            own(log_density=lambda self, Y, f, need=True: (Y - f, Y - f, f.sum())),
            r"log_density must .*\(nodes, N\) = .*, \(\)$",
        ),
        (own(log_density=lambda self, Y, f: (Y - f, f, f)), "log_density takes no `need`; write"),
    ],
)
def test_a_log_density_of_another_shape_is_refused(rng, slip, message):
    """An array in place of a tuple was read as a tuple of its rows."""
    f, Y = marginals(rng)
    for call in (
        lambda: slip.expected_log_prob(Y, f),
        lambda: slip.predict_log_density(Y, f),
    ):
        with pytest.raises(TypeError, match=message) as caught:
            call()
        assert len(str(caught.value)) <= 160


def test_other_formulas_are_checked_too(rng):
    f, Y = marginals(rng)
    with pytest.raises(TypeError, match="must return a tuple"):  # its value was 0 without gradient
        own(log_density=lambda self, Y, f, need=True: Y - f).expected_log_prob(Y, f, need=False)
    with pytest.raises(TypeError, match="Slip.expected must return a tuple of .* got an array"):
        own(expected=lambda self, Y, f, need=True: f.mean).expected_log_prob(Y, f, need=False)
    with pytest.raises(TypeError, match="Slip.conditional_mean_and_var must return a tuple: mean"):
        own(conditional_mean_and_var=lambda self, f: f).predict_mean_and_var(f)
    with pytest.raises(TypeError, match=r"Slip.conditional_cdf must return .* got \(\)"):
        own(conditional_cdf=lambda self, Y, f: 0.5).predict_cdf(Y, f)
    for name, call in (
        ("log_density", lambda slip: slip.predict_log_density(Y, f)),
        ("conditional_cdf", lambda slip: slip.predict_cdf(Y, f)),
    ):
        nan = own(
            log_density=lambda self, Y, f, need=True: (f * np.nan, f, f),
            conditional_cdf=lambda self, Y, f: f * np.nan,
        )
        with pytest.raises(ValueError, match=f"Slip.{name} returned NaN for some f; limit exp"):
            call(nan)


def test_a_divergence_names_formulas_of_ones_own(rng):
    X = rng.uniform(-2, 2, (20, 1))
    q = fs.Whitened(np.zeros(3), np.eye(3))
    model = fs.SVGP(fs.RBF(), np.linspace(-2, 2, 3)[:, None], q, Sharp(0.1))
    with pytest.raises(fs.errors.Diverged, match="formulas of Sharp that return -inf or NaN"):
        fs.fit(model, X, X[:, 0], steps=1)
