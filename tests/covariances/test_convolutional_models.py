"""Convolutional covariances in models: bounds, predictions, files, training, and errors."""

import numpy as np
import pytest
from support import definitions, posterior_problems as problems
from support.convolutional_problems import COLUMNS, SHAPE, D, M, N, problem
from support.derivatives import assert_gradient

import fastsvgp as fs


@pytest.mark.parametrize("posterior", problems.ROWS)
def test_bound_and_gradient(rng, posterior):
    covariance, Z, _, X, _ = problem(rng, "rbf, places")
    model = fs.SVGP(covariance, Z, None, fs.Gaussian(0.3))
    model, more = problems.in_model(rng, posterior, model)
    Y = rng.standard_normal(N)
    value, grad, X_bar = fs.elbo_and_grad(
        model, X, Y, num_data=7.0, jitter=problems.JITTER, inputs=True, **more
    )
    np.testing.assert_allclose(
        value,
        float(definitions.elbo(model, X, Y, 7.0 / N, problems.JITTER, **more).real),
        rtol=1e-9,
    )
    assert_gradient(
        lambda m: definitions.elbo(m, X, Y, 7.0 / N, problems.JITTER, **more),
        model,
        grad,
        rng,
        1e-8,
    )

    def of_X(x):
        return definitions.elbo(model, x.reshape(X.shape), Y, 7.0 / N, problems.JITTER, **more)

    direction = rng.standard_normal(X.shape)
    slope = (of_X(X + 1e-30j * direction)).imag / 1e-30
    np.testing.assert_allclose(
        (X_bar * direction).sum(), slope, rtol=1e-8, atol=1e-8 * np.linalg.norm(X_bar)
    )


@pytest.mark.parametrize("posterior", problems.PAIRS)
def test_bound_of_two_sets(rng, posterior):
    covariance, Z, _, X, _ = problem(rng, "sum")
    q, pair, Y = (
        problems.PAIRS[posterior].make(rng, np.eye(M)),
        fs.posteriors.InducingPair(Z[:4], Z[4:]),
        rng.standard_normal(N),
    )
    model = fs.SVGP(covariance, pair, q, fs.Gaussian(0.3))
    value, grad = fs.elbo_and_grad(model, X, Y, jitter=problems.JITTER)

    def definition(m):
        return definitions.elbo(
            fs.replace(m, inducing=np.concatenate([m.inducing.Z, m.inducing.O])),
            X,
            Y,
            1,
            problems.JITTER,
        )

    np.testing.assert_allclose(value, float(definition(model).real), rtol=1e-9)
    assert_gradient(definition, model, grad, rng, 1e-8)


def test_predictions_files_and_training(rng, tmp_path):
    covariance, Z, _, X, _ = problem(rng, "matern52, places")
    model = fs.SVGP(
        covariance,
        Z,
        fs.Whitened(rng.standard_normal(M), np.eye(M)),
        fs.Gaussian(0.1),
        fs.means.ConstantMean(0.5),
    )
    mean, cov = fs.predict_f(model, X, full_cov=True)
    each, var = fs.predict_f(model, X)
    np.testing.assert_allclose(mean, each, rtol=1e-12)
    np.testing.assert_allclose(np.diag(cov), var, rtol=1e-9)
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    assert repr(loaded) == repr(model)
    np.testing.assert_array_equal(fs.predict_f(loaded, X)[0], each)
    fitted, _ = fs.fit(model, X, rng.standard_normal(N), steps=3, optimiser=fs.adam(0.05))
    assert (fitted.covariance.weights != model.covariance.weights).all()


def bad(**changes):
    return dict(dict(patch_covariance=fs.RBF(1.0, 3.0), weights=0.5, **SHAPE), **changes)


@pytest.mark.parametrize(
    "changes, kind, message",
    [
        (
            dict(image_shape=(7, 6, 2)),
            ValueError,
            r"`X` has 70 columns where an image \(7, 6, 2\) has 84",
        ),
        (
            dict(image_shape=7),
            ValueError,
            r"`image_shape` must be \(H, W\) or \(H, W, C\), whole numbers, got 7",
        ),
        (
            dict(image_shape=(7, 5, 0)),
            ValueError,
            "`image_shape` must be a whole number of at least 1, got 0",
        ),
        (
            dict(patch_shape=(8, 2)),
            ValueError,
            r"`patch_shape` \(8, 2\) is larger than `image_shape` \(7, 5, 2\)",
        ),
        (
            dict(patch_shape=(3, 3)),
            ValueError,
            "`inducing` has 12 columns, but a patch of Convolutional has 3 x 3 x 2 = 18",
        ),
        (
            dict(location_covariance=fs.RBF()),
            ValueError,
            "`inducing` has 12 columns, .* = 12 numbers and 2 for its location",
        ),
        (dict(stride=0), ValueError, "`stride` must be a whole number of at least 1, got 0"),
        (
            dict(weights=np.ones(5)),
            ValueError,
            r"`weights` has shape \(5,\), but there are 6 patches",
        ),
        (
            dict(patch_covariance=fs.RBF(1.0, np.ones(3))),
            ValueError,
            r"patch_covariance: RBF: `lengthscales` has shape \(3,\)",
        ),
        (
            dict(patch_covariance=2.0),
            TypeError,
            "Convolutional.patch_covariance: `patch_covariance` must be",
        ),
    ],
    ids=str,
)
def test_bad_models_are_named(rng, changes, kind, message):
    q = fs.Whitened(np.zeros(M), np.eye(M))
    model = fs.SVGP(
        fs.covariances.Convolutional(**bad(**changes)),
        rng.standard_normal((M, D)),
        q,
        fs.Gaussian(0.1),
    )
    with pytest.raises(kind, match=message):
        fs.elbo(model, rng.standard_normal((N, COLUMNS)), np.zeros(N))


def test_mismatched_shapes_are_refused(rng):
    covariance, Z, _, X, _ = problem(rng, "rbf")
    q = fs.Whitened(np.zeros(M), np.eye(M))
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(0.1))
    for composed in (covariance + fs.RBF(), fs.RBF() * covariance):
        with pytest.raises(
            TypeError, match="a Convolutional has inducing variables of its own .* use it alone"
        ):
            fs.elbo(fs.replace(model, covariance=composed), X, np.zeros(N))
    nested = fs.covariances.Convolutional(covariance, 1.0, **SHAPE)
    with pytest.raises(
        TypeError,
        match="Convolutional.patch_covariance: a Convolutional has inducing variables of its own",
    ):
        fs.elbo(fs.replace(model, covariance=nested), X, np.zeros(N))
    twice = Z.copy()
    twice[3] = twice[1]
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"`inducing\[3\]` and `inducing\[1\]` are the same inputs"
    ):
        fs.elbo(fs.replace(model, inducing=twice), X, np.zeros(N), jitter=0.0)
    with pytest.raises(ValueError, match="`Xs` has 69 columns where an image"):
        fs.predict_f(model, X[:, 1:])
    with pytest.raises(
        TypeError, match="inducing inputs are patches, not rows of X; use fastsvgp.inducing.patches"
    ):
        fs.inducing.greedy_variance(X, 2, covariance)
    with pytest.raises(ValueError, match="`X` has 69 columns, but an image of `image_shape`"):
        fs.covariances.extract_patches(X[:, 1:], (7, 5, 2), (3, 2))
