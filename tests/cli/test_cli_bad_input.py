"""Bad input on the command line: one message, exit code 2, no traceback, no files left."""

import errno
import functools
import os

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.optim.base import Diverged
from fastsvgp.recipes import routine
from fastsvgp.records.persistence import load_with_extra
from fastsvgp.train.steps import minibatch

FEW = ["--steps", "2", "--inducing", "4", "--batch-size", "16"]


@pytest.fixture
def here(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    X = rng.standard_normal((40, 2))
    np.savetxt(
        "good.csv", np.column_stack([X, X.sum(axis=1)]), delimiter=",", header="a,b,y", comments=""
    )
    return tmp_path


def refused(capsys, *argv):
    """Run a command that must be refused without leaving a new file; return the message."""
    before = (
        sorted(p for p, _, _ in os.walk(".")),
        sorted(f for _, _, files in os.walk(".") for f in files),
    )
    code = main(list(argv))
    out, err = capsys.readouterr()
    assert code == 2, (code, out, err)
    lines = [line for line in err.splitlines() if not line.startswith(("  training", "  note"))]
    assert len(lines) == 1 and lines[0].startswith("fastsvgp") and "error: " in lines[0], err
    assert "Traceback" not in err
    assert (
        sorted(p for p, _, _ in os.walk(".")),
        sorted(f for _, _, files in os.walk(".") for f in files),
    ) == before
    return lines[0]


@pytest.mark.parametrize(
    "argv, said",
    [
        ([], ["COMMAND"]),
        (["train"], ["train", "fit"]),
        (["fit"], ["FILE", "fit --help"]),
        (["fit", "good.csv", "--likelihood", "normal"], ["--likelihood", "'normal'", "gaussian"]),
        (["fit", "good.csv", "--covariance", "cubic"], ["--covariance", "'cubic'", "matern32"]),
        (["fit", "good.csv", "--method", "exact"], ["--method", "svgp"]),
        (["fit", "good.csv", "--inducing", "0"], ["--inducing", "whole number from 1", "'0'"]),
        (["fit", "good.csv", "--inducing", "many"], ["--inducing", "'many'"]),
        (["fit", "good.csv", "--learning-rate", "-1"], ["--learning-rate", "above 0", "'-1'"]),
        (["fit", "good.csv", "--learning-rate", "nan"], ["--learning-rate", "'nan'"]),
        (
            ["fit", "good.csv", "--natural-step", "1.5"],
            ["--natural-step", "from 0 to 1, got '1.5'"],
        ),
        (
            ["fit", "good.csv", "--natural-step", "0.1", "--method", "lsvgp"],
            ["--natural-step", "--method svgp"],
        ),
        (
            ["fit", "good.csv", "--natural-step", "0.1", "--method", "sgpr"],
            ["--natural-step", "--method svgp", "L-BFGS"],
        ),
        (
            ["fit", "good.csv", "--natural-step", "0", "--method", "tsvgp"],
            ["--natural-step 0", "sites", "above 0"],
        ),
        (
            ["fit", "good.csv", "--e-steps", "2", "--natural-step", "0"],
            ["--e-steps 2", "--natural-step is 0"],
        ),
        (
            ["fit", "good.csv", "--e-steps", "2", "--method", "lsvgp"],
            ["--e-steps is for --method svgp, tsvgp", "with lsvgp"],
        ),
        (
            ["fit", "good.csv", "--m-steps", "2", "--method", "sgpr"],
            ["--m-steps is for --method svgp, tsvgp", "with sgpr"],
        ),
        (["fit", "good.csv", "--m-steps", "0"], ["--m-steps", "whole number from 1", "'0'"]),
        (
            ["fit", "good.csv", "--orthogonal", "9", "--method", "svgp"],
            ["--orthogonal", "solvegp and odvgp", "with svgp"],
        ),
        (
            ["fit", "good.csv", "--orthogonal", "9"],
            ["--orthogonal is for --method solvegp and odvgp; with sgpr leave it out"],
        ),
        (
            ["fit", "good.csv", "--sampled", "9", "--method", "solvegp"],
            ["--sampled is for --method odvgp; with solvegp"],
        ),
        (
            ["fit", "good.csv", "--method", "odvgp", "--orthogonal", "9", "--sampled", "10"],
            ["--sampled 10", "more than --orthogonal 9"],
        ),
        (
            ["fit", "good.csv", "--method", "solvegp", "--orthogonal", "999"],
            ["--orthogonal 999 are more than the", "give fewer"],
        ),
        (
            ["fit", "good.csv", "--method", "solvegp", "--orthogonal", "0"],
            ["--orthogonal", "whole number from 1", "'0'"],
        ),
        (
            ["fit", "good.csv", "--batch-size", "32", "--method", "sgpr"],
            ["sgpr", "L-BFGS", "leave out --batch-size,"],
        ),
        (
            ["fit", "good.csv", "--learning-rate", "0.01", "--method", "sgpr"],
            ["sgpr", "leave out --learning-rate, which"],
        ),
        (["fit", "good.csv", "--test-fraction", "1"], ["--test-fraction", "below 1"]),
        (["fit", "good.csv", "--steps", "5", "--epochs", "2"], ["--epochs", "--steps"]),
        (["fit", "good.csv", "--frobnicate"], ["--frobnicate"]),
        (["fit", "none.csv"], ["cannot read none.csv", "No such file"]),
        (["fit", "good.csv", "--target", "price"], ["--target", "'price'", "a, b, y"]),
        (["fit", "good.csv", "--ignore", "c"], ["--ignore", "'c'"]),
        (["fit", "good.csv", "--target-file", "none.csv"], ["cannot read none.csv"]),
        (["fit", "good.csv", "--test-mask", "none.csv:0"], ["cannot read none.csv"]),
        (["fit", "good.csv", "--delimiter", "::"], ["--delimiter"]),
        (["fit", "good.csv", "--delimiter", "\n"], ["--delimiter", "one character"]),
        (
            ["fit", "good.csv", "--method", "sgpr", "--likelihood", "laplace"],
            ["--method sgpr", "gaussian", "laplace"],
        ),
        (["fit", "good.csv", "--resume"], ["--resume", "checkpoint"]),
        (["predict", "none.npz", "good.csv"], ["cannot read the model none.npz"]),
        (["predict", "good.csv", "good.csv"], ["good.csv is not a fastsvgp model"]),
    ],
)
def test_arguments(here, capsys, argv, said):
    message = refused(capsys, *argv)
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    "text, said",
    [
        ("a,b,y\n1,2,3\n4,5\n", ["line 3", "2 cells", "3 columns"]),
        ("a,b,y\n1,2,3\n4,,6\n7,8,9.5\n", ["line 3", "'b'", "missing", "--missing median"]),
        ("a,b,y\n1,2,3\n4,5,nan\n7,8,9.5\n", ["line 3", "'y'", "missing or NaN"]),
        ("a,b,y\n1,2,3\n4,inf,3.5\n7,8,9.5\n", ["line 3", "'b'", "infinite"]),
        (
            "a,b,y\n1,2.5,3\n4,oops,5.5\n7,3.5,4\n",
            ["line 3", "2 cells of column 'b'", "'oops' (line 3) is not", "--ignore b"],
        ),
        ("a,b,y\n1,red,3\n4,,5.5\n", ["line 3", "'b'", "missing", "--missing median"]),
        ("a,b,y\n1,2,3\n4,1e200,5.5\n7,8,9\n", ["line 3", "'b'", "1e+200", "too large"]),
        ("a;y\n1;2,5\n2;3,5\n3;4,5\n", ["'y'", "decimal commas"]),
        ("a,y\n1,2.5\n2,oops\n3,4.5\n", ["'y'", "2 cells are numbers, but 'oops' is not"]),
        ("a,b,y\n1,2,3\n4,5,3\n6,7,3\n", ["'y' is constant", "--target"]),
        ("y\n1\n2\n", ["one column", "--target-file"]),
        ("a,y\n1,2.5\n", ["only 1 row of data"]),
        ("a,y\n1,2.5\n2,3.5\n", ["row", "training"]),
        ("", ["no rows of data"]),
    ],
)
def test_files(here, capsys, text, said):
    (here / "bad.csv").write_text(text)
    message = refused(capsys, "fit", "bad.csv", *FEW)
    for part in ["bad.csv"] * ("line" in said[0]) + said:
        assert part in message


@pytest.fixture
def fitted(here, unplotted, capsys):
    assert main(["fit", "good.csv", "--out", "fit", "--quiet", *FEW]) == 0
    capsys.readouterr()
    return "fit"


def test_predict_refuses_other_columns(fitted, here, capsys):
    (here / "names.csv").write_text("a,c\n1,2\n")
    assert "lacks the input column 'b'" in refused(capsys, "predict", fitted, "names.csv")
    (here / "wide.csv").write_text("1,2,3,4\n1,2,3,4\n")
    message = refused(capsys, "predict", fitted, "wide.csv")
    assert "4 columns" in message and "2 inputs (a, b)" in message
    (here / "nan.csv").write_text("a,b\n1,2\n3,nan\n")
    assert "line 3, column 'b'" in refused(capsys, "predict", fitted, "nan.csv")


def test_predict_refuses_models_that_fit_did_not_write(fitted, here, capsys):
    fs.save("bare.npz", fs.RBF(variance=1.0, lengthscales=1.0))
    assert "RBF" in refused(capsys, "predict", "bare.npz", "good.csv")
    content = (here / "fit" / "model.npz").read_bytes()
    model, extra = load_with_extra(here / "fit" / "model.npz")
    fs.save("newer.npz", model, command_line=extra["command_line"] | {"weather": "fine"})
    message = refused(capsys, "predict", "newer.npz", "good.csv")
    assert "newer.npz does not match this version of `fastsvgp fit` (the description has" in message
    (here / "cut.npz").write_bytes(content[: len(content) // 2])
    assert "cut.npz" in refused(capsys, "predict", "cut.npz", "good.csv")
    assert "not a table of data" in refused(capsys, "fit", "fit/model.npz")


def test_a_target_is_never_to_be_ignored_and_predict_has_no_option_to_ignore(fitted, here, capsys):
    (here / "bad.csv").write_text("a,b,y\n1,2,3\n4,5,nan\n7,8,9.5\n")
    assert "--ignore" not in refused(capsys, "fit", "bad.csv", *FEW)
    for cell in ("nan", "red"):
        (here / "new.csv").write_text(f"a,b\n1,2\n3,{cell}\n")
        assert "--ignore" not in refused(capsys, "predict", fitted, "new.csv")


def test_arrays_of_objects(here, capsys):
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    message = refused(capsys, "fit", "objects.npy")
    assert "objects.npy" in message and "plain array" in message


def test_predict_names_the_file_that_cannot_be_written(fitted, here, capsys):
    message = refused(capsys, "predict", fitted, "good.csv", "--out", "nowhere/out.csv")
    assert "cannot write nowhere/out.csv: No such file" in message and "space" not in message


def test_predict_leaves_the_old_file_when_the_disk_is_full(fitted, here, capsys, monkeypatch):
    (here / "out.csv").write_text("old")
    full_disk(monkeypatch)
    assert "No space left" in refused(capsys, "predict", fitted, "good.csv", "--out", "out.csv")
    assert (here / "out.csv").read_text() == "old"


def test_fit_says_that_the_disk_is_full_and_leaves_nothing(here, capsys, monkeypatch):
    full_disk(monkeypatch)
    message = refused(capsys, "fit", "good.csv", "--out", "new/fit", "--quiet", *FEW)
    assert "cannot write" in message and "No space left on device" in message and "--out" in message


def test_fit_refuses_a_folder_that_cannot_be_written_before_it_trains(here, capsys):
    (here / "file").write_text("")
    assert "cannot write file" in refused(
        capsys, "fit", "good.csv", "--out", "file/fit", "--steps", "1000000"
    )


@pytest.mark.parametrize("natural", [True, False])
def test_a_training_that_diverges_says_what_to_do_on_the_command_line(
    here, unplotted, capsys, monkeypatch, natural
):
    """The advice names options, not Python arguments, and --resume only after a checkpoint."""
    options = [
        "--out",
        "fit",
        "--quiet",
        *FEW[2:],
        "--steps",
        "9",
        *(["--natural-step", "0.5"] if natural else []),
    ]
    real, calls = minibatch.natural_step_and_grad, []

    def spoiled(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise Diverged("the bound is nan")
        return real(*args, **kwargs)

    monkeypatch.setattr(minibatch, "natural_step_and_grad", spoiled)
    message = refused(capsys, "fit", "good.csv", *options)
    for part in (
        "the bound is nan",
        "had done 3 of 9 steps",
        "--learning-rate or --natural-step",
        "--jitter may help",
    ):
        assert part in message
    assert "resume" not in message
    calls.clear()
    monkeypatch.setattr(routine, "fit", functools.partial(routine.fit, checkpoint_every=2))
    assert main(["fit", "good.csv", *options]) == 2
    message = capsys.readouterr().err
    assert (
        "checkpoint.npz holds the state after step 2" in message
        and "with --resume to continue from the checkpoint" in message
    )
    assert "`resume`" not in message and os.listdir("fit") == ["checkpoint.npz"]
    assert main(["fit", "good.csv", *options, "--resume"]) == 0
    assert "checkpoint.npz" not in os.listdir("fit")


@pytest.mark.parametrize("after", [1, 2, 3, 4, 5])
def test_a_disk_that_fills_up_on_the_way_holds_whole_files_only(here, capsys, monkeypatch, after):
    full_disk(monkeypatch, after)
    assert main(["fit", "good.csv", "--out", "fit", "--quiet", *FEW]) == 2
    assert "No space left on device; no half-written file is left" in capsys.readouterr().err
    left = sorted(os.listdir("fit"))
    # as written; with the first the checkpoint goes
    results = ["model.npz", "metrics.json", "training.png", "predictions.png"]
    assert left == (["checkpoint.npz"] if after == 1 else sorted(results[: after - 1]))
    for name in left:
        if name.endswith("npz"):
            load_with_extra(here / "fit" / name)


def full_disk(monkeypatch, after=0):
    """Let every write after the first ``after`` files fail."""
    written = []

    def fsync(handle):
        written.append(handle)
        if len(written) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_traceback_for_those_who_ask(here, capsys):
    for argv in (["fit", "none.csv"], ["predict", "none", "good.csv"]):
        assert main([*argv, "--traceback"]) == 2
        err = capsys.readouterr().err
        assert (
            err.startswith("Traceback (most recent call last)")
            and "fastsvgp" in err.splitlines()[-1]
        )
        assert refused(capsys, *argv) == err.splitlines()[-1]
