"""ONNX graphs compute what the predictor does, by ONNX Runtime."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
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
from support.exported import difference
from support.multi_gp_problems import multi_of

import fastsvgp as fs
from fastsvgp import covariances as cs, likelihoods as ls
from fastsvgp.cli import main
from fastsvgp.recipes.scaling import ClassScale, LogScale, Scale
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


class FromOnnx:
    """The outputs of a graph, after the checks of its format."""

    def __init__(self, path):
        self.model = onnx.load(path)
        onnx.checker.check_model(self.model, full_check=True)
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # it warns that `levels` has a default
        options.intra_op_num_threads = 1
        self.session = runtime.InferenceSession(path, options, ["CPUExecutionProvider"])
        self.dtype = np.dtype({"tensor(double)": "f8", "tensor(float)": "f4"}[self._input().type])

    def _input(self):
        (one,) = self.session.get_inputs()
        assert one.name == "X"
        return one

    @property
    def names(self):
        return [one.name for one in self.session.get_outputs()]

    def run(self, X, levels=None):
        given = {} if levels is None else {"levels": np.array(levels, self.dtype)}
        return self.session.run(None, {"X": X.astype(self.dtype), **given})

    def predict_y(self, X):
        return tuple(self.run(X)[:2])

    def predictions(self, X):
        """Return moments, and quantiles or None."""
        if self.names == ["mean", "var"]:
            return *self.predict_y(X), None
        assert self.names == ["mean", "var", "quantiles"]
        return tuple(self.run(X, LEVELS))


def exported(predictor, folder, **more):
    fs.export(predictor, folder / "gp.onnx", **more)
    return FromOnnx(folder / "gp.onnx")


def check(predictor, X, folder, tolerance=1e-12):
    want = wanted(predictor, X, isinstance(predictor.likelihood, fs.Gaussian | ls.Laplace))
    made = exported(predictor, folder)
    assert difference(made.predictions(X), want) < tolerance
    one = [None if part is None else part[..., :1] for part in want]
    if want[0].ndim > 1:
        one = [None if part is None else part[..., :1, :] for part in want]
    assert difference(made.predictions(X[:1]), one) < tolerance


@pytest.mark.parametrize("name", [*COVARIANCES, *LIKELIHOODS])
def test_graphs_predict_what_the_predictor_does(rng, tmp_path, name):
    model, X = model_of(rng, name)
    check(fs.predictor(model, jitter=1.0 if name == "constant" else 1e-4), X, tmp_path)


@pytest.mark.parametrize("name", [*COVARIANCES, *LIKELIHOODS])
def test_graphs_in_float32(rng, tmp_path, name):
    """Rows near the inducing inputs: float32 has no digits for a period far out."""
    model, X = model_of(rng, name)
    X = X[100:-5].astype(np.float32)
    jitter = 1.0 if name == "constant" else 1e-2
    single = fs.predictor(model, jitter=jitter, dtype=np.float32)
    made = exported(single, tmp_path)
    found = made.predictions(X)
    assert made.dtype == np.float32 and all(one is None or one.dtype == "f4" for one in found)
    double = fs.records.tree_map(np.float64, single)
    want = wanted(double, X.astype(np.float64), found[2] is not None)
    assert difference(found, want) < 1e-3


def test_posteriors(rng, tmp_path):
    """Wider than the prior, and of several outputs."""
    model, X = model_of(rng, "rbf")
    for batch in ((), (2,)):
        wide = fs.replace(model, posterior=whitened(rng, *batch, spread=2.0))
        check(fs.predictor(wide), X, tmp_path)


@pytest.mark.parametrize("name", ["separate", "mixed", "one layer"])
def test_several_functions(rng, tmp_path, name):
    model, _, _ = multi_of(rng, name)
    check(fs.predictor(model), rng.standard_normal((50, 2)), tmp_path)


def test_one_inducing_input_and_one_column(rng, tmp_path):
    q = fs.Whitened(np.array([0.7]), np.array([[0.4]]))
    model = fs.SVGP(fs.RBF(), np.array([[0.3]]), q, fs.Gaussian(0.1))
    check(fs.predictor(model), rng.standard_normal((20, 1)), tmp_path)


@pytest.mark.parametrize("name", ["logit", "probit"])
def test_small_chances_keep_their_digits(rng, tmp_path, name):
    model, X = model_of(rng, name)
    model = fs.replace(model, mean=fs.means.LinearMean(np.full(D, 8.0)))
    predictor = fs.predictor(model, jitter=1e-4)
    want = fs.predict_y(predictor, X[100:-5])
    assert want[0].min() < 1e-7
    np.testing.assert_allclose(
        exported(predictor, tmp_path).predict_y(X[100:-5]), want, rtol=1e-11, atol=1e-300
    )


def test_quantiles_far_out_and_the_usual_ones(rng, tmp_path):
    for name in ("rbf", "laplace"):
        model, X = model_of(rng, name)
        predictor = fs.predictor(model, jitter=1e-4)
        made, levels = exported(predictor, tmp_path), [1e-6, 1e-3, 0.42, 0.58, 0.999]
        want = fs.predict_quantiles(predictor, X[100:150], levels)
        np.testing.assert_allclose(made.run(X[100:150], levels)[2], want, rtol=1e-8, atol=1e-10)
        usual = fs.predict_quantiles(predictor, X[100:150], [0.05, 0.5, 0.95])
        np.testing.assert_allclose(made.run(X[100:150])[2], usual, rtol=1e-8, atol=1e-10)


# --- units of the data ----------------------------------------------------------------------------


def test_maps_of_columns_and_a_logarithm(rng, tmp_path):
    X = np.stack([5 + 3 * rng.standard_normal(90), np.exp(2 * rng.standard_normal(90))], 1)
    y = np.exp(2 + np.sin(X[:, 0]) + 0.1 * rng.standard_normal(90))
    plain = Scale.fit(X, np.log(y), scale_target=True).add_column_maps(X)
    assert any(one is not None for one in plain.x_map)
    parts = plain.x_mean, plain.x_scale, plain.y_mean, plain.y_scale
    scale = LogScale(*parts, x_map=plain.x_map)
    model = fs.SGPR(fs.Matern32(1.0, np.ones(2)), scale.X(X)[:8], 0.1)
    predictor = fs.predictor(model, scale.X(X), scale.y(y), jitter=1e-4)
    rows = np.concatenate([X, X * 20, -X * 1e3, [X.min(0), X.max(0)], [[1e9, -1e9]]])
    quantiles = scale.back(fs.predict_quantiles(predictor, scale.X(rows), LEVELS))
    want = *scale.back(*fs.predict_y(predictor, scale.X(rows))), quantiles
    made = exported(predictor, tmp_path, scale=scale)
    assert difference(made.predictions(rows), want) < 1e-12


def test_estimators(rng, tmp_path):
    X = rng.standard_normal((80, 2)) * 5 + 100
    y, labels = X[:, 0] ** 2 + rng.standard_normal(80), np.array(["a", "b", "c"])[np.arange(80) % 3]
    some = {"max_iter": 5, "n_inducing": 8}
    with pytest.warns(ConvergenceWarning):
        regressor = SVGPRegressor(**some).fit(X, y)
    for dtype, tolerance in ((None, 1e-10), (np.float32, 1e-3)):
        regressor.export(tmp_path / "gp.onnx", dtype=dtype)
        mean, var = FromOnnx(tmp_path / "gp.onnx").predict_y(X)
        want, sd = regressor.predict(X, return_std=True)
        np.testing.assert_allclose(mean, want, rtol=tolerance)
        np.testing.assert_allclose(np.sqrt(var), sd, rtol=10 * tolerance)
    with pytest.warns(Warning):  # the labels say nothing
        classifier = SVGPClassifier(**some).fit(X, labels)
    classifier.export(tmp_path / "gp.onnx")
    made = FromOnnx(tmp_path / "gp.onnx")
    np.testing.assert_allclose(made.predict_y(X)[0], classifier.predict_proba(X), rtol=1e-10)
    assert {one.key: one.value for one in made.model.metadata_props} == {"classes": "a\nb\nc"}


def test_command_line(rng, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X = rng.standard_normal((60, 2))
    rows = np.column_stack([X, np.sin(X[:, 0])])
    np.savetxt("data.csv", rows, delimiter=",", header="a,b,c", comments="")
    assert main(["fit", "data.csv", "--quiet", "--steps", "5", "--inducing", "8"]) == 0
    want = fs.load_fitted("data-fit").predict(X)
    for words, tolerance in (((), 1e-9), (("--float32",), 1e-3)):
        assert main(["export", "data-fit", "gp.onnx", *words]) == 0
        made = FromOnnx(tmp_path / "gp.onnx")
        mean, var = made.predict_y(X)
        np.testing.assert_allclose(mean, want.mean, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(np.sqrt(var), want.sd, rtol=tolerance)
    assert {one.key: one.value for one in made.model.metadata_props} == {"inputs": "a\nb"}
    assert "wrote gp.onnx: c from a, b\n" in capsys.readouterr().out


# --- rows that are refused ------------------------------------------------------------------------


def test_bad_rows_and_levels_are_nan(rng, tmp_path):
    Z = rng.standard_normal((6, 2))
    Z[:, 1] = np.arange(6) % 3
    q = fs.Whitened(rng.standard_normal(6), np.eye(6) / 2)
    covariance = fs.RBF().on(0) * cs.Categorical().on(1)
    made = exported(fs.predictor(fs.SVGP(covariance, Z, q, fs.Gaussian(0.1))), tmp_path)
    X = np.array([[0, 1], [np.nan, 1], [-np.inf, 0], [0, 0.5], [0, -1], [-0.5, 2]], np.float64)
    mean, var, quantiles = made.run(X, [0.5, 0.0, 1.0, np.nan])
    good = [True, False, False, False, False, True]
    assert (np.isfinite(mean) == good).all() and (np.isfinite(var) == good).all()
    assert (np.isfinite(quantiles[0]) == good).all() and np.isnan(quantiles[1:]).all()
    assert made.predict_y(X[:0])[0].shape == (0,)


def test_arrays_that_are_too_large_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fastsvgp.exporting.onnx_graph.LARGEST", 8 * M)
    q = fs.Whitened(np.zeros(M), np.eye(M) / 2)
    made = fs.predictor(fs.SVGP(fs.RBF(), np.arange(1.0 * M)[:, None], q, fs.Gaussian(0.1)))
    with pytest.raises(ValueError, match="a .onnx file holds 2 GiB, and the arrays take 0.0 GiB; "):
        fs.export(made, tmp_path / "gp.onnx")
    assert not list(tmp_path.iterdir())


def test_scales_of_classes(rng, tmp_path):
    model, X = model_of(rng, "softmax")
    scale = ClassScale(np.full(D, 0.5), np.full(D, 2.0), classes=np.array(["x", "y", "z"]))
    predictor = fs.predictor(model, jitter=1e-4)
    found = exported(predictor, tmp_path, scale=scale).predict_y(X[100:-5])
    want = fs.predict_y(predictor, scale.X(X[100:-5]))
    np.testing.assert_allclose(found, want, rtol=1e-12)
