"""A user-defined likelihood: negative binomial counts with a parameter, by Gauss-Hermite."""

from typing import Any

import numpy as np
import pytest
import scipy
from support.trials import (
    assert_bound,
    assert_fits,
    assert_single_precision,
    assert_trains_and_is_kept,
)

import fastsvgp as fs
from fastsvgp.extending import NODES, kernels, refuse, sum_outputs, total
from fastsvgp.testing import assert_gradient


@fs.records.record
class GammaPoisson(fs.likelihoods.Likelihood):
    """Counts with mean exp(f) and variance exp(f) + exp(2 f) / r. dispersion : (), positive: r.

    log p = log Gamma(y + r) - log Gamma(r) - log y! + r log r + y f - (y + r) log(r + exp f).
    """

    dispersion: Any = fs.records.leaf("positive", default=1.0)
    num_nodes: int = fs.records.static(default=20)

    settings = NODES

    def _constants(self, Y):
        y, r = Y.astype(np.float64), float(self.dispersion)
        gammaln = scipy.special.gammaln
        return gammaln(y + r) - gammaln(r) - gammaln(y + 1) + r * np.log(r)

    def expected_log_prob(self, Y, f, rng=None, need=True):
        r, F = float(self.dispersion), kernels.gauss_hermite_nodes(f.mean, f.var, self.num_nodes)
        logs, dtype = kernels.gauss_hermite(np.logaddexp(np.log(r), F)), f.mean.dtype
        ell = total(self._constants(Y) + Y * f.mean.astype(np.float64) - (Y + r) * logs)
        if not need:
            return ell, None, None
        rate = np.exp(F)
        mean_bar, var_bar = kernels.gauss_hermite_vjp(-(Y + r), rate / (r + rate), f.mean, f.var)
        digamma = scipy.special.digamma
        by_r = (
            digamma(Y + r)
            - digamma(r)
            + np.log(r)
            + 1
            - logs
            - (Y + r) * kernels.gauss_hermite(1 / (r + rate))
        )
        own = fs.replace(self, dispersion=dtype.type(total(by_r)))
        return ell, fs.records.Marginals((mean_bar + Y).astype(dtype), var_bar.astype(dtype)), own

    def predict_mean_and_var(self, f):
        mean = np.exp(f.mean + 0.5 * f.var)
        return mean, mean + mean * mean * (np.exp(f.var) * (1 + 1 / self.dispersion) - 1)

    def predict_log_density(self, Y, f):
        r, F = float(self.dispersion), kernels.gauss_hermite_nodes(f.mean, f.var, self.num_nodes)
        logs = kernels.log_gauss_hermite(Y * F - (Y + r) * np.logaddexp(np.log(r), F))
        return sum_outputs((self._constants(Y) + logs).astype(f.mean.dtype))

    def check_targets(self, Y, name="Y"):
        refuse(
            name,
            Y,
            (Y < 0) | (Y != np.floor(Y)),
            "counts",
            "GammaPoisson targets are whole numbers 0, 1, 2, ...",
        )


def counts(rng, f, r=2.0):
    return rng.poisson(rng.gamma(r, np.exp(f) / r)).astype(float)


def problem(rng, P=None):
    X, M, lead = rng.uniform(-2, 2, (60, 1)), 6, () if P is None else (P,)
    q = fs.Whitened(
        0.5 * rng.standard_normal((*lead, M)),
        np.eye(M) + np.tril(rng.uniform(0, 0.3, (*lead, M, M))),
    )
    f = 1 + np.sin(2 * X[:, 0])
    Y = counts(rng, f if P is None else np.stack([f, -f], 1))
    return fs.SVGP(fs.RBF(1.3, 0.8), np.linspace(-2, 2, M)[:, None], q, GammaPoisson(1.7)), X, Y


def test_densities_sum_to_one_and_have_these_moments(rng):
    f = fs.records.Marginals(rng.uniform(-1, 1, 4), rng.uniform(0.05, 0.3, 4))
    likelihood, y = GammaPoisson(2.5, num_nodes=60), np.arange(400.0)
    p = np.exp([likelihood.predict_log_density(np.full(4, k), f) for k in y])
    mean, var = likelihood.predict_mean_and_var(f)
    np.testing.assert_allclose(p.sum(0), 1, rtol=1e-9)
    np.testing.assert_allclose(y @ p, mean, rtol=1e-8)
    np.testing.assert_allclose(y**2 @ p - mean**2, var, rtol=1e-7)


def test_much_dispersion_is_poisson(rng):
    f = fs.records.Marginals(rng.standard_normal(20), rng.uniform(0.1, 0.5, 20))
    Y = counts(rng, f.mean)
    ours, poisson = (
        likelihood.expected_log_prob(Y, f)[0] for likelihood in (GammaPoisson(1e7), fs.Poisson())
    )
    np.testing.assert_allclose(ours, poisson, rtol=1e-5)


@pytest.mark.parametrize("shape", [(30,), (2, 30)])
def test_expected_log_prob(rng, shape):
    likelihood, f = (
        GammaPoisson(1.7),
        fs.records.Marginals(rng.standard_normal(shape), rng.uniform(0.05, 0.8, shape)),
    )
    Y = counts(rng, f.mean)
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, f)
    assert likelihood.expected_log_prob(Y, f, need=False) == (ell, None, None)
    assert_gradient(
        lambda moved: likelihood.expected_log_prob(Y, moved, need=False)[0], f, f_bar, rng=rng
    )
    assert_gradient(
        lambda moved: moved.expected_log_prob(Y, f, need=False)[0],
        likelihood,
        likelihood_bar,
        rng=rng,
    )


@pytest.mark.parametrize("P", [None, 2])
def test_bound(rng, P):
    assert_bound(*problem(rng, P), rng)


def test_predictions_training_and_files(rng, tmp_path):
    model, X, Y = problem(rng)
    mean, var = fs.predict_y(model, X)
    assert (mean > 0).all() and (var > mean).all()
    assert_trains_and_is_kept(model, X, Y, tmp_path)
    trained = assert_fits(model, X, Y, natural_step_size=0.3)
    assert fs.predict_log_density(trained, X, Y).sum() > fs.predict_log_density(model, X, Y).sum()
    assert_trains_and_is_kept(*problem(rng, 2), tmp_path)


def test_single_precision(rng):
    assert_single_precision(*problem(rng))


def test_on_blocks(rng):
    """A covariance outside the package gives the same numbers."""
    model, X, Y = problem(rng)
    blocks = model.covariance.blocks(model.inducing, X)
    value, (_, _, bar) = fs.bounds.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, Y
    )
    exact, grad = fs.elbo_and_grad(model, X, Y)
    np.testing.assert_allclose(value, exact, rtol=1e-12)
    np.testing.assert_allclose(bar.dispersion, grad.likelihood.dispersion, rtol=1e-9)
    moved = fs.records.tree_map(np.copy, model.likelihood)
    assert_gradient(
        lambda at: fs.bounds.elbo_and_grad_from_blocks(
            blocks, model.posterior, fs.replace(moved, dispersion=at), Y
        )[0],
        1.7,
        bar.dispersion,
    )


def test_bad_targets_and_settings(rng):
    model, X, Y = problem(rng)
    for wrong in (-1.0, 0.5):
        bad = Y.copy()
        bad[7] = wrong
        with pytest.raises(
            ValueError,
            match=f"`Y` must hold counts; got {wrong} at index 7. GammaPoisson targets",
        ):
            fs.elbo(model, X, bad)
    with pytest.raises(ValueError, match="`num_nodes` must be a whole number"):
        fs.elbo(fs.replace(model, likelihood=GammaPoisson(1.0, num_nodes=0)), X, Y)
    with pytest.raises(ValueError, match="`dispersion` has shape .* give one number"):
        fs.elbo(fs.replace(model, likelihood=GammaPoisson(np.ones(2))), X, Y)
    with pytest.raises(TypeError, match="GammaPoisson model .* must define predict_cdf"):
        fs.predict_cdf(model, X, Y)


def test_weights_need_an_argument_of_the_likelihood(rng):
    """The likelihood lacks them and works without; giving weights raises an error with advice."""
    model, X, Y = problem(rng)
    message = "GammaPoisson.expected_log_prob takes none; add an argument `weights=None`"
    blocks, parts = model.covariance.blocks(model.inducing, X), (model.posterior, model.likelihood)
    deep = fs.DeepGP(
        (fs.layers.Layer(model.covariance, model.inducing, model.posterior),), model.likelihood
    )
    for call in (
        lambda w: fs.elbo(model, X, Y, weights=w),
        lambda w: fs.natural_step(model, X, Y, weights=w),
        lambda w: fs.bounds.elbo_and_grad_from_blocks(blocks, *parts, Y, weights=w),
        lambda w: fs.elbo(deep, X, Y, weights=w),
        lambda w: fs.fit(model, X, Y, steps=1, weights=w),
    ):
        with pytest.raises(TypeError, match=message):
            call(np.ones(len(X)))


def test_errors_of_the_likelihood_are_raised_unchanged(rng):
    model, X, Y = problem(rng)

    @fs.records.record
    class BrokenBinomial(GammaPoisson):
        def expected_log_prob(self, Y, f, rng=None, need=True):
            return {}["no such key"]

    with pytest.raises(KeyError, match="no such key") as caught:
        fs.elbo(fs.replace(model, likelihood=BrokenBinomial()), X, Y)
    assert caught.traceback[-1].name == "expected_log_prob"
