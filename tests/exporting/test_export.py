"""Exported files compute what ``predict_y`` and ``predict_quantiles`` of the predictor do."""

import numpy as np
import pytest
from support.exported import FromC, difference, from_python
from support.multi_gp_problems import multi_of

import fastsvgp as fs
from fastsvgp import covariances as cs, likelihoods as ls, posteriors as qs
from fastsvgp.recipes.beyond_range import BeyondRange

M, D, N = 12, 3, 1000
LEVELS = [0.01, 0.3, 0.5, 0.975]
ELL = np.array([0.8, 1.5, 2.0])
BOX = {"low": (-1.0, -1.0, -2.0), "middle": (0.0, 0.3, 1.0), "high": (1.0, 1.0, 1.0)}


def whitened(rng, *batch, spread=0.5):
    tril = np.tril(0.1 * rng.standard_normal((*batch, M, M)), -1) + spread * np.eye(M)
    return fs.Whitened(rng.standard_normal((*batch, M)), tril)


def network(activation, rng=5):
    return cs.Network.random((D, 6, 5, 2), activation, rng=rng)


COVARIANCES = {
    "rbf": fs.RBF(1.3, ELL),
    "matern12": fs.Matern12(1.3, ELL),
    "matern32": fs.Matern32(0.7, 1.2),
    "matern52": fs.Matern52(1.3, ELL),
    "rational": cs.RationalQuadratic(1.3, ELL, alpha=0.7),
    "constant": cs.Constant(2.0),
    "linear": fs.Linear(np.array([0.1, 0.2, 0.3])) + fs.RBF(),
    "polynomial": cs.Polynomial(np.array([0.1, 0.2, 0.3]), 0.5, degree=3) + fs.RBF(),
    "columns": (fs.RBF(1.3, ELL[:2]).on(2, 0) + 0.3) * fs.Matern32().on(1),
    "periodic": fs.Periodic(fs.RBF(1.2, ELL), period=np.array([1.0, 2.0, 5.0])),
    "periodic-one": fs.Periodic(fs.Matern32(1.2, 0.8), period=3.0),
    "cosine": cs.spectral_mixture(
        [1.0, 0.5], [[0.1, 0.2, 0.3], [0.5, 0.1, 0.0]], np.ones((2, D)) / 9
    ),
    "codes": cs.Categorical(1.2, 0.7).on(2) * fs.RBF().on(0, 1),
    "network": cs.OnFeatures(fs.RBF(1.0, ELL[:2]), network("tanh")),
    "network-relu": cs.OnFeatures(fs.RBF() + fs.Linear(0.2), network("relu")),
    "held": BeyondRange(fs.RBF(1.3, ELL), variance=2.0, **BOX),
    "not-held": BeyondRange(fs.Linear(0.3) + fs.RBF(), variance=2.0, held=False, **BOX),
    "held-network": BeyondRange(
        cs.OnFeatures(fs.RBF(1.0, ELL[:2]), network("tanh")), variance=2.0, **BOX
    ),
}
LIKELIHOODS = {
    "probit": (fs.BernoulliProbit(), ()),
    "logit": (ls.BernoulliLogit(), ()),
    "poisson": (fs.Poisson(exposure=2.5), ()),
    "poisson-column": (fs.Poisson(exposure="column"), ()),
    "laplace": (ls.Laplace(scale=0.3), ()),
    "student": (fs.StudentT(scale=0.3, df=4.5), ()),
    "softmax": (fs.Softmax(num_classes=3), (3,)),
    "two": (fs.Gaussian(0.1), (2,)),
    "one-axis": (fs.Gaussian(0.1), (1,)),
}


def spaced(rng, rows):
    """Draw rows of which no two are close: then Kuu is far from singular."""
    return rng.permutation(np.linspace(-2, 2, rows * D)).reshape(rows, D)


def corners(rng, Z):
    """Rows near and far, at the inducing inputs, and at the border of the box."""
    X = rng.uniform(-2.5, 2.5, (N, D))
    X[:100] *= 1e2
    X[100 : 100 + len(Z)] = Z
    for row, name in enumerate(("low", "middle", "high")):
        X[-1 - row] = BOX[name]
    X[-4], X[-5] = 0.0, 1e7
    return X


def model_of(rng, name):
    """Return a model and rows, by the name of a case."""
    likelihood, outputs = LIKELIHOODS.get(name, (fs.Gaussian(0.1), ()))
    covariance = COVARIANCES.get(name, COVARIANCES["rbf"])
    Z = spaced(rng, M)
    X = corners(rng, Z)
    if name == "codes":
        Z[:, 2], X[:, 2] = rng.integers(0, 4, M), rng.integers(0, 6, N)
    inside = covariance.covariance if isinstance(covariance, BeyondRange) else covariance
    if isinstance(inside, cs.OnFeatures):
        Z = inside.network(2 * Z)
    if name == "two":
        mean = fs.means.LinearMean(rng.standard_normal((2, D)), np.array([0.3, -0.4]))
    else:
        mean = fs.means.ConstantMean(0.4) if outputs else None
    return fs.SVGP(covariance, Z, whitened(rng, *outputs), likelihood, mean), X


def predictions(source, X, quantiles):
    """Return what an exported file predicts: moments, and quantiles or None."""
    return *source.predict_y(X), source.predict_quantiles(X, LEVELS) if quantiles else None


def wanted(predictor, X, quantiles):
    """Return what fastsvgp predicts."""
    found = fs.predict_quantiles(predictor, X, LEVELS) if quantiles else None
    return *fs.predict_y(predictor, X), found


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
