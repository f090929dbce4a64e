"""``fastsvgp fit --layers``: deep Gaussian processes from the command line."""

import pathlib

import numpy as np
import pytest
from support.cli_runs import results, run
from support.interruptions import at_call

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.train.steps import minibatch

FEW = ["--layers", "2", "--inducing", "8", "--batch-size", "32", "--steps", "60"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    x, z = rng.uniform(10, 20, 150), rng.standard_normal(150)
    step = np.where(x > 15, 300, 200) + rng.normal(0, 5, 150)
    for name, columns in (
        ("step.csv", (x, step)),
        ("two.csv", (x, z, step)),
        (
            "kind.csv",
            (
                x,
                z,
                rng.standard_normal(150),
                np.where(x < 13, "low", np.where(x < 16, "middle", "high")),
            ),
        ),
    ):
        pathlib.Path(name).write_text(
            "\n".join(",".join(map(str, row)) for row in zip(*columns, strict=True)) + "\n"
        )


def test_fit_predict_and_plots(capsys):
    out, _ = run(capsys, "fit", "step.csv", *FEW)
    assert "SVGP of 2 layers, Matérn 3/2, 8 inducing inputs for each of 2 layers, 1 wide" in out
    found = results("step-fit")
    assert found["test"]["model"]["rmse"] < 0.6 * found["test"]["trivial"]["rmse"]
    assert (found["method"], found["layers"], found["width"], found["inducing"]) == (
        "svgp",
        2,
        1,
        8,
    )
    assert found["parameters"]["layers.0.covariance.variance"] > 0
    files = ["fit.png", "metrics.json", "model.npz", "report.html", "residuals.png", "training.png"]
    assert sorted(p.name for p in pathlib.Path("step-fit").iterdir()) == files
    fitted = fs.load_fitted("step-fit")
    assert isinstance(fitted.model, fs.DeepGP)
    lines = run(capsys, "predict", "step-fit", "step.csv", "--quantiles", "0.5")[0].splitlines()
    X = np.loadtxt("step.csv", delimiter=",")[:, :1]
    prediction = fitted.predict(X, [0.5])
    expected = prediction.mean[0], prediction.sd[0], prediction.quantiles[0, 0]
    np.testing.assert_allclose([float(cell) for cell in lines[1].split(",")], expected, rtol=1e-8)
    mean, _ = fs.predict_y(fitted.model, fitted.standardise_inputs(X))
    np.testing.assert_allclose(fitted.scale.y_mean + fitted.scale.y_scale * mean, prediction.mean)


@pytest.mark.parametrize(
    "method, posterior, options",
    [
        ("lsvgp", "LikelihoodForm", []),
        ("rsvgp", "Relaxed", ["--no-ard"]),
        ("solvegp", "WhitenedOrthogonal", ["--orthogonal", "3"]),
    ],
)
def test_other_methods_and_classes_in_float32(unplotted, capsys, method, posterior, options):
    deep = ["--layers", "3", "--width", "2", *FEW[2:-1], "40", "--learning-rate", "0.03"]
    run(
        capsys,
        "fit",
        "kind.csv",
        *deep,
        "--method",
        method,
        *options,
        "--dtype",
        "float32",
        "--out",
        "out",
        "--quiet",
    )
    model = fs.load_fitted("out").model
    assert [type(layer.posterior).__name__ for layer in model.layers] == [posterior] * 3
    assert [layer.check_shapes() for layer in model.layers] == [(3, (2,)), (2, (2,)), (2, (3,))]
    assert {
        np.asarray(value).dtype for _, _, value in fs.records.leaves(model) if np.ndim(value)
    } == {np.dtype(np.float32)}
    assert np.shape(model.layers[0].covariance.lengthscales) == (
        () if "--no-ard" in options else (3,)
    )
    found = results("out")["test"]
    assert found["model"]["nlpd"] < found["trivial"]["nlpd"]
    assert run(capsys, "predict", "out", "kind.csv")[0].startswith("class,p(high),p(low),p(middle)")


def test_one_layer_is_a_model_without_hidden_ones(unplotted, capsys):
    run(
        capsys,
        "fit",
        "two.csv",
        *FEW[2:],
        "--layers",
        "1",
        "--method",
        "svgp",
        "--out",
        "one",
        "--quiet",
    )
    run(capsys, "fit", "two.csv", *FEW[2:], "--method", "svgp", "--out", "none", "--quiet")
    assert run(capsys, "predict", "one", "two.csv") == run(capsys, "predict", "none", "two.csv")


def test_resume_ends_where_an_uninterrupted_run_ends(unplotted, capsys):
    few = ["fit", "two.csv", *FEW[:-1], "16", "--quiet"]
    run(capsys, *few, "--out", "whole")
    with at_call(minibatch, "elbo_and_grad", 9):
        assert main([*few, "--out", "half"]) == 130
    capsys.readouterr()
    for other, said in (
        (["--layers", "3"], "layers 2 then, 3 now"),
        (["--width", "1"], "width 2 then, 1 now"),
        (["--method", "lsvgp"], "method svgp then, lsvgp now"),
        (["--layers", "1"], "layers 2 then, None now"),
    ):
        assert main([*few, "--out", "half", "--resume", *other]) == 2
        assert said in capsys.readouterr().err
    run(capsys, *few, "--out", "half", "--resume")
    assert (
        run(capsys, "predict", "half", "two.csv")[0]
        == run(capsys, "predict", "whole", "two.csv")[0]
    )
