"""VGP: bound and gradient by definition, the exact evidence, steps, bad input."""

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_gradient, assert_restricted

import fastsvgp as fs
from fastsvgp.runtime.blas_scope import _sizes
from fastsvgp.sites import vgp

SIGNS = ["positive", "some zero", "some negative", "all negative"]


def problem(rng, N=20, P=None, signs="positive", likelihood=None, mean=None):
    batch = () if P is None else (P,)
    X, Y = rng.uniform(-2, 2, (N, 2)), rng.standard_normal((N, *batch))
    lambda2 = rng.uniform(0.1, 2.0, (*batch, N))
    if signs == "some zero":
        lambda2[..., ::3] = 0
    elif signs == "some negative":
        lambda2[..., 1::3] *= -0.4 / N
    elif signs == "all negative":
        lambda2 *= -0.15 / N  # no covariance has an eigenvalue above 2.7 N
    covariance = fs.Matern12(1.1, np.array([0.9, 1.3])) + fs.Linear(0.2)
    sites = fs.sites.Sites(rng.standard_normal((*batch, N)), lambda2)
    return fs.sites.VGP(covariance, sites, likelihood or fs.StudentT(0.4, df=4.0), mean), X, Y


def on_all_inputs(model, X):
    """The SVGP of the same q, u being f at X, by plain formulas. Analytic."""
    N = len(X)
    lambda2 = np.zeros((*model.sites.lambda2.shape, N), model.sites.lambda2.dtype)
    lambda2[..., np.arange(N), np.arange(N)] = model.sites.lambda2
    q = fs.posteriors.AbsorbedDualSites(model.sites.lambda1, lambda2)
    return fs.SVGP(model.covariance, X, q, model.likelihood, model.mean)


@pytest.mark.parametrize("signs", SIGNS)
@pytest.mark.parametrize("N, P", [(1, None), (20, None), (12, 3), (7, 1)])
def test_the_bound_and_its_gradient_by_definition(rng, N, P, signs):
    model, X, Y = problem(
        rng, N, P, signs, mean=None if P else fs.means.LinearMean(np.ones(2), 0.3)
    )
    value, grad = fs.sites.bound_and_grad(model, X, Y)
    assert fs.sites.bound(model, X, Y) == pytest.approx(value, rel=1e-12, abs=1e-12)

    def definition(m):
        return definitions.elbo(on_all_inputs(m, X), X, Y, 1.0, 0.0)

    assert value == pytest.approx(float(definition(model).real), rel=1e-9, abs=1e-9)
    assert_gradient(definition, model, grad, rng, 1e-7)
    np.testing.assert_allclose(
        sum(fs.sites.bound_terms(model, X, Y)), value, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize(
    "to",
    [fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites, fs.Whitened, fs.Marginal],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize("P", [None, 2])
def test_tied_has_the_same_q(rng, to, P):
    model, X, Y = problem(rng, P=P, signs="some negative")
    svgp = fs.sites.tie_sites(model, X, to=to, jitter=1e-9)
    assert type(svgp.posterior) is to
    assert fs.elbo(svgp, X, Y, jitter=1e-9) == pytest.approx(fs.sites.bound(model, X, Y), rel=1e-6)


def log_marginal(model, X, Y, noise):
    K = model.covariance.Kff(X) + noise * np.eye(len(X))
    residual = Y - (0 if model.mean is None else model.mean(X))
    return -0.5 * (residual @ np.linalg.solve(K, residual) + np.linalg.slogdet(2 * np.pi * K)[1])


def test_with_gaussian_noise_log_Z_is_the_exact_evidence(rng):
    """After one unit step from any start, also for repeated inputs; c is zero."""
    model, X, Y = problem(
        rng, likelihood=fs.Gaussian(0.3), mean=fs.means.ConstantMean(0.4), signs="some negative"
    )
    X[3] = X[11]
    best, info = fs.natural_step(model, X, Y, step_size=1.0)
    assert info.value == pytest.approx(fs.sites.bound(model, X, Y), rel=1e-12)
    np.testing.assert_allclose(best.sites.lambda1, (Y - 0.4) / 0.3, rtol=1e-9, atol=1e-9)
    for variance in (1.1, 0.3, 4.0):
        moved = fs.records.replace_at(best, "covariance.parts.0.variance", variance)
        truth = log_marginal(moved, X, Y, 0.3)
        log_Z, c = fs.sites.bound_terms(moved, X, Y)
        assert fs.sites.bound(moved, X, Y) == pytest.approx(truth, rel=1e-10)
        assert log_Z == pytest.approx(truth, rel=1e-10) and abs(c) < 1e-9
        _, grad = fs.sites.bound_and_grad(moved, X, Y)

        def exact(step, path, at, m=moved):
            return log_marginal(fs.records.replace_at(m, path, at + step), X, Y, 0.3)

        for path in ("covariance.parts.0.variance", "covariance.parts.1.variance", "mean.value"):
            at, bar = (
                dict((p, v) for p, _, v in fs.records.leaves(tree))[path] for tree in (moved, grad)
            )
            difference = (exact(1e-5, path, at) - exact(-1e-5, path, at)) / 2e-5
            np.testing.assert_allclose(bar, difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "likelihood",
    [fs.likelihoods.BernoulliLogit(), fs.StudentT(0.3, df=3.0)],
    ids=lambda v: type(v).__name__,
)
def test_the_bound_stays_below_the_evidence(rng, likelihood):
    """Evidence of three data, by a sum over a grid."""
    model, X, Y = problem(rng, N=3, likelihood=likelihood)
    Y = (Y > 0) * 1.0 if isinstance(likelihood, fs.likelihoods.BernoulliLogit) else Y
    model, _ = fs.sites.natural_steps(
        model, X, Y, steps=100, step_size=0.7, monotone=True, tolerance=1e-8
    )
    nodes = np.linspace(-9, 9, 90)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    K = model.covariance.Kff(X)
    logs = -0.5 * (
        np.sum(grid * np.linalg.solve(K, grid.T).T, axis=1) + np.linalg.slogdet(2 * np.pi * K)[1]
    )
    for i, y in enumerate(Y):
        f = fs.records.Marginals(grid[:, i], np.zeros(len(grid)))
        logs += model.likelihood.predict_log_density(np.full(len(grid), y), f)
    evidence = np.log(np.exp(logs - logs.max()).sum() * (nodes[1] - nodes[0]) ** 3) + logs.max()
    bound = fs.sites.bound(model, X, Y)
    assert bound < evidence and (bound > evidence - 0.3 or isinstance(likelihood, fs.StudentT))


@pytest.mark.parametrize("P", [None, 2])
def test_steps_of_some_rows_and_of_all(rng, P):
    model, X, Y = problem(
        rng, P=P, signs="some negative", mean=None if P else fs.means.ConstantMean(0.4)
    )
    other = fs.sites.tie_sites(model, X)
    stepped, info = fs.natural_step(model, X, Y, step_size=0.3)
    theirs, their_info = fs.natural_step(other, X, Y, step_size=0.3, jitter=1e-10)
    assert info.value == pytest.approx(their_info.value, rel=1e-7) and info[1:] == their_info[1:]
    diagonal = theirs.posterior.lambda2.diagonal(0, -2, -1)
    np.testing.assert_allclose(stepped.sites.lambda2, diagonal, rtol=1e-5, atol=1e-6)
    rows = np.array([3, 1, 7])
    some, _ = fs.natural_step(model, X, Y, rows=rows, step_size=0.3)
    others = np.setdiff1d(np.arange(20), rows)
    np.testing.assert_array_equal(some.sites.lambda2[..., others], model.sites.lambda2[..., others])
    np.testing.assert_allclose(
        some.sites.lambda2[..., rows], stepped.sites.lambda2[..., rows], rtol=1e-12
    )
    np.testing.assert_allclose(
        some.sites.lambda1[..., rows], stepped.sites.lambda1[..., rows], rtol=1e-12
    )


def test_steps_out_of_the_cone_are_halved_and_em_climbs(rng):
    model, X, Y = problem(rng, likelihood=fs.StudentT(0.02, df=2.0))
    zeros = fs.replace(model, sites=fs.sites.Sites(np.zeros(20), np.zeros(20)))
    stepped, info = fs.natural_step(zeros, X, 3 * Y, step_size=1.0, monotone=True)
    assert info.negative > 0 and fs.sites.bound(stepped, X, 3 * Y) >= info.value
    found, info = fs.em(zeros, X, 3 * Y, rounds=3, m_iterations=5)
    climbed = np.ravel(np.column_stack([info.e_values, info.values]))
    assert np.diff(climbed).min() >= -1e-9 * np.abs(climbed).max()
    assert fs.sites.bound(found, X, 3 * Y) == pytest.approx(climbed[-1], rel=1e-12)
    with pytest.raises(ValueError, match="`sites.lambda2` holds no valid sites: with them"):
        fs.sites.bound(
            fs.replace(model, sites=fs.sites.Sites(np.zeros(20), np.full(20, -1e3))), X, Y
        )


def test_wrt_files_and_float32(rng, tmp_path):
    model, X, Y = problem(rng, signs="some negative")
    _, whole = fs.sites.bound_and_grad(model, X, Y)
    for wrt in (
        ("covariance",),
        ("likelihood.scale",),
        ("sites.lambda2",),
        ("sites", "covariance.parts.1"),
        (),
    ):
        _, grad = fs.sites.bound_and_grad(model, X, Y, wrt=wrt)
        assert_restricted(grad, whole, wrt, rtol=1e-9, atol=1e-11)
    fs.save(tmp_path / "m.npz", model)
    assert fs.sites.bound(fs.load(tmp_path / "m.npz"), X, Y) == fs.sites.bound(model, X, Y)
    narrow = in_float32(model)
    value, grad = fs.sites.bound_and_grad(narrow, X.astype(np.float32), Y.astype(np.float32))
    assert {bar.dtype for _, _, bar in fs.records.leaves(grad)} == {np.dtype(np.float32)}
    assert value == pytest.approx(fs.sites.bound(model, X, Y), rel=1e-4)
    for (_, _, theirs), (_, _, bar) in zip(
        fs.records.leaves(grad), fs.records.leaves(whole), strict=True
    ):
        np.testing.assert_allclose(theirs, bar, rtol=3e-3, atol=3e-3 * np.abs(bar).max())


def in_float32(model):
    return fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)


def test_the_gradient_with_cotangents_large_relative_to_w(rng):
    """w w' is lost beside T a' w' and must not spoil it: exploding Poisson rates, large counts."""
    far = fs.sites.VGP(
        fs.RBF(500.0, 1.0), fs.sites.Sites(np.array([0.5]), np.array([1e-3])), fs.Poisson()
    )
    X, Y = np.zeros((1, 1)), np.array([3.0])
    _, grad = fs.sites.bound_and_grad(far, X, Y)
    variance = 500 / (1 + 500 * 1e-3)  # of q, whose mean is variance / 2
    # all else is 1e-140 of it
    slope = -np.exp(variance / 2 + variance / 2) * (0.5 + 0.5) / (1 + 500 * 1e-3) ** 2
    np.testing.assert_allclose(grad.covariance.variance, slope, rtol=1e-12)
    assert_gradient(
        lambda m: definitions.elbo(on_all_inputs(m, X), X, Y, 1.0, 0.0), far, grad, rng, 1e-12
    )
    X, Y, sites = (
        rng.uniform(-2, 2, (30, 1)).astype(np.float32),
        np.full(30, 1e5),
        fs.sites.Sites(np.full(30, 0.5), np.full(30, 0.01)),
    )
    model = in_float32(fs.sites.VGP(fs.Matern12(1.0, 1.0), sites, fs.Poisson()))
    _, narrow = fs.sites.bound_and_grad(model, X, Y.astype(np.float32), wrt="covariance")
    _, truth = fs.sites.bound_and_grad(
        fs.records.tree_map(float_of, model), X.astype(float), Y, wrt="covariance"
    )
    for (_, _, bar), (_, _, true) in zip(
        fs.records.leaves(narrow.covariance), fs.records.leaves(truth.covariance), strict=True
    ):
        np.testing.assert_allclose(bar, true, rtol=2e-5)


def float_of(a):
    return np.asarray(a, float)[()]


@pytest.mark.parametrize("noise", [1e-2, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize(
    "covariance", [fs.RBF(1.0, 1.0), fs.Matern32(1.0, 0.5)], ids=lambda c: type(c).__name__
)
def test_strong_sites_in_float32_are_right(rng, covariance, noise):
    """The exact log marginal and its gradient; log |B| in float32 has errors of some nats.

    Sites round their targets y: as d/dy log N(y | 0, K + noise I) = -alpha, the bound moves by
    about eps |alpha y|, and again where a natural step rounds them.
    """
    X = rng.uniform(-2, 2, (100, 1)).astype(np.float32)
    Y = (np.sin(3 * X[:, 0]) + np.sqrt(noise) * rng.standard_normal(100)).astype(np.float32)
    noise = np.float32(noise)
    model = in_float32(
        fs.sites.VGP(
            covariance, fs.sites.Sites(Y / noise, np.full(100, 1 / noise)), fs.Gaussian(noise)
        )
    )
    wide = fs.records.tree_map(float_of, model)
    truth = log_marginal(wide, X.astype(float), Y.astype(float), float(noise))
    K = wide.covariance.Kff(X.astype(float)) + float(noise) * np.eye(100)
    rounded = np.finfo(np.float32).eps * np.linalg.norm(Y * np.linalg.solve(K, Y.astype(float)))
    near = pytest.approx(truth, rel=1e-6, abs=2e-4 + 4 * rounded)
    value, grad = fs.sites.bound_and_grad(model, X, Y)
    assert (
        value == near
        and fs.sites.bound(model, X, Y) == near
        and sum(fs.sites.bound_terms(model, X, Y)) == near
    )
    _, other = fs.sites.bound_and_grad(wide, X.astype(float), Y.astype(float))
    for (path, _, bar), (_, _, true) in zip(
        fs.records.leaves(grad.covariance), fs.records.leaves(other.covariance), strict=True
    ):
        assert bar.dtype == np.float32
        np.testing.assert_allclose(bar, true, rtol=1e-4, err_msg=path)
    assert {bar.dtype for _, _, bar in fs.records.leaves(grad)} == {np.dtype(np.float32)}
    from_zero = fs.replace(
        model, sites=fs.sites.Sites(np.zeros(100, np.float32), np.zeros(100, np.float32))
    )
    stepped, _ = fs.natural_step(from_zero, X, Y, step_size=1.0)
    again, info = fs.natural_step(stepped, X, Y, step_size=1.0)
    assert {a.dtype for _, _, a in fs.records.leaves(again.sites)} == {
        np.dtype(np.float32)
    } and info.value == near


@pytest.mark.parametrize("strength, dtype", [(0.9, np.float32), (1.1, np.float64)])
def test_the_dtype_that_sites_need(rng, strength, dtype):
    """eps tr(r K r) against 1e-3 nats; an update from weak to strong sites and back changes it."""
    model, X, _ = problem(rng, N=8)
    model, X = in_float32(model), X.astype(np.float32)
    lambda2 = (1e-3 * strength / np.finfo(np.float32).eps / model.covariance.kff(X) / 8).astype(
        np.float32
    )
    sites = fs.sites.Sites(model.sites.lambda1, lambda2)
    there = vgp.DataSites(fs.replace(model, sites=sites), X)
    weak = vgp.DataSites(model, X)
    assert weak.K.dtype == np.float32 and there.K.dtype == dtype
    assert (
        weak.update(slice(None), sites).K.dtype == dtype
        and there.update(slice(None), model.sites).K.dtype == np.float32
    )
    np.testing.assert_array_equal(weak.update(slice(None), sites).means, there.means)


def test_terms_in_float32_add_up_where_sites_are_strong(rng):
    model, X, Y = problem(rng, N=15, likelihood=fs.Gaussian(1e-5))
    model, _ = fs.natural_step(model, X, Y, step_size=1.0)
    narrow = in_float32(model)
    bound = fs.sites.bound(narrow, X.astype(np.float32), Y.astype(np.float32))
    terms = fs.sites.bound_terms(narrow, X.astype(np.float32), Y.astype(np.float32))
    assert sum(terms) == pytest.approx(bound, rel=1e-6) and abs(terms[1]) < 0.05 * abs(bound)


def test_variances_below_the_floor_are_clipped_and_reported(rng):
    X = np.repeat(rng.standard_normal((1, 2)), 40, axis=0)
    model = fs.sites.VGP(
        fs.RBF(1.0, 1.0), fs.sites.Sites(np.zeros(40), np.full(40, 3e14)), fs.Gaussian(0.1)
    )
    with pytest.warns(fs.VarianceClampWarning):
        assert np.isfinite(fs.sites.bound(model, X, np.zeros(40)))


def test_large_data_get_all_threads(rng):
    model, X, Y = problem(rng, N=150)
    assert _sizes((model, X, Y), False) == (150, 150)


def test_bad_input(rng):
    model, X, Y = problem(rng)
    for change, error, message in (
        (
            fs.sites.Sites(np.zeros(19), np.zeros(19)),
            ValueError,
            r"`sites` has lambda1 \(19,\) and .*, and `X` has 20 rows",
        ),
        (
            fs.sites.Sites(np.zeros(20), np.full(20, np.nan)),
            ValueError,
            "`sites.lambda2` contains nan",
        ),
    ):
        for call in (
            fs.sites.bound,
            fs.sites.bound_and_grad,
            fs.sites.bound_terms,
            fs.natural_step,
            fs.em,
        ):
            with pytest.raises(error, match=message):
                call(fs.replace(model, sites=change), X, Y)
    wrong = fs.replace(model, covariance=fs.RBF(1.0, np.ones(3)))
    with pytest.raises(
        ValueError, match=r"`lengthscales` has shape \(3,\), but the inputs have D = 2"
    ):
        fs.sites.bound(wrong, X, Y)
    strong = fs.sites.VGP(
        fs.RBF(1.0, 900.0), fs.sites.Sites(np.zeros(20), np.full(20, 1e18)), fs.Gaussian(0.1)
    )
    for dtype in (np.float64, np.float32):
        cast = fs.records.tree_map(lambda a, dtype=dtype: np.asarray(a, dtype)[()], strong)
        with pytest.raises(
            ValueError,
            match="`sites.lambda2` up to 1e.18 is too strong for float64: .* a smaller scale",
        ):
            fs.sites.bound(cast, X.astype(dtype), Y.astype(dtype))
    with pytest.raises(
        ValueError,
        match=r"`sites` has lambda1 \(20,\), and `Y` \(20, 2\) with a StudentT needs .* \(2, 20\)",
    ):
        fs.sites.bound(model, X, np.zeros((20, 2)))
    several = fs.replace(model, likelihood=fs.Softmax(num_classes=3))
    with pytest.raises(ValueError, match=r"`Y` \(20,\) with a Softmax needs the shape \(3, 20\)"):
        fs.em(several, X, np.zeros(20, int))
    for call in (fs.elbo, fs.predict_log_density, fs.fit):
        with pytest.raises(TypeError, match="got VGP: em trains it, .*tie_sites"):
            call(model, X, Y)
