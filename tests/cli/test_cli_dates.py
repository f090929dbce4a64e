"""Columns of dates as inputs: the table that is fitted, later tables, and the file of the model."""

import datetime
import html
import pathlib

import numpy as np
import pytest
from support import fit_format_1
from support.cli_runs import refused, results, run, write_rows

import fastsvgp as fs
from fastsvgp.cli.data import dates
from fastsvgp.cli.data.columns import Column, Encoding, Raw, learn
from fastsvgp.cli.data.dates import Dates, find
from fastsvgp.cli.data.task import load_task, split

pytestmark = pytest.mark.usefixtures("unplotted")
FEW = ["--steps", "20", "--inducing", "12", "--quiet"]
EPOCH = datetime.datetime(1970, 1, 1)


def table_of(rng, form="%Y-%m-%d", count=120):
    """A target that falls by weekday and rises by day."""
    days = [
        datetime.date(2023, 1, 1) + datetime.timedelta(days=int(i))
        for i in rng.permutation(400)[:count]
    ]
    return days, [
        [day.strftime(form), f"{day.toordinal() % 7 + 0.01 * (day.toordinal() - 738000):.4f}"]
        for day in days
    ]


# --- inputs ---------------------------------------------------------------------------------------


def test_the_matrix_by_hand():
    raw = Raw(
        ["when", "n"],
        np.array([[0.0, 1.0], [2.5, 1.0], [np.nan, 1.0], [33.0, 1.0]]),
        {},
        {0: Dates("YYYY-MM-DD", False)},
    )
    encoding = learn(raw, np.array([True, True, True, False]), "median")
    assert encoding.input_names == ["when", "when.month", "when.weekday", "when=(missing)", "n"]
    # a Thursday in January; the median, Friday the 2nd; a Tuesday in February
    expected = [[0, 1, 4, 0, 1], [2.5, 1, 6, 0, 1], [1.25, 1, 5, 1, 1], [33, 2, 2, 0, 1]]
    np.testing.assert_array_equal(encoding.matrix(raw), expected)
    again = Encoding.from_json(encoding.to_json())
    assert again == encoding
    np.testing.assert_array_equal(again.matrix(raw), expected)


@pytest.mark.parametrize("form", ["%Y-%m-%dT00:00:00", "%d.%m.%Y", "%b %d, %Y", "%Y/%m/%d 00:00"])
def test_dates_are_numbers_and_predict_reads_new_ones(here, rng, capsys, form):
    days, rows = table_of(rng, form)
    path = write_rows("d.csv", ["when", "y"], rows)
    out, err = run(capsys, "fit", path, *FEW[:-1])
    name = str(find([row[0] for row in rows])[0])
    assert (
        f"column 'when': dates ({name}), read as day number, month, weekday" in out
        and err.count("note") == 0
    )
    assert f"column 'when': dates ({name})" in html.unescape(
        pathlib.Path("d-fit/report.html").read_text(encoding="utf-8")
    )
    assert results("d-fit")["inputs"] == ["when", "when.month", "when.weekday"]
    # none of these are in the training rows
    new = [datetime.date(2024, 1, 31), datetime.date(2024, 2, 29), datetime.date(2031, 7, 4)]
    X = fs.load_fitted("d-fit").read(
        write_rows("new.csv", ["when"], [[day.strftime(form)] for day in new])
    )
    expected = [[day.toordinal() - EPOCH.toordinal(), day.month, day.isoweekday()] for day in new]
    np.testing.assert_array_equal(X, expected)
    out, err = run(capsys, "predict", "d-fit", "new.csv")
    mean = [float(line.split(",")[0]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(mean, fs.load_fitted("d-fit").predict(expected).mean, rtol=1e-8)
    assert err == ""


def test_an_assumption_is_said(here, rng, capsys):
    rows = [[f"{i % 12 + 1}/{i % 11 + 1}/2023", i % 5] for i in range(60)]
    out, _ = run(capsys, "fit", write_rows("d.csv", ["when", "y"], rows), *FEW[:-1])
    said = "column 'when': dates (MM/DD/YYYY, assumed because no day was above 12), read as"
    assert said in out and said in html.unescape(
        pathlib.Path("d-fit/report.html").read_text(encoding="utf-8")
    )
    write_rows("new.csv", ["when"], [["2/1/2024"], ["13/1/2024"]])
    message = refused(capsys, "predict", "d-fit", "new.csv")
    assert (
        "new.csv, line 3, column 'when': '13/1/2024' is not a date (MM/DD/YYYY, assumed" in message
        and "--ignore" not in message
    )


def test_days_and_months_that_change_places_are_text(here, capsys):
    rows = [[("1/13/2023", "13/1/2023", "2/3/2023")[i % 3], i % 5] for i in range(60)]
    out, err = run(capsys, "fit", write_rows("d.csv", ["when", "y"], rows), *FEW[:-1])
    assert (
        "column 'when': '1/13/2023' and '13/1/2023' are dates of different formats, so the column"
        " remains text" in err
    )
    assert "when (3 levels)" in out


def test_cells_that_are_no_dates_are_refused_or_missing(here, rng, capsys):
    days, rows = table_of(rng)
    rows[7][0], rows[9][0] = "soon", "2023-02-30"
    path = write_rows("d.csv", ["when", "y"], rows)
    message = refused(capsys, "fit", path, *FEW)
    assert (
        "d.csv, line 9, column 'when': 'soon' is not a date (YYYY-MM-DD) (the first of 2 such"
        " cells)" in message
    )
    assert "--missing median" in message and "--ignore when" in message
    _, err = run(capsys, "fit", path, "--missing", "median", *FEW[:-1])
    assert (
        "line 9, column 'when': 'soon' is not a date (YYYY-MM-DD) (the first of 2 such cells); it"
        " counts as missing" in err
    )
    assert results("d-fit")["inputs"] == ["when", "when.month", "when.weekday", "when=(missing)"]
    fitted = fs.load_fitted("d-fit")
    write_rows("new.csv", ["when", "more"], [["2024-01-01", 1]] * 18 + [["", 1], ["later", 1]])
    capsys.readouterr()
    X = fitted.read("new.csv")
    median = fitted.encoding.columns[0].median
    np.testing.assert_array_equal(
        X[18:],
        [[median, *np.concatenate([dates.months([median]), dates.weekdays([median])]), 1]] * 2,
    )
    _, err = run(capsys, "predict", "d-fit", "new.csv")
    assert (
        "new.csv, line 21, column 'when': 'later' is not a date (YYYY-MM-DD); it counts as missing"
        in err
    )
    write_rows("other.csv", ["when"], [["31.12.2023"], ["2024-01-01"]])  # too many: another format
    assert "other.csv, line 2, column 'when': '31.12.2023' is not a date" in refused(
        capsys, "predict", "d-fit", "other.csv"
    )
    write_rows("numbers.csv", ["when"], [[19000], [19001]])
    assert "'19000' is not a date (YYYY-MM-DD)" in refused(
        capsys, "predict", "d-fit", "numbers.csv"
    )
    write_rows("gone.csv", ["when", "more"], [["", 1], ["NA", 1]])
    assert (fitted.read("gone.csv")[:, 3] == 1).all()


def test_missing_dates(here, rng, capsys):
    days, rows = table_of(rng)
    path = write_rows("d.csv", ["when", "y"], rows)
    run(capsys, "fit", path, *FEW)
    write_rows("new.csv", ["when", "more"], [["2024-01-01", 1], ["", 1]])
    message = refused(capsys, "predict", "d-fit", "new.csv")
    assert (
        "new.csv, line 3, column 'when': the value is missing" in message
        and "fit again with --missing median" in message
    )
    run(capsys, "fit", path, "--missing", "median", "--test-fraction", "0", "--out", "median", *FEW)
    _, err = run(capsys, "predict", "median", "new.csv")
    day = sorted(days)[59:61]
    assert "filled in with the training median, " + str(day[0] + (day[1] - day[0]) // 2) in err
    rows[4][0] = ""
    message = refused(capsys, "fit", write_rows("gap.csv", ["when", "y"], rows), *FEW)
    assert (
        "gap.csv, line 6, column 'when': the value is missing" in message
        and "fill them in with --missing median" in message
    )


def test_the_median_is_of_the_training_rows_alone(here, rng):
    _, rows = table_of(rng)
    rows = [[cell if i % 3 else "2190-01-01", y] for i, (cell, y) in enumerate(rows)]
    write_rows("mask.csv", ["m"], [[int(i % 3 == 0)] for i in range(len(rows))])
    task = split(
        load_task(write_rows("d.csv", ["when", "y"], rows), missing="median"), mask="mask.csv:m"
    )
    used = [
        datetime.date.fromisoformat(cell).toordinal() - EPOCH.toordinal()
        for i, (cell, _) in enumerate(rows)
        if i % 3
    ]
    assert task.encoding.columns[0].median == np.median(used)


def test_text_and_dates_beside_one_another(here, rng, capsys):
    _, rows = table_of(rng)
    rows = [["ab"[i % 2], cell, i % 7, y] for i, (cell, y) in enumerate(rows)]
    out, _ = run(capsys, "fit", write_rows("d.csv", ["c", "when", "n", "y"], rows), *FEW[:-1])
    assert "c (2 levels)" in out and "column 'when': dates (YYYY-MM-DD)" in out
    assert results("d-fit")["inputs"] == [
        "c=a",
        "c=b",
        "c=(other)",
        "when",
        "when.month",
        "when.weekday",
        "n",
    ]
    X = fs.load_fitted("d-fit").read(
        write_rows("new.csv", ["n", "when", "c"], [[3, "1970-01-02", "b"]])
    )
    np.testing.assert_array_equal(X, [[0, 1, 0, 1, 1, 5, 3]])


# --- the file of the model ------------------------------------------------------------------------


def test_a_file_from_before_dates_reads_them_as_levels(here):
    """As in its training."""
    pathlib.Path("old.npz").write_bytes(fit_format_1.content())
    model, extra = fs.load_with_extra("old.npz")
    # a file of two inputs
    column = {"name": "when", "levels": ["2024-01-01"], "median": None, "gaps": False}
    about = {
        "format": 2,
        "encoding": {"missing": "median", "columns": [column]},
        "input_names": Column(**column).input_names,
        "columns": {"named": True, "width": 2, "inputs": [0], "target": 1},
    }
    fs.save("of format 2.npz", model, command_line=extra["command_line"] | about)
    X = fs.load_fitted("of format 2.npz").read(
        write_rows("x.csv", ["when"], [["2024-01-01"], ["2024-01-02"]])
    )
    np.testing.assert_array_equal(X, [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    "change",
    [
        {"date": {"form": "YY", "assumed": False}},
        {"date": {"form": "YYYY-MM-DD", "assumed": 1}},
        {"date": {"form": "YYYY-MM-DD"}},
        {"date": {"form": ["YYYY-MM-DD"], "assumed": False}},
        {"date": "YYYY-MM-DD"},
        {"median": 1e12},
        {"median": None},
        {"levels": ["u"], "median": None},
    ],
    ids=str,
)
def test_an_encoding_of_dates_that_cannot_be_is_refused(change):
    good = {
        "name": "a",
        "levels": None,
        "median": 0.5,
        "gaps": False,
        "date": {"form": "YYYY-MM-DD", "assumed": False},
    }
    assert Encoding.from_json({"missing": "median", "columns": [good]}).columns[0].date == Dates(
        "YYYY-MM-DD", False
    )
    with pytest.raises((ValueError, KeyError, TypeError)):
        Encoding.from_json({"missing": "median", "columns": [good | change]})


def test_no_encoding_of_dates_ends_in_another_error():
    good = Column("a", None, 0.5, True, Dates("MM/DD/YYYY", True))
    raw = Raw(["a"], np.array([[np.nan], [3.0]]), {}, {0: good.date})
    refused = 0
    for value in (None, "x", -1, 2.5, [], {}, float("nan"), [None], True):
        for name in ("name", "levels", "median", "gaps", "date", "date.form", "date.assumed"):
            encoding = Encoding([good], "median").to_json()
            *way, last = name.split(".")
            node = encoding["columns"][0]
            (node[way[0]] if way else node)[last] = value
            try:
                found = Encoding.from_json(encoding)
            except (ValueError, KeyError, TypeError):
                refused += 1
            else:
                assert np.isfinite(found.matrix(raw)).all()
    assert refused > 50
