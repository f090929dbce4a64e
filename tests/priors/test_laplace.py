"""Averages around a mode: Hessian, draws, and what is refused."""

import numpy as np
import pytest
from support.fit_problems import assert_same, cast, problem

import fastsvgp as fs
from fastsvgp.priors import around_mode


def trained(rng, dtype=np.float64, priors=None):
    model, X, Y = problem(rng, N=40)
    start = fs.SGPR(model.covariance, X[:15].copy(), 0.1)
    found, _ = fs.fit(start, X, Y, priors=priors, fixed="inducing")
    return cast(found, dtype), X.astype(dtype), Y.astype(dtype)


def log_parameters(svgp):
    """The logarithms of variance, lengthscales and noise of an SVGP."""
    values = svgp.covariance.variance, svgp.covariance.lengthscales, svgp.likelihood.variance
    return np.log(np.concatenate([np.atleast_1d(value) for value in values]))


def of_sgpr(sgpr):
    return log_parameters(fs.SVGP(sgpr.covariance, None, None, fs.Gaussian(sgpr.noise_variance)))


PRIORS = {"covariance": fs.priors.LogNormal(0.0, 1.0), "noise_variance": fs.priors.Gamma(2.0, 50.0)}


@pytest.mark.parametrize("priors", [None, PRIORS])
def test_the_hessian_is_that_of_the_dense_evidence(rng, priors):
    """With Z = X and little jitter the bound is the log evidence, differentiated twice here."""
    X = rng.standard_normal((12, 2))
    Y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(12)
    model = fs.SGPR(fs.Matern12(0.8, np.array([0.9, 1.3])), X, 0.3)

    def evidence(phi):
        variance, *scales, noise = np.exp(phi)
        gaps = (X[:, None] - X[None]) / np.array(scales)
        K = variance * np.exp(-np.sqrt(np.square(gaps).sum(axis=2))) + noise * np.eye(12)
        value = -0.5 * (np.linalg.slogdet(2 * np.pi * K)[1] + Y @ np.linalg.solve(K, Y))
        if priors is not None:
            value += priors["covariance"].log_density_and_grad(np.exp(phi[:3]))[0].sum()
            value += priors["noise_variance"].log_density_and_grad(noise)[0]
        return value

    seen = {}

    def keep(H):
        seen["H"] = H
        raise StopIteration

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(around_mode, "_inverse_root", keep)
        with pytest.raises(StopIteration):
            fs.laplace(model, X, Y, priors=priors, jitter=1e-12)
    at, eye, h = of_sgpr(model), np.eye(4), 1e-3
    truth = np.array(
        [
            [
                sum(s * t * evidence(at + h * (s * a + t * b)) for s in (-1, 1) for t in (-1, 1))
                / (-4 * h * h)
                for a in eye
            ]
            for b in eye
        ]
    )
    np.testing.assert_allclose(seen["H"], truth, atol=1e-4 * np.abs(truth).max())


def test_eigenvalues_below_a_quarter_are_raised_to_it():
    V = np.linalg.qr(np.array([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]]))[0]
    root = around_mode._inverse_root(V @ np.diag([100.0, 0.01, -3.0]) @ V.T)
    np.testing.assert_allclose(root @ root.T, V @ np.diag([0.01, 4.0, 4.0]) @ V.T, atol=1e-12)


def test_draws_are_shortened_where_the_bound_falls_faster_than_the_gaussian(monkeypatch):
    """Almost without noise the evidence of a parabola has a long curved ridge."""
    X = np.linspace(-2, 2, 25)[:, None]
    Y = X[:, 0] ** 2 + 1e-3 * np.sin(40 * X[:, 0])
    start = fs.SGPR(fs.Matern52(10.0, np.array([4.0])), X, 1e-5)
    options = {"priors": {"covariance.lengthscales": fs.priors.LogNormal(2.0, 3.0)}}
    model, _ = fs.fit(start, X, Y, fixed="inducing", steps=300, **options)
    monkeypatch.setattr(around_mode, "FARTHEST", np.inf)  # of a mode that is found roughly
    found = fs.laplace(model, X, Y, rng=0, **options)

    def height(svgp):
        noise = float(svgp.likelihood.variance)
        sgpr = fs.SGPR(svgp.covariance, X, noise)
        prior, _ = fs.priors.log_prior_and_grad(sgpr, options["priors"])
        return fs.collapsed_bound(sgpr, X, Y) + prior

    heights = [height(one) for one in found.models]
    mode = height(fs.optimal_svgp(model, X, Y))
    z = np.random.default_rng(0).standard_normal((8, 3))
    allowed = np.square(z).sum(axis=1).max() + around_mode.FALL
    assert min(heights) > mode - allowed - 0.1
    monkeypatch.setattr(around_mode, "FALL", np.inf)
    far = [height(one) for one in fs.laplace(model, X, Y, rng=0, **options).models]
    assert min(far) < min(heights)


def test_draws_are_antithetic_and_have_the_covariance_of_the_gaussian(rng, monkeypatch):
    monkeypatch.setattr(around_mode, "FALL", np.inf)
    model, X, Y = trained(rng, priors=PRIORS)
    mixture = fs.laplace(model, X, Y, priors=PRIORS, draws=400, rng=1)
    draws = np.array([log_parameters(one) for one in mixture.models])
    np.testing.assert_allclose((draws[:200] + draws[200:]) / 2 - of_sgpr(model), 0, atol=1e-12)
    assert mixture.shares == (1 / 400,) * 400
    unravel = fs.ravel(model, fixed="inducing", transform="log")[1]

    def slope(phi):
        there = unravel(phi)
        grad = fs.collapsed_bound_and_grad(there, X, Y, wrt=unravel.paths)[1]
        of_priors = fs.priors.log_prior_and_grad(there, PRIORS)[1]
        return unravel.pullback(phi, grad) + unravel.pullback(phi, of_priors)

    H = around_mode._hessian(slope, of_sgpr(model))
    root = around_mode._inverse_root(H)
    scaled = np.linalg.solve(root, (draws - of_sgpr(model)).T)
    np.testing.assert_allclose(np.cov(scaled), np.eye(4), atol=0.4)
    far = np.linalg.norm(scaled, axis=0)  # the nearest draws come first
    assert (np.diff(far[:200]) > -1e-6).all() and (np.diff(far[200:]) > -1e-6).all()


def test_each_draw_has_its_optimal_posterior_and_what_is_fixed_stays(rng, tmp_path):
    model, X, Y = trained(rng)
    mixture = fs.laplace(model, X, Y, draws=4, rng=3, fixed="covariance.variance")
    for one in mixture.models:
        sgpr = fs.SGPR(one.covariance, one.inducing, one.likelihood.variance)
        assert_same(one, fs.optimal_svgp(sgpr, X, Y))
        assert one.covariance.variance == model.covariance.variance
        assert (one.inducing == model.inducing).all()
        assert (one.covariance.lengthscales != model.covariance.lengthscales).all()
    means = [fs.predict_y(one, X)[0] for one in mixture.models]
    np.testing.assert_allclose(fs.predict_y(mixture, X)[0], np.mean(means, axis=0))
    assert_same(mixture, fs.laplace(model, X, Y, draws=4, rng=3, fixed="covariance.variance"))
    fs.save(tmp_path / "m.npz", mixture)
    assert_same(fs.load(tmp_path / "m.npz"), mixture)


def test_an_svgp_is_averaged_as_its_sgpr(rng):
    priors = {"covariance": PRIORS["covariance"]}
    sgpr, X, Y = trained(rng, priors=priors)
    svgp = fs.optimal_svgp(sgpr, X, Y)
    expected = fs.laplace(sgpr, X, Y, priors=priors, draws=2, rng=0)
    assert_same(fs.laplace(svgp, X, Y, priors=priors, draws=2, rng=0), expected)
    profiled, _ = fs.fit(svgp, X, Y, priors=priors, collapsed=True, fixed="inducing", steps=30)
    fs.laplace(profiled, X, Y, priors=priors, rng=0)
    held = fs.laplace(svgp, X, Y, priors=priors, draws=2, rng=0, fixed="likelihood")
    assert held.models[0].likelihood.variance == sgpr.noise_variance


def test_weights_count_rows_and_two_sets_are_averaged_too(rng):
    model, X, Y = trained(rng)
    weights = np.r_[np.full(10, 2.0), np.ones(20), np.zeros(10)]
    model, _ = fs.fit(model, X, Y, weights=weights, fixed="inducing")
    twice = np.r_[0:10, 0:30]
    a = fs.laplace(model, X, Y, weights=weights, draws=2, rng=0)
    b = fs.laplace(model, X[twice], Y[twice], draws=2, rng=0)
    for one, other in zip(a.models, b.models, strict=True):
        np.testing.assert_allclose(log_parameters(one), log_parameters(other), rtol=1e-4)
    pair = fs.posteriors.InducingPair(X[:8].copy(), X[8:12].copy())
    two, _ = fs.fit(fs.bounds.OrthogonalSGPR(model.covariance, pair, 0.1), X, Y, fixed="inducing")
    assert fs.predict_y(fs.laplace(two, X, Y, draws=2, rng=0), X)[0].shape == (40,)


def test_float32_in_float32_out_with_the_parameters_of_float64(rng):
    model, X, Y = trained(rng, np.float32, PRIORS)
    given = dict(priors=PRIORS, draws=4, rng=0, jitter=1e-4)
    narrow = fs.laplace(model, X, Y, **given)
    wide = fs.laplace(cast(model, np.float64), X.astype(float), Y.astype(float), **given)
    mean, var = fs.predict_y(narrow, X)
    assert mean.dtype == var.dtype == np.float32
    for one, other in zip(narrow.models, wide.models, strict=True):
        np.testing.assert_allclose(log_parameters(one), log_parameters(other), atol=1e-4)
    np.testing.assert_allclose(mean, fs.predict_y(wide, X, jitter=1e-4)[0], atol=1e-2)


def test_a_mixture_is_less_sure_than_its_centre(rng):
    """Eight rows do not determine the lengthscales."""
    X = rng.uniform(-1, 1, (8, 2))
    Y = X[:, 0] + 0.05 * rng.standard_normal(8)
    model, info = fs.fit(fs.SGPR(fs.RBF(1.0, np.ones(2)), X, 0.1), X, Y, fixed="inducing")
    Xs = rng.uniform(-2, 2, (50, 2))
    _, alone = fs.predict_y(info.svgp, Xs)
    _, averaged = fs.predict_y(fs.laplace(model, X, Y, rng=0), Xs)
    assert np.mean(np.log(averaged)) > np.mean(np.log(alone))


def test_what_is_no_mode_is_refused(rng):
    model, X, Y = trained(rng)
    off = fs.replace(model, noise_variance=20 * model.noise_variance)
    with pytest.raises(
        ValueError,
        match=r"^laplace: `model` is [\d.e+]+ standard deviations from a mode \(the gradient is"
        r" -[\d.]+ in noise_variance\): train on, with these X, Y, `priors` and `fixed`$",
    ) as caught:
        fs.laplace(off, X, Y)
    assert len(str(caught.value)) <= 160
    svgp = fs.SVGP(
        model.covariance, model.inducing, fs.Whitened(np.zeros(15), np.eye(15)),
        fs.Gaussian(off.noise_variance),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"in likelihood.variance\)"):
        fs.laplace(svgp, X, Y)
    with pytest.raises(ValueError, match=r"in covariance.lengthscales\[0\]\)"):
        priors = {"covariance.lengthscales": fs.priors.LogNormal(9.0, 0.01)}
        fs.laplace(
            fs.replace(model, covariance=fs.RBF(1.0, np.array([0.5, 1.0]))), X, Y, priors=priors
        )


def test_other_bad_input_is_refused(rng):
    model, X, Y = trained(rng)
    svgp = fs.optimal_svgp(model, X, Y)
    for call, error, said in (
        (lambda: fs.laplace(model, X, Y, draws=3), ValueError, "`draws` must be even.*got 3"),
        (lambda: fs.laplace(model, X, Y, draws=0), ValueError, "`draws` must be a whole number"),
        (lambda: fs.laplace(model, X, Y[:3]), ValueError, "`Y`"),
        (lambda: fs.laplace(model, X, np.full(40, np.nan)), ValueError, "`Y` contains nan"),
        (lambda: fs.laplace(model, X, Y, fixed=("covariance", "noise_variance")), ValueError,
         "all positive parameters are fixed"),
        (lambda: fs.laplace(model, X, Y, fixed="noise"), ValueError, "`fixed` names 'noise'"),
        (lambda: fs.laplace(model, X, Y, priors={"noise": 1}), ValueError, "`priors` names"),
        (lambda: fs.laplace(model, X, Y, rng="a"), TypeError, "`rng`"),
        (lambda: fs.laplace(fs.replace(svgp, likelihood=fs.StudentT(0.1)), X, Y), TypeError,
         "Gaussian noise, and the likelihood is a StudentT"),
        (lambda: fs.laplace(3, X, Y), TypeError, "`model` must be"),
        (lambda: fs.laplace(model, X, Y, draw=2), TypeError, "did you mean `draws`"),
    ):  # fmt: skip
        with pytest.raises(error, match=said):
            call()


def test_a_failed_factorisation_names_the_draw(rng, monkeypatch):
    model, X, Y = trained(rng)
    twice = fs.replace(model, inducing=np.concatenate([model.inducing, model.inducing]))
    real = around_mode.optimal_svgp
    monkeypatch.setattr(
        around_mode, "optimal_svgp", lambda *given, jitter, **o: real(*given, jitter=0.0, **o)
    )
    with pytest.raises(fs.NotPositiveDefinite) as caught:
        fs.laplace(twice, X, Y, rng=0, draws=2)
    assert caught.value.__notes__ == ["laplace: at draw 1 of 2; give more `jitter`"]
