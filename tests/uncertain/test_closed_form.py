"""Predictions at uncertain inputs, against a dense rule over plain predictions."""

import numpy as np
import pytest
from oracles import uncertain
from support.uncertain_problems import (
    COVARIANCES,
    LONG,
    PERIODIC,
    SHORT,
    WAVE,
    D,
    M,
    N,
    assert_same,
    by_rule,
    diagonal,
    problem,
    whitened,
    with_inputs_by_rule,
)

import fastsvgp as fs
from fastsvgp import posteriors as qs

M2 = 4


@pytest.mark.parametrize("axes", [(), (3,)], ids=str)
@pytest.mark.parametrize("name", COVARIANCES)
def test_moments_are_those_of_a_dense_rule(rng, name, axes):
    model, mean, var = problem(rng, COVARIANCES[name], axes)
    Xs = fs.GaussianInputs(mean, var)
    # Kuu of linear functions is singular: weights of f are as large as 1 / jitter
    ours = fs.predict_f(model, Xs, jitter=1e-2)
    assert_same(ours, by_rule(model, mean, diagonal(var), 1e-2))
    assert_same([fs.predict_f(model, Xs, var=False, jitter=1e-2)], ours[:1], 1e-13)
    assert_same(fs.predict_f(model, Xs, chunk_size=1, jitter=1e-2), ours, 1e-12)
    y_mean, y_var = fs.predict_y(model, Xs, jitter=1e-2)
    assert_same((y_mean, y_var), (ours[0], ours[1] + 0.1), 1e-14)


@pytest.mark.parametrize("axes", [(), (D,)], ids=str)
def test_mean_functions_move_with_the_inputs(rng, axes):
    slopes = fs.means.LinearMean(rng.standard_normal((*axes, D)), 0.3)
    means = [slopes, fs.means.ConstantMean(0.4), fs.means.ZeroMean()]
    for mean_function in [*means, *([fs.means.IdentityMean()] if axes else [])]:
        for covariance in (LONG, LONG + fs.Linear(0.3) + PERIODIC):
            model, mean, var = problem(rng, covariance, axes, mean_function)
            ours = fs.predict_f(model, fs.GaussianInputs(mean, var))
            assert_same(ours, by_rule(model, mean, diagonal(var)))


@pytest.mark.parametrize("name", ["rbf", "two lengthscales", "product of bumps"])
def test_correlated_errors(rng, name):
    mean_function = fs.means.LinearMean(rng.standard_normal(D), 0.3)
    model, mean, _ = problem(rng, COVARIANCES[name], (2,), mean_function)
    roots = 0.4 * rng.standard_normal((N, D, D))
    S = (roots[:, :, None] * roots[:, None]).sum(-1)
    assert_same(fs.predict_f(model, fs.GaussianInputs(mean, S)), by_rule(model, mean, roots))
    singular = S.copy()
    singular[:, 1] = singular[:, :, 1] = 0.0
    var = np.diagonal(singular, axis1=1, axis2=2)
    ours = fs.predict_f(model, fs.GaussianInputs(mean, singular))
    assert_same(ours, fs.predict_f(model, fs.GaussianInputs(mean, var)), 1e-13)


def test_rows_are_independent(rng):
    for covariance in (LONG, LONG + fs.Linear(0.3)):
        model, mean, var = problem(rng, covariance, (2,), fs.means.LinearMean(np.ones(D)))
        Xs = fs.GaussianInputs(mean, var)
        centre, cov = fs.predict_f(model, Xs, full_cov=True)
        m, v = fs.predict_f(model, Xs)
        assert_same((centre, np.diagonal(cov, axis1=1, axis2=2).T), (m, v), 1e-13)
        nodes = fs.GaussianInputs(mean, var, nodes=24)
        assert_same((centre, cov), fs.predict_f(model, nodes, full_cov=True), 1e-9)
    S = var[:, None] * np.eye(D)
    model = fs.replace(model, covariance=LONG)
    full = fs.predict_f(model, fs.GaussianInputs(mean, S), full_cov=True)
    assert_same(full, fs.predict_f(model, Xs, full_cov=True), 1e-13)


POSTERIORS = {
    "marginal": lambda rng: fs.Marginal(rng.standard_normal(M), 0.2 * whitened(rng).scale_tril),
    "wide": lambda rng: fs.Whitened(rng.standard_normal(M), 3 * whitened(rng).scale_tril),
    "likelihood": lambda rng: qs.LikelihoodForm(rng.standard_normal(M), 0.1 + rng.random(M)),
    "inverse-free": lambda rng: qs.InverseFreeWhitened(
        rng.standard_normal(M), whitened(rng).scale_tril, np.eye(M) / 4
    ),
    "pair": lambda rng: qs.WhitenedOrthogonal(
        rng.standard_normal(M), whitened(rng).scale_tril, rng.standard_normal(M2), np.eye(M2) / 2
    ),
    "decoupled": lambda rng: qs.Decoupled(
        rng.standard_normal(M), 0.3 * whitened(rng).scale_tril, rng.standard_normal(M2)
    ),
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_every_posterior_that_has_a_predictor(rng, name):
    model, mean, var = problem(rng)
    q = POSTERIORS[name](rng)
    pair = qs.InducingPair(model.inducing, rng.uniform(-2, 2, (M2, D)))
    model = fs.replace(
        model, posterior=q, inducing=pair if hasattr(q, "mean_u") else model.inducing
    )
    ours = fs.predict_f(model, fs.GaussianInputs(mean, var), jitter=1e-4)
    fast = fs.predictor(model, jitter=1e-4)
    assert_same(ours, by_rule(fast, mean, diagonal(var)), 1e-10)
    assert_same(fs.predict_f(fast, fs.GaussianInputs(mean, var)), ours, 1e-14)


def test_collapsed_models_by_their_predictor(rng):
    model, mean, var = problem(rng)
    X = rng.uniform(-2, 2, (20, D))
    fast = fs.predictor(fs.SGPR(LONG, model.inducing, 0.1), X, np.sin(X[:, 0]))
    ours = fs.predict_f(fast, fs.GaussianInputs(mean, var))
    assert_same(ours, by_rule(fast, mean, diagonal(var)))


def test_moments_by_definition(rng):
    def k(A, B):
        return 1.3 * np.exp(-0.5 * (((A[:, None] - B) / [0.9, 1.6]) ** 2).sum(-1)) + 0.3 * A @ B.T

    model, mean, var = problem(rng, LONG + fs.Linear(0.3))
    m, L = rng.standard_normal(M), 0.3 * whitened(rng).scale_tril
    model = fs.replace(model, posterior=fs.Marginal(m, L))
    Z, Xs = model.inducing, fs.GaussianInputs(mean, var)
    Kuu = k(Z, Z) + 1e-3 * np.eye(M)
    f_mean, f_var = fs.predict_f(model, Xs, jitter=1e-3)
    shared = fs.bounds.input_covariance(model, Xs, jitter=1e-3)
    for n, root in enumerate(diagonal(var)):
        found = uncertain.moments(k, Kuu, Z, m, L @ L.T, mean[n], root)
        for ours, theirs in zip((f_mean[n], f_var[n], shared[n]), found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)


def test_covariances_with_the_inputs(rng):
    slopes = fs.means.LinearMean(rng.standard_normal((2, D)))
    for covariance in (LONG, LONG + fs.Linear(0.3) + PERIODIC):
        model, mean, var = problem(rng, covariance, (2,), slopes)
        ours = fs.bounds.input_covariance(model, fs.GaussianInputs(mean, var))
        assert_same([ours], [with_inputs_by_rule(model, mean, diagonal(var))])
        few = fs.bounds.input_covariance(model, fs.GaussianInputs(mean, 0.05 * var, nodes=24))
        assert_same([few], [with_inputs_by_rule(model, mean, diagonal(0.05 * var))], 1e-7)
    model, mean, _ = problem(rng, LONG + SHORT, (), fs.means.LinearMean(np.ones(D)))
    roots = 0.4 * rng.standard_normal((N, D, D))
    S = (roots[:, :, None] * roots[:, None]).sum(-1)
    ours = fs.bounds.input_covariance(model, fs.GaussianInputs(mean, S))
    assert_same([ours], [with_inputs_by_rule(model, mean, roots)])
    with pytest.raises(TypeError, match="`Xs` must be a fastsvgp.GaussianInputs, got a ndarray"):
        fs.bounds.input_covariance(model, mean)


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-2, 1.0, 4.0])
def test_a_narrow_posterior_keeps_its_digits(rng, size):
    """The variance is 1e-5 of the prior's, and weights are 1 / jitter: nothing cancels."""
    X = rng.uniform(-2, 2, (200, D))
    sgpr = fs.SGPR(fs.RBF(1.0, 1.5), rng.uniform(-2, 2, (40, D)), 1e-4)
    fast = fs.predictor(sgpr, X, np.sin(X.sum(1)))
    mean, var = rng.uniform(-1, 1, (N, D)), np.full((N, D), size)
    ours = fs.predict_f(fast, fs.GaussianInputs(mean, var))
    theirs = by_rule(fast, mean, diagonal(var))
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-7)
    full = fs.GaussianInputs(mean, size * np.tile(np.eye(D), (N, 1, 1)))
    np.testing.assert_allclose(fs.predict_f(fast, full)[1], ours[1], rtol=1e-7)


def test_far_inducing_inputs_do_not_overflow(rng):
    model, mean, _ = problem(rng, fs.RBF(1.3, 1.0))
    model = fs.replace(model, inducing=model.inducing * np.array([1.0, 30.0]))
    far, nodes = (
        fs.predict_f(model, fs.GaussianInputs(mean, np.full((N, D), 900.0), nodes=n))
        for n in (None, 100)
    )
    assert np.isfinite(far).all() and (far[1] > 0).all()
    np.testing.assert_allclose(far[1], nodes[1], rtol=0.2)


@pytest.mark.parametrize("name", COVARIANCES)
def test_exact_inputs_give_the_plain_prediction(rng, name):
    """Within rows that others make uncertain, too."""
    model, mean, var = problem(rng, COVARIANCES[name], (2,), fs.means.LinearMean(np.ones(D)))
    var[0] = 0.0
    plain = fs.predict_f(model, mean, jitter=1e-2)
    ours = fs.predict_f(model, fs.GaussianInputs(mean, var), jitter=1e-2)
    assert_same([one[:1] for one in ours], [one[:1] for one in plain])
    for zeros in (0 * var, np.zeros((N, D, D))):
        assert_same(fs.predict_f(model, fs.GaussianInputs(mean, zeros), jitter=1e-2), plain)


def test_exact_columns_may_have_any_covariance(rng):
    covariance = (
        fs.RBF(0.8, 0.7).on(0) * fs.Matern32(1.1, 0.9).on(1)
        + fs.covariances.RationalQuadratic(0.4).on(1)
        + fs.Linear(0.3) * fs.Periodic(fs.Matern12(0.5, 2.0), 1.3).on(1)
        + fs.Periodic(fs.RBF(0.4, 1.2), 2.0) * fs.RBF(1.0, 2.0).on(1)
    )
    model, mean, var = problem(rng, covariance, (2,))
    var[:, 1] = 0.0
    ours = fs.predict_f(model, fs.GaussianInputs(mean, var))
    assert_same(ours, by_rule(model, mean, diagonal(var)))
    codes = fs.RBF(0.8, 0.7).on(0) * fs.covariances.Categorical(0.8, 0.5).on(1)
    Z = np.column_stack([model.inducing[:, 0], rng.integers(0, 3, M)])
    model = fs.replace(model, covariance=codes, inducing=Z)
    mean[:, 1] = [0, 2, 1]
    ours = fs.predict_f(model, fs.GaussianInputs(mean, var))
    assert_same(ours, by_rule(model, mean, diagonal(var)))


@pytest.mark.parametrize("covariance", [fs.Matern52(0.8, 1.4), LONG], ids=["matern", "rbf"])
def test_nodes(rng, covariance):
    model, mean, var = problem(rng, covariance, (2,), fs.means.LinearMean(np.ones(D)))
    var *= 0.05
    ours = fs.predict_f(model, fs.GaussianInputs(mean, var, nodes=9))
    assert_same(ours, by_rule(model, mean, diagonal(var)), 1e-4 if covariance is not LONG else 1e-7)
    one = fs.predict_f(model, fs.GaussianInputs(mean, np.tile([[0.0, 0.1]], (N, 1)), nodes=1))
    assert_same(one, fs.predict_f(model, mean))


PULLED = {
    "rbf": LONG,
    "two lengthscales": LONG + SHORT,
    "single columns": COVARIANCES["single columns"],
    "product of bumps": COVARIANCES["product of bumps"],
}


@pytest.mark.parametrize("axes", [(), (3,)], ids=str)
@pytest.mark.parametrize("name", PULLED)
def test_the_pullback_by_differences(rng, name, axes):
    mean_function = fs.means.LinearMean(rng.standard_normal((*axes, D)))
    if name == "two lengthscales":
        mean_function = fs.means.ConstantMean(0.3)
    model, mean, var = problem(rng, PULLED[name], axes, mean_function)
    m, v, vjp = fs.predict_f_and_vjp(model, fs.GaussianInputs(mean, var))
    assert_same((m, v), fs.predict_f(model, fs.GaussianInputs(mean, var)), 1e-14)
    bars = rng.standard_normal((2, *m.shape))

    def value(mean, var):
        found = fs.predict_f(model, fs.GaussianInputs(mean, var))
        return sum((bar * one).sum() for bar, one in zip(bars, found, strict=True))

    ours, h = vjp(*bars), 1e-3
    for place in np.ndindex(N, D):
        step = np.zeros((N, D))
        step[place] = h
        for got, line in (
            (ours.mean, lambda t, step=step: value(mean + t * step, var)),
            (ours.var, lambda t, step=step: value(mean, var + t * step)),
        ):
            near, far = line(1) - line(-1), line(2) - line(-2)
            assert got[place] == pytest.approx((8 * near - far) / (12 * h), rel=1e-7, abs=1e-8)
    assert_same((vjp(*bars).mean, vjp(*bars).var), (ours.mean, ours.var), 1e-13)  # recomputed
    alone = fs.predict_f_and_vjp(model, fs.GaussianInputs(mean, 0 * var + 1e-300))[2](*bars)
    plain = fs.predict_f_and_vjp(model, mean)[2](*bars)
    assert_same([alone.mean], [plain])


def test_pullbacks_that_are_not_served(rng):
    model, mean, var = problem(rng)
    Xs, S = fs.GaussianInputs(mean, var), var[:, None] * np.eye(D)
    refused = [
        (fs.replace(model, covariance=LONG + fs.Linear()), Xs, "a covariance other than sums"),
        (model, fs.GaussianInputs(mean, S), "a matrix `var`"),
        (model, fs.GaussianInputs(mean, var, nodes=3), "with `nodes`"),
    ]
    for model, Xs, said in refused:
        with pytest.raises(TypeError, match=f"no pullback to uncertain inputs.* {said}"):
            fs.predict_f_and_vjp(model, Xs)


def test_float32_models_are_computed_in_float64(rng):
    model, mean, var = problem(rng, axes=(2,))
    low = fs.records.tree_map(np.float32, model)
    mean, var = mean.astype(np.float32), var.astype(np.float32)
    ours = fs.predict_f(low, fs.GaussianInputs(mean, var), jitter=1e-4)
    assert {one.dtype for one in ours} == {np.dtype(np.float32)}
    exact = fs.records.tree_map(np.float64, low)
    wide = fs.GaussianInputs(mean.astype(float), var.astype(float))
    assert_same(ours, fs.predict_f(exact, wide, jitter=1e-4), 2e-7)


def test_other_predictions_are_those_of_the_two_moments(rng):
    model, mean, var = problem(rng)
    Xs, Y = fs.GaussianInputs(mean, var), rng.standard_normal(N)
    m, v = fs.predict_y(model, Xs)
    low, high = fs.predict_quantiles(model, Xs, (0.5, 0.8413447460685429))
    assert_same((low, high), (m, m + np.sqrt(v)), 1e-9)
    density = fs.predict_log_density(model, Xs, Y)
    assert_same([density], [-0.5 * (np.log(2 * np.pi * v) + (Y - m) ** 2 / v)])
    assert fs.predict_cdf(model, Xs, m) == pytest.approx(np.full(N, 0.5))
    counts = fs.replace(model, likelihood=fs.Poisson())
    f_mean, f_var = fs.predict_f(model, Xs)
    assert_same(fs.predict_y(counts, Xs)[:1], [np.exp(f_mean + f_var / 2)])


def test_the_record(rng, tmp_path):
    _, mean, var = problem(rng)
    Xs = fs.GaussianInputs(mean, var, nodes=3)
    assert len(Xs) == N and len(Xs[1:]) == N - 1 and Xs[1:].nodes == 3
    np.testing.assert_array_equal(Xs[[2, 0]].var, var[[2, 0]])
    fs.save(tmp_path / "x.npz", Xs)
    loaded = fs.load(tmp_path / "x.npz")
    assert loaded.nodes == 3 and (loaded.mean == mean).all()


def test_lists_of_whole_numbers(rng):
    model, _, _ = problem(rng)
    whole = fs.GaussianInputs([[0, 1], [1, -1]], [[1, 0], [0, 2]])
    real = fs.GaussianInputs(np.array([[0.0, 1], [1, -1]]), np.array([[1.0, 0], [0, 2]]))
    assert_same(fs.predict_f(model, whole), fs.predict_f(model, real), 0)


WRONG = {
    "shape": (lambda m, v: (m, v[:, 0]), "`Xs.var` must have shape .3, 2., as `Xs.mean`"),
    "one input": (lambda m, v: (m[:, 0], v), r"use Xs.mean\[:, None\]"),
    "negative": (
        lambda m, v: (m, np.where(np.arange(D), -0.3, v)),
        "holds variances, got -0.3 at row 0, column 1; give 0 for exact inputs",
    ),
    "nan": (lambda m, v: (m * np.nan, v), "`Xs.mean` contains nan"),
    "infinite": (lambda m, v: (m, v + np.inf), "`Xs.var` contains inf"),
    "columns": (lambda m, v: (m[:, :1], v[:, :1]), "`Xs` has 1 columns"),
    "not symmetric": (
        lambda m, v: (m, np.tile([[1.0, 0.5], [0.0, 1.0]], (N, 1, 1))),
        "must hold covariance matrices.* row 0 is not",
    ),
    "not positive": (
        lambda m, v: (m, np.tile([[1.0, 2.0], [2.0, 1.0]], (N, 1, 1))),
        "must hold covariance matrices",
    ),
    "text": (lambda m, v: (m, [["a"] * D] * N), "`Xs.var` must hold real numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_inputs_are_named(rng, name):
    model, mean, var = problem(rng)
    change, said = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=said):
        fs.predict_f(model, fs.GaussianInputs(*change(mean, var)))


REFUSED = {
    "matern": (fs.Matern32(), "Matern32 has no closed-form expectation under normal inputs"),
    "part": (LONG + fs.Matern12().on(1), "Matern12 has no closed-form"),
    "periodic": (fs.Periodic(fs.Matern52(), 2.0), "Periodic has no closed-form"),
    "shared": (WAVE.on(0) * fs.RBF(0.7, 1.2), "two factors share column 0, which is uncertain"),
    "lines": (fs.Linear() * fs.Linear(), "two factors share column 0"),
    "waves": (fs.Periodic(fs.RBF(1.0, 1e-3), 2.0), "needs more than 1024 waves"),
    "features": (
        fs.covariances.OnFeatures(fs.RBF(), fs.covariances.Network.random((D, 3, 1), rng=0)),
        "OnFeatures has no closed-form",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_covariances_without_a_closed_form_are_named(rng, name):
    covariance, said = REFUSED[name]
    model, mean, var = problem(rng)
    Z = rng.standard_normal((M, 1)) if name == "features" else model.inducing
    model = fs.replace(model, covariance=covariance, inducing=Z)
    with pytest.raises((ValueError, TypeError), match=said):
        fs.predict_f(model, fs.GaussianInputs(mean, var))
    if name not in ("lines", "shared"):
        assert np.isfinite(fs.predict_f(model, fs.GaussianInputs(mean, var, nodes=3))).all()


def test_what_is_not_served_is_said(rng):
    model, mean, var = problem(rng)
    Xs, S = fs.GaussianInputs(mean, var), var[:, None] * np.eye(D)
    with pytest.raises(TypeError, match="sample_f: f at uncertain inputs is not normal"):
        fs.sample_f(model, Xs)
    with pytest.raises(TypeError, match="sample_f: f at uncertain inputs is not normal"):
        fs.sample_f(model, fs.GaussianInputs(mean, var, nodes=2))
    with pytest.raises(TypeError, match="`X` must hold real numbers, got a GaussianInputs"):
        fs.elbo(model, Xs, np.zeros(N))
    with pytest.raises(ValueError, match="`nodes` are for independent errors"):
        fs.predict_f(model, fs.GaussianInputs(mean, S, nodes=3))
    with pytest.raises(ValueError, match="`nodes` must be at most 100, got 101"):
        fs.predict_f(model, fs.GaussianInputs(mean, var, nodes=101))
    linear = fs.replace(model, covariance=LONG + fs.Linear())
    with pytest.raises(TypeError, match="Linear has expectations under independent errors only"):
        fs.predict_f(linear, fs.GaussianInputs(mean, S))
    deep = fs.DeepGP((fs.Layer(LONG, model.inducing, model.posterior),), fs.Gaussian(0.1))
    with pytest.raises(TypeError, match="`Xs` is GaussianInputs, which an SVGP or MultiGP takes"):
        fs.predict_f(deep, Xs)
    wide = fs.replace(model, covariance=fs.Matern32(), inducing=rng.standard_normal((M, 3)))
    with pytest.raises(ValueError, match="serve at most 2 uncertain columns, got 3"):
        fs.predict_f(wide, fs.GaussianInputs(np.zeros((N, 3)), np.ones((N, 3)), nodes=2))
    codes = fs.RBF(0.8, 0.7).on(0) * fs.covariances.Categorical(0.8, 0.5).on(1)
    Z = np.column_stack([model.inducing[:, 0], rng.integers(0, 3, M)])
    coded = fs.replace(model, covariance=codes, inducing=Z)
    with pytest.raises(ValueError, match="`Xs.var` must be 0 in column 1, which holds codes"):
        fs.predict_f(coded, fs.GaussianInputs(np.round(np.abs(mean)), var))

    bent = fs.replace(model, mean=fs.records.record(Curve)())
    with pytest.raises(TypeError, match="a Curve mean has no closed-form expectation"):
        fs.predict_f(bent, Xs)


class Curve(fs.means.Mean):
    def __call__(self, X):
        return np.sin(X[:, 0])
