"""What the report compares a model with, and what it says of classes and of pairs of inputs."""

import pathlib
import re
import sys

import numpy as np
import pytest
from support.cli_runs import results, run, write_csv

from fastsvgp.cli.report import effects, metrics, page

FEW = ["--method", "sgpr", "--inducing", "30", "--steps", "30", "--out", "out"]
LINEAR = pytest.importorskip("sklearn.linear_model")


@pytest.fixture
def plane(here, rng):
    """A linear function of two inputs with noise, and a column for the test mask."""
    X = rng.standard_normal((120, 2)) * [1, 50]
    y = 300 + 20 * X[:, 0] - X[:, 1] + 5 * rng.standard_normal(120)
    write_csv("d.csv", "a,b,y", *X.T, y)
    write_csv("m.csv", "held", np.arange(120) % 4 == 0)
    pathlib.Path("m.csv").write_text("held\n" + "\n".join("1000"[i % 4] for i in range(120)) + "\n")
    return X, y, np.arange(120) % 4 == 0


def test_a_linear_model_stands_beside_the_others(plane, unplotted, capsys):
    X, y, held = plane
    out, _ = run(capsys, "fit", "d.csv", "--test-mask", "m.csv:held", *FEW)
    test = results("out")["test"]
    own = LINEAR.LinearRegression().fit(X[~held], y[~held])
    left = y[held] - own.predict(X[held])
    sd = np.std(y[~held] - own.predict(X[~held]))
    nlpd = np.mean(0.5 * np.log(2 * np.pi * sd**2) + 0.5 * (left / sd) ** 2)
    found = test["original_scale"]["linear"]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(left**2)), rel=0.05)
    assert found["nlpd"] == pytest.approx(nlpd, abs=0.1)
    assert found["rmse"] == pytest.approx(test["linear"]["rmse"] * np.std(y[~held]))
    assert re.search(rf"linear model .ridge. +{found['rmse']:.4g} ", out)
    assert "<td>linear model (ridge)</td>" in pathlib.Path("out/report.html").read_text()


def test_several_targets_have_one_each_and_missing_cells_do_not_count(plane, unplotted, capsys):
    X, y, _ = plane
    other = [f"{v:.3f}" if i % 5 else "" for i, v in enumerate(0.01 * X[:, 1])]
    write_csv("d.csv", "a,b,y,z", *X.T, y, other)
    few = ["--steps", "3", "--inducing", "8", "--out", "out", "--method", "svgp"]
    run(capsys, "fit", "d.csv", "--target", "y,z", "--test-mask", "m.csv:held", *few)
    test = results("out")["test"]
    assert test["linear"]["rmse"] < 0.3 and test["targets"]["z"]["linear"]["rmse"] < 0.01
    assert test["targets"]["y"]["original_scale"]["linear"]["rmse"] == pytest.approx(5, rel=0.5)


@pytest.mark.parametrize("kind", ["classes", "counts", "positive numbers"])
def test_other_targets(here, rng, unplotted, capsys, kind):
    x = rng.uniform(-2, 2, 150)
    y = {
        "classes": np.digitize(x + 0.2 * rng.standard_normal(150), [-0.7, 0.7]),
        "counts": rng.poisson(np.exp(1 + x)),
        "positive numbers": np.exp(x),
    }[kind]
    write_csv("d.csv", "x,y", x, [f"c{v}" for v in y] if kind == "classes" else y)
    chosen = {"counts": ["--likelihood", "poisson"], "positive numbers": ["--likelihood", "gamma"]}
    few = ["--steps", "3", "--inducing", "6", "--method", "svgp", "--out", "out"]
    run(capsys, "fit", "d.csv", *few, *chosen.get(kind, []))
    test = results("out")["test"]
    if kind == "positive numbers":
        assert "linear" not in test
        return
    assert test["linear"]["nlpd"] < test["trivial"]["nlpd"] - 0.2
    if kind == "classes":
        parts = test["by_class"]
        assert [one["class"] for one in parts] == ["c0", "c1", "c2"]
        assert sum(one["rows"] for one in parts) == sum(one["named"] for one in parts) == 15
        assert sum(one["right"] for one in parts) == round(15 * test["model"]["accuracy"])
        nlpd = sum(one["rows"] * (one["nlpd"] or 0) for one in parts) / 15
        assert nlpd == pytest.approx(test["model"]["nlpd"])
        assert "'c1'" in page.escape("'c1'", quote=False)
        assert "&#x27;c1&#x27;" in pathlib.Path("out/report.html").read_text()


def test_without_scikit_learn_there_is_no_linear_model(plane, unplotted, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    out, _ = run(capsys, "fit", "d.csv", *FEW)
    assert "linear model" not in out and "linear" not in results("out")["test"]


def test_scores_of_a_class_without_rows():
    p = np.array([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]])
    y = np.array([0, 0])
    first, second, third = metrics.by_class(y, p, np.log(p[:, 0]), ["a", "b", "c"])
    assert first == {"class": "a", "rows": 2, "named": 1, "right": 1,
                     "nlpd": pytest.approx(-np.log(0.28) / 2)}  # fmt: skip
    assert (second["named"], second["right"], second["nlpd"]) == (1, 0, None)
    assert third["rows"] == third["named"] == 0


def test_two_inputs_that_act_together(here, capsys, rng):
    pytest.importorskip("matplotlib")
    X = rng.uniform(-1, 1, (150, 3))
    write_csv("d.csv", "a,b,c,y", *X.T, X[:, 0] * X[:, 1] + 0.3 * X[:, 2])
    out, _ = run(capsys, "fit", "d.csv", *FEW, "--covariance", "rbf")
    found = results("out")["interaction"]
    assert sorted(found["inputs"]) == ["a", "b"]
    # variances 1/9 and 0.03
    assert found["share"] == pytest.approx((1 / 9) / (1 / 9 + 0.03), abs=0.15)
    text = pathlib.Path("out/report.html").read_text()
    assert "interaction.png" in out and "that interact most: along one" in text
    assert ", most of all &#x27;" in text


def test_a_sum_has_no_pair(plane, unplotted, capsys):
    run(capsys, "fit", "d.csv", *FEW)
    assert "interaction" not in results("out")


def test_of_three_classes_there_is_no_pair():
    class Fitted:
        several, classes, kind = False, ["a", "b", "c"], "multiclass"

    assert effects.interaction(Fitted, None, []) is None
