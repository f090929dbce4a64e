"""The exact bound in weight space: against dense linear algebra, differences, and the theory."""

import functools

import numpy as np
import pytest
from support.weight_problems import BASES, basis_of, dense, weights

import fastsvgp as fs
from fastsvgp.records import Marginals
from fastsvgp.testing import assert_gradient

JITTER = 1e-2


def model_of(rng, name, m, k, likelihood=None):
    return fs.QSGP(
        basis_of(rng, name, m), weights(rng, m, k), likelihood or fs.Gaussian(variance=0.2)
    )


def prior_precision(basis):
    m = basis.num_functions()
    if isinstance(basis, fs.qsgp.RelevanceBasis):
        return np.diag(basis.precision)
    return (
        basis.covariance.matrix(basis.inducing) + JITTER * np.eye(m)
        if isinstance(basis, fs.qsgp.InducingBasis)
        else np.eye(m)
    )


def dense_bound(model, X, Y, scale=1.0):
    """Equation 1 of the paper, with whole matrices, and exact marginals for other likelihoods."""
    phi, S, C, mu = (
        model.basis.features(X),
        prior_precision(model.basis),
        dense(model.posterior),
        model.posterior.mean,
    )
    f = Marginals(phi @ mu, ((phi @ C) ** 2).sum(1))
    data = model.likelihood.expected_log_prob(Y, f, None, need=False)[0]
    quadratic = mu @ S @ mu + np.trace(S @ C @ C.T)
    return (
        scale * data
        - 0.5 * (quadratic - np.linalg.slogdet(S)[1] - len(mu))
        + np.log(np.diag(C)).sum()
    )


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("name", BASES)
def test_the_bound_is_that_of_dense_matrices(rng, name, k):
    X = rng.standard_normal((13, 2))
    for likelihood, Y in (
        (fs.Gaussian(variance=0.2), rng.standard_normal(13)),
        (fs.likelihoods.BernoulliLogit(), (rng.standard_normal(13) > 0) * 1.0),
        (fs.StudentT(scale=0.3, df=4.0), rng.standard_normal(13)),
    ):
        model = model_of(rng, name, 8, k, likelihood)
        value = fs.qsgp.bound(model, X, Y, num_data=39, jitter=JITTER)
        np.testing.assert_allclose(value, dense_bound(model, X, Y, 3.0), rtol=1e-11)
        np.testing.assert_allclose(
            fs.qsgp.bound_and_grad(model, X, Y, num_data=39, jitter=JITTER)[0], value, rtol=1e-13
        )


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("name", BASES)
def test_gradients_of_all_fields(rng, name, k):
    X, Y = rng.standard_normal((13, 2)), rng.standard_normal(13)
    for likelihood in (fs.Gaussian(variance=0.2), fs.StudentT(scale=0.3, df=4.0)):
        model = model_of(rng, name, 8, k, likelihood)
        _, grad = fs.qsgp.bound_and_grad(model, X, Y, num_data=39, jitter=JITTER)
        bound = functools.partial(fs.qsgp.bound, X=X, Y=Y, num_data=39, jitter=JITTER)
        assert_gradient(bound, model, grad, rng=rng)
        for path in fs.ravel(model)[1].paths:
            some = fs.qsgp.bound_and_grad(model, X, Y, num_data=39, jitter=JITTER, wrt=path)[1]
            found = {p: a for p, _, a in fs.records.leaves(some) if a is not None}
            assert set(found) == {path}
            np.testing.assert_allclose(
                found[path],
                dict((p, a) for p, _, a in fs.records.leaves(grad))[path],
                rtol=1e-9,
                atol=1e-12,
            )


@pytest.mark.parametrize("name", BASES)
def test_at_the_exact_posterior_the_bound_is_the_log_evidence(rng, name):
    """k = m, Gaussian noise; it is never above."""
    X, Y, m, s2 = rng.standard_normal((13, 2)), rng.standard_normal(13), 8, 0.2
    model = model_of(rng, name, m, m)
    phi, S = model.basis.features(X), prior_precision(model.basis)
    covariance = np.linalg.inv(phi.T @ phi / s2 + S)
    q = fs.qsgp.ChevronWeights(
        covariance @ phi.T @ Y / s2, np.linalg.cholesky(covariance), np.empty(0)
    )
    K = phi @ np.linalg.solve(S, phi.T) + s2 * np.eye(13)
    evidence = -0.5 * (Y @ np.linalg.solve(K, Y) + np.linalg.slogdet(K)[1] + 13 * np.log(2 * np.pi))
    best, grad = fs.qsgp.bound_and_grad(fs.replace(model, posterior=q), X, Y, jitter=JITTER)
    np.testing.assert_allclose(best, evidence, rtol=1e-9)
    assert np.abs(grad.posterior.mean).max() < 1e-8 and np.abs(grad.posterior.columns).max() < 1e-7
    for k in (0, 3, m):
        posterior = weights(rng, m, k)
        assert fs.qsgp.bound(fs.replace(model, posterior=posterior), X, Y, jitter=JITTER) < evidence


@pytest.mark.parametrize("name", BASES)
def test_proposition_1(rng, name):
    """Mean field: the gradient vanishes at C_ii^-2 = S_ii + (phi' phi)_ii / s2."""
    X, Y, m, s2 = rng.standard_normal((13, 2)), rng.standard_normal(13), 8, 0.2
    model = model_of(rng, name, m, 0)
    precision = (
        np.diag(prior_precision(model.basis)) + np.square(model.basis.features(X)).sum(0) / s2
    )
    model = fs.records.replace_at(model, "posterior.diagonal", precision**-0.5)
    _, grad = fs.qsgp.bound_and_grad(model, X, Y, jitter=JITTER, wrt="posterior.diagonal")
    assert np.abs(grad.posterior.diagonal).max() < 1e-9


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("name", BASES)
def test_float32(rng, name, k):
    X, Y = rng.standard_normal((13, 2)), rng.standard_normal(13)
    model = model_of(rng, name, 8, k)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    value, grad = fs.qsgp.bound_and_grad(model, X, Y, jitter=1e-2)
    found, other = fs.qsgp.bound_and_grad(
        single, X.astype(np.float32), Y.astype(np.float32), jitter=1e-2
    )
    np.testing.assert_allclose(found, value, rtol=1e-4)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(other), fs.records.leaves(grad), strict=True
    ):
        assert np.asarray(a).dtype == np.float32, path
        np.testing.assert_allclose(
            a, b, rtol=0, atol=2e-3 * max(1, np.abs(b).max(initial=0)), err_msg=path
        )


def test_flat_vectors_and_files(rng, tmp_path):
    """The strict upper triangle of the first rows is not a parameter."""
    for k in (0, 3, 8):
        model = model_of(rng, "fourier", 8, k)
        vector, unravel = fs.ravel(model)
        assert (
            unravel.slices["posterior.columns"].stop - unravel.slices["posterior.columns"].start
            == 8 * k - k * (k - 1) // 2
        )
        again = unravel(vector)
        np.testing.assert_allclose(dense(again.posterior), dense(model.posterior), rtol=1e-12)
        np.testing.assert_allclose(unravel.pack(again), vector, rtol=1e-9, atol=1e-12)
        fs.save(tmp_path / "model", again)
        loaded = fs.load(tmp_path / "model")
        assert loaded.basis.seed == 3 and loaded.basis.num_features == 8
        np.testing.assert_array_equal(loaded.posterior.columns, again.posterior.columns)


X3, Y3 = np.zeros((3, 2)), np.zeros(3)


@pytest.mark.parametrize("change, said", [
    ({"basis.num_features": 7}, "`num_features` must be an even number"),
    ({"basis.num_features": 0}, "`num_features` must be an even number"),
    ({"basis.seed": -1}, "`seed` must be a whole number"),
    ({"basis.seed": 1.5}, "`seed` must be a whole number"),
    ({"basis.covariance": fs.Linear(1.0)},
     "`covariance` must be an RBF, Matern12, Matern32 or Matern52, got Linear"),
    ({"basis.covariance": fs.RBF(1.0, np.ones(3))}, "lengthscales"),
    ({"basis": fs.qsgp.InducingBasis(fs.RBF(), np.zeros((8, 3)))},
     r"`basis.inducing` must have shape \(m, 2\)"),
    ({"basis": fs.qsgp.RelevanceBasis(fs.RBF(), np.zeros((8, 2)), np.ones(7))},
     r"`basis.precision` must have shape \(8,\)"),
    ({"basis": fs.qsgp.RelevanceBasis(fs.RBF(), np.zeros((8, 2)), np.zeros(8))},
     "`basis.precision` must be positive"),
    ({"basis": fs.RBF()}, "`basis` of the model must be"),
    ({"posterior": fs.Whitened(np.zeros(8), np.eye(8))},
     "`posterior` a fastsvgp.qsgp.ChevronWeights, got RandomFourier and Whitened"),
    ({"posterior.mean": np.zeros((2, 8))}, "one output"),
    ({"posterior.columns": np.ones((8, 9))}, "k from 0 to 8 dense columns"),
    ({"posterior.columns": np.ones(8)}, r"`posterior.columns` must have shape \(m, k\)"),
    ({"posterior.columns": -np.ones((8, 2))}, "diagonal of posterior.columns"),
    ({"posterior.diagonal": np.ones(8)}, r"diagonal \(8 - k,\)"),
    ({"posterior.diagonal": -np.ones(6)}, "`posterior.diagonal` must be positive"),
    ({"likelihood": fs.Softmax(num_classes=3)}, "3 classes"),
    ({"likelihood": None}, "likelihood"),
])  # fmt: skip
def test_bad_models(rng, change, said):
    model = model_of(rng, "fourier", 8, 2)
    for path, value in change.items():
        model = (
            fs.records.replace_at(model, path, value)
            if "." in path
            else fs.replace(model, **{path: value})
        )
    for bound in (fs.qsgp.bound, fs.qsgp.bound_and_grad):
        with pytest.raises((TypeError, ValueError), match=said):
            bound(model, X3, Y3)


def test_inducing_inputs_twice_are_named(rng):
    basis = fs.qsgp.InducingBasis(fs.RBF(), np.repeat(rng.standard_normal((4, 2)), 2, axis=0))
    model = fs.QSGP(basis, weights(rng, 8, 0), fs.Gaussian(variance=0.2))
    with pytest.raises(
        fs.NotPositiveDefinite,
        match=r"`basis.inducing\[1\]` and `basis.inducing\[0\]` are the same inputs",
    ):
        fs.qsgp.bound(model, X3, Y3, jitter=0.0)


def test_bad_data(rng):
    model = model_of(rng, "fourier", 8, 2)
    for X, Y, said in (
        (X3[:, 0], Y3, "`X` must have shape"), (X3, Y3[:2], "`Y` must have one row"),
        (X3, np.zeros((3, 2)), "`Y` has shape"),
        (X3 + np.nan, Y3, "`X`"), (X3, Y3 + np.inf, "`Y`"), (X3[:0], Y3[:0], "empty"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            fs.qsgp.bound(model, X, Y)
    with pytest.raises(ValueError, match="`num_data` is 2"):
        fs.qsgp.bound(model, X3, Y3, num_data=2)
    with pytest.raises(TypeError, match="bound: `model` must be a fastsvgp.QSGP"):
        fs.qsgp.bound(fs.RBF(), X3, Y3)
    with pytest.raises(TypeError, match="elbo: `model` must be"):
        fs.elbo(model, X3, Y3)


# --- predictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 3, 8])
@pytest.mark.parametrize("name", BASES)
def test_predictions_are_those_of_dense_matrices(rng, name, k, tune):
    Xs, Ys = rng.standard_normal((9, 2)), rng.standard_normal(9)
    model = model_of(rng, name, 8, k)
    phi, C = model.basis.features(Xs), dense(model.posterior)
    mean, cov = phi @ model.posterior.mean, phi @ C @ C.T @ phi.T
    f = Marginals(mean, np.diag(cov).copy())
    for chunk_size in (None, 4):
        np.testing.assert_allclose(
            fs.predict_f(model, Xs, chunk_size=chunk_size), (mean, f.var), rtol=1e-10, atol=1e-13
        )
    for found, expected in zip(fs.predict_y(model, Xs), (mean, f.var + 0.2), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(
        fs.predict_log_density(model, Xs, Ys),
        model.likelihood.predict_log_density(Ys, f),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        fs.predict_cdf(model, Xs, Ys), model.likelihood.predict_cdf(Ys, f), rtol=1e-9
    )
    low, high = fs.predict_quantiles(model, Xs, (0.1, 0.9))
    np.testing.assert_allclose(fs.predict_cdf(model, Xs, low), 0.1, rtol=1e-9)
    np.testing.assert_allclose(fs.predict_quantiles(model, Xs, 0.9), high)
    for panel in (2**21, 5):
        tune(feature_panel_numbers=panel)
        found = fs.predict_f(model, Xs, full_cov=True)
        np.testing.assert_allclose(found[0], mean, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found[1], cov, rtol=1e-9, atol=1e-12)
    at_median = fs.replace(model, likelihood=fs.BernoulliProbit())
    p, _ = fs.predict_y(at_median, Xs, median=True)
    np.testing.assert_allclose(
        p, fs.BernoulliProbit().predict_mean_and_var(Marginals(mean, 0 * mean))[0], rtol=1e-12
    )
    assert np.abs(p - fs.predict_y(at_median, Xs)[0]).max() > 1e-4
    labels = (Ys > 0) * 1.0
    likely = fs.predict_log_density(at_median, Xs, labels, median=True)
    np.testing.assert_allclose(np.exp(likely), np.where(labels > 0, p, 1 - p), rtol=1e-10)


@pytest.mark.parametrize("name", BASES)
def test_samples_are_functions_with_the_moments_of_q(rng, name):
    model = model_of(rng, name, 8, 3)
    Xs = rng.standard_normal((5, 2))
    mean, cov = fs.predict_f(model, Xs, full_cov=True)
    samples = fs.sample_f(model, Xs, 20_000, rng=rng)
    sd = np.sqrt(np.diag(cov))
    assert samples.shape == (20_000, 5) and np.abs(
        (samples.mean(0) - mean) / sd
    ).max() < 5 / np.sqrt(20_000)
    deviations = (samples - mean) / sd
    correlation = cov / np.outer(sd, sd)
    assert np.abs(deviations.T @ deviations / 20_000 - correlation).max() < 5 * np.sqrt(2 / 20_000)
    np.testing.assert_allclose(
        fs.sample_f(model, Xs[:2], 3, rng=1), fs.sample_f(model, Xs, 3, rng=1)[:, :2], rtol=1e-10
    )


def test_bad_predictions(rng):
    model = model_of(rng, "fourier", 8, 2)
    for call, error, said in (
        (lambda: fs.predict_f(model, np.zeros((3, 3))), ValueError, "lengthscales"),
        (lambda: fs.predict_f(model, np.full((3, 2), np.nan)), ValueError, "`Xs` contains nan"),
        (
            lambda: fs.predict_log_density(model, X3, np.zeros(2)),
            ValueError,
            "`Ys` must have one row for each of the 3 rows",
        ),
        (
            lambda: fs.predict_y(model, X3, jitter=1e-6),
            TypeError,
            "has no option `jitter` for QSGP",
        ),
        (lambda: fs.predict_y(model, X3, median=1), TypeError, "`median` must be True or False"),
        (lambda: fs.predict_quantiles(model, X3, 1.0), ValueError, "`levels`"),
        (lambda: fs.sample_f(model, X3, 0), ValueError, "`num_samples`"),
    ):
        with pytest.raises(error, match=said):
            call()


# --- optimal weights ------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 3, 8])
@pytest.mark.parametrize("name", BASES)
def test_optimal_weights(rng, name, k, tune):
    """Exact posterior mean, zero gradient in the diagonal, and a rising bound."""
    X, Y, s2 = rng.standard_normal((13, 2)), rng.standard_normal(13), 0.2
    model = model_of(rng, name, 8, k)
    tune(weight_chunk_rows=5)
    bounds = [fs.qsgp.bound(model, X, Y, jitter=JITTER)]
    found, info = fs.qsgp.optimal_weights(
        model, X, Y, tolerance=1e-10, jitter=JITTER,
        callback=lambda there, info: bounds.append(fs.qsgp.bound(there, X, Y, jitter=JITTER)),
    )  # fmt: skip
    phi, S = model.basis.features(X), prior_precision(model.basis)
    np.testing.assert_allclose(
        found.posterior.mean,
        np.linalg.solve(phi.T @ phi / s2 + S, phi.T @ Y / s2),
        rtol=1e-6,
        atol=1e-8,
    )
    np.testing.assert_allclose(np.diff(bounds), info.gains, rtol=1e-6, atol=1e-9)
    assert (
        info.iterations == len(info.gains) <= 20 and min(info.gains) >= 0 and info.residual <= 1e-10
    )
    _, grad = fs.qsgp.bound_and_grad(
        found, X, Y, jitter=JITTER, wrt=("posterior.mean", "posterior.diagonal")
    )
    assert (
        np.abs(grad.posterior.mean).max() < 1e-6
        and np.abs(grad.posterior.diagonal).max(initial=0) < 1e-8
    )
    np.testing.assert_array_equal(found.posterior.columns, model.posterior.columns)
    again, info = fs.qsgp.optimal_weights(found, X, Y, tolerance=1e-8, jitter=JITTER)
    assert info.iterations <= 1
    part = fs.qsgp.optimal_diagonal(model, X[:6], num_data=13, jitter=JITTER)
    expected = np.diag(S) + 13 / 6 * np.square(phi[:6]).sum(0) / s2
    np.testing.assert_allclose(part.posterior.diagonal, expected[k:] ** -0.5, rtol=1e-10)


def test_optimal_weights_stop_at_the_iteration_limit(rng):
    X, Y = rng.standard_normal((13, 2)), rng.standard_normal(13)
    model = model_of(rng, "fourier", 8, 1)
    for stop in (1, 3):
        _, info = fs.qsgp.optimal_weights(
            model, X, Y, callback=lambda there, info, stop=stop: info.iterations == stop
        )
        assert info.iterations == stop
    _, info = fs.qsgp.optimal_weights(model, X, Y, iterations=2)
    assert info.iterations == 2 and 0 < info.residual

    # from a mean that is not zero
    none, info = fs.qsgp.optimal_weights(model, X, np.zeros(13), tolerance=1e-9)
    assert np.abs(none.posterior.mean).max() < 1e-7 and info.residual < 1e-9
    none, info = fs.qsgp.optimal_weights(none, X, np.zeros(13), iterations=0)
    assert info.iterations == 0 and np.isfinite(info.residual)

    def interrupt(there, info):
        raise KeyboardInterrupt

    found, info = fs.qsgp.optimal_weights(model, X, Y, callback=interrupt)
    assert fs.qsgp.bound(found, X, Y) > fs.qsgp.bound(model, X, Y)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    found32, _ = fs.qsgp.optimal_weights(single, X.astype(np.float32), Y.astype(np.float32))
    best, _ = fs.qsgp.optimal_weights(model, X, Y)
    assert found32.posterior.mean.dtype == found32.posterior.diagonal.dtype == np.float32
    np.testing.assert_allclose(
        found32.posterior.mean, best.posterior.mean, atol=1e-3 * np.abs(best.posterior.mean).max()
    )
    for name, arguments in (("optimal_weights", (X, (Y > 0) * 1.0)), ("optimal_diagonal", (X,))):
        with pytest.raises(
            TypeError,
            match=(
                f"{name}: the optimum is known for a Gaussian likelihood, not for a BernoulliLogit"
            ),
        ):
            getattr(fs.qsgp, name)(
                fs.replace(model, likelihood=fs.likelihoods.BernoulliLogit()), *arguments
            )
    with pytest.raises(ValueError, match="`X` must have shape"):
        fs.qsgp.optimal_diagonal(model, X[:, 0])
