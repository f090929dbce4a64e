"""Predictions: chunks, full covariances, new targets, samples."""

import numpy as np
import pytest
from support.gp_problems import assert_moments, lower_factor

import fastsvgp as fs


def model(rng, P=None, M=6, likelihood=None, mean=None):
    batch = () if P is None else (P,)
    q = fs.Whitened(rng.standard_normal((*batch, M)), lower_factor(rng, *batch, M, off=0.2))
    likelihood = likelihood or fs.Gaussian(0.2)
    return fs.SVGP(
        fs.Matern32(1.1, np.array([0.8, 1.2])), rng.standard_normal((M, 2)), q, likelihood, mean
    )


@pytest.mark.parametrize("P", [None, 1, 3])
def test_chunks_change_nothing_and_shapes_trail(rng, P):
    m, Xs = model(rng, P, mean=fs.means.ConstantMean(0.4)), rng.standard_normal((23, 2))
    shape = (23,) if P is None else (23, P)
    mean, var = fs.predict_f(m, Xs)
    assert mean.shape == var.shape == shape
    for size in (1, 7, 23, 100):
        for a, b in zip(fs.predict_f(m, Xs, chunk_size=size), (mean, var), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    full_mean, cov = fs.predict_f(m, Xs, full_cov=True)
    assert cov.shape == ((23, 23) if P is None else (P, 23, 23))
    np.testing.assert_allclose(full_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(np.diagonal(cov, axis1=-2, axis2=-1).T, var, rtol=1e-11, atol=1e-13)
    y_mean, y_var = fs.predict_y(m, Xs)
    np.testing.assert_allclose(y_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(y_var, var + 0.2, rtol=1e-12)
    Ys = rng.standard_normal(shape)
    density = fs.predict_log_density(m, Xs, Ys)
    each = -0.5 * (np.log(2 * np.pi * y_var) + (Ys - y_mean) ** 2 / y_var)
    np.testing.assert_allclose(density, each if P is None else each.sum(axis=1), rtol=1e-10)


def test_far_from_the_data_the_prior_returns(rng):
    m = model(rng, mean=fs.means.ConstantMean(0.7))
    mean, var = fs.predict_f(m, np.full((2, 2), 1e3))
    np.testing.assert_allclose(mean, 0.7, rtol=1e-12)
    np.testing.assert_allclose(var, 1.1, rtol=1e-12)


def test_classes_give_probabilities(rng):
    m = model(rng, 3, likelihood=fs.likelihoods.RobustMax(num_classes=3))
    p, spread = fs.predict_y(m, rng.standard_normal((9, 2)))
    assert p.shape == spread.shape == (9, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-4)
    labels = rng.integers(0, 3, 9)
    density = fs.predict_log_density(m, np.zeros((9, 2)), labels)
    at_zero, _ = fs.predict_y(m, np.zeros((9, 2)))
    np.testing.assert_allclose(density, np.log(at_zero[np.arange(9), labels]), atol=1e-4)


@pytest.mark.parametrize("P", [None, 2])
def test_samples_have_the_joint_moments(rng, P):
    m, Xs = model(rng, P), rng.standard_normal((5, 2))
    samples = fs.sample_f(m, Xs, 40_000, rng=3)
    assert samples.shape == ((40_000, 5) if P is None else (40_000, 5, P))
    mean, cov = fs.predict_f(m, Xs, full_cov=True)
    flat, means, covs = (
        (samples[..., None], mean[:, None], cov[None]) if P is None else (samples, mean, cov)
    )
    for p in range(P or 1):
        assert_moments(flat[..., p], means[:, p], covs[p])
    np.testing.assert_array_equal(samples[:3], fs.sample_f(m, Xs, 40_000, rng=3)[:3])


def test_float32_stays_float32(rng):
    m = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model(rng))
    Xs = rng.standard_normal((4, 2)).astype(np.float32)
    results = [
        *fs.predict_f(m, Xs),
        *fs.predict_f(m, Xs, full_cov=True),
        *fs.predict_y(m, Xs),
        fs.sample_f(m, Xs, 2, rng=0),
    ]
    assert {r.dtype for r in results} == {np.dtype(np.float32)}


def test_bad_arguments_are_named(rng):
    m = model(rng)
    X, Y = np.zeros((3, 2)), np.zeros(3)
    for size in (0, -3, 1.5, np.nan, np.inf, "a", True, [3], 1j):
        with pytest.raises(
            (ValueError, TypeError), match="`chunk_size` must be a whole number of at least 1, got"
        ):
            fs.predict_f(m, X, chunk_size=size)
    for count in (0, "many", None):
        with pytest.raises(
            (ValueError, TypeError), match="`num_samples` must be a whole number of at least 1, got"
        ):
            fs.sample_f(m, X, count)
    for rng in ("a", -1, 1.5):
        with pytest.raises(TypeError, match="`rng` must be None, a seed"):
            fs.sample_f(m, X, rng=rng)
    for predict in (
        fs.predict_f,
        fs.predict_y,
        fs.sample_f,
        lambda m, Xs: fs.predict_log_density(m, Xs, Y),
    ):
        for Xs, message in (
            (np.zeros((3, 3)), "`Xs` has 3 columns where `inducing` has 2"),
            (
                np.zeros(3),
                (
                    r"`Xs` must have shape \(N, D\), got \(3,\); for 3 points with one input use"
                    r" Xs\[:, None\]"
                ),
            ),
            (np.zeros((0, 2)), r"`Xs` is an empty batch, shape \(0, 2\); give at least one row$"),
            (np.full((3, 2), np.nan), "`Xs` contains nan"),
        ):
            with pytest.raises(ValueError, match=message):
                predict(m, Xs)
        with pytest.raises(TypeError, match="`Xs` must hold real numbers"):
            predict(m, np.full((3, 2), "a"))
    for predict in (fs.predict_log_density, fs.predict_cdf):
        with pytest.raises(TypeError, match="`Ys` must hold real numbers"):
            predict(m, X, None)
    for Ys, message in (
        (Y[:2], r"`Ys` must have one row for each of the 3 rows of `Xs`, got shape \(2,\)"),
        (X, r"`Ys` has shape \(3, 2\) and .* use Ys \(N,\) with"),
        (Y + np.inf, "`Ys` contains inf"),
    ):
        with pytest.raises(ValueError, match=message):
            fs.predict_log_density(m, X, Ys)


@pytest.mark.parametrize(
    "likelihood",
    [
        fs.likelihoods.BernoulliLogit(),
        fs.Poisson(),
        fs.likelihoods.RobustMax(num_classes=3),
        fs.Softmax(num_classes=3),
    ],
)
def test_labels_out_of_range_are_named_by_their_input_index(rng, likelihood):
    m = model(rng, likelihood.num_latent, likelihood=likelihood)
    with pytest.raises(ValueError, match="`Ys` must hold .*; got -1"):
        fs.predict_log_density(m, np.zeros((3, 2)), np.array([0, 1, -1]))


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize(
    "likelihood",
    [fs.Gaussian(0.2), fs.likelihoods.Laplace(0.3), fs.StudentT(0.3, df=3.0), fs.Poisson()],
)
def test_quantiles_and_their_levels(rng, P, likelihood):
    m, Xs = (
        model(rng, P, likelihood=likelihood, mean=fs.means.ConstantMean(0.4)),
        rng.standard_normal((11, 2)),
    )
    shape = (11,) if P is None else (11, P)
    low, high = fs.predict_quantiles(m, Xs, (0.05, 0.9))
    # both may be the count 0
    apart = low <= high if isinstance(likelihood, fs.Poisson) else low < high
    assert low.shape == high.shape == shape and apart.all()
    np.testing.assert_allclose(
        fs.predict_quantiles(m, Xs, 0.9, chunk_size=4), high, rtol=1e-11, atol=1e-12
    )
    for q, level in ((low, 0.05), (high, 0.9)):
        p = fs.predict_cdf(m, Xs, q)
        assert p.shape == shape and (p >= level - 1e-12).all()
        if not isinstance(likelihood, fs.Poisson):
            np.testing.assert_allclose(p, level, atol=1e-12)
    if isinstance(likelihood, fs.Gaussian):
        mean, var = fs.predict_y(m, Xs)
        np.testing.assert_allclose(high, mean + 1.2815515655446004 * np.sqrt(var), rtol=1e-12)


def test_levels_out_of_range_and_classes_are_refused(rng):
    m, Xs = model(rng), np.zeros((3, 2))
    for levels in (0, 1, [0.5, 1.5], np.nan, [-0.1]):
        with pytest.raises(ValueError, match="`levels` must lie strictly between 0 and 1, got"):
            fs.predict_quantiles(m, Xs, levels)
    with pytest.raises(
        ValueError, match=r"`levels` must be a number or a sequence .* shape \(1, 1\)"
    ):
        fs.predict_quantiles(m, Xs, [[0.5]])
    with pytest.raises(TypeError, match="`levels` must hold real numbers"):
        fs.predict_quantiles(m, Xs, "half")
    assert fs.predict_quantiles(m, Xs, []).shape == (0, 3)
    for classes in (fs.BernoulliProbit(), fs.Softmax(num_classes=3)):
        m = model(rng, classes.num_latent, likelihood=classes)
        with pytest.raises(
            TypeError,
            match=(
                f"targets of a {type(classes).__name__} model are classes, which have no quantiles"
            ),
        ):
            fs.predict_quantiles(m, Xs, 0.5)
        with pytest.raises(TypeError, match="classes, which have no quantiles"):
            fs.predict_cdf(m, Xs, np.zeros(3))
