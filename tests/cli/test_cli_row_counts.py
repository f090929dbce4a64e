"""Each row counts: predictions of every line of a file, and rows of a file without a target."""

import gzip
import pathlib

import numpy as np
import pytest
from support.cli_runs import refused, run

import fastsvgp as fs
from fastsvgp.cli.data.held_out import split
from fastsvgp.cli.data.task import FileFormat, load_task
from fastsvgp.errors import DataFileError

N = 24
ROWS = [
    [f"{0.1 * i - 1:.2f}", f"{(7 * i) % 24 - 11.5}", f"{(i * i) % 17 + 0.25}"] for i in range(N)
]
NUMBERS = np.array(ROWS, float)
FEW = ["--method", "sgpr", "--inducing", "8", "--steps", "2"]


def joined(rows):
    return "".join(f"{','.join(row)}\n" for row in rows)


BODY = joined(ROWS)
TABLE = "a,b,y\n" + BODY


def test_predict_writes_a_line_for_every_line(here, unplotted, capsys):
    pathlib.Path("d.csv").write_text(TABLE)
    run(capsys, "fit", "d.csv", "--missing", "median", *FEW)
    rows = [["#N/A", *row[1:]] if i in (0, 5, N - 1) else row for i, row in enumerate(ROWS)]
    for text, count in ((joined(rows), N), (joined(rows) + ",,\n", N + 1)):
        for header in ("a,b,y\n", "# left\na,b,y\n", ""):
            pathlib.Path("new.csv").write_text(header + text)
            out, _ = run(capsys, "predict", "d-fit", "new.csv")
            assert out.count("\n") == count + 1
    pathlib.Path("new.csv").write_text("a,b,y\n" + BODY.replace("\n", "\n\n"))
    out, err = run(capsys, "predict", "d-fit", "new.csv")
    assert out.count("\n") == N + 1 and "23 blank lines between rows have no prediction" in err
    pathlib.Path("new.csv").write_text(TABLE + "Total,1,2\n")
    assert "'Total'" in refused(capsys, "predict", "d-fit", "new.csv")


def test_a_blank_line_of_one_column_is_no_prediction_less(here, unplotted, capsys):
    pathlib.Path("d.csv").write_text("a,y\n" + joined([row[::2] for row in ROWS]))
    run(capsys, "fit", "d.csv", *FEW)
    pathlib.Path("new.csv").write_text("a\n1\n\n3\n\n")
    message = refused(capsys, "predict", "d-fit", "new.csv")
    assert "1 of the lines of one column are blank; write NA" in message
    pathlib.Path("new.csv").write_text("a\n1\n3\n\n")
    assert run(capsys, "predict", "d-fit", "new.csv")[0].count("\n") == 3


def test_predictions_are_counted(here, unplotted, capsys, monkeypatch):
    pathlib.Path("d.csv").write_text(TABLE)
    run(capsys, "fit", "d.csv", *FEW)
    whole = fs.cli.fitted.Fitted.inputs
    monkeypatch.setattr(fs.cli.fitted.Fitted, "inputs", lambda *args: whole(*args)[1:])
    assert "23 predictions for 24 lines below the header" in refused(
        capsys, "predict", "d-fit", "d.csv"
    )


CODED = [row[:2] + ["-99.99" if i in (0, 3, 4) else row[2]] for i, row in enumerate(ROWS)]


@pytest.mark.parametrize("search", [False, True])
def test_rows_without_a_target_are_left_out_and_predicted(here, unplotted, capsys, search):
    pathlib.Path("d.csv").write_text("a,b,y\n" + joined(CODED))
    how = ["--seconds", "0.5"] if search else FEW
    out, err = run(capsys, "fit", "d.csv", "--na", "-99.99,***", *how)
    assert "data       21 rows" in out and "far from all other" not in err
    assert "3 rows without a target (the first in line 2): left out of training" in out
    assert "without_target.csv" in out.split("wrote")[1]
    header, *lines = pathlib.Path("d-fit/without_target.csv").read_text().splitlines()
    assert header.startswith("line,") and [line.split(",")[0] for line in lines] == ["2", "5", "6"]
    # the codes are kept with the model: the target is missing, and an input is refused
    out, err = run(capsys, "predict", "d-fit", "d.csv")
    found, written = (
        np.array([line.split(",") for line in some], float)
        for some in (out.splitlines()[1:], lines)
    )
    np.testing.assert_allclose(found[[0, 3, 4]], written[:, 1:], rtol=1e-6)
    assert "RMSE" not in err
    for code in ("-99.99", "-9.999e1", "***"):
        pathlib.Path("new.csv").write_text(f"a,b\n1,2\n{code},3\n")
        assert "line 3, column 'a': the value is missing" in refused(
            capsys, "predict", "d-fit", "new.csv"
        )
    run(capsys, "fit", "d.csv", *FEW)
    assert not pathlib.Path("d-fit/without_target.csv").exists()


def test_rows_without_a_target_of_an_array_and_of_classes(here, unplotted, capsys):
    y = np.where(np.arange(N) % 4 == 1, np.nan, NUMBERS[:, 2])
    np.savez("d.npz", X=NUMBERS[:, :2], y=y)
    run(capsys, "fit", "d.npz", *FEW)
    written = pathlib.Path("d-fit/without_target.csv").read_text().splitlines()
    assert written[0] == "row,mean,sd" and [w.split(",")[0] for w in written[1:]] == [
        str(i) for i in range(1, N, 4)
    ]
    classes = [row[:2] + ["" if i % 4 == 1 else "odd,even".split(",")[i % 2]] for i, row in
               enumerate(ROWS)]  # fmt: skip
    with gzip.open("c.csv.gz", "wt") as file:
        file.write("a,b,y\n" + joined(classes))
    task = load_task("c.csv.gz")
    assert task.classes == ["even", "odd"] and task.X.shape == (18, 2)
    assert task.untargeted.line_numbers() == list(range(3, N + 2, 4))


def test_inputs_can_be_missing_where_the_target_is(here, unplotted, capsys):
    pathlib.Path("d.csv").write_text(TABLE + "7,,\n")
    out, _ = run(capsys, "fit", "d.csv", *FEW)
    assert "the rows without a target are not predicted: d.csv, line 26, column 'b'" in out
    assert not pathlib.Path("d-fit/without_target.csv").exists()


def test_a_mask_and_a_target_file_count_all_rows(here):
    pathlib.Path("d.csv").write_text("a,b,y\n" + joined(CODED))
    pathlib.Path("mask.csv").write_text("".join(f"{int(i in (3, 5, 6))}\n" for i in range(N)))
    task = split(load_task("d.csv", file_format=FileFormat(na=("-99.99",))), mask="mask.csv:0")
    kept = [i for i in range(N) if i not in (0, 3, 4)]
    np.testing.assert_array_equal(task.X, NUMBERS[kept, :2])
    assert np.flatnonzero(task.test).tolist() == [kept.index(5), kept.index(6)]
    pathlib.Path("y.csv").write_text("y\n" + "".join(f"{row[2]}\n" for row in CODED))
    pathlib.Path("x.csv").write_text("a,b\n" + joined(row[:2] for row in ROWS) + ",\n")
    with pytest.raises(DataFileError, match="24 rows, but x.csv has 25"):
        load_task("x.csv", target_file="y.csv")
