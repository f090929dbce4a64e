"""``--within W``: inducing inputs are doubled until the exact process is that near."""

import signal

import numpy as np
import pytest
from support.cli_runs import refused, results, run, stop_at, write_csv

import fastsvgp as fs
from fastsvgp.cli import main

OPTIONS = ["--within", "0.02", "--inducing", "4"]


@pytest.fixture
def waves(here, rng):
    x = rng.uniform(-3, 3, 160)
    write_csv("w.csv", "x,y", x, np.sin(3 * x) + 0.2 * rng.standard_normal(160))


def test_the_report_says_how_near_the_exact_process_is(waves, unplotted, capsys):
    out, _ = run(capsys, "fit", "w.csv", *OPTIONS)
    found, fitted = results("w-fit"), fs.load_fitted("w-fit")
    interval, M = found["certificate"], len(fitted.model.inducing)
    assert M == found["inducing"] > 4 and found["method"] == "sgpr"
    assert interval["per_row"] <= interval["within"] == 0.02
    assert interval["num_data"] == found["train_rows"]
    line = (
        f"the evidence is within {interval['per_row']:.2g} nats a row of the exact process, with"
        f" {M} inducing inputs"
    )
    assert line in out and "SGPR, Matérn 3/2, 4 inducing inputs" in out
    assert line in open("w-fit/report.html", encoding="utf-8").read()
    rows = set(np.loadtxt("w.csv", delimiter=",", skiprows=1)[:, 0].round(6))
    assert {*fitted.scale.X_back(fitted.model.inducing)[:, 0].round(6)} <= rows
    again, _ = run(capsys, "fit", "w.csv", "--method", "sgpr", "--inducing", "5", "--out", "few")
    interval = results("few")["certificate"]
    assert interval["within"] is None and interval["per_row"] > 0.01
    assert f"within {interval['per_row']:.2g} nats a row" in again
    run(capsys, "fit", "w.csv", "--method", "svgp", "--steps", "3", "--out", "svgp")
    assert results("svgp")["certificate"] is None


def test_an_interrupted_run_resumes(waves, unplotted, monkeypatch, capsys):
    run(capsys, "fit", "w.csv", *OPTIONS, "--out", "whole")
    stop_at(monkeypatch, results("whole")["steps"] - 2, lambda: signal.raise_signal(signal.SIGINT))
    assert main(["fit", "w.csv", *OPTIONS, "--out", "parts"]) == 130
    capsys.readouterr()
    refused(capsys, "fit", "w.csv", "--inducing", "4", "--method", "sgpr", "--out", "parts",
            "--resume")  # fmt: skip
    run(capsys, "fit", "w.csv", *OPTIONS, "--out", "parts", "--resume")
    ends = [results(folder) for folder in ("whole", "parts")]
    assert ends[0]["inducing"] <= ends[1]["inducing"]
    assert ends[1]["elbo"] > ends[0]["elbo"] - 0.02 * ends[0]["train_rows"]


def test_steps_can_end_it_before(waves, unplotted, capsys):
    out, err = run(capsys, "fit", "w.csv", "--within", "1e-6", "--inducing", "4", "--steps", "3")
    assert "exact      the evidence is within" in out
    assert "the training ended before it reached `within`" in err
