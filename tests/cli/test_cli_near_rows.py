"""``--neighbours K``: from a file to predictions."""

import os
import signal

import numpy as np
import pytest
from support.cli_runs import refused, results, run, stop_at, write_csv

import fastsvgp as fs
from fastsvgp.cli import main

pytestmark = pytest.mark.usefixtures("unplotted")
FEW = ["--method", "svgp", "--steps", "20", "--inducing", "10", "--batch-size", "64"]


@pytest.fixture
def wave(here, rng):
    x = rng.uniform(0, 30, 120)
    y = 5 + np.sin(2 * x) + 0.05 * rng.standard_normal(120)
    write_csv("d.csv", "x,y", x, y)
    write_csv("kinds.csv", "x,y", x, rng.integers(0, 3, 120))
    return x, y


def test_near_rows_from_file_to_predictions(wave, capsys):
    out, _ = run(capsys, "fit", "d.csv", *FEW, "--neighbours", "4")
    assert "SVGP, Matérn 3/2, 4 near rows, 10 inducing inputs" in out
    assert "trained    470 steps" in out
    assert results("d-fit")["neighbours"] == 4
    model = fs.load_fitted("d-fit").model
    assert type(model) is fs.VIF and model.near.earlier.shape == (108, 4)
    out, _ = run(capsys, "predict", "d-fit", "d.csv")
    mean = np.array([float(line.split(",")[0]) for line in out.splitlines()[1:]])
    assert np.sqrt(np.mean(np.square(mean - wave[1]))) < 0.3


def test_an_interrupted_training_gets_near_rows_when_it_resumes(wave, capsys, monkeypatch):
    words = ["fit", "d.csv", *FEW, "--neighbours", "4"]
    run(capsys, *words, "--out", "whole")
    stop_at(monkeypatch, 30, lambda: os.kill(os.getpid(), signal.SIGINT))  # of 450 with near rows
    assert main([*words, "--out", "other"]) == 130
    assert fs.load("other/checkpoint.npz").step == 20
    run(capsys, *words, "--out", "other", "--resume")
    one, other = (fs.load_fitted(name).model for name in ("whole", "other"))
    np.testing.assert_array_equal(one.inducing, other.inducing)
    assert not os.path.exists("other/checkpoint.npz")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["d.csv", "--neighbours", "4", "--method", "qsgp"], "--neighbours is for --method svgp"),
        (["d.csv", "--neighbours", "4", "--layers", "2"], "--layers cannot be combined with it"),
        (["d.csv", "--neighbours", "108"], "--neighbours 108 is not below the 108 training rows"),
        (["kinds.csv", "--neighbours", "4"], "--likelihood softmax cannot be combined with it"),
        (["d.csv", "--neighbours", "4", "--seconds", "9"], "--neighbours does, too"),
    ],
)
def test_what_near_rows_cannot_be_combined_with(wave, capsys, words, message):
    assert message in refused(capsys, "fit", *words)
