"""Files as people have them are read right, or refused with what is wrong."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from support.awkward_files import FILES, WEIGHT, N, expected
from support.cli_runs import results, run

from fastsvgp.cli import main
from fastsvgp.cli.data.tables import FileFormat
from fastsvgp.cli.data.task import load_task
from fastsvgp.cli.errors import UsageError
from fastsvgp.errors import DataFileError

FEW = ["--method", "sgpr", "--inducing", "8", "--steps", "5", "--out", "out"]


def write(name):
    """Write a file of the zoo; return its path and its facts."""
    file = FILES[name]
    path = f"d.{file.suffix}"
    pathlib.Path(path).write_bytes(file.content)
    return path, file


def test_there_are_enough():
    assert len(FILES) >= 40


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_read_right_or_refused(here, name):
    path, file = write(name)
    how = {"file_format": FileFormat(**file.how), "missing": "median", **file.given}
    if file.refused is not None:
        with pytest.raises((DataFileError, UsageError), match=file.refused):
            load_task(path, **how)
        return
    task = load_task(path, **how)
    assert (*task.input_names, task.target_name) == file.names
    there = np.arange(N) % 6 != 5 if "na" in file.how else np.ones(N, bool)
    for j, column in enumerate(expected(file.names[:-1])):
        if isinstance(column, np.ndarray):
            np.testing.assert_allclose(task.raw.numbers[:, j], column[there], rtol=1e-15)
        else:
            cells = [cell.partition(",")[0] for cell in task.raw.text[j]]
            assert cells == [cell for cell, one in zip(column, there, strict=True) if one]
    np.testing.assert_array_equal(task.y, np.array(WEIGHT)[there])


@pytest.mark.parametrize(
    "name, options",
    [
        ("a German spreadsheet", []),
        ("decimal commas, as said", ["--decimal", ","]),
        ("Excel's unicode text", []),
        ("latin 1", ["--encoding", "latin-1"]),
    ],
)
def test_a_fit_and_its_predictions(here, unplotted, capsys, name, options):
    path, file = write(name)
    run(capsys, "fit", path, *FEW, *options)
    out, _ = run(capsys, "predict", "out", path, *(options if "--encoding" in options else []))
    assert out.count("\n") == N + 1
    means = [float(line.split(",")[0]) for line in out.splitlines()[1:]]
    assert np.corrcoef(means, WEIGHT)[0, 1] > 0.3
    assert results("out")["target"] == file.names[-1]


def test_later_whole_numbers_have_the_decimal_mark_of_training(here, unplotted, capsys):
    rows = [f"{i};{i % 7},5" for i in range(30)]
    pathlib.Path("d.csv").write_text("\n".join(["x;y", *rows, ""]))
    run(capsys, "fit", "d.csv", *FEW, "--decimal", ",")
    pathlib.Path("new.csv").write_text("x\n1,5\n2\n")
    out, _ = run(capsys, "predict", "out", "new.csv")
    pathlib.Path("new.csv").write_text("x\n1.5\n2\n")
    assert run(capsys, "predict", "out", "new.csv", "--decimal", ".")[0] == out
    assert main(["predict", "out", "new.csv"]) == 2
    assert "'1.5' has a decimal point" in capsys.readouterr().err


def test_what_a_message_proposes(here, unplotted, capsys):
    rows = [f"{1 + i % 5},{100 + i}\t{i % 7}" for i in range(30)]
    pathlib.Path("d.csv").write_text("\n".join(["x\ty", *rows, ""]))
    out, _ = run(capsys, "fit", "d.csv", *FEW)
    assert "assumed, because 1.234,5 fits too: --decimal ,)" in out
    assert main(["fit", "d.csv", "--encoding", "rot13", *FEW]) == 2
    assert "utf-16, iso-8859-1 or cp1252, got 'rot13'" in capsys.readouterr().err


def test_a_terminal_without_accents_does_not_end_a_run(here):
    path, _ = write("Windows-1252")
    code = "import sys; from fastsvgp.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "fit", path, *FEW]
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ended = subprocess.run(command, env=os.environ | ascii_only, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert rb"Mat\xe9rn 3/2" in ended.stdout and "Matérn" in pathlib.Path(
        "out/report.html"
    ).read_text(encoding="utf-8")
