"""Initial models with several latent functions, from data."""

import numpy as np
import pytest
from support.latent_problems import D

import fastsvgp as fs
from fastsvgp.latents.model import layers_of

N, P, M = 50, 4, 6


def data(rng, P=P, rank=2):
    X = rng.uniform(-2, 2, (N, D))
    g = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2, X[:, 0]], axis=1)[:, :rank]
    Y = g @ rng.standard_normal((rank, P)) + 0.01 * rng.standard_normal((N, P))
    return X, 3 * Y + np.arange(P)


def test_the_mixing_is_that_of_the_principal_directions(rng):
    X, Y = data(rng)
    model = fs.layers.multi_gp(X, Y, 2, M, rng=0)
    U, s, Vt = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)
    due = Vt[:2].T * (s[:2] / np.sqrt(N))
    sign = np.sign((due * model.mixing).sum(axis=0))
    np.testing.assert_allclose(model.mixing, due * sign, rtol=1e-9)
    np.testing.assert_allclose(model.mixing @ model.mixing.T, np.cov(Y.T, ddof=0), atol=0.05)
    assert U.shape == (N, P)
    np.testing.assert_allclose(model.mean.value, Y.mean(axis=0), rtol=1e-12)
    assert model.likelihood.variance == pytest.approx(0.1 * Y.var(axis=0).mean())
    assert model.inducing.shape == (M, D)
    for one in model.latents:
        assert one.inducing is one.mean is None and one.covariance.variance == 1.0
    first, second = (one.covariance.lengthscales for one in model.latents)
    np.testing.assert_allclose(first / second, 4.0)
    # at the prior
    np.testing.assert_allclose(fs.bounds.kl_term_and_grad(model)[0], 0, atol=1e-10)
    np.testing.assert_allclose(fs.predict_f(model, X)[0], np.tile(Y.mean(axis=0), (N, 1)))


@pytest.mark.parametrize("num_latents", [1, 3, 4, 7, "separate"])
def test_any_number_of_functions_trains(rng, num_latents):
    X, Y = data(rng)
    model = fs.layers.multi_gp(X, Y, num_latents, M, rng=0)
    if num_latents == "separate":
        assert model.mixing is None and len(model.latents) == P
    else:
        assert model.mixing.shape == (P, num_latents) and len(model.latents) == num_latents
        columns = np.sqrt(np.square(model.mixing).sum(axis=0))
        assert (columns > 1e-3).all() and np.linalg.matrix_rank(model.mixing) == min(P, num_latents)
    stepped, _ = fs.natural_step(model, X, Y, step_size=1.0)
    found, _ = fs.fit(stepped, X, Y, steps=20, optimiser=fs.adam(0.02), rng=0)
    assert fs.elbo(model, X, Y) < fs.elbo(stepped, X, Y) < fs.elbo(found, X, Y)


def test_missing_outputs_are_not_read(rng):
    X, Y = data(rng)
    weights = (rng.uniform(size=Y.shape) < 0.7) * rng.uniform(0.5, 2, Y.shape)
    holed = np.where(weights > 0, Y, np.nan)
    model = fs.layers.multi_gp(X, holed, 2, M, weights=weights, rng=0)
    other = fs.layers.multi_gp(X, np.where(weights > 0, Y, 99.0), 2, M, weights=weights, rng=0)
    np.testing.assert_array_equal(model.mixing, other.mixing)
    np.testing.assert_allclose(model.mean.value, np.nanmean(holed, axis=0), rtol=1e-12)
    assert np.isfinite(fs.elbo(model, X, holed, weights=weights))
    with pytest.raises(ValueError, match="`Y`"):
        fs.layers.multi_gp(X, holed, 2, M)
    with pytest.raises(ValueError, match="`weights` leave no target in column 1 of `Y`"):
        fs.layers.multi_gp(X, Y, 2, M, weights=np.where(np.arange(P) == 1, 0.0, np.ones((N, P))))
    rows = fs.layers.multi_gp(X, Y, 2, M, weights=np.r_[np.zeros(9), np.ones(N - 9)], rng=0)
    np.testing.assert_allclose(rows.mean.value, Y[9:].mean(axis=0), rtol=1e-12)


def test_one_output(rng):
    X, Y = data(rng)
    for y in (Y[:, 0], Y[:, :1]):
        for num_latents in (1, 2, "separate"):
            model = fs.layers.multi_gp(X, y, num_latents, M, rng=0)
            assert np.shape(model.mean.value) == ()
            assert fs.predict_f(model, X)[0].shape == (N,)
            assert np.isfinite(fs.elbo(model, X, y))


@pytest.mark.parametrize("num_latents", [2, "separate"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_functions_of_mean_and_noise(rng, outputs, num_latents):
    X, Y = data(rng, outputs)
    y = Y[:, 0] if outputs == 1 else Y
    model = fs.layers.multi_gp(
        X, y, num_latents, M, likelihood=fs.likelihoods.HeteroskedasticGaussian(), rng=0
    )
    if num_latents == "separate":
        assert model.mixing is None and len(model.latents) == 2 * outputs
    else:
        assert [W.shape for W in model.mixing] == [(outputs, 2), (outputs, outputs)]
        np.testing.assert_array_equal(model.mixing[1], np.eye(outputs))
        assert len(model.latents) == 2 + outputs
    due = np.concatenate([Y.mean(axis=0), np.log(0.1 * Y.var(axis=0))])
    np.testing.assert_allclose(model.mean.value, due, rtol=1e-12)
    found, _ = fs.fit(model, X, y, steps=20, natural_step_size=0.1, rng=0)
    assert fs.elbo(found, X, y) > fs.elbo(model, X, y)


@pytest.mark.parametrize(
    "likelihood", [fs.Poisson(), fs.likelihoods.HeteroskedasticNegativeBinomial()]
)
def test_counts_start_at_their_logarithm(rng, likelihood):
    X, _ = data(rng)
    Y = rng.poisson(3.0, (N, 2))
    for num_latents in (2, "separate"):
        model = fs.layers.multi_gp(X, Y, num_latents, M, likelihood=likelihood, rng=0)
        due = np.log(Y + 0.5).mean(axis=0)
        np.testing.assert_allclose(model.mean.value[:2], due, rtol=1e-12)
        assert np.isfinite(fs.elbo(model, X, Y))


def test_classes_have_separate_functions(rng):
    X, _ = data(rng)
    Y = rng.integers(0, 3, N)
    model = fs.layers.multi_gp(X, Y, "separate", M, likelihood=fs.Softmax(num_classes=3), rng=0)
    assert len(model.latents) == 3 and model.mixing is model.mean is None
    assert np.isfinite(fs.elbo(model, X, Y, rng=0))
    with pytest.raises(ValueError, match='functions of classes cannot be mixed.*"separate"'):
        fs.layers.multi_gp(X, Y, 2, M, likelihood=fs.Softmax(num_classes=3))


def test_other_parts(rng):
    X, Y = data(rng)
    model = fs.layers.multi_gp(
        X, Y, 2, M, covariance=fs.Matern52, posterior=fs.posteriors.AbsorbedDualSites, rng=0,
        likelihood=fs.StudentT(0.3),
    )  # fmt: skip
    for one in layers_of(model):
        assert type(one.covariance) is fs.Matern52
        assert type(one.posterior) is fs.posteriors.AbsorbedDualSites
    assert type(model.likelihood) is fs.StudentT
    few = fs.layers.multi_gp(X[:4], Y[:4], 2, 100, rng=0)
    assert len(few.inducing) == 4
    again = fs.layers.multi_gp(X, Y, 2, M, rng=np.random.default_rng(3))
    other = fs.layers.multi_gp(X, Y, 2, M, rng=3)
    np.testing.assert_array_equal(again.inducing, other.inducing)


def test_the_dtype_is_that_of_the_inputs(rng):
    X, Y = data(rng)
    model = fs.layers.multi_gp(X.astype(np.float32), Y.astype(np.float32), 5, M, rng=0)
    assert model.mixing.dtype == model.mean.value.dtype == model.inducing.dtype == np.float32
    _, grad = fs.elbo_and_grad(model, X.astype(np.float32), Y.astype(np.float32))
    assert grad.mixing.dtype == np.float32


def test_a_constant_column_has_no_directions(rng):
    X, Y = data(rng)
    Y[:, 1] = 2.0
    for likelihood in (None, fs.likelihoods.HeteroskedasticGaussian()):
        model = fs.layers.multi_gp(X, Y, 2, M, likelihood=likelihood, rng=0)
        assert np.isfinite(fs.elbo(model, X, Y))


WRONG = {
    "a word": ({"num_latents": "seperate"}, ValueError, '`num_latents` must be a number or "sep'),
    "none": ({"num_latents": 0}, ValueError, "`num_latents`"),
    "a fraction": ({"num_latents": 1.5}, (ValueError, TypeError), "`num_latents`"),
    "M": ({"M": 0}, ValueError, "`M`"),
    "rows": ({"Y": np.zeros((N - 1, P))}, ValueError, "`X` and `Y` must have the same number of"),
    "NaN": ({"Y": np.full((N, P), np.nan)}, ValueError, "`Y`"),
    "X": ({"X": np.zeros(N)}, ValueError, r"`X` must have shape \(N, D\)"),
    "likelihood": ({"likelihood": fs.RBF()}, TypeError, "`likelihood`"),
    "likelihood class": ({"likelihood": fs.Gaussian}, TypeError, "`likelihood`"),
    "posterior": (
        {"posterior": fs.posteriors.Relaxed},
        TypeError,
        "multi_gp: `posterior` must be .* Relaxed",
    ),
    "covariance": ({"covariance": 3}, TypeError, "multi_gp: `covariance` must be a class such as"),
    "counts": (
        {"likelihood": fs.Poisson(), "Y": -np.ones((N, P))},
        ValueError,
        "`Y`",
    ),
    "classes": (
        {
            "likelihood": fs.Softmax(num_classes=3),
            "num_latents": "separate",
            "Y": np.full(N, 3),
        },
        ValueError,
        "`Y`",
    ),
    "a setting": ({"likelihood": fs.StudentT(0.3, df=-1.0)}, ValueError, "`df`"),
    "two sets": (
        {"posterior": fs.posteriors.Orthogonal},
        TypeError,
        "Orthogonal posterior takes 2 sets",
    ),
    "a covariance that takes no lengthscales": (
        {"covariance": fs.Linear},
        TypeError,
        "multi_gp: `covariance` is called with .*no field `lengthscales`",
    ),
    "weights": ({"weights": np.ones((N, 2))}, ValueError, "`weights`"),
    "negative weights": ({"weights": -np.ones(N)}, ValueError, "`weights`"),
    "text": ({"Y": np.full((N, P), "a")}, (TypeError, ValueError), "`Y`"),
    "three axes": ({"Y": np.zeros((N, P, 2))}, ValueError, "`Y`"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(rng, case):
    changes, error, message = WRONG[case]
    X, Y = data(rng)
    arguments = {"X": X, "Y": Y, "num_latents": 2, "M": M, "rng": 0} | changes
    with pytest.raises(error, match=message):
        fs.layers.multi_gp(**arguments)
