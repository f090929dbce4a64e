"""``fastsvgp fit`` by each method: many inputs, rounds of steps, two sets of inducing inputs."""

import json
import math
import pathlib
import signal

import numpy as np
import pytest
from support.cli_runs import FEW, FEW_SGPR, png, run, write_csv
from support.interruptions import at_call

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.report import plots
from fastsvgp.train.steps import minibatch


@pytest.mark.parametrize(
    "options",
    [[], ["--no-ard", "--covariance", "rbf"], ["--dtype", "float32", "--natural-step", "0"]],
)
def test_sgpr_and_svgp_of_many_inputs(here, capsys, rng, monkeypatch, options):
    X = rng.standard_normal((90, 3))
    write_csv("many.csv", "a,b,c,y", *X.T, X[:, 0] - X[:, 1] ** 2 + rng.normal(0, 0.1, 90))
    for method in ("sgpr", "svgp", "tsvgp", "lsvgp", "rsvgp", "solvegp", "odvgp"):
        if method in ("sgpr", "tsvgp") and "--natural-step" in options:
            continue
        plotted = method == "sgpr" and not options
        monkeypatch.setattr(plots, "available", lambda plotted=plotted: plotted)
        few = FEW_SGPR if method == "sgpr" else FEW
        run(capsys, "fit", "many.csv", *few, "--method", method, "--out", method, *options)
        results = json.loads(pathlib.Path(method, "metrics.json").read_text())
        assert results["test"]["model"]["rmse"] < 0.8 * results["test"]["trivial"]["rmse"]
        assert np.size(results["parameters"]["covariance.lengthscales"]) == (
            1 if "--no-ard" in options else 3
        )
        assert not plotted or png(f"{method}/predictions.png")
        model = fs.load_fitted(method).model
        sets = (
            (model.inducing.Z, model.inducing.O)
            if method in ("solvegp", "odvgp")
            else (model.inducing,)
        )
        assert {Z.dtype for Z in sets} == {
            np.dtype("float32" if "float32" in options else "float64")
        }


def test_rounds_of_steps(wave, unplotted, capsys, monkeypatch):
    """t-SVGP with several E- and M-steps; a resumed run ends like an uninterrupted one."""
    rounds = [
        "--method",
        "tsvgp",
        "--e-steps",
        "3",
        "--m-steps",
        "2",
        "--batch-size",
        "32",
        "--inducing",
        "12",
        "--quiet",
    ]
    rounds += ["--learning-rate", "0.05"]
    run(capsys, "fit", wave, *rounds, "--steps", "40", "--out", "whole")
    results = json.loads(pathlib.Path("whole/metrics.json").read_text())
    assert (results["method"], results["e_steps"], results["m_steps"], results["steps"]) == (
        "tsvgp",
        3,
        2,
        40,
    )
    assert results["test"]["model"]["rmse"] < 0.5 * results["test"]["trivial"]["rmse"]
    assert type(fs.load_fitted("whole").model.posterior) is fs.posteriors.AbsorbedDualSites
    plain, taken = minibatch.elbo_and_grad, []

    def interrupted(*args, **named):
        taken.append(1)
        if len(taken) == 31:
            signal.raise_signal(signal.SIGINT)
        return plain(*args, **named)

    monkeypatch.setattr(minibatch, "elbo_and_grad", interrupted)
    main(["fit", str(wave), *rounds, "--steps", "40", "--out", "half"])
    monkeypatch.setattr(minibatch, "elbo_and_grad", plain)
    assert json.loads(pathlib.Path("half/metrics.json").read_text())["interrupted"]
    run(capsys, "fit", wave, *rounds, "--steps", "40", "--out", "half", "--resume")
    assert run(capsys, "predict", "half", wave)[0] == run(capsys, "predict", "whole", wave)[0]
    run(capsys, "fit", wave, *rounds, "--epochs", "2", "--out", "epochs")
    rows = json.loads(pathlib.Path("epochs/metrics.json").read_text())["train_rows"]
    assert json.loads(pathlib.Path("epochs/metrics.json").read_text())["steps"] == math.ceil(
        2 * rows / 32 / 4
    )


@pytest.mark.parametrize(
    "method, second",
    [("solvegp", ["--orthogonal", "7"]), ("odvgp", ["--orthogonal", "20", "--sampled", "5"])],
)
def test_two_sets_of_inducing_inputs(wave, capsys, monkeypatch, method, second):
    """Both sets are in fit.png; a resumed run ends like an uninterrupted one."""
    drawn, plain = [], plots.fit_1d
    monkeypatch.setattr(plots, "fit_1d", lambda *a: drawn.append(a[5]) or plain(*a))
    out, _ = run(capsys, "fit", wave, *FEW, "--method", method, *second)
    size = int(second[1])
    assert f"12 + {size} inducing inputs" in out and png("wave-fit/fit.png")
    # data units
    assert [Z.shape for Z in drawn[0]] == [(12,), (size,)] and all(
        9 < np.median(Z) < 21 for Z in drawn[0]
    )
    results = json.loads(pathlib.Path("wave-fit/metrics.json").read_text())
    assert (results["method"], results["inducing"], results["orthogonal"]) == (method, 12, size)
    assert results["sampled"] == (5 if method == "odvgp" else None)
    assert results["test"]["model"]["rmse"] < 0.5 * results["test"]["trivial"]["rmse"]
    whole, _ = run(capsys, "predict", "wave-fit", wave)
    assert len(whole.splitlines()) == 121
    options = [*FEW[2:], "--method", method, *second, "--out", "half", "--quiet"]
    monkeypatch.setattr(plots, "available", lambda: False)
    with at_call(minibatch, "natural_step_and_grad", 30):
        assert main(["fit", wave, *FEW, *options]) == 130
    capsys.readouterr()
    run(capsys, "fit", wave, *FEW, *options, "--resume")
    assert run(capsys, "predict", "half", wave)[0] == whole


def test_sizes_of_two_sets_by_themselves(wave, unplotted, capsys):
    """Each set is as large as for svgp, but at most half of the rows."""
    run(capsys, "fit", wave, "--steps", "2", "--method", "solvegp", "--quiet", "--out", "a")
    run(
        capsys,
        "fit",
        wave,
        "--steps",
        "2",
        "--method",
        "odvgp",
        "--inducing",
        "30",
        "--quiet",
        "--out",
        "b",
    )
    found = [json.loads(pathlib.Path(folder, "metrics.json").read_text()) for folder in "ab"]
    sizes = [[one[name] for name in ("inducing", "orthogonal", "sampled")] for one in found]
    assert sizes == [[54, 54, None], [30, 30, 30]]
