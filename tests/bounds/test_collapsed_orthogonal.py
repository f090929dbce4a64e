"""Collapsed bounds of SOLVE-GP by definition, their gradients, and the optimal SVGP."""

import numpy as np
import pytest
from support import definitions
from support.budgets import assert_within_budget, by_name
from support.derivatives import assert_gradient, assert_restricted
from support.gp_problems import lower_factor

import fastsvgp as fs

JITTER = 1e-3
SHAPES = [
    (1, 1, 1, None),
    (3, 2, 20, None),
    (6, 3, 4, None),
    (2, 5, 30, 1),
    (4, 3, 25, 3),
    (40, 30, 100, 2),
]
GIVEN = ["none", "mean", "both"]
each_given = pytest.mark.parametrize("given", GIVEN)


def problem(rng, given, M, M2, N, P=None, mean=None, dtype=np.float64):
    X, batch = rng.standard_normal((N, 2)), () if P is None else (P,)
    Y = np.sin(X.sum(axis=1)) + 0.2 * rng.standard_normal(N)
    Y = Y if P is None else np.stack([Y + p * X[:, 0] for p in range(P)], axis=1)
    m, W = 0.3 * rng.standard_normal((*batch, M2)), 0.3 * lower_factor(rng, *batch, M2, off=0.2)
    pair = fs.posteriors.InducingPair(rng.standard_normal((M, 2)), rng.standard_normal((M2, 2)))
    q_of_v = {"none": {}, "mean": {"mean_v": m}, "both": {"mean_v": m, "scale_tril_v": W}}[given]
    sgpr = fs.bounds.OrthogonalSGPR(
        fs.Matern52(1.2, np.array([0.9, 1.4])), pair, 0.3, **q_of_v, mean=mean
    )
    return (
        fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], sgpr),
        X.astype(dtype),
        Y.astype(dtype),
    )


def without_nan(sgpr):
    return (
        sgpr
        if sgpr.scale_tril_v is None
        else fs.replace(sgpr, scale_tril_v=np.tril(sgpr.scale_tril_v))
    )


@each_given
@pytest.mark.parametrize("M, M2, N, P", SHAPES)
@pytest.mark.parametrize("with_mean", [False, True])
def test_value_gradient_and_optimum(rng, given, M, M2, N, P, with_mean):
    """The gradient is that of the ELBO at the optimal q(u), and q at the optimum is stationary."""
    mean = fs.means.LinearMean(np.ones(2), 0.3) if with_mean else None
    sgpr, X, Y = problem(rng, given, M, M2, N, P, mean)
    value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, jitter=JITTER)
    np.testing.assert_allclose(
        value, definitions.collapsed_orthogonal(sgpr, X, Y, JITTER), rtol=1e-10
    )
    np.testing.assert_allclose(value, fs.collapsed_bound(sgpr, X, Y, jitter=JITTER), rtol=1e-13)
    assert_gradient(
        lambda m: definitions.collapsed_orthogonal(m, X, Y, JITTER),
        without_nan(sgpr),
        grad,
        rng,
        1e-8,
    )
    best = fs.optimal_svgp(sgpr, X, Y, jitter=JITTER)
    assert (
        type(best.posterior) is fs.posteriors.WhitenedOrthogonal
        and type(best.inducing) is fs.posteriors.InducingPair
    )
    at_best, best_grad = fs.elbo_and_grad(best, X, Y, jitter=JITTER)
    np.testing.assert_allclose(at_best, value, rtol=1e-10)
    np.testing.assert_allclose(
        best_grad.likelihood.variance, grad.noise_variance, rtol=1e-7, atol=1e-7
    )
    for name, _, bar in fs.records.leaves(best_grad.posterior):
        if name.endswith("u") or given == "none":
            assert np.abs(bar).max() <= 1e-8 * max(1.0, N), name


def test_bounds_are_in_their_order(rng):
    """Titsias(Z) <= (30) <= Titsias(Z and O) <= exact; (14) is between; (10) is (9) at S_v = I."""
    for _ in range(5):
        sgpr, X, Y = problem(rng, "none", 5, 4, 40)
        pair, noise = sgpr.inducing, sgpr.noise_variance
        on_Z, on_both = (
            fs.SGPR(sgpr.covariance, Z, noise) for Z in (pair.Z, np.vstack([pair.Z, pair.O]))
        )
        exact = definitions.collapsed(fs.replace(on_Z, inducing=X), X, Y, 1e-12)
        titsias, both = (fs.collapsed_bound(m, X, Y, jitter=1e-9) for m in (on_Z, on_both))
        best, tighter = (
            fs.collapsed_bound(sgpr, X, Y, jitter=1e-9),
            fs.bounds.tighter_bound(on_Z, X, Y, jitter=1e-9),
        )
        slack = 1e-8 * abs(exact)
        assert titsias <= best + slack <= both + 2 * slack <= exact + 3 * slack
        assert titsias <= tighter + slack <= exact + 2 * slack
        given = fs.replace(sgpr, mean_v=0.2 * rng.standard_normal(4))
        L = np.linalg.cholesky(sgpr.covariance.Kuu(pair) + JITTER * np.eye(9))[5:, 5:]
        with_prior = fs.replace(given, scale_tril_v=L)
        np.testing.assert_allclose(
            *(fs.collapsed_bound(m, X, Y, jitter=JITTER) for m in (given, with_prior)), rtol=1e-9
        )
        at_prior = fs.replace(with_prior, mean_v=np.zeros(4))
        for m in (at_prior, fs.replace(at_prior, scale_tril_v=None)):
            np.testing.assert_allclose(
                fs.collapsed_bound(m, X, Y, jitter=JITTER),
                fs.collapsed_bound(on_Z, X, Y, jitter=JITTER),
                rtol=1e-9,
            )
        assert fs.collapsed_bound(given, X, Y, jitter=JITTER) <= fs.collapsed_bound(
            sgpr, X, Y, jitter=JITTER
        )


@pytest.mark.parametrize("P", [None, 2])
def test_a_unit_natural_step_attains_them(rng, P):
    """``WhitenedOrthogonal`` attains equation 30, ``Decoupled`` the maximum of equation 10."""
    sgpr, X, Y = problem(rng, "none", 5, 3, 30, P)
    pair, outputs = sgpr.inducing, P
    for kind in (
        fs.posteriors.WhitenedOrthogonal,
        fs.posteriors.Orthogonal,
        fs.posteriors.Decoupled,
    ):
        q = fs.posteriors.at_prior(kind, sgpr.covariance, pair, outputs=outputs, jitter=JITTER)
        model = fs.SVGP(sgpr.covariance, pair, q, fs.Gaussian(sgpr.noise_variance))
        stepped, _ = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
        value = fs.elbo(stepped, X, Y, jitter=JITTER)
        if kind is fs.posteriors.Decoupled:
            best, grad = fs.collapsed_bound_and_grad(
                fs.replace(sgpr, mean_v=stepped.posterior.mean_v), X, Y, jitter=JITTER
            )
            np.testing.assert_allclose(grad.mean_v, 0, atol=1e-8)
        else:
            best = fs.collapsed_bound(sgpr, X, Y, jitter=JITTER)
        np.testing.assert_allclose(value, best, rtol=1e-9)


@each_given
def test_wrt_leaves_out_the_rest(rng, given):
    sgpr, X, Y = problem(rng, given, 4, 3, 20, mean=fs.means.ConstantMean(0.2))
    _, whole = fs.collapsed_bound_and_grad(sgpr, X, Y)
    own = {"none": (), "mean": ("mean_v",), "both": ("mean_v", "scale_tril_v")}[given]
    assert {name for name in ("mean_v", "scale_tril_v") if getattr(whole, name) is not None} == set(
        own
    )
    for wrt in [
        ("noise_variance",),
        ("inducing.O", "covariance.variance"),
        ("mean",),
        *((name,) for name in own),
    ]:
        _, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, wrt=wrt)
        assert_restricted(grad, whole, wrt)


@each_given
def test_float32_is_as_accurate_as_numpy(rng, given):
    def draw():
        sgpr, X, Y = problem(rng, given, 20, 13, 60)
        sgpr = without_nan(fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], sgpr))
        X, Y = X.astype(np.float32), Y.astype(np.float32)
        wide = (
            fs.records.tree_map(lambda a: np.asarray(a, float)[()], sgpr),
            X.astype(float),
            Y.astype(float),
        )
        value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, jitter=JITTER)
        assert {bar.dtype for _, _, bar in fs.records.leaves(grad) if bar is not None} == {
            np.dtype(np.float32)
        }
        truth = definitions.collapsed_orthogonal(*wide, JITTER)
        return by_name(
            ("value",),
            (value,),
            (definitions.collapsed_orthogonal(sgpr, X, Y, np.float32(JITTER)),),
            (truth,),
        )

    assert_within_budget(draw, problems=9)


@each_given
def test_training_and_files(rng, given, tmp_path):
    sgpr, X, Y = problem(rng, given, 4, 3, 40)
    sgpr = without_nan(sgpr)
    trained, info = fs.fit(sgpr, X, Y, steps=8)
    assert info.values[-1] > fs.collapsed_bound(sgpr, X, Y)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(trained), fs.records.leaves(sgpr), strict=True
    ):
        assert a is None or (np.asarray(a) != np.asarray(b)).any(), path
    fs.save(tmp_path / "m.npz", trained)
    assert fs.collapsed_bound(fs.load(tmp_path / "m.npz"), X, Y) == fs.collapsed_bound(
        trained, X, Y
    )
    with pytest.raises(
        ValueError,
        match=(
            "fit: an OrthogonalSGPR is trained on all data by L-BFGS-B; `batch_size` would have no"
        ),
    ):
        fs.fit(sgpr, X, Y, batch_size=5)


def test_bad_input(rng):
    sgpr, X, Y = problem(rng, "both", 4, 3, 20)
    pair = sgpr.inducing
    for bad, error, message in (
        (
            fs.replace(sgpr, mean_v=None),
            TypeError,
            "`scale_tril_v` is given and `mean_v` is not: give both",
        ),
        (
            fs.replace(sgpr, mean_v=np.zeros(4)),
            ValueError,
            r"`mean_v` has shape \(4,\), but `inducing.O` has 3 .*use \(3,\)",
        ),
        (
            fs.replace(sgpr, scale_tril_v=np.eye(4)),
            ValueError,
            r"`scale_tril_v` has shape \(4, 4\), .* use \(3, 3\)",
        ),
        (
            fs.replace(sgpr, scale_tril_v=-np.eye(3)),
            ValueError,
            "`diagonal of scale_tril_v` must be positive",
        ),
        (
            fs.replace(sgpr, inducing=pair.Z),
            TypeError,
            "`inducing` is an array, one set .* and OrthogonalSGPR takes 2",
        ),
        (fs.replace(sgpr, noise_variance=-1.0), ValueError, "`noise_variance` must be positive"),
        (
            fs.SGPR(sgpr.covariance, pair, 0.1),
            TypeError,
            "`inducing` is a record InducingPair of 2 sets .* and SGPR takes one",
        ),
    ):
        for call in (fs.collapsed_bound, fs.collapsed_bound_and_grad, fs.optimal_svgp):
            with pytest.raises(error, match=message):
                call(bad, X, Y)
    with pytest.raises(ValueError, match=r"`mean_v` has shape \(3,\).* use \(2, 3\)"):
        fs.collapsed_bound(sgpr, X, np.stack([Y, Y], axis=1))
    with pytest.raises(
        TypeError, match=r"elbo: `model` must be .*SVGP.*, got OrthogonalSGPR: .*optimal_svgp"
    ):
        fs.elbo(sgpr, X, Y)
    twice = fs.replace(sgpr, inducing=fs.posteriors.InducingPair(pair.Z, pair.Z[:3]))
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"`inducing.O\[0\]` and `inducing.Z\[0\]` are the same inputs"
    ):
        fs.collapsed_bound(twice, X, Y, jitter=0.0)
