"""A mixture of models averages their predictive distributions."""

import numpy as np
import pytest

import fastsvgp as fs

SHARES = 0.2, 0.5, 0.3


def svgp(rng, kind=fs.RBF, likelihood=None, outputs=()):
    M = 5
    tril = np.tril(0.3 * rng.standard_normal((*outputs, M, M))) + np.eye(M)
    q = fs.Whitened(rng.standard_normal((*outputs, M)), tril)
    return fs.SVGP(
        kind(1.2, np.array([0.8, 1.1])), rng.standard_normal((M, 2)), q,
        fs.Gaussian(0.1) if likelihood is None else likelihood,
    )  # fmt: skip


def mixture(rng, likelihoods=(None, None, None), outputs=()):
    kinds = fs.RBF, fs.Matern32, fs.Matern12
    parts = zip(kinds, likelihoods, strict=True)
    return fs.Mixture(tuple(svgp(rng, *part, outputs) for part in parts), shares=SHARES)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_moments_and_densities(rng, outputs):
    model, X = mixture(rng, outputs=outputs), rng.standard_normal((7, 2))
    Y = rng.standard_normal((7, *outputs))
    for predict in (fs.predict_f, fs.predict_y):
        means, variances = map(np.array, zip(*(predict(m, X) for m in model.models), strict=True))
        w = np.reshape(SHARES, (3,) + (1,) * (means.ndim - 1))
        mean, var = predict(model, X)
        np.testing.assert_allclose(mean, (w * means).sum(0), rtol=1e-12)
        raw = (w * (variances + means**2)).sum(0) - mean**2
        np.testing.assert_allclose(var, raw, rtol=1e-10)
    np.testing.assert_allclose(
        fs.predict_f(model, X, var=False), fs.predict_f(model, X)[0], rtol=1e-12
    )
    of_models = [fs.predict_log_density(m, X, Y) for m in model.models]
    expected = np.log(sum(w * np.exp(one) for w, one in zip(SHARES, of_models, strict=True)))
    np.testing.assert_allclose(fs.predict_log_density(model, X, Y), expected, rtol=1e-10)
    far = fs.predict_log_density(model, X, Y + 1e9)
    assert (far < -1e16).all()


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_joint_covariances_have_the_marginals_on_the_diagonal(rng, outputs):
    model, X = mixture(rng, outputs=outputs), rng.standard_normal((6, 2))
    mean, cov = fs.predict_f(model, X, full_cov=True)
    _, var = fs.predict_f(model, X)
    np.testing.assert_allclose(np.diagonal(cov, axis1=-2, axis2=-1).T, var, rtol=1e-9)
    assert (np.linalg.eigvalsh(cov) > -1e-9).all() and mean.shape == var.shape


@pytest.mark.parametrize(
    "likelihoods", [(None, fs.StudentT(0.3, df=4.0), fs.Gaussian(2.0)), (fs.Poisson(),) * 3]
)
def test_quantiles_invert_the_distribution_function(rng, likelihoods):
    model, X = mixture(rng, likelihoods), rng.standard_normal((5, 2))
    levels = np.array([0.05, 0.5, 0.9])
    found = fs.predict_quantiles(model, X, levels)
    reached = np.array([fs.predict_cdf(model, X, y) for y in found])
    if likelihoods[1].counts:
        below = np.array([fs.predict_cdf(model, X, y - 1.0) for y in np.maximum(found, 1)])
        assert (reached >= levels[:, None] - 1e-9).all()
        assert (below[found > 0] < np.repeat(levels, 5).reshape(3, 5)[found > 0]).all()
    else:
        np.testing.assert_allclose(reached, np.repeat(levels, 5).reshape(3, 5), atol=1e-9)
    np.testing.assert_array_equal(fs.predict_quantiles(model, X, 0.5), found[1])


def test_samples_are_those_of_the_models(rng):
    model, X = mixture(rng), rng.standard_normal((3, 2))
    samples = fs.sample_f(model, X, 4000, rng=1)
    mean, var = fs.predict_f(model, X)
    assert samples.shape == (4000, 3)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5 * np.sqrt(var.max() / 4000))
    np.testing.assert_allclose(samples.var(axis=0), var, rtol=0.3)
    assert fs.sample_f(model, X, rng=0).shape == (1, 3)


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_gradient_in_the_inputs(rng, outputs):
    model, X = mixture(rng, outputs=outputs), rng.standard_normal((4, 2))
    a, b, U = rng.standard_normal((4, *outputs)), rng.standard_normal((4, *outputs)), X * 0 + 1
    U[:, 1] = -0.7
    _, _, vjp = fs.bounds.predict_f_and_vjp(model, X)

    def value(t):
        mean, var = fs.predict_f(model, X + t * U)
        return (a * mean).sum() + (b * var).sum()

    h = 1e-3
    slope = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    assert (vjp(a, b) * U).sum() == pytest.approx(slope, rel=1e-7, abs=1e-8)
    np.testing.assert_allclose(vjp(a, None) + vjp(None, b), vjp(a, b), rtol=1e-9, atol=1e-12)


def test_files_and_one_model(rng, tmp_path):
    model, X = mixture(rng), rng.standard_normal((4, 2))
    fs.save(tmp_path / "m.npz", model)
    for one, other in zip(
        fs.predict_y(fs.load(tmp_path / "m.npz"), X), fs.predict_y(model, X), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    alone = fs.Mixture((model.models[0],), shares=(1.0,))
    for one, other in zip(fs.predict_f(alone, X), fs.predict_f(model.models[0], X), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_predictor_has_the_same_predictions(rng):
    model, X = mixture(rng), rng.standard_normal((4, 2))
    fast = fs.predictor(model)
    assert type(fast) is fs.Mixture and fast.shares == model.shares
    for one, other in zip(fs.predict_y(fast, X), fs.predict_y(model, X), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    with pytest.raises(TypeError, match="needs no data"):
        fs.predictor(model, X)


def test_what_a_mixture_refuses(rng):
    model, X = mixture(rng), rng.standard_normal((4, 2))
    with pytest.raises(TypeError, match="a Mixture only predicts: train its models"):
        fs.elbo(model, X, X[:, 0])
    for shares in ((0.5, 0.5), (0.5, 0.6, -0.1), (0.3, 0.3, 0.3), 1.0):
        with pytest.raises(ValueError, match="`shares` must be positive, add up to 1"):
            fs.Mixture(model.models, shares=shares)
    for models in ((1, 2), model.models[0], np.zeros(2)):
        with pytest.raises(TypeError, match="`models` must be a tuple of models, got"):
            fs.Mixture(models, shares=(0.5, 0.5))
    trials = mixture(rng, (fs.likelihoods.Binomial(),) * 3)
    with pytest.raises(TypeError, match="quantiles of a Mixture need targets of one column"):
        fs.predict_quantiles(trials, X, 0.5)
    with pytest.raises(ValueError, match="levels"):
        fs.predict_quantiles(model, X, 1.5)
