"""``fastsvgp export``: source of a fitted model, in the units of its table."""

import numpy as np
import pytest
from support.exported import FromC, from_python

import fastsvgp as fs
from fastsvgp.cli import main

FEW = "--inducing", "8"


@pytest.fixture
def table(rng, tmp_path, monkeypatch):
    """A table with a number and a word, in the working folder."""
    monkeypatch.chdir(tmp_path)
    x, word = rng.uniform(0, 10, 60), np.array(["red", "green"])[np.arange(60) % 2]
    y = 50 + 10 * np.sin(x) + 3 * (word == "red")
    rows = (f"{a:.17g},{b},{c:.17g}" for a, b, c in zip(x, word, y, strict=True))
    (tmp_path / "data.csv").write_text("\n".join(["size,colour,price", *rows]) + "\n")
    return tmp_path


def fit(*words):
    assert main(["fit", "data.csv", "--quiet", "--steps", "5", *words]) == 0
    return fs.load_fitted("data-fit")


def test_regression(table, capsys):
    fitted = fit(*FEW)
    for path in ("gp.c", "gp.py"):
        assert main(["export", "data-fit", path]) == 0
    out = capsys.readouterr().out
    names = ", ".join(fitted.input_names)
    assert f"wrote gp.npz and gp.py: price from {names}\n" in out
    assert "these inputs are the columns of the table as the model encodes them" in out
    X = fitted.read("data.csv")
    want = fitted.predict(X, quantiles=(0.1, 0.9))
    for source in (FromC(table / "gp.c"), from_python(table / "gp.py")):
        mean, var = source.predict_y(X)
        np.testing.assert_allclose(mean, want.mean, rtol=1e-10)
        np.testing.assert_allclose(np.sqrt(var), want.sd, rtol=1e-9)
        found = source.predict_quantiles(X, [0.1, 0.9])
        np.testing.assert_allclose(found, want.quantiles, rtol=1e-10)
    assert source.INPUTS == fitted.input_names


def test_classes(table):
    fitted = fit(*FEW, "--target", "colour")
    assert main(["export", "data-fit/model.npz", "gp.py"]) == 0
    module = from_python(table / "gp.py")
    p, _ = module.predict_y(fitted.read("data.csv"))
    want = fitted.predict(fitted.read("data.csv")).probabilities[:, 1]
    np.testing.assert_allclose(p, want, rtol=1e-10)
    assert module.CLASSES == fitted.classes == ["green", "red"]


@pytest.mark.parametrize(
    "words, path, message",
    [
        (FEW, "gp.h", "must end in .c (C99), .py (Python with NumPy) or .onnx, got 'gp.h'"),
        (FEW, "no/gp.c", "cannot use"),
        (("--method", "qsgp"), "gp.c", "must be a fastsvgp.MultiGP, SVGP or bounds.Mixture"),
    ],
)
def test_refusals(table, capsys, words, path, message):
    fit(*words)
    assert main(["export", "data-fit", path]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fastsvgp export: error: ") and message in error
    assert error.count("\n") == 1 and not (table / path).exists()


def test_only_onnx_is_in_float32(table, capsys):
    assert main(["export", "data-fit", "gp.c", "--float32"]) == 2
    message = "--float32 is for FILE.onnx: source of C and Python computes in float64"
    assert message in capsys.readouterr().err
