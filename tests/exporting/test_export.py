"""Exported files compute what ``predict_y`` and ``predict_quantiles`` of the predictor do."""

import numpy as np
import pytest
from support.export_problems import (
    COVARIANCES,
    LEVELS,
    LIKELIHOODS,
    D,
    M,
    model_of,
    wanted,
    whitened,
)
from support.exported import FromC, difference, from_python
from support.multi_gp_problems import multi_of

import fastsvgp as fs
from fastsvgp import covariances as cs, likelihoods as ls, posteriors as qs
from fastsvgp.recipes.scaling import Scale


def predictions(source, X, quantiles):
    """Return what an exported file predicts: moments, and quantiles or None."""
    return *source.predict_y(X), source.predict_quantiles(X, LEVELS) if quantiles else None


def check(predictor, X, folder, tolerance=1e-12):
    """Compare both files with the predictor, for many rows and for one."""
    quantiles = isinstance(predictor.likelihood, fs.Gaussian | ls.Laplace)
    want = wanted(predictor, X, quantiles)
    for path in ("gp.c", "gp.py"):
        fs.export(predictor, folder / path)
    module = from_python(folder / "gp.py")
    assert hasattr(module, "predict_quantiles") == quantiles
    assert difference(predictions(module, X, quantiles), want) < tolerance
    one = predictions(module, X[:1], quantiles)
    assert difference(one, wanted(predictor, X[:1], quantiles)) < tolerance
    compiled = FromC(folder / "gp.c", want[0].shape[1:])
    assert difference(predictions(compiled, X, quantiles), want) < tolerance


@pytest.mark.parametrize("name", [*COVARIANCES, *LIKELIHOODS])
def test_files_predict_what_the_predictor_does(rng, tmp_path, name):
    model, X = model_of(rng, name)
    jitter = 1.0 if name == "constant" else 1e-4
    check(fs.predictor(model, jitter=jitter), X, tmp_path)


def test_posteriors(rng, tmp_path):
    """Wider than the prior, of several outputs, of two sets, and in float32."""
    model, X = model_of(rng, "rbf")
    wide = fs.replace(model, posterior=whitened(rng, spread=2.0))
    one, two = fs.predictor(wide), fs.predictor(fs.replace(wide, posterior=whitened(rng, 2)))
    assert not one.posterior.triangular and two.posterior.C.shape == (2, M, M)
    pair = qs.InducingPair(model.inducing[:7], model.inducing[7:])
    q = qs.Orthogonal(rng.standard_normal(7), np.eye(7) / 4, rng.standard_normal(5), np.eye(5) / 4)
    orthogonal = fs.replace(model, inducing=pair, posterior=q)
    q = qs.LikelihoodForm(rng.standard_normal((2, M)), 0.1 + rng.random(M))
    shared = fs.predictor(fs.replace(model, posterior=q), jitter=1e-4)
    assert shared.posterior.C.ndim == 2  # outputs share a covariance
    for predictor in (one, two, shared, fs.predictor(orthogonal, jitter=1e-4)):
        check(predictor, X, tmp_path)
    single = fs.predictor(model, jitter=1e-4, dtype=np.float32)
    double = fs.records.tree_map(np.float64, single)  # files compute in float64
    fs.export(single, tmp_path / "gp.py")
    found = predictions(from_python(tmp_path / "gp.py"), X, True)
    assert difference(found, wanted(double, X, True)) < 1e-12


@pytest.mark.parametrize("name", ["separate", "mixed", "one layer"])
def test_several_functions(rng, tmp_path, name):
    model, _, _ = multi_of(rng, name)
    check(fs.predictor(model), rng.standard_normal((50, 2)), tmp_path)


@pytest.mark.parametrize("wide", [False, True])
def test_one_inducing_input_and_one_column(rng, tmp_path, wide):
    covariance = fs.RBF() + cs.Polynomial(0.3, 0.5, degree=2)
    q = fs.Whitened(np.array([0.7]), np.array([[2.0 if wide else 0.4]]))
    model = fs.SVGP(covariance, np.array([[0.3]]), q, fs.Gaussian(0.1))
    check(fs.predictor(model), rng.standard_normal((20, 1)), tmp_path)


def test_targets_far_from_the_mean_keep_their_digits(rng, tmp_path):
    """Chances near 0 and 1, and quantiles far out, relative to themselves."""
    model, X = model_of(rng, "logit")
    model = fs.replace(model, mean=fs.means.LinearMean(np.full(D, 8.0)))
    for likelihood in (ls.BernoulliLogit(), fs.BernoulliProbit()):
        predictor = fs.predictor(fs.replace(model, likelihood=likelihood), jitter=1e-4)
        want = fs.predict_y(predictor, X[100:])
        for path, load in (("gp.c", FromC), ("gp.py", from_python)):
            fs.export(predictor, tmp_path / path)
            found = load(tmp_path / path).predict_y(X[100:])
            np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-300)
        assert want[0].min() < 1e-7
    predictor = fs.predictor(fs.replace(model, likelihood=ls.Laplace(scale=0.3)), jitter=1e-4)
    levels = [1e-6, 0.001, 0.999]
    fs.export(predictor, tmp_path / "gp.c")
    found = FromC(tmp_path / "gp.c").predict_quantiles(X[:20], levels)
    np.testing.assert_allclose(found, fs.predict_quantiles(predictor, X[:20], levels), rtol=1e-8)


def test_a_student_of_infinite_variance(rng, tmp_path):
    model, X = model_of(rng, "rbf")
    predictor = fs.predictor(fs.replace(model, likelihood=fs.StudentT(scale=0.3, df=2.0)))
    fs.export(predictor, tmp_path / "gp.c")
    mean, var = FromC(tmp_path / "gp.c").predict_y(X[:3])
    assert np.isinf(var).all() and np.allclose(mean, fs.predict_y(predictor, X[:3])[0], rtol=1e-12)


@pytest.mark.parametrize("scaled", [False, True])
def test_mixtures_and_noise_that_varies(rng, tmp_path, scaled):
    model, X = model_of(rng, "rbf")
    noises = fs.Gaussian(0.1), fs.Gaussian(2.0)
    parts = [fs.replace(model, posterior=whitened(rng), likelihood=one) for one in noises]
    parts.append(fs.replace(model, covariance=fs.Matern32(1.5, 0.9)))
    both = fs.Mixture(tuple(parts), shares=(0.5, 0.3, 0.2))
    predictor = fs.predictor(both, jitter=1e-4)
    mixed, one = (fs.predict_quantiles(p, X, LEVELS) for p in (predictor, predictor.models[0]))
    assert abs(mixed - one).max() > 0.1
    check(predictor, X, tmp_path)
    layers = [fs.layers.Layer(fs.RBF(1.3, 0.8), model.inducing, whitened(rng)) for _ in range(2)]
    mean = fs.means.ConstantMean(np.array([0.3, -1.0]))
    varying = fs.MultiGP(tuple(layers), ls.HeteroskedasticGaussian(), mean=mean)
    check(fs.predictor(varying, jitter=1e-4), X, tmp_path)
    if scaled:
        scale = Scale.fit(X, 5 + 3 * X[:, 0], True)
        fs.export(predictor, tmp_path / "units.py", scale=scale)
        want = scale.back(*fs.predict_y(predictor, scale.X(X)))
        found = from_python(tmp_path / "units.py").predict_y(X)
        assert difference((*found, None), (*want, None)) < 1e-12
