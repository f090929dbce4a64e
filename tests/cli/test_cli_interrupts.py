"""Ctrl-C, SIGTERM and SIGHUP: the model so far is kept, and --resume continues."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import termios

import pytest
from support.cli_runs import FEW, FEW_SGPR, fit, run, stop_at
from support.interruptions import after_step

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.train.kinds import sgpr as lbfgs
from fastsvgp.train.steps import minibatch

pytestmark = pytest.mark.usefixtures("unplotted")


@pytest.mark.parametrize("method", ["svgp", "lsvgp", "rsvgp"])
def test_resume_ends_where_an_uninterrupted_run_ends(wave, unplotted, capsys, method):
    few, other = (
        [*FEW, "--steps", "30", "--method", method],
        ("lsvgp" if method == "svgp" else "svgp"),
    )
    run(capsys, "fit", wave, *few, "--quiet", "--out", "whole")
    with after_step(20):
        assert main(["fit", wave, *few, "--quiet", "--out", "parts"]) == 130
    assert "after 20 steps is kept in parts/model.npz" in capsys.readouterr().err
    assert sorted(os.listdir("parts")) == [
        "checkpoint.npz",
        "metrics.json",
        "model.npz",
        "report.html",
    ]
    assert (
        main(["fit", wave, *few, "--quiet", "--out", "parts", "--resume", "--covariance", "rbf"])
        == 2
    )
    assert (
        "--resume" in (err := capsys.readouterr().err)
        and "covariance matern32 then, rbf now" in err
    )
    assert (
        main(["fit", wave, *few, "--quiet", "--out", "parts", "--resume", "--method", other]) == 2
    )
    assert (
        "--resume" in (err := capsys.readouterr().err)
        and f"method {method} then, {other} now" in err
    )
    run(capsys, "fit", wave, *few, "--quiet", "--out", "parts", "--resume")
    assert not os.path.exists("parts/checkpoint.npz")
    for name in ("whole", "parts"):
        assert json.loads(pathlib.Path(name, "metrics.json").read_text())["steps"] == 30
    assert run(capsys, "predict", "parts", wave)[0] == run(capsys, "predict", "whole", wave)[0]


def test_ctrl_c_keeps_the_sgpr_so_far(wave, unplotted, capsys):
    with after_step(3):
        assert main(["fit", wave, *FEW_SGPR, "--method", "sgpr", "--out", "out"]) == 130
    out, err = capsys.readouterr()
    assert (
        "interrupted" in err
        and "RMSE" in out
        and fs.load_fitted("out").model.inducing.shape == (12, 1)
    )


@pytest.mark.parametrize("method", ["svgp", "sgpr"])
def test_ctrl_c_before_the_first_step_keeps_nothing(wave, capsys, monkeypatch, method):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(minibatch, "natural_step_and_grad", interrupted)
    monkeypatch.setattr(lbfgs, "collapsed_bound_and_grad", interrupted)
    before = sorted(os.listdir())
    assert main(["fit", wave, *FEW_SGPR, "--method", method, "--out", "out"]) == 130
    assert "interrupted" in capsys.readouterr().err and sorted(os.listdir()) == before
    os.mkdir("out")
    pathlib.Path("out", "model.npz").write_text("of an earlier run")
    assert main(["fit", wave, *FEW_SGPR, "--method", method, "--out", "out"]) == 130
    assert {p.name: p.read_text() for p in pathlib.Path("out").iterdir()} == {
        "model.npz": "of an earlier run"
    }


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_keeps_the_model_so_far_and_the_checkpoint(
    table, capsys, monkeypatch, number, code
):
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)
    monkeypatch.setattr("fastsvgp.cli._mute", lambda: None)  # pytest's own terminal is still there
    try:
        stop_at(monkeypatch, 3, lambda: os.kill(os.getpid(), number))
        said = fit(capsys, "d.csv", "--out", "out", code=code)
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)
    assert "interrupted: the model after 3 steps is kept in out/model.npz" in said
    assert sorted(os.listdir("out")) == [
        "checkpoint.npz",
        "metrics.json",
        "model.npz",
        "report.html",
    ]
    assert fs.load("out/checkpoint.npz").step == 3
    fit(capsys, "d.csv", "--out", "out", "--resume")


def test_model_survives_a_closed_terminal(table):
    """SIGHUP to a process without its terminal, whose every output is an error."""
    # a parent process can ignore the signal, and children inherit that
    ignored = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 120))
    root = pathlib.Path(fs.__file__).resolve().parents[1]
    options = ["--steps", "1000000", "--inducing", "4", "--batch-size", "16", "--out", "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fastsvgp", "fit", "d.csv", *options],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
            "TERM": "dumb",
        },
    )
    try:
        os.close(its)
        shown = b""
        while b"ELBO" not in shown:  # the bar shows that steps are taken
            shown += os.read(ours, 1000)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=300) == 129
    finally:
        signal.signal(signal.SIGHUP, ignored)
        process.kill()
        process.wait()
    assert json.loads(pathlib.Path("out/metrics.json").read_text())["interrupted"] is True
    assert (
        fs.load_fitted("out").model.inducing.shape == (4, 2)
        and fs.load("out/checkpoint.npz").step > 0
    )
