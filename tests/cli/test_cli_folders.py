"""Output folders: ownership, locks, and what survives a full disk, a signal and other data."""

import errno
import json
import os
import pathlib
import shutil
import tempfile

import numpy as np
import pytest
from support.cli_runs import FEW_STEPS as FEW, fit, stop_at, write_table

import fastsvgp as fs
from fastsvgp import files
from fastsvgp.cli import main
from fastsvgp.cli.progress import Progress
from fastsvgp.cli.report.outputs import LOCK, default_folder
from fastsvgp.recipes.scaling import Scale

pytestmark = pytest.mark.usefixtures("unplotted")


def interrupt():
    raise KeyboardInterrupt


def files_in(folder):
    return {name: pathlib.Path(folder, name).read_bytes() for name in os.listdir(folder)}


# --- whose folder it is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, folder",
    [
        ("data/airfoil.csv", "airfoil-fit"),
        ("data.v1.csv", "data.v1-fit"),
        ("data.v2.csv.gz", "data.v2-fit"),
        ("airfoil.data.csv.gz", "airfoil.data-fit"),
        ("abalone.data", "abalone-fit"),
        ("A.CSV.GZ", "A-fit"),
        ("a.npz", "a-fit"),
        ("a.npy", "a-fit"),
        ("a.tsv", "a-fit"),
        ("results.2024", "results.2024-fit"),
        ("table", "table-fit"),
        (".csv", "fastsvgp-fit"),
        ("-", "fastsvgp-fit"),
    ],
)
def test_the_default_folder_has_the_whole_name(path, folder):
    assert default_folder(path) == folder


def test_results_of_another_file_of_equal_name_are_kept(table, capsys):
    os.mkdir("one")
    shutil.move("d.csv", "one/d.csv")
    write_table("two/d.csv", -table)
    fit(capsys, "one/d.csv")
    before = files_in("d-fit")
    said = fit(capsys, "two/d.csv", code=2)
    for part in (
        f"d-fit holds the results of {os.path.realpath('one/d.csv')}; choose another",
        "--out",
        "--out d-fit",
    ):
        assert part in said
    assert files_in("d-fit") == before
    fit(capsys, "two/d.csv", "--out", "d-fit")  # requested
    assert files_in("d-fit") != before
    fit(capsys, "one/d.csv", code=2)


def test_same_file_or_same_data_can_be_fitted_again(table, capsys):
    fit(capsys, "d.csv")
    fit(capsys, "d.csv")
    write_table("d.csv", np.vstack([table, -table]))  # more rows
    fit(capsys, "d.csv")
    os.mkdir("moved")
    shutil.move("d.csv", "moved/d.csv")
    os.symlink("moved/d.csv", "link.csv")
    fit(capsys, "moved/d.csv")
    os.rename("d-fit", "link-fit")
    fit(capsys, "link.csv")
    assert json.loads(pathlib.Path("link-fit/metrics.json").read_text())["source"][
        "file"
    ] == os.path.realpath("moved/d.csv")


def test_results_of_nobody_knows_what(table, capsys):
    fit(capsys, "d.csv")
    metrics = pathlib.Path("d-fit/metrics.json")
    for content in ('{"data": "d.csv"}', "[]", "no json"):
        metrics.write_text(content)
        assert "d-fit holds the results of " in fit(capsys, "d.csv", code=2)
    metrics.unlink()
    assert "unknown data" in fit(capsys, "d.csv", code=2)
    os.unlink("d-fit/model.npz")
    fit(capsys, "d.csv")


# --- who writes to it -----------------------------------------------------------------------------


def test_two_processes_in_one_folder_are_reported(table, capsys):
    os.mkdir("out")
    handle = files.take_lock(f"out/{LOCK}")
    said = fit(capsys, "d.csv", "--out", "out", code=2)
    assert (
        f"out is in use by another fit (process {os.getpid()} on " in said
        and "choose another --out" in said
    )
    assert os.listdir("out") == [LOCK]
    files.release_lock(f"out/{LOCK}", handle)
    pathlib.Path("out", LOCK).write_text("process 1 on a machine that lost its power")
    fit(capsys, "d.csv", "--out", "out")
    assert sorted(os.listdir("out")) == ["metrics.json", "model.npz", "report.html"]


def test_what_killed_runs_left_goes(table, capsys):
    os.mkdir("out")
    for name in ("model.npz", "metrics.json", "checkpoint.npz", "fit.png", "mine.txt"):
        pathlib.Path("out", f".{name}.abcd1234.part").write_text("half")
    fit(capsys, "d.csv", "--out", "out")
    assert sorted(os.listdir("out")) == [
        ".mine.txt.abcd1234.part",
        "metrics.json",
        "model.npz",
        "report.html",
    ]


# --- a checkpoint that is there -------------------------------------------------------------------


@pytest.fixture
def interrupted(table, capsys, monkeypatch):
    """A folder ``out`` with the checkpoint of step 3 of 6."""
    stop_at(monkeypatch, 3, interrupt)
    assert "same command with --resume" in fit(capsys, "d.csv", "--out", "out", code=130)
    assert sorted(os.listdir("out")) == [
        "checkpoint.npz",
        "metrics.json",
        "model.npz",
        "report.html",
    ]
    return table


def predictions(capsys, folder):
    assert main(["predict", folder, "d.csv"]) == 0
    return capsys.readouterr().out


def test_a_forgotten_resume_writes_over_nothing(interrupted, capsys):
    before = files_in("out")
    said = fit(capsys, "d.csv", "--out", "out", code=2)
    for part in (
        "out holds checkpoint.npz of an unfinished run",
        "continue it with --resume",
        "delete the file",
        "another --out",
    ):
        assert part in said
    assert files_in("out") == before
    fit(capsys, "d.csv", "--out", "out", "--resume")
    fit(capsys, "d.csv", "--out", "whole")
    assert predictions(capsys, "out") == predictions(capsys, "whole")
    fit(capsys, "d.csv", "--out", "out")  # no unfinished run is left


def test_a_deleted_checkpoint_is_a_new_start(interrupted, capsys):
    os.unlink("out/checkpoint.npz")
    fit(capsys, "d.csv", "--out", "out")
    assert "there is no checkpoint" in fit(capsys, "d.csv", "--out", "out", "--resume", code=2)


def masked(count, first):
    np.savetxt(
        "mask.csv",
        (np.arange(40) < count + first) & (np.arange(40) >= first),
        fmt="%d",
        header="m",
        comments="",
    )


def test_resume_goes_on_with_the_same_data_only(interrupted, capsys):
    before = files_in("out")

    def refused(*argv):
        said = fit(capsys, "d.csv", "--out", "out", "--resume", *argv, code=2)
        assert "out/checkpoint.npz belongs to " in said and files_in("out") == before
        return said

    assert "inputs a, b then, a, y now, target y then, b now" in refused("--target", "b")
    assert "inputs a, b then, b now" in refused("--ignore", "a")
    masked(4, 0)  # as many rows as the random tenth
    assert "held out: a random 10 % held out, seed 0 then, test mask mask.csv:m now" in refused(
        "--test-mask", "mask.csv:m"
    )
    write_table("d.csv", 2 * interrupted)
    assert "the training rows differ" in refused()
    swapped = interrupted.copy()
    trained = np.flatnonzero(
        ~np.isin(np.arange(40), np.random.default_rng([0, 40]).permutation(40)[:4])
    )
    swapped[trained] = interrupted[trained[::-1]]
    write_table("d.csv", swapped)
    assert "the training rows differ" in refused()
    write_table("d.csv", interrupted)
    fit(capsys, "d.csv", "--out", "out", "--resume")


@pytest.mark.parametrize(
    "given, said",
    [
        (["--covariance", "rbf"], "covariance matern32 then, rbf now"),
        (["--learning-rate", "0.02"], "`optimiser.step_size` 0.01 then, 0.02 now"),
        (["--jitter", "1e-5"], "`jitter` 1e-06 then, 1e-05 now"),
        (["--e-steps", "2"], "`e_steps` 1 then, 2 now"),
    ],
)
def test_resume_goes_on_with_the_same_arguments_only(interrupted, capsys, given, said):
    before = files_in("out")
    message = fit(capsys, "d.csv", "--out", "out", "--resume", *given, code=2)
    assert (
        f"out/checkpoint.npz belongs to another fit ({said}); give the same data and arguments"
        in message
    )
    # no training step failed
    assert "may help" not in message and files_in("out") == before


def test_another_mask_of_the_same_name_is_other_data(table, capsys, monkeypatch):
    masked(4, 0)
    stop_at(monkeypatch, 3, interrupt)
    fit(capsys, "d.csv", "--out", "out", "--test-mask", "mask.csv:m", code=130)
    masked(4, 1)
    said = fit(capsys, "d.csv", "--out", "out", "--test-mask", "mask.csv:m", "--resume", code=2)
    assert "(other rows held out)" in said
    masked(4, 0)
    os.rename("mask.csv", "renamed.csv")
    fit(capsys, "d.csv", "--out", "out", "--test-mask", "renamed.csv:m", "--resume")


def test_a_machine_that_rounds_means_otherwise_goes_on_bitwise(interrupted, capsys, monkeypatch):
    plain = Scale.fit

    def rounded(*args, **named):
        scale = plain(*args, **named)
        scale.x_mean, scale.y_scale = scale.x_mean + 1e-15, np.nextafter(scale.y_scale, 9.0)
        return scale

    fit(capsys, "d.csv", "--out", "whole")
    monkeypatch.setattr(Scale, "fit", rounded)
    fit(capsys, "d.csv", "--out", "out", "--resume")
    assert predictions(capsys, "out") == predictions(capsys, "whole")


def test_checkpoint_not_written_by_fit_is_refused(interrupted, capsys):
    state = fs.load("out/checkpoint.npz")
    for name, wrong in (
        ("model", fs.RBF()),
        ("model", None),
        ("data", None),
        ("note", None),
        ("note", {}),
        ("note", [1]),
        ("note", {**state.note, "inputs": 3}),
    ):
        fs.save("out/checkpoint.npz", fs.replace(state, **{name: wrong}))
        said = fit(capsys, "d.csv", "--out", "out", "--resume", code=2)
        assert (
            said.startswith("fastsvgp fit: error: --resume: out/checkpoint.npz ")
            and said.count("\n") == 1
        ), (name, wrong)
    fs.save("out/checkpoint.npz", state)
    fit(capsys, "d.csv", "--out", "out", "--resume")


# --- a full disk ----------------------------------------------------------------------------------


def full(monkeypatch, *names):
    """Let no file with one of these names fit on the disk any more, in the folder ``out``."""
    plain = os.replace

    def replace(source, target):
        if os.path.basename(target) in names and os.path.basename(os.path.dirname(target)) == "out":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(source, target)

    monkeypatch.setattr(os, "replace", replace)


def test_full_disk_after_training_leaves_the_checkpoint(table, capsys, monkeypatch):
    full(monkeypatch, "model.npz")
    said = fit(capsys, "d.csv", "--out", "out", code=2)
    for part in (
        "cannot write out/model.npz: No space left on device",
        "the trained model is safe in out/checkpoint.npz",
        "the same command with --resume writes the results without training again",
    ):
        assert part in said
    assert os.listdir("out") == ["checkpoint.npz"]


def test_the_model_that_was_safe_is_written_when_there_is_space(table, capsys, monkeypatch, here):
    with monkeypatch.context() as disk:
        full(disk, "model.npz")
        fit(capsys, "d.csv", "--out", "out", code=2)
    steps = []
    monkeypatch.setattr(Progress, "__call__", lambda self, step, value, info: steps.append(step))
    fit(capsys, "d.csv", "--out", "out", "--resume")
    assert steps == [] and sorted(os.listdir("out")) == ["metrics.json", "model.npz", "report.html"]
    fit(capsys, "d.csv", "--out", "whole")
    assert predictions(capsys, "out") == predictions(capsys, "whole")


def test_full_disk_without_checkpoint_saves_the_model_elsewhere(table, capsys, monkeypatch, here):
    (here / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here / "tmp"))
    fit(capsys, "d.csv", "--out", "whole")
    full(monkeypatch, "model.npz", "checkpoint.npz")
    said = fit(capsys, "d.csv", "--out", "out", code=2)
    (folder,) = os.listdir("tmp")
    path = here / "tmp" / folder / "model.npz"
    assert (
        f"the trained model is kept in {path}, which `fastsvgp predict` can use" in said
        and not os.path.exists("out")
    )
    assert predictions(capsys, str(path)) == predictions(capsys, "whole")


def test_where_nothing_can_be_written_nothing_is_promised(table, capsys, monkeypatch, here):
    (here / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(here / "tmp"))
    monkeypatch.setenv("HOME", str(here / "tmp"))

    def fsync(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    said = fit(capsys, "d.csv", "--out", "out", code=2)
    assert "free some space, or choose another --out" in said and "trained model" not in said
    assert sorted(os.listdir()) == ["d.csv", "tmp"] and os.listdir("tmp") == []


def test_disk_full_after_the_model_says_where_the_model_is(table, capsys, monkeypatch):
    full(monkeypatch, "metrics.json")
    said = fit(capsys, "d.csv", "--out", "out", code=2)
    assert "cannot write out/metrics.json" in said and "the model is safe in out/model.npz" in said
    assert os.listdir("out") == ["model.npz"]


# --- counts without end ---------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--steps", "--inducing", "--batch-size"])
@pytest.mark.parametrize("much", [str(10**22), "1" + "0" * 400, "1" + "0" * 5000])
def test_counts_that_no_machine_holds(table, capsys, option, much):
    said = (
        fit(capsys, "d.csv", option, much, code=2)
        if option != "--steps"
        else refused_steps(capsys, much)
    )
    assert (
        f"argument {option}: expected a whole number from 1 to 1000000000000000, got '1000" in said
    )


def refused_steps(capsys, much):
    assert main(["fit", "d.csv", "--steps", much]) == 2
    return capsys.readouterr().err


def test_epochs_and_seeds_without_end(table, capsys):
    assert main(["fit", "d.csv", "--epochs", "1e300"]) == 2
    assert (
        "--epochs 1e+300 are " in (said := capsys.readouterr().err) and "give fewer epochs" in said
    )
    assert main(["fit", "d.csv", *FEW, "--seed", "1" + "0" * 400]) == 0
