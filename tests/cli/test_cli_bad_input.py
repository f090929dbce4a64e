"""Bad input on the command line: one message, exit code 2, no traceback, no files left."""

import errno
import functools
import os
import shlex

import numpy as np
import pytest
from support.cli_runs import refused

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.errors import Diverged
from fastsvgp.recipes import routine
from fastsvgp.records.persistence import load_with_extra
from fastsvgp.train.steps import minibatch

FEW = ["--steps", "2", "--inducing", "4", "--batch-size", "16"]


# Each row: arguments, then the parts of the message that refuses them.
COMMANDS = [
    ("", "COMMAND"),
    ("train", "train", "fit"),
    ("fit", "FILE", "fit --help"),
    ("fit none.csv", "cannot read none.csv", "No such file"),
    ("predict none.npz good.csv", "cannot read the model none.npz"),
    ("predict good.csv good.csv", "good.csv is not a fastsvgp model"),
]

# of ``fastsvgp fit good.csv``
OPTIONS = [
    ("--likelihood normal", "--likelihood", "'normal'", "gaussian"),
    ("--covariance cubic", "--covariance", "'cubic'", "matern32"),
    ("--method exact", "--method", "svgp"),
    ("--inducing 0", "--inducing", "whole number from 1", "'0'"),
    ("--inducing many", "--inducing", "'many'"),
    ("--learning-rate -1", "--learning-rate", "above 0", "'-1'"),
    ("--learning-rate nan", "--learning-rate", "'nan'"),
    ("--natural-step 1.5", "--natural-step", "from 0 to 1, got '1.5'"),
    ("--natural-step 0.1 --method lsvgp", "--natural-step", "--method svgp"),
    ("--natural-step 0.1 --method sgpr", "--natural-step", "--method svgp", "L-BFGS"),
    ("--natural-step 0 --method tsvgp", "--natural-step 0", "sites", "above 0"),
    ("--e-steps 2 --natural-step 0", "--e-steps 2", "--natural-step is 0"),
    ("--e-steps 2 --method lsvgp", "--e-steps is for --method svgp, tsvgp", "with lsvgp"),
    ("--m-steps 2 --method sgpr", "--m-steps is for --method svgp, tsvgp", "with sgpr"),
    ("--m-steps 0", "--m-steps", "whole number from 1", "'0'"),
    ("--orthogonal 9 --method svgp", "--orthogonal", "solvegp and odvgp", "with svgp"),
    ("--orthogonal 9", "--orthogonal is for --method solvegp and odvgp; with sgpr leave it out"),
    ("--sampled 9 --method solvegp", "--sampled is for --method odvgp; with solvegp"),
    ("--method odvgp --orthogonal 9 --sampled 10", "--sampled 10", "more than --orthogonal 9"),
    ("--method solvegp --orthogonal 999", "--orthogonal 999 are more than the", "give fewer"),
    ("--method solvegp --orthogonal 0", "--orthogonal", "whole number from 1", "'0'"),
    ("--batch-size 32 --method sgpr", "sgpr", "L-BFGS", "leave out --batch-size,"),
    ("--learning-rate 0.01 --method sgpr", "sgpr", "leave out --learning-rate, which"),
    ("--within 0.1 --method svgp", "--within is for --method sgpr; with svgp leave it out"),
    ("--within 0.1 --likelihood laplace", "--method sgpr needs the gaussian likelihood"),
    ("--within 0", "--within", "above 0", "'0'"),
    ("--test-fraction 1", "--test-fraction", "below 1"),
    ("--steps 5 --epochs 2", "--epochs", "--steps"),
    ("--frobnicate", "--frobnicate"),
    ("--target price", "--target", "'price'", "a, b, y"),
    ("--ignore c", "--ignore", "'c'"),
    ("--target-file none.csv", "cannot read none.csv"),
    ("--test-mask none.csv:0", "cannot read none.csv"),
    ("--delimiter ::", "--delimiter"),
    ("--delimiter '\n'", "--delimiter", "one character"),
    ("--method sgpr --likelihood laplace", "--method sgpr", "gaussian", "laplace"),
    ("--resume", "--resume", "checkpoint"),
    # --- layers
    (
        "--layers 2 --method sgpr",
        "--layers is for --method svgp, lsvgp, rsvgp, solvegp; with sgpr leave it out",
    ),
    ("--layers 2 --method qsgp", "with qsgp leave it out"),
    ("--layers 2 --method odvgp", "with odvgp leave it out"),
    ("--layers 2 --method tsvgp", "with tsvgp leave it out"),
    ("--layers 0", "--layers: expected a whole number from 1 to"),
    ("--width 3", "--width is the number of outputs of hidden layers; give --layers 2 or more"),
    ("--layers 1 --width 3", "give --layers 2 or more"),
    ("--layers 2 --width 0", "--width: expected a whole number from 1 to"),
    (
        "--layers 2 --patch-shape 1x1 --image-shape 1x2",
        "--layers and --patch-shape cannot be combined",
    ),
    ("--layers 2 --method lsvgp --natural-step 0.1", "with lsvgp Adam trains the posterior too"),
    ("--layers 2 --method svgp --orthogonal 3", "--orthogonal is for --method solvegp"),
    # --- random Fourier features
    ("--method qsgp --inducing 9", "--inducing", "--features"),
    ("--method qsgp --features 9", "--features 9", "pairs", "even"),
    ("--method qsgp --features 8 --dense-columns 9", "--dense-columns 9", "more than --features 8"),
    ("--method qsgp --features 8 --basis-batch 9", "--basis-batch 9", "more than --features 8"),
    ("--method qsgp --control-points 999", "--control-points 999", "36 training rows"),
    ("--method qsgp --likelihood student-t", "log-concave", "student-t", "--method svgp"),
    ("--method qsgp --natural-step 0.1", "--natural-step", "AdaGrad"),
    ("--method svgp --features 8", "--features is for --method qsgp; with svgp"),
    ("--basis-batch 8", "--basis-batch is for --method qsgp"),
    ("--learn-hyperparameters", "--learn-hyperparameters is for --method qsgp"),
]

# of ``fastsvgp fit`` for files of images
IMAGES = [
    ("images.npz", "of shape (60, 5, 4); for images, give --patch-shape"),
    ("images.npz --patch-shape 6x2", "--patch-shape 6x2 is larger than the images, 5x4x1"),
    (
        "images.npz --patch-shape 5",
        "--patch-shape: expected whole numbers above 0 separated by x, as in 5x5",
    ),
    ("images.npz --patch-shape 0x2", "--patch-shape: expected whole numbers above 0"),
    ("images.npz --patch-shape 2x2 --stride 0", "--stride: expected a whole number from 1 to"),
    (
        "images.npz --patch-shape 2x2 --image-shape 4x5",
        "--image-shape 4x5x1: the images in the file are 5x4x1",
    ),
    ("images.npz --patch-shape 2x2 --method sgpr", "with sgpr leave it out"),
    ("images.npz --patch-shape 2x2 --method qsgp", "with qsgp leave it out"),
    (
        "images.npz --patch-shape 2x2 --inducing 2000",
        "--inducing 2000 (given, or the default): patches:",
    ),
    (
        "images.npz --patch-shape 2x2 --ignore 3",
        "that is 20 numbers per image, but there are 19 inputs",
    ),
    (
        "images.npy --patch-shape 2x2",
        "holds images X, but no y; give the target with --target-file",
    ),
    (
        "table.csv --patch-shape 2x2",
        "rows of 20 inputs are not square images with one channel; give --image-shape",
    ),
    (
        "table.csv --patch-shape 2x2 --image-shape 4x4",
        "--image-shape 4x4x1: that is 16 numbers per image, but",
    ),
    (
        "table.csv --image-shape 5x4",
        "--image-shape is for functions of patches; also give --patch-shape",
    ),
    ("table.csv --stride 2", "--stride is for functions of patches; also give --patch-shape"),
]


@pytest.fixture
def here(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    X = rng.standard_normal((40, 2))
    np.savetxt(
        "good.csv", np.column_stack([X, X.sum(axis=1)]), delimiter=",", header="a,b,y", comments=""
    )
    return tmp_path


@pytest.fixture
def images(here, rng):
    """Images (N, H, W) with and without labels, and as rows of pixels in a table."""
    pixels, kinds = rng.uniform(0, 30, (60, 5, 4)), np.arange(60) % 2
    np.savez("images.npz", X=pixels, y=kinds)
    np.save("images.npy", pixels)
    np.savetxt("table.csv", np.column_stack([pixels.reshape(60, -1), kinds]), delimiter=",")


def assert_refused(capsys, command, messages, notes=False):
    """Check that a command is refused with a message that has all of some parts."""
    message = refused(capsys, *shlex.split(command), notes=notes)
    assert [part for part in messages if part not in message] == []


@pytest.mark.parametrize("command, messages", [(row[0], row[1:]) for row in COMMANDS])
def test_commands(here, capsys, command, messages):
    assert_refused(capsys, command, messages)


@pytest.mark.parametrize("options, messages", [(row[0], row[1:]) for row in OPTIONS])
def test_options(here, capsys, options, messages):
    assert_refused(capsys, f"fit good.csv {options}", messages)


@pytest.mark.parametrize("options, messages", [(row[0], row[1:]) for row in IMAGES])
def test_options_for_images(images, capsys, options, messages):
    assert_refused(capsys, f"fit {options}", messages, notes=True)


@pytest.mark.parametrize(
    "text, said",
    [
        ("a,b,y\n1,2,3\n4,5\n", ["line 3", "2 cells", "3 columns"]),
        ("a,b,y\n1,2,3\n4,,6\n7,8,9.5\n", ["line 3", "'b'", "missing", "--missing median"]),
        ("a,b,y\n1,2,\n4,5,nan\n7,8,NA\n", ["'y' is missing in every row"]),
        ("a,b,y\n1,2,3\n4,inf,3.5\n7,8,9.5\n", ["line 3", "'b'", "infinite"]),
        (
            "a,b,y\n1,2.5,3\n4,oops,5.5\n7,3.5,4\n",
            ["line 3", "column 'b'", "'oops' is not a number", "--ignore b"],
        ),
        ("a,b,y\n1,red,3\n4,,5.5\n5,red,4\n", ["line 3", "'b'", "missing", "--missing median"]),
        ("a,b,y\n1,2,3\n4,1e200,5.5\n7,8,9\n", ["line 3", "'b'", "1e+200", "too large"]),
        (
            "a,y\nred,2\nblue,3\n",
            ["column 'a' holds text with 2 levels in 2 rows", "'red', line 2"],
        ),
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
    (here / "names.csv").write_text("a,b,b\n1,2,3\n")
    assert "repeats the input column 'b'" in refused(capsys, "predict", fitted, "names.csv")
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


def test_advice_never_ignores_a_target_or_a_column_in_predict(fitted, here, capsys):
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


def test_unwritable_folder_is_refused_before_training(here, capsys):
    (here / "file").write_text("")
    assert "cannot write file" in refused(
        capsys, "fit", "good.csv", "--out", "file/fit", "--steps", "1000000"
    )


@pytest.mark.parametrize("natural", [True, False])
def test_diverged_training_names_options_of_the_command_line(
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
    # in the order of writing; the checkpoint is removed after the first
    results = ["model.npz", "metrics.json", "effects.png", "residuals.png"]
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
