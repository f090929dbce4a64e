"""The commands end to end on tiny data with few steps: output, files and exit codes."""

import io
import json
import os
import pathlib
import sys
import threading

import numpy as np
import pytest
from support.cli_runs import FEW, png, run, write_csv

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.fitted import Fitted
from fastsvgp.cli.report import metrics, plots
from fastsvgp.cli.report.lines import duration

DATA = pathlib.Path(
    os.environ.get("FASTSVGP_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared" / "data")
)


def test_fit_of_one_input(wave, capsys):
    out, _ = run(capsys, "fit", wave, *FEW)
    for part in (
        "120 rows, 1 input, target 'height'",
        "real-valued",
        "Gaussian likelihood",
        "Matérn 3/2",
        "RMSE",
        "NLPD",
        "trivial",
        "model.npz",
    ):
        assert part in out
    folder = pathlib.Path("wave-fit")
    assert sorted(p.name for p in folder.iterdir()) == [
        "fit.png",
        "metrics.json",
        "model.npz",
        "report.html",
        "residuals.png",
        "training.png",
    ]
    assert png(folder / "fit.png") and png(folder / "training.png")
    results = json.loads((folder / "metrics.json").read_text())
    assert results["test"]["model"]["rmse"] < 0.5 * results["test"]["trivial"]["rmse"]
    assert results["test"]["model"]["nlpd"] < results["test"]["trivial"]["nlpd"]
    assert (results["steps"], results["inducing"], results["test_rows"]) == (60, 12, 12)


def test_predictions_are_in_the_original_scale_and_by_name(wave, capsys, here):
    run(capsys, "fit", wave, *FEW, "--quiet")
    write_csv("new.csv", "extra,time", [0, 0, 0], [11.0, 12.5, 14.0])
    out, err = run(capsys, "predict", "wave-fit", "new.csv")
    assert out.splitlines()[0] == "mean,sd" and err == ""
    predicted = np.array(
        [[float(cell) for cell in line.split(",")] for line in out.splitlines()[1:]]
    )
    np.testing.assert_allclose(predicted[:, 0], 300 + 50 * np.sin([11.0, 12.5, 14.0]), atol=20)
    assert (predicted[:, 1] > 0).all()

    fitted = Fitted.load("wave-fit/model.npz")
    scaled = (np.array([[11.0], [12.5], [14.0]]) - fitted.scale.x_mean) / fitted.scale.x_scale
    mean, var = fs.predict_y(fitted.model, scaled)
    np.testing.assert_allclose(
        predicted[:, 0], fitted.scale.y_mean + fitted.scale.y_scale * mean, rtol=1e-8
    )
    np.testing.assert_allclose(predicted[:, 1], fitted.scale.y_scale * np.sqrt(var), rtol=1e-8)

    np.save("bare.npy", np.array([[11.0], [12.5], [14.0]]))
    assert run(capsys, "predict", "wave-fit", "bare.npy")[0] == out
    _, err = run(capsys, "predict", "wave-fit", wave, "--out", "out.csv")
    assert "RMSE" in err and len(pathlib.Path("out.csv").read_text().splitlines()) == 121


def test_one_seed_one_result(wave, unplotted, capsys):
    for name in "ab":
        run(capsys, "fit", wave, *FEW, "--steps", "10", "--quiet", "--out", name, "--seed", "3")
    assert run(capsys, "predict", "a", wave)[0] == run(capsys, "predict", "b", wave)[0]


def blobs(rng, names):
    codes = rng.integers(0, len(names), 120)
    X = np.stack([np.cos(2.1 * codes), np.sin(2.1 * codes)], axis=1) + 0.3 * rng.standard_normal(
        (120, 2)
    )
    return X, codes, [names[c] for c in codes]


@pytest.mark.parametrize(
    "names, options, likelihood",
    [
        (["no", "yes"], [], "BernoulliProbit"),
        (["no", "yes"], ["--method", "lsvgp"], "BernoulliProbit"),
        (["red", "green", "dark blue"], ["--method", "rsvgp"], "Softmax"),
        (["red", "green", "dark blue"], ["--method", "solvegp"], "Softmax"),
        (["no", "yes"], ["--method", "odvgp"], "BernoulliProbit"),
        (["0", "1"], ["--likelihood", "bernoulli-logit"], "BernoulliLogit"),
        (["red", "green", "dark blue"], [], "Softmax"),
        (["1", "2", "3"], ["--likelihood", "robustmax"], "RobustMax"),
    ],
)
def test_classification(here, capsys, rng, monkeypatch, names, options, likelihood):
    plotted = not options  # two and more classes once each
    monkeypatch.setattr(plots, "available", lambda: plotted)
    X, codes, labels = blobs(rng, names)
    write_csv("blobs.csv", "u,v,kind", *X.T, labels)
    out, _ = run(capsys, "fit", "blobs.csv", *FEW, *options, "--test-fraction", "0.3")
    assert likelihood in out and "classes" in out and "accuracy" in out
    results = json.loads(pathlib.Path("blobs-fit/metrics.json").read_text())
    assert (
        results["test"]["model"]["accuracy"] > 0.8
        and results["test"]["model"]["nlpd"] < results["test"]["trivial"]["nlpd"]
    )
    assert not plotted or png("blobs-fit/predictions.png")
    out, err = run(capsys, "predict", "blobs-fit", "blobs.csv")
    header, *rows = out.splitlines()
    assert (
        header == ",".join(["class"] + [f"p({name})" for name in sorted(names)])
        and "accuracy" in err
    )
    probabilities = np.array([[float(cell) for cell in row.split(",")[1:]] for row in rows])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert (
        np.mean([row.split(",")[0] == label for row, label in zip(rows, labels, strict=True)]) > 0.8
    )


def test_classes_over_one_input_counts_and_robust_regression(here, capsys, rng, monkeypatch):
    x = rng.uniform(0, 6, 90)
    np.savez("classes.npz", X=x[:, None], y=np.sin(x) > 0)
    run(capsys, "fit", "classes.npz", *FEW, "--quiet")
    assert png("classes-fit/fit.png")
    np.savez("counts.npz", X=x[:, None], y=rng.poisson(np.exp(2 + np.sin(x))))
    run(capsys, "fit", "counts.npz", *FEW, "--likelihood", "poisson", "--quiet")
    results = json.loads(pathlib.Path("counts-fit/metrics.json").read_text())
    assert results["test"]["model"]["nlpd"] < results["test"]["trivial"]["nlpd"]
    monkeypatch.setattr(plots, "available", lambda: False)
    for likelihood in ("student-t", "laplace"):
        np.savez("robust.npz", X=x[:, None], y=5 + np.sin(x) + 0.1 * rng.standard_t(3, 90))
        run(capsys, "fit", "robust.npz", *FEW, "--likelihood", likelihood, "--quiet")
        results = json.loads(pathlib.Path("robust-fit/metrics.json").read_text())
        assert results["test"]["model"]["nlpd"] < results["test"]["trivial"]["nlpd"]


def test_test_mask_and_constant_columns_are_reported(here, unplotted, capsys, rng):
    x = rng.standard_normal(60)
    write_csv("d.csv", "a,flat,y", x, np.full(60, 3.5), np.sin(x))
    write_csv("mask.csv", "s", np.arange(60) % 5 // 4)
    out, _ = run(
        capsys,
        "fit",
        "d.csv",
        *FEW,
        "--steps",
        "2",
        "--test-mask",
        "mask.csv:s",
        "--inducing",
        "500",
    )
    for part in (
        "12 for testing (test mask mask.csv:s)",
        "without information: flat",
        "500 inducing inputs were requested; 48",
    ):
        assert part in out


def test_standard_input_is_a_file_that_is_read_once(here, capsys, monkeypatch, rng):
    x = rng.uniform(0, 6, 60)
    write_csv("wave.csv", "x,y", x, rng.standard_normal(60))
    text = pathlib.Path("wave.csv").read_bytes()
    few = ["--steps", "2", "--inducing", "3", "--batch-size", "16"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    out, _ = run(capsys, "fit", "-", *few)
    assert "60 rows" in out and os.path.exists("stdin-fit/model.npz")
    os.mkfifo("pipe")
    writer = threading.Thread(target=pathlib.Path("pipe").write_bytes, args=(text,), daemon=True)
    writer.start()
    run(capsys, "fit", "pipe", *few, "--quiet")
    writer.join(10)
    results = [
        json.loads(pathlib.Path(name, "metrics.json").read_text())
        for name in ("stdin-fit", "pipe-fit")
    ]
    assert results[0]["test"] == results[1]["test"] and results[0]["rows"] == 60
    assert 0 < results[0]["first_step_seconds"] <= results[0]["seconds"]
    for twice in (["--target-file", "-"], ["--test-mask=-:0"]):
        assert main(["fit", "-", *twice]) == 2
        assert "standard input can be read only once" in capsys.readouterr().err


@pytest.mark.parametrize("better", [True, False])
def test_report_notes_a_model_no_better_than_the_trivial_one(wave, capsys, monkeypatch, better):
    regression = metrics.regression
    figures = {"rmse": 0.5, "nlpd": 0.5} if better else {"rmse": 50.0, "nlpd": 50.0}
    monkeypatch.setattr(
        metrics, "regression", lambda *arguments: regression(*arguments) | {"model": figures}
    )
    out, _ = run(capsys, "fit", wave, "--steps", "1", "--inducing", "3")
    note = (
        "  note       no better than the trivial predictor in RMSE and NLPD (with 12 held-out rows"
        " this can be chance): "
    )
    todo = (
        "the training was short; try more --steps, --inducing 108 (all rows) or another"
        " --covariance; or these inputs carry"
    )
    assert (note + todo in out) != better
    assert (todo in pathlib.Path("wave-fit/report.html").read_text()) != better


@pytest.mark.parametrize(
    "seconds, first, said",
    [(78.04, 40.0, "78.0 s, of which 40.0 s until the end of the first step"), (9.0, 0.2, "9.0 s")],
)
def test_the_time_of_the_first_step_is_printed_if_it_matters(seconds, first, said):
    words = duration(seconds, first)
    assert words.startswith(said) and ("first step" in words) == (first > 1)


def test_nothing_held_out(wave, capsys):
    out, _ = run(capsys, "fit", wave, *FEW, "--steps", "2", "--test-fraction", "0")
    assert (
        "Nothing was held out" in out
        and json.loads(pathlib.Path("wave-fit/metrics.json").read_text())["test"] is None
    )


def test_without_matplotlib_the_plots_are_skipped_and_said_so(wave, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    out, _ = run(capsys, "fit", wave, *FEW, "--steps", "2")
    assert "plots skipped: matplotlib is not installed" in out and "pip install" in out
    assert sorted(os.listdir("wave-fit")) == ["metrics.json", "model.npz", "report.html"]


def test_what_is_made_of_a_first_row_of_counts_is_in_the_report(here, unplotted, capsys, rng):
    write_csv("counts.csv", "0,1,2", *rng.integers(0, 50, (3, 30)))
    out, err = run(capsys, "fit", "counts.csv", "--steps", "1", "--inducing", "3")
    assert (
        "31 rows" in out
        and "note       counts.csv: the first line (0, 1, 2) is read as data" in err
    )
    assert run(capsys, "fit", "counts.csv", "--steps", "1", "--inducing", "3", "--quiet") == (
        "",
        "",
    )
    err = run(capsys, "predict", "counts-fit", "counts.csv", "--header", "yes", "--out", "p.csv")[1]
    assert "wrote 30 predictions" in err and "note" not in err


def test_banana(here, unplotted, capsys):
    if not (DATA / "banana.X.csv").is_file():
        pytest.skip(f"no banana data in {DATA}; set FASTSVGP_DATA")
    options = [
        "--target-file",
        str(DATA / "banana.y.csv"),
        "--inducing",
        "20",
        "--steps",
        "150",
        "--learning-rate",
        "0.03",
    ]
    run(
        capsys,
        "fit",
        str(DATA / "banana.X.csv"),
        *options,
        "--test-fraction",
        "0.25",
        "--quiet",
        "--out",
        "banana",
    )
    results = json.loads(pathlib.Path("banana/metrics.json").read_text())
    assert results["test"]["model"]["accuracy"] > 0.8 and results["test"]["model"]["nlpd"] < 0.5
