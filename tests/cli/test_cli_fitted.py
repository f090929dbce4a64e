"""A command-line model in Python: scaling, quantiles, and forged files."""

import io
import json
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.data.columns import Column, Encoding
from fastsvgp.cli.fitted import Fitted
from fastsvgp.errors import DataFileError
from fastsvgp.recipes.scaling import Scale


def a_fit(rng, likelihood, name, classes=None, dtype=float):
    """A model as written by ``fastsvgp fit``, but untrained."""
    M, D = 5, 2
    outputs = (len(classes),) if name in ("softmax", "robustmax") else ()
    model = fs.SVGP(
        fs.RBF(dtype(1.1), np.ones(D, dtype)),
        rng.standard_normal((M, D)).astype(dtype),
        fs.Whitened(
            rng.standard_normal((*outputs, M)).astype(dtype),
            np.tile(0.5 * np.eye(M, dtype=dtype), (*outputs, 1, 1)),
        ),
        likelihood,
    )
    real = name in ("gaussian", "student-t", "laplace")
    scale = Scale(np.array([5.0, -2.0]), np.array([3.0, 0.5]), *((300.0, 40.0) if real else ()))
    columns = {"named": True, "width": 3, "inputs": [0, 1], "target": 2}
    return Fitted(model, name, classes, ["a", "b"], "y", columns, scale, jitter=1e-6)


@pytest.fixture
def student_t(rng):
    return a_fit(rng, fs.StudentT(scale=0.3, df=3.0), "student-t")


def test_predict_needs_blas_alone(here, rng):
    a_fit(rng, fs.Gaussian(0.1), "gaussian").save("model.npz")
    pathlib.Path("row.csv").write_text("a,b\n5,-2\n", encoding="utf-8")
    program = (
        "import sys; from fastsvgp.cli import main\n"
        "assert main(['predict', 'model.npz', 'row.csv', '--out', 'p.csv']) == 0\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "scipy.linalg" in loaded
    parts = "cluster", "optimize", "sparse", "spatial", "special", "stats"
    assert not loaded & {"matplotlib", "sklearn", "tqdm", *(f"scipy.{part}" for part in parts)}


def test_load_fitted_predicts_in_data_units_and_load_warns(here, student_t, rng):
    student_t.save("model.npz")
    X = np.array([[5.0, -2.0], [8.0, -1.5]])
    for fitted in (fs.load_fitted("model.npz"), fs.load_fitted(here)):
        mean, var = fs.predict_y(fitted.model, np.array([[0.0, 0.0], [1.0, 1.0]]))
        prediction = fitted.predict(X, quantiles=(0.05, 0.95))
        np.testing.assert_allclose(prediction.mean, 300 + 40 * mean, rtol=1e-12)
        np.testing.assert_allclose(prediction.sd, 40 * np.sqrt(var), rtol=1e-12)
        q = fs.predict_quantiles(fitted.model, np.array([[0.0, 0.0], [1.0, 1.0]]), (0.05, 0.95))
        np.testing.assert_allclose(prediction.quantiles, 300 + 40 * q, rtol=1e-12)
        np.testing.assert_allclose(fitted.cdf(X, prediction.quantiles[0]), 0.05, atol=1e-11)
    with pytest.warns(
        UserWarning, match=r"standardised inputs and targets. fastsvgp.load_fitted\(path\)"
    ) as caught:
        model = fs.load("model.npz")
    assert caught[0].filename == __file__ and type(model) is fs.SVGP
    narrow = "`X` has 1 columns; the model was fitted to 2, in this order: a, b"
    for wrong, message in ((X[:, :1], narrow), (X[0], r"shape \(N, D\)")):
        with pytest.raises(ValueError, match=message):
            fitted.predict(wrong)


def test_what_was_stored_beside_a_model_comes_back(here, student_t):
    fs.save("noted.npz", student_t.model, note="of May", numbers=(1, 2.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(fs.load("noted.npz")) is fs.SVGP
        model, extra = fs.records.load_with_extra("noted.npz")
    assert type(model) is fs.SVGP and extra == {"note": "of May", "numbers": [1, 2.5]}
    with pytest.raises(DataFileError, match="that `fastsvgp fit` did not write"):
        fs.load_fitted("noted.npz")


CASES = {
    "gaussian": (lambda: fs.Gaussian(0.2), None, []),
    "student-t": (lambda: fs.StudentT(0.3, df=2.0), None, ["q0.025", "q0.975"]),
    "laplace": (lambda: fs.likelihoods.Laplace(0.3), None, ["q0.025", "q0.975"]),
    "poisson": (lambda: fs.Poisson(exposure=4.0), None, ["q0.025", "q0.975"]),
    "bernoulli-probit": (fs.BernoulliProbit, ["no", "yes"], None),
    "softmax": (lambda: fs.Softmax(num_classes=3), ["r", "g", "b"], None),
}


@pytest.mark.parametrize("name", CASES)
def test_columns_of_quantiles(here, capsys, rng, name):
    likelihood, classes, columns = CASES[name]
    fitted = a_fit(rng, likelihood(), name, classes)
    fitted.save("model.npz")
    pathlib.Path("x.csv").write_text("a,b\n5,-2\n8,-1.5\n4,-2\n")
    X = np.array([[5, -2], [8, -1.5], [4, -2]])
    assert main(["predict", ".", "x.csv"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    if columns is None:
        assert header.startswith("class,p(")
        assert main(["predict", ".", "x.csv", "--quantiles", "0.5"]) == 2
        assert "--quantiles: this model predicts classes" in capsys.readouterr().err
        return
    assert header.split(",") == ["mean", "sd", *columns]
    found = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    if columns:
        np.testing.assert_allclose(
            found[:, 2:].T, fitted.predict(X, [0.025, 0.975]).quantiles, rtol=1e-8
        )
    assert main(["predict", ".", "x.csv", "--quantiles", "0.05, 0.5,0.95"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "mean,sd,q0.05,q0.5,q0.95"
    found = np.array([[float(cell) for cell in row.split(",")] for row in rows])
    np.testing.assert_allclose(
        found[:, 2:].T, fitted.predict(X, [0.05, 0.5, 0.95]).quantiles, rtol=1e-8
    )
    assert (np.diff(found[:, 2:]) >= 0).all()
    if name == "student-t":
        assert np.isinf(found[:, 1]).all()
    for bad in ("0", "1", "many", "0.5,2"):
        assert main(["predict", ".", "x.csv", "--quantiles", bad]) == 2
        assert "--quantiles: expected a number above 0 and below 1" in capsys.readouterr().err


def test_predictions_of_a_piped_table_have_all_its_rows(here, capsys, monkeypatch, student_t):
    student_t.save("model.npz")
    text = "a,b\n" + "".join(f"{5 + i / 100},-2\n" for i in range(300))
    pathlib.Path("x.csv").write_text(text)
    assert main(["predict", ".", "x.csv"]) == 0
    expected = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["predict", ".", "-"]) == 0
    assert capsys.readouterr().out == expected and expected.count("\n") == 301


def rewritten(path, header):
    """The same arrays with another header."""
    with np.load("model.npz") as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **arrays | {"__fastsvgp__": np.array(json.dumps(header))})


def places(tree, path=()):
    """The paths of all nodes of a JSON tree."""
    yield path
    for key, value in (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    ):
        yield from places(value, (*path, key))


def replaced(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize(
    "name, encoding",
    [
        ("student-t", None),
        ("softmax", None),
        ("student-t", Column("a", None, 5.0, True)),
        ("softmax", Column("b", ["u"], None, False)),
    ],
)
def test_no_crafted_header_ends_in_a_traceback(here, capsys, rng, name, encoding):
    likelihood, classes, _ = CASES[name]
    fitted = a_fit(rng, likelihood(), name, classes)
    if encoding is not None:  # one column that is encoded as two inputs
        fitted.encoding, fitted.input_names = Encoding([encoding], "median"), encoding.input_names
        fitted.columns = {"named": True, "width": 2, "inputs": [0], "target": 1}
    fitted.save("model.npz")
    pathlib.Path("x.csv").write_text("a,b,y\n5,-2,r\n8,-1.5,g\n")
    with np.load("model.npz") as file:
        header = json.loads(str(file["__fastsvgp__"]))
    tried = refused = 0
    for path in places(header):
        for value in rng.permutation(
            np.array([None, "x", -1, 2.5, [], {}, float("nan"), [None], True], object)
        )[:4].tolist():
            rewritten("bad.npz", replaced(header, path, value))
            # any other error propagates
            code = main(["predict", "bad.npz", "x.csv"])
            out, err = capsys.readouterr()
            one_message = err.startswith("fastsvgp predict: error: ") and err.count("\n") == 1
            assert code == 0 or code == 2 and one_message, (path, value, err)
            tried, refused = tried + 1, refused + (code == 2)
    assert tried > 100 and refused > 0.8 * tried
    assert main(["predict", "model.npz", "x.csv"]) == 0


@pytest.mark.parametrize("name", ["student-t", "softmax"])
def test_no_crafted_array_ends_in_a_traceback(here, capsys, rng, name):
    likelihood, classes, _ = CASES[name]
    a_fit(rng, likelihood(), name, classes).save("model.npz")
    pathlib.Path("x.csv").write_text("a,b,y\n5,-2,r\n8,-1.5,g\n")
    with np.load("model.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "__fastsvgp__"}
        header = file["__fastsvgp__"]
    text, dates, factor = (
        np.full((5, 2), "x"),
        np.ones((5, 2), "datetime64[D]"),
        np.full((5, 5), np.inf),
    )
    wrong = [
        text[0, 0],
        text,
        dates,
        factor,
        np.ones((2, 2, 2)),
        np.empty((0, 2)),
        np.nan,
        np.ones((5, 2), complex),
        np.True_,
    ]
    for path in arrays:
        for value in wrong:
            np.savez("bad.npz", **arrays | {path: np.asarray(value), "__fastsvgp__": header})
            code = main(["predict", "bad.npz", "x.csv"])
            err = capsys.readouterr().err
            fine = value is np.True_ and path in (
                "covariance.variance",
                "covariance.lengthscales",
                "likelihood.scale",
            )
            assert code == 0 if fine else code == 2 and "bad.npz" in err and err.count("\n") == 1, (
                path,
                value,
                err,
            )


def numbers(*values):
    return {"array": list(map(float, values)), "dtype": "<f8"}


SCALE = {"x_mean": numbers(0, 0), "x_scale": numbers(1, 1), "x_map": None, "kind": "Scale"}
SCALE |= {"y_mean": 0.0, "y_scale": 1.0}


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("columns", None, "no columns"),
        ("columns", {"named": True, "width": 3, "inputs": [0, 9], "target": 2}, "columns"),
        ("columns", {"named": True, "width": 3, "inputs": [0, "b"], "target": 2}, "columns"),
        ("classes", ["a", "b"], "classes"),
        ("input_names", ["a"], "for 2 inputs"),
        ("jitter", -1.0, "jitter"),
        ("jitter", "small", "`jitter` must be a number"),
        ("scale", [1, 2], "no scaling"),
        ("scale", SCALE | {"x_scale": numbers(1, 0)}, "`x_scale` of the scaling"),
        ("scale", SCALE | {"x_mean": numbers(0)}, "the scaling is not one of 2 inputs"),
        ("scale", SCALE | {"y_scale": float("inf")}, "`y_scale` of the scaling"),
        ("scale", {name: SCALE[name] for name in SCALE if name != "y_scale"}, "'y_scale' is"),
        ("scale", SCALE | {"kind": "Units"}, "'Units' is missing"),
        (
            "scale",
            SCALE | {"x_map": [{"knots": [0, 1], "values": [1, 0]}, None]},
            "`x_map` of the scaling does not increase",
        ),
        ("likelihood", "gaussian", "likelihood 'gaussian' of a StudentT model"),
        ("target_name", 3, "target_name 3"),
    ],
)
def test_what_is_wrong_with_a_description_is_said(here, student_t, field, value, said):
    student_t.save("model.npz")
    model, extra = fs.records.load_with_extra("model.npz")
    fs.save("bad.npz", model, command_line=extra["command_line"] | {field: value})
    with pytest.raises(
        DataFileError, match="bad.npz does not match this version of `fastsvgp fit`"
    ) as error:
        fs.load_fitted("bad.npz")
    assert said in str(error.value)


@pytest.mark.parametrize("number", [8, 10, "9", None])
def test_a_file_of_another_format_says_so(here, student_t, number):
    student_t.save("model.npz")
    model, extra = fs.records.load_with_extra("model.npz")
    fs.save("other.npz", model, command_line=extra["command_line"] | {"format": number})
    said = f"other.npz has format {number!r} of `fastsvgp fit`, but this version reads 9; load it"
    with pytest.raises(DataFileError, match=said):
        fs.load_fitted("other.npz")


PLAIN = {"name": "a", "levels": None, "median": 0.5, "gaps": False}
PLAIN |= {"form": None, "cycles": [], "into": None}


@pytest.mark.parametrize(
    "change",
    [
        {"missing": "mean"},
        {"columns": []},
        {"columns": [PLAIN] * 2},
        {"columns": [PLAIN | {"levels": [1], "median": None}]},
        {"columns": [PLAIN | {"levels": ["u"], "median": 1.0}]},
        {"columns": [PLAIN | {"median": 1e200}]},
        {"columns": [PLAIN | {"gaps": 1}]},
        {"columns": [{name: PLAIN[name] for name in PLAIN if name != "gaps"}, PLAIN]},
        {"more": 1},
    ],
)
def test_an_encoding_that_cannot_be_is_refused(here, student_t, change):
    student_t.save("model.npz")
    model, extra = fs.records.load_with_extra("model.npz")
    encoding = {"missing": "median", "columns": [PLAIN, PLAIN | {"name": "b"}]}
    fs.save("good.npz", model, command_line=extra["command_line"] | {"encoding": encoding})
    assert fs.load_fitted("good.npz").encoding.names == ["a", "b"]
    bad = extra["command_line"] | {"encoding": encoding | change}
    fs.save("bad.npz", model, command_line=bad)
    with pytest.raises(
        DataFileError, match="bad.npz does not match this version of `fastsvgp fit`"
    ):
        fs.load_fitted("bad.npz")
