"""Priors at the leaves of a model: values, gradients, and what is refused."""

import numpy as np
import pytest
from support.fit_problems import cast, problem
from support.numerics import five_point

import fastsvgp as fs

PRIORS = {
    "covariance.lengthscales": fs.priors.LogNormal(0.3, 0.7),
    "covariance.variance": fs.priors.Gamma(2.0, 1.5),
    "likelihood": fs.priors.HalfNormal(0.4),
}


def moved(rng, dtype=np.float64):
    """A model away from its start: every derivative differs from zero."""
    model, *_ = problem(rng, dtype=dtype)
    scales = rng.gamma(3.0, size=2).astype(dtype)
    covariance = fs.RBF(dtype(0.7), scales)
    return fs.replace(model, covariance=covariance, likelihood=fs.Gaussian(dtype(0.2)))


def test_the_value_is_the_sum_over_the_entries(rng):
    model = moved(rng)
    value, _ = fs.priors.log_prior_and_grad(model, PRIORS)
    parts = [
        PRIORS["covariance.lengthscales"].log_density_and_grad(one)[0]
        for one in model.covariance.lengthscales
    ]
    parts += [
        PRIORS["covariance.variance"].log_density_and_grad(0.7)[0],
        PRIORS["likelihood"].log_density_and_grad(0.2)[0],
    ]
    assert type(value) is float and abs(value - sum(parts)) < 1e-13
    nothing, grad = fs.log_prior_and_grad(model, {})
    assert nothing == 0 and not any(np.any(bar) for *_, bar in fs.records.leaves(grad))


@pytest.mark.parametrize("transform", ["softplus", "log"])
def test_the_gradient_adds_to_that_of_a_bound(rng, transform):
    model = moved(rng)
    X, Y = rng.standard_normal((9, 2)), rng.standard_normal(9)
    vector, unravel = fs.ravel(model, transform=transform)

    def objective(vector):
        there = unravel(vector)
        return fs.elbo(there, X, Y) + fs.priors.log_prior_and_grad(there, PRIORS)[0]

    _, grad = fs.elbo_and_grad(model, X, Y)
    _, of_priors = fs.priors.log_prior_and_grad(model, PRIORS)
    flat = unravel.pullback(vector, grad) + unravel.pullback(vector, of_priors)
    direction = rng.standard_normal(len(vector))
    truth = five_point(lambda s: objective(vector + s * direction))
    assert abs(flat @ direction - truth) < 1e-7 * max(1.0, np.linalg.norm(flat))


def test_gradients_have_the_dtype_of_their_leaves(rng):
    model = moved(rng, np.float32)
    value, grad = fs.priors.log_prior_and_grad(model, PRIORS)
    wide, of_wide = fs.priors.log_prior_and_grad(cast(model, np.float64), PRIORS)
    for (path, _, leaf), (_, _, bar), (_, _, exact) in zip(
        *map(fs.records.leaves, (model, grad, of_wide)), strict=True
    ):
        assert np.shape(bar) == np.shape(leaf), path
        if np.ndim(leaf):
            assert bar.dtype == leaf.dtype, path
        np.testing.assert_allclose(bar, exact, rtol=1e-6, err_msg=path)
    assert type(value) is float and abs(value - wide) < 1e-6


def test_a_path_covers_all_positive_leaves_below_it(rng):
    model, prior = moved(rng), fs.priors.Gamma(2.0, 1.0)
    both, grad = fs.priors.log_prior_and_grad(model, {"covariance": prior})
    each = {"covariance.variance": prior, "covariance.lengthscales": prior}
    assert both == fs.priors.log_prior_and_grad(model, each)[0]
    assert not np.any(grad.inducing) and grad.covariance.variance != 0


def test_paths_and_priors_are_checked(rng):
    model, *_ = problem(rng)
    prior = fs.priors.LogNormal(0, 1)
    relaxed = fs.replace(model, posterior=fs.posteriors.Relaxed(np.zeros(5), np.ones(5), np.eye(5)))
    for priors, error, said, wrong in (
        ({"covariance.lengthscale": prior}, ValueError, "`priors` names 'covariance.lengthscale',"
         " which is no field of this model; did you mean covariance.lengthscales", model),
        ({"inducing": prior}, ValueError, "'inducing' is not positive; name positive", model),
        ({"posterior.variance": prior}, ValueError, "'posterior.variance' is part of q", relaxed),
        ({"covariance": prior, "covariance.variance": prior}, ValueError,
         "'covariance.variance' has two priors; leave one", model),
        ({"covariance.variance": 1.0}, TypeError, "'covariance.variance' must have a prior, such as"
         r" fastsvgp.priors.LogNormal\(0, 1\), got 1.0", model),
        ({"covariance.variance": fs.priors.Gamma}, TypeError, "must have a prior", model),
        ([prior], TypeError, "`priors` must be a dict from names of fields", model),
    ):  # fmt: skip
        with pytest.raises(error, match=said) as caught:
            fs.priors.log_prior_and_grad(wrong, priors)
        assert len(str(caught.value)) <= 160
    negative = fs.replace(model, covariance=fs.RBF(-1.0, np.ones(2)))
    with pytest.raises(ValueError, match="`covariance.variance` must be positive, got -1"):
        fs.priors.log_prior_and_grad(negative, {"covariance": prior})
    with pytest.raises(TypeError, match="`model` must be a fastsvgp record, got 3"):
        fs.priors.log_prior_and_grad(3, {})


class Inverse(fs.priors.Prior):
    """A density of log t proportional to exp(-1 / t): a prior of the user's own."""

    def log_density_and_grad(self, value):
        return -1 / value, 1 / value**2


def test_a_prior_of_your_own_is_used_as_ours_are(rng):
    model = moved(rng)
    value, grad = fs.priors.log_prior_and_grad(model, {"likelihood": Inverse()})
    assert abs(value + 5) < 1e-12 and abs(grad.likelihood.variance - 25) < 1e-11
    _, X, Y = problem(rng)
    with_it, _ = fs.fit(model, X, Y, steps=2, rng=0, priors={"likelihood": Inverse()})
    without, _ = fs.fit(model, X, Y, steps=2, rng=0)
    assert with_it.likelihood.variance != without.likelihood.variance
