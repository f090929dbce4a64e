"""Augmented predictions (Proposition 4) against whole matrices of m + 1 functions."""

import numpy as np
import pytest
from support.numerics import nine_point
from support.weight_problems import basis_of, dense, weights

import fastsvgp as fs

S2 = 0.2


def model_of(rng, m, k, name="inducing"):
    return fs.QSGP(basis_of(rng, name, m), weights(rng, m, k), fs.Gaussian(variance=S2))


def terms_of_variance(model, X, x, c):
    """Terms of equation 1 of the paper in q's covariance for m + 1 functions: C' = diag(C, c)."""
    covariance, m = model.basis.covariance, model.basis.num_functions()
    Z = np.concatenate([model.basis.inducing, x])
    phi, S = covariance.matrix(X, Z), covariance.matrix(Z)
    C = np.zeros((m + 1, m + 1))
    C[:m, :m], C[m, m] = dense(model.posterior), c
    return -0.5 * (np.square(phi @ C).sum() / S2 + np.trace(S @ C @ C.T)) + np.log(np.diag(C)).sum()


@pytest.mark.parametrize("k", [0, 3, 8])
def test_variances_are_those_of_one_more_function_at_its_best(rng, k):
    """At the inputs of the data, near them and far; in chunks; with and without inducing data."""
    model = model_of(rng, 8, k)
    X, Ys = rng.standard_normal((13, 2)), rng.standard_normal(5)
    for data, augmented in ((model.basis.inducing, True), (X, X)):
        Xs = np.concatenate([data[:2], rng.standard_normal((2, 2)), [[5.0, 9.0]]])
        mean, var = fs.predict_f(model, Xs)
        found = fs.predict_f(model, Xs, augmented=augmented)
        np.testing.assert_array_equal(found[0], mean)
        for x, plain, more in zip(Xs, var, found[1], strict=True):
            own = model.basis.covariance.kff(x[None])[0]
            c = np.sqrt(more - plain) / own
            slope = nine_point(
                lambda s, x=x, c=c, data=data: terms_of_variance(
                    model, data, x[None], c * np.exp(s)
                ),
                1e-2,
            )
            assert abs(slope) < 1e-7
            assert terms_of_variance(model, data, x[None], c) > max(
                terms_of_variance(model, data, x[None], factor * c) for factor in (0.9, 1.1)
            )
        np.testing.assert_allclose(
            fs.predict_f(model, Xs, augmented=augmented, chunk_size=2)[1], found[1], rtol=1e-12
        )
        y = fs.predict_y(model, Xs, augmented=augmented)
        np.testing.assert_allclose(y[1], found[1] + S2, rtol=1e-12)
        likely = -0.5 * (np.log(2 * np.pi * y[1]) + (Ys - mean) ** 2 / y[1])
        np.testing.assert_allclose(
            fs.predict_log_density(model, Xs, Ys, augmented=augmented), likely, rtol=1e-10
        )


def test_variances_far_away_are_those_of_the_prior(rng):
    model = model_of(rng, 8, 3)
    far = np.array([[50.0, -40.0], [80.0, 3.0]])
    assert fs.predict_f(model, far)[1].max() < 1e-12
    np.testing.assert_allclose(
        fs.predict_f(model, far, augmented=True)[1], model.basis.covariance.variance, rtol=1e-12
    )
    near = model.basis.inducing
    before, after = fs.predict_f(model, near)[1], fs.predict_f(model, near, augmented=True)[1]
    assert (after > before).all() and (after < before + model.basis.covariance.variance).all()
    nothing = fs.replace(model, basis=fs.qsgp.InducingBasis(fs.Linear(1.0), near))  # k(0, 0) = 0
    np.testing.assert_array_equal(fs.predict_f(nothing, np.zeros((1, 2)), augmented=True)[1], [0.0])


def test_the_optimal_mean_of_the_new_weight_is_zero_at_the_data(rng):
    """The optimal mean of m + 1 functions equals that of m, so the mean can stay."""
    model, Y = model_of(rng, 8, 0), rng.standard_normal(8)
    Z, k = model.basis.inducing, model.basis.covariance.matrix
    best, _ = fs.qsgp.optimal_weights(model, Z, Y, tolerance=1e-12, jitter=0.0)
    x = rng.standard_normal((1, 2))
    more = np.concatenate([Z, x])
    phi = k(Z, more)
    mu = np.linalg.solve(phi.T @ phi / S2 + k(more), phi.T @ Y / S2)
    np.testing.assert_allclose(
        k(x, more) @ mu, fs.predict_f(best, x, augmented=True)[0], rtol=1e-6, atol=1e-8
    )


def test_float32(rng):
    model, Xs = model_of(rng, 8, 3), rng.standard_normal((7, 2))
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    for augmented in (True, Xs):
        found = fs.predict_f(single, Xs.astype(np.float32), augmented=augmented)
        assert found[1].dtype == np.float32
        np.testing.assert_allclose(
            found[1], fs.predict_f(model, Xs, augmented=augmented)[1], rtol=1e-4
        )


def test_unsupported_models_are_refused(rng):
    model, X = model_of(rng, 8, 2), np.zeros((3, 2))
    for name in ("fourier", "relevance"):
        other = model_of(rng, 8, 2, name)
        with pytest.raises(
            TypeError,
            match=(
                "`augmented` is for a fastsvgp.qsgp.InducingBasis.*has a"
                f" {type(other.basis).__name__}"
            ),
        ):
            fs.predict_f(other, X, augmented=True)
    logit = fs.replace(model, likelihood=fs.likelihoods.BernoulliLogit())
    for call, error, said in (
        (
            lambda: fs.predict_y(logit, X, augmented=True),
            TypeError,
            "`augmented` is for .* and a BernoulliLogit: leave it out",
        ),
        (
            lambda: fs.predict_log_density(logit, X, np.ones(3), augmented=True),
            TypeError,
            "`augmented` is for",
        ),
        (
            lambda: fs.predict_f(model, X, augmented=True, full_cov=True),
            ValueError,
            "`full_cov` does not exist",
        ),
        (
            lambda: fs.predict_f(model, X, augmented=1),
            TypeError,
            "`augmented` must be True, False or the inputs of the data",
        ),
        (
            lambda: fs.predict_f(model, X, augmented=None),
            TypeError,
            "`augmented` must be True, False or the inputs of the data",
        ),
        (
            lambda: fs.predict_f(model, X, augmented=np.zeros((3, 3))),
            ValueError,
            "`augmented` has 3 columns",
        ),
        (
            lambda: fs.predict_f(model, X, augmented=np.full((3, 2), np.nan)),
            ValueError,
            "`augmented` contains nan",
        ),
        (
            lambda: fs.predict_quantiles(model, X, 0.5, augmented=True),
            TypeError,
            "has no option `augmented` for QSGP",
        ),
    ):
        with pytest.raises(error, match=said):
            call()
    one_lengthscale = fs.records.replace_at(model, "basis.covariance", fs.RBF(1.3, 0.8))
    with pytest.raises(ValueError, match="`augmented` has 1 columns"):
        fs.predict_f(one_lengthscale, X, augmented=np.zeros((3, 1)))
    for value in (False, np.False_):
        np.testing.assert_array_equal(
            fs.predict_y(logit, X, augmented=value), fs.predict_y(logit, X)
        )
