"""``--target a,b,c``, ``--latents`` and heteroskedastic noise, from a file to predictions."""

import json
import pathlib
import re

import numpy as np
import pytest
from support.cli_runs import fit, png, refused, results, run, stop_at, write_csv, write_rows

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.data.task import load_task

FEW = ["--steps", "40", "--inducing", "10", "--batch-size", "64", "--learning-rate", "0.05"]
ALL = ["--target", "a,b,c"]


@pytest.fixture
def mixed(here, rng):
    """A table of two inputs and three targets, mixtures of two functions, in the file d.csv."""
    X = rng.uniform(-2, 2, (90, 2))
    g = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2])
    Y = (np.array([[1, 0], [0.5, 1], [-1, 0.5]]) @ g).T + 0.1 * rng.standard_normal((90, 3))
    Y = Y * [1, 100, 0.01] + [0, 50, 3]
    write_csv("d.csv", "x,b,z,a,c", X[:, 0], Y[:, 1], X[:, 1], Y[:, 0], Y[:, 2])
    return X, Y


def holed(rng, share=0.2):
    """Empty some cells of the targets of d.csv; write holes.csv, and return where."""
    header, *lines = pathlib.Path("d.csv").read_text().splitlines()
    cells = np.array([line.split(",") for line in lines], object)
    gone = rng.random((len(cells), 3)) < share
    cells[:, [3, 1, 4]] = np.where(gone, "", cells[:, [3, 1, 4]])
    write_rows("holes.csv", header.split(","), cells)
    return gone


def predictions(out):
    """The header of a csv, and its numbers."""
    header, *lines = out.splitlines()
    return header.split(","), np.array([[float(c) for c in line.split(",")] for line in lines])


def test_latent_functions_from_file_to_predictions(mixed, capsys):
    out, _ = run(capsys, "fit", "d.csv", *ALL, "--latents", "2", *FEW)
    for part in (
        "90 rows, 2 inputs, targets 'a', 'b', 'c'",
        "several targets -> Gaussian likelihood",
        "SVGP of 2 latent functions, Matérn 3/2 ARD, 10 inducing inputs",
        "held-out rows, 'b', original scale",
    ):
        assert part in out
    folder, found = pathlib.Path("d-fit"), results("d-fit")
    assert png(folder / "predictions-3.png") and not (folder / "predictions.png").exists()
    assert (found["target"], found["latents"], found["inputs"]) == (["a", "b", "c"], 2, ["x", "z"])
    assert np.shape(found["parameters"]["mixing"]) == (3, 2)
    assert found["parameters"]["latents.1.covariance.variance"] == 1
    each = found["test"]["targets"]
    assert set(each) == {"a", "b", "c"} and each["b"]["original_scale"]["model"]["rmse"] > 1
    nlpd = np.mean([one["model"]["nlpd"] for one in each.values()])
    assert found["test"]["model"]["nlpd"] == pytest.approx(nlpd)
    assert found["test"]["model"]["rmse"] < 0.5 * found["test"]["trivial"]["rmse"]
    page = (folder / "report.html").read_text()
    assert "Target 3. The model on the held-out rows." in page and "original, b" in page

    out, err = run(capsys, "predict", "d-fit", "d.csv", "--quantiles", "0.1,0.9")
    header, numbers = predictions(out)
    assert header[:5] == ["mean(a)", "sd(a)", "q0.1(a)", "q0.9(a)", "mean(b)"]
    assert err.count("is in the file: RMSE") == 3
    fitted, (X, Y) = fs.load_fitted("d-fit"), mixed
    own = fitted.predict(X, (0.1, 0.9))
    assert own.mean.shape == own.sd.shape == (90, 3) and own.quantiles.shape == (2, 90, 3)
    np.testing.assert_allclose(numbers[:, 4::4][:, :1], own.mean[:, 1:2], rtol=1e-6)
    np.testing.assert_allclose(numbers[:, 11], own.quantiles[1, :, 2], rtol=1e-6)
    assert (abs(own.mean - Y).mean(axis=0) < 0.6 * Y.std(axis=0)).all()
    whole = fs.predict_log_density(
        fitted.model, fitted.standardise_inputs(X), fitted.model_targets(Y), jitter=fitted.jitter
    )
    np.testing.assert_allclose(fitted.log_density(X, Y), whole, rtol=1e-10)
    write_csv("new.csv", "z,x", [0.5, 1.0], [0.1, 0.2])
    assert len(predictions(run(capsys, "predict", "d-fit", "new.csv")[0])[1]) == 2
    np.savetxt("inputs.csv", X[:3], delimiter=",")
    assert len(predictions(run(capsys, "predict", "d-fit", "inputs.csv")[0])[1]) == 3


@pytest.mark.parametrize(
    "argv",
    [
        ["--latents", "separate"],
        ["--latents", "2", "--likelihood", "heteroskedastic"],
        ["--latents", "2", "--method", "lsvgp"],
        ["--latents", "2", "--method", "tsvgp", "--likelihood", "student-t"],
        ["--method", "svgp"],
        ["--method", "solvegp", "--latents", "separate"],
    ],
    ids=" ".join,
)
def test_missing_targets_do_not_count(mixed, rng, unplotted, capsys, argv):
    gone = holed(rng)
    out, _ = run(capsys, "fit", "holes.csv", *ALL, *argv, *FEW, "--dtype", "float32")
    some = gone[~gone.all(axis=1)]  # rows without any target are left out
    assert f"{some.sum()} of {some.size} targets are missing, and not used" in out
    found = results("holes-fit")
    assert all(np.isfinite(one["model"]["nlpd"]) for one in found["test"]["targets"].values())
    X, Y = mixed
    fitted = fs.load_fitted("holes-fit")
    np.testing.assert_allclose(fitted.scale.y_scale, Y.std(axis=0), rtol=0.3)
    density = fitted.log_densities(X, np.where(gone, np.nan, Y))
    assert (np.isnan(density) == gone).all()
    np.testing.assert_allclose(
        fitted.log_densities(X, Y)[~gone], density[~gone], rtol=1e-4, atol=1e-4
    )
    out, err = run(capsys, "predict", "holes-fit", "holes.csv")
    assert np.isfinite(predictions(out)[1]).all() and err.count("RMSE") == 3


def test_without_latents_all_targets_share_a_covariance(mixed, rng, unplotted, capsys):
    out, _ = run(capsys, "fit", "d.csv", *ALL, "--steps", "5", "--inducing", "10", "--out", "sgpr")
    assert "-> SGPR" in out and type(fs.load_fitted("sgpr").model) is fs.SVGP
    gone = holed(rng)
    out, _ = run(capsys, "fit", "holes.csv", *ALL, "--steps", "2", "--inducing", "10")
    assert "a missing target needs minibatches -> SVGP" in out and gone.any()


def test_counts_and_a_target_file(here, rng, unplotted, capsys):
    x = rng.uniform(-1, 1, 60)
    write_csv("x.csv", "x", x)
    write_csv("y.csv", "one,two", rng.poisson(np.exp(1 + x)), rng.poisson(np.exp(2 - x)))
    argv = ["x.csv", "--target-file", "y.csv", "--target", "one,two", "--latents", "1"]
    run(capsys, "fit", *argv, "--likelihood", "poisson", *FEW)
    test = results("x-fit")["test"]
    assert test["scale"] == "counts" and set(test["targets"]) == {"one", "two"}
    assert "mean(one)" in run(capsys, "predict", "x-fit", "x.csv")[0]


def test_noise_that_varies_on_one_target(here, rng, capsys):
    x = rng.uniform(0, 1, 200)
    y = 50 + 10 * np.sin(6 * x) + 10 * (0.05 + 0.45 * x) * rng.standard_normal(200)
    write_csv("fan.csv", "x,y", x, y)
    out, _ = run(
        capsys, "fit", "fan.csv", "--likelihood", "heteroskedastic", *FEW, "--steps", "250"
    )
    assert "HeteroskedasticGaussian likelihood" in out and "has no collapsed bound -> SVGP" in out
    assert png("fan-fit/fit.png")
    write_csv("ends.csv", "x", [0.05, 0.95])
    header, numbers = predictions(run(capsys, "predict", "fan-fit", "ends.csv")[0])
    assert header == ["mean", "sd", "q0.025", "q0.975"]
    assert numbers[1, 1] > 2.5 * numbers[0, 1]
    assert fs.load_fitted("fan-fit").target_name == "y"
    assert "latents.1.covariance.lengthscales" in results("fan-fit")["parameters"]


def test_an_interrupted_training_goes_on(mixed, rng, unplotted, capsys, monkeypatch):
    holed(rng)
    argv = ["fit", "holes.csv", *ALL, "--latents", "2", *FEW, "--quiet"]
    assert main([*argv, "--out", "whole"]) == 0
    with monkeypatch.context() as patch:

        def interrupt():
            raise KeyboardInterrupt

        stop_at(patch, 10, interrupt)
        assert main([*argv, "--out", "parts"]) == 130
    other = [*argv, "--out", "parts", "--resume"]
    other[other.index("2")] = "3"
    assert main(other) == 2
    assert "latents 2 then, 3 now" in capsys.readouterr().err
    assert main([*argv, "--out", "parts", "--resume"]) == 0
    for one, another in zip(
        *(fs.records.leaves(fs.load_fitted(name).model) for name in ("whole", "parts")), strict=True
    ):
        np.testing.assert_array_equal(one[2], another[2])


def test_a_name_with_a_comma_is_one_column(here, rng):
    rows = rng.standard_normal((20, 3))
    task = load_task(write_rows("d.csv", ["x", "y", "a, b"], rows), target="a, b")
    assert task.target_name == "a, b" and task.y.ndim == 1
    task = load_task("d.csv", target="0,-1")
    assert (task.target_name, task.columns["target"]) == (["x", "a, b"], [0, 2])
    np.testing.assert_array_equal(task.y, rows[:, [0, 2]])


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["--target", "a,w"], "--target: no column 'w'"),
        (["--target", "a,b,a"], "a is named twice"),
        (["--target", ","], "names no column"),
        ([*ALL, "--ignore", "b"], "--ignore: 'b' is the target"),
        ([*ALL, "--likelihood", "softmax"], "several targets must be numbers|too many for classes"),
        ([*ALL, "--seconds", "2"], "the search is for one target"),
        ([*ALL, "--latents", "0"], "expected a whole number from 1.*, got '0'; or give separate"),
        ([*ALL, "--latents", "10001"], "expected a whole number from 1 to 10000, got '10001'; or"),
        (
            [*ALL, "--likelihood", "heteroscedastic"],
            "argument --likelihood: invalid choice: 'heteroscedastic'; did you mean 'heterosk",
        ),
        ([*ALL, "--latents", "2", "--method", "sgpr"], "--latents 2 needs --method svgp, tsvgp"),
        ([*ALL, "--latents", "2", "--seconds", "2"], "--latents does, too"),
        ([*ALL, "--method", "qsgp"], "several targets need --method svgp"),
        ([*ALL, "--layers", "2"], "--layers: several targets cannot be combined with it"),
        (["--latents", "2", "--layers", "2"], "--layers: --latents 2 cannot be combined"),
        (["--likelihood", "heteroskedastic", "--method", "odvgp"], "heteroskedastic needs"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_go_together(mixed, capsys, argv, what):
    message = refused(capsys, "fit", "d.csv", *argv, "--quiet")
    assert re.search(what, message), message


def test_columns_that_are_no_several_targets(mixed, rng, unplotted, capsys):
    header = ["x", "a", "b"]
    rows = [[i, i * i, "" if i % 2 else "up"] for i in range(20)]
    write_rows("text.csv", header, rows)
    assert "several targets must be numbers, but 'b' holds text ('up'" in refused(
        capsys, "fit", "text.csv", "--target", "a,b"
    )
    write_rows("none.csv", header, [[i, i * i, ""] for i in range(20)])
    assert "the target 'b' is missing in every row" in refused(
        capsys, "fit", "none.csv", "--target", "a,b"
    )
    write_rows("same.csv", header, [[i, i * i, 3 if i else ""] for i in range(20)])
    assert "the target 'b' is constant" in refused(capsys, "fit", "same.csv", "--target", "a,b")
    holed(rng)
    message = refused(capsys, "fit", "holes.csv", *ALL, "--method", "sgpr")
    assert "some are missing; use --method svgp" in message
    message = fit(capsys, "holes.csv", "--target", "a", code=2)
    assert "the value is missing or NaN" in message


def test_damaged_descriptions_of_several_targets(mixed, unplotted, capsys):
    run(capsys, "fit", "d.csv", *ALL, "--latents", "2", *FEW, "--steps", "1", "--quiet")
    with np.load("d-fit/model.npz") as file:
        content = dict(file)
    text = str(content["__fastsvgp__"])
    for old, new in (
        ('["a", "b", "c"]', '["a", "b"]'),
        ('["a", "b", "c"]', '"a"'),
        ('"target": [3, 1, 4]', '"target": [3, 1, 9]'),
        ('"target": [3, 1, 4]', '"target": 3'),
        ('"target": [3, 1, 4]', '"target": [3, 1]'),
        ('"y_scale": {"array": [', '"y_scale": {"array": [1.0, '),
        ('"y_mean": {"array": [', '"y_mean": {"array": [null, '),
    ):
        assert old in text
        content["__fastsvgp__"] = np.array(text.replace(old, new))
        np.savez("damaged.npz", **content)
        with pytest.raises(fs.DataFileError, match="does not match"):
            fs.load_fitted("damaged.npz")
    assert json.loads(text)
