"""Codes of missing values: which are noted, and what ``--na`` makes of them."""

import numpy as np
import pytest
from support.cli_runs import refused, run, write_csv

import fastsvgp as fs
from fastsvgp.cli.arguments import parser
from fastsvgp.cli.data.notes import codes
from fastsvgp.cli.data.tables import read_table
from fastsvgp.cli.data.task import FileFormat, load_task
from fastsvgp.errors import DataFileError

FEW = ["--method", "sgpr", "--inducing", "8", "--steps", "2"]
# mean 0, sd 1
REST = np.tile([-np.sqrt(1.5), 0, np.sqrt(1.5)], 20)


@pytest.mark.parametrize(
    "rest, odd, found",
    [
        # repeated values, beyond ten sds of the others
        (REST, [10.01, 10.01], [10.01]),
        (REST, [-10.01, -10.01], [-10.01]),
        (REST, [9.99, 9.99], []),
        (REST, [10.01], []),
        (REST, [10.01, 10.02], []),
        # known codes, at half a sd from the nearest
        (570 * REST, [999], [999]),
        (590 * REST, [999], []),
        (np.arange(1, 500) % 340, [-200], [-200]),
        (np.arange(1.0, 1000), [999], []),
        (np.arange(1.0, 600), [-999, -999, 1e20], [-999, 1e20]),
        (REST, [1e20], [1e20]),
        (REST, [9.969209968386869e36], [9.969209968386869e36]),
        # several codes, of which the inner one alone is far from the rest
        (REST, [-88.5, -88.5, -77.5, -77.5], [-88.5, -77.5]),
        (REST, [-99.99, np.nan, 999.9], [-99.99, 999.9]),
        (REST, [np.inf, -88.5, -88.5], [-88.5]),
        # columns of few values, and of none
        (np.tile([0.0, 0, 0, 0, 1], 20), [], []),
        (np.zeros(200), [1, 1], []),
        (np.zeros(200), [1, 999], []),
        (np.full(9, np.nan), [], []),
    ],
)
def test_which_values_are_noted(rng, rest, odd, found):
    values = rng.permutation(np.concatenate([rest, odd]))
    assert codes(values) == pytest.approx(found)


@pytest.mark.parametrize("draw", ["standard_normal", "poisson", "lognormal", "exponential"])
def test_no_sample_is_full_of_codes(rng, draw):
    samples = [getattr(rng, draw)(size=300) for _ in range(40)]
    assert sum(bool(codes(np.asarray(sample, float))) for sample in samples) == 0


def test_the_note_names_column_and_option(here, caplog, rng):
    x, y = rng.standard_normal((2, 60))
    x[[3, 7]], y[9] = -77.25, -9999
    write_csv("d.csv", "x,z,y", x, x**2, y)
    load_task("d.csv", ignore=["z"])
    assert [record.getMessage() for record in caplog.records] == [
        "d.csv, column 'x': 2 cells are -77.25, far from all other values; if they mark missing"
        " values, give --na -77.25",
        "d.csv, column 'y': 1 cells are -9999, far from all other values; if they mark missing"
        " values, give --na -9999",
    ]


@pytest.mark.parametrize(
    "words, found",
    [
        (["--na", "-99.99,***"], ["-99.99", "***"]),
        (["--na=-99.99, ***"], ["-99.99", "***"]),
        (["--na", "--"], ["--"]),
        (["--na", "-"], ["-"]),
        (["--missing", "median", "--na", "M", "--quiet"], ["M"]),
        ([], []),
    ],
)
def test_codes_may_begin_with_a_minus(words, found):
    assert parser().parse_args(["fit", "d.csv", *words]).na == found
    assert parser().parse_args(["fit", *words, "d.csv"]).file == "d.csv"


def test_codes_are_empty_in_every_kind_of_file(tmp_path):
    for text in ("1,2\n-99.990,3\n4,5\n", "1,2\n***,3\n4,M\n", "a,b\n1,2\n-9999e-2,3\n,5\n"):
        (tmp_path / "d.csv").write_text(text)
        table = read_table(tmp_path / "d.csv", na=["-99.99", "***", "M"])
        assert np.isnan(table.numbers[1, 0]) and not table.text
    (tmp_path / "d.csv").write_text("c,y\nred,1\nM,2\nm,3\n")
    table = read_table(tmp_path / "d.csv", na=["M"])
    assert table.text[0] == ["red", "", "m"] and table.cells(0) == ["red", "", "m"]
    np.savez(tmp_path / "d.npz", X=np.array([[1, -99.99], [2, 3]]), y=np.array([-99.99, 2]))
    table = read_table(tmp_path / "d.npz", na=["-99.99", "***"])
    assert np.isnan(table.numbers).tolist() == [[False, True], [False, False]]
    assert np.isnan(table.target).tolist() == [True, False]


def written(i):
    """Cells of numbers with a unit, decimal commas, dates and elapsed times."""
    return f"{i % 17}.5 mm;{i * i % 19},25;{i % 28 + 1}.{i % 12 + 1}.202{i % 3};{i % 24}h 5m".split(
        ";"
    )


# cells, what names them after --na, and what the note has
MARKED = [
    (0, "-9999 mm", "-9999", "-9999"),
    (0, "-9999 mm", "-9999 mm", "-9999"),
    (0, "-9999", "-9999", None),
    (1, "-99,99", "-99.99", "-99.99"),
    (2, "01.01.1900", "01.01.1900", "01.01.1900"),
    (2, "99.99.9999", "99.99.9999", None),
    (3, "n/r", "n/r", None),
]


@pytest.mark.parametrize("column, cell, code, noted", MARKED)
def test_codes_in_columns_with_forms(here, unplotted, capsys, caplog, column, cell, code, noted):
    rows = [written(i) for i in range(40)]
    for i in (3, 30):
        rows[i][column] = cell
    text = "".join(";".join([*row, f"{i * i % 7},5"]) + "\n" for i, row in enumerate(rows))
    (here / "d.csv").write_text("a;b;c;d;y\n" + text)
    task = load_task("d.csv", missing="median", file_format=FileFormat(na=(code,)))
    assert np.flatnonzero(np.isnan(task.raw.numbers[:, column])).tolist() == [3, 30]
    assert not np.isnan(np.delete(task.raw.numbers, column, axis=1)).any()
    assert "far from all other" not in caplog.text and "counts as missing" not in caplog.text
    load_task("d.csv", missing="median")
    assert ("far from all other" in caplog.text) == (noted is not None)
    assert noted is None or f"2 cells are {noted}, far" in caplog.text
    assert noted is None or f"give --na {noted}" in caplog.text
    run(capsys, "fit", "d.csv", "--na", code, "--missing", "median", *FEW)
    (here / "new.csv").write_text("\n".join(["a;b;c;d", ";".join(rows[0]), ";".join(rows[3]), ""]))
    fitted = fs.load_fitted("d-fit")
    gap = fitted.input_names.index(f"{'abcd'[column]}=(missing)")
    assert fitted.read("new.csv")[:, gap].tolist() == [0, 1]
    assert run(capsys, "predict", "d-fit", "new.csv")[0].count("\n") == 3


@pytest.mark.parametrize("cell, code", [("-999 kg", "-999"), ("-999 kg", "-999 kg")])
def test_codes_of_targets_with_units(here, caplog, cell, code):
    cells = [cell if i in (3, 30) else f"{i * i % 17}.5 kg" for i in range(40)]
    (here / "d.csv").write_text("a,y\n" + "".join(f"{i}.5,{c}\n" for i, c in enumerate(cells)))
    task = load_task("d.csv", file_format=FileFormat(na=(code,)))
    assert task.untargeted.line_numbers() == [5, 32] and task.columns["target_forms"]
    assert "far from" not in caplog.text
    load_task("d.csv")
    assert "column 'y': 2 cells are -999, far from" in caplog.text


def test_codes_are_kept_with_the_model(here, unplotted, capsys, rng):
    x, y = rng.standard_normal((2, 60))
    x[3] = -5.5
    write_csv("d.csv", "x,y", x, y)
    run(capsys, "fit", "d.csv", "--na", "-5.5", "--missing", "median", *FEW)
    fitted = fs.load_fitted("d-fit")
    assert fitted.columns["na"] == ["-5.5"] and fitted.input_names == ["x", "x=(missing)"]
    assert fitted.read("d.csv")[3, 1] == 1
    extra = fs.records.load_with_extra("d-fit/model.npz")[1]["command_line"]
    for wrong in ("-5.5", [-5.5], None):
        extra["columns"]["na"] = wrong
        fs.save("bad.npz", fitted.model, command_line=extra)
        with pytest.raises(DataFileError, match="does not match this version"):
            fs.load_fitted("bad.npz")


def test_an_infinity_among_classes_is_a_class(here):
    rows = [f"{i}.5,{i % 5}\n" for i in range(40)]
    (here / "d.csv").write_text("a,y\n" + "".join(rows) + "1,1e400\n2,x\n")
    assert load_task("d.csv").classes == ["0", "1", "1e400", *"234x"]


def test_advice_about_text_among_numbers_names_the_option(here, capsys, rng):
    rows = [f"{'***' if i in (4, 9) else i * i % 17 + 0.5},{i}.5\n" for i in range(40)]
    (here / "d.csv").write_text("a,y\n" + "".join(rows))
    assert "give --na '***' --missing median if they mark" in refused(capsys, "fit", "d.csv", *FEW)
    message = refused(capsys, "fit", "d.csv", "--target", "a", *FEW)
    assert "give --na '***' if it marks missing values" in message
    (here / "d.csv").write_text("a;y\n" + "".join(rows).replace(",", ";").replace(".", ","))
    message = refused(capsys, "fit", "d.csv", "--target", "a", *FEW)
    assert "38 cells are numbers, but '***' is not" in message
    (here / "d.csv").write_text("a,y\n" + "".join(rows).replace("***", "9*"))
    assert "correct such cells, empty them and give" in refused(capsys, "fit", "d.csv", *FEW)
    message = refused(capsys, "fit", "d.csv", "--target", "a", *FEW)
    assert "correct cells like this one, empty them, or choose another --target" in message
    for marks, many in ((["n.d.", "--", "*"], False), (["n.d.", "--", "*", "M"], True)):
        cells = marks + [f"{i * i % 17 + 0.5}" for i in range(36)]
        (here / "d.csv").write_text("a,y\n" + "".join(f"{c},{i}.5\n" for i, c in enumerate(cells)))
        message = refused(capsys, "fit", "d.csv", *FEW)
        assert ("give --na 'n.d.,--,*' --missing median if they mark" in message) != many
