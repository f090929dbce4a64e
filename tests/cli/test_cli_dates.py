"""Columns of dates as inputs: the table that is fitted, later tables, and the file of the model."""

import datetime
import html
import pathlib

import numpy as np
import pytest
from support.cli_runs import refused, results, run, write_rows

import fastsvgp as fs
from fastsvgp.cli.data import dates
from fastsvgp.cli.data.columns import Column, Encoding, learn
from fastsvgp.cli.data.forms import Form, find
from fastsvgp.cli.data.held_out import split
from fastsvgp.cli.data.reading import Raw
from fastsvgp.cli.data.task import load_task

pytestmark = pytest.mark.usefixtures("unplotted")
FEW = ["--steps", "20", "--inducing", "12", "--quiet"]
EPOCH = datetime.datetime(1970, 1, 1)


CYCLES = ["when", "when.year.sin", "when.year.cos", "when.week.sin", "when.week.cos"]


def inputs_of(days):
    """Days with their places in the year and the week."""
    days = np.array(days, np.float64)
    return np.column_stack([days, *dates.parts(days, "year"), *dates.parts(days, "week")])


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
        {0: Form("YYYY-MM-DD")},
    )
    encoding = learn(raw, np.array([True, True, True, False]), "median")
    assert encoding.input_names == ["when", "when.day.sin", "when.day.cos", "when=(missing)", "n"]
    # midnight; noon; the median at 6; midnight
    expected = [[0, 0, 1, 0, 1], [2.5, 0, -1, 0, 1], [1.25, 1, 0, 1, 1], [33, 0, 1, 0, 1]]
    np.testing.assert_allclose(encoding.matrix(raw), expected, rtol=0, atol=1e-15)
    again = Encoding.from_json(encoding.to_json())
    assert again == encoding
    np.testing.assert_array_equal(again.matrix(raw), encoding.matrix(raw))


@pytest.mark.parametrize("form", ["%Y-%m-%dT00:00:00", "%d.%m.%Y", "%b %d, %Y", "%Y/%m/%d 00:00"])
def test_dates_are_numbers_and_predict_reads_new_ones(here, rng, capsys, form):
    days, rows = table_of(rng, form)
    path = write_rows("d.csv", ["when", "y"], rows)
    out, err = run(capsys, "fit", path, *FEW[:-1])
    name = str(find([row[0] for row in rows])[0])
    assert (
        f"column 'when': dates ({name}), read as day number, place in the year, place in the week"
        in out
        and err.count("note") == 0
    )
    assert f"column 'when': dates ({name})" in html.unescape(
        pathlib.Path("d-fit/report.html").read_text(encoding="utf-8")
    )
    assert results("d-fit")["inputs"] == CYCLES
    # none of these are in the training rows
    new = [datetime.date(2024, 1, 31), datetime.date(2024, 2, 29), datetime.date(2031, 7, 4)]
    X = fs.load_fitted("d-fit").read(
        write_rows("new.csv", ["when"], [[day.strftime(form)] for day in new])
    )
    expected = inputs_of([day.toordinal() - EPOCH.toordinal() for day in new])
    np.testing.assert_array_equal(X, expected)
    assert X[0, 0] == (datetime.date(2024, 1, 31) - datetime.date(1970, 1, 1)).days
    out, err = run(capsys, "predict", "d-fit", "new.csv")
    mean = [float(line.split(",")[0]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(mean, fs.load_fitted("d-fit").predict(expected).mean, rtol=1e-8)
    assert err == ""


def test_an_assumption_is_said(here, rng, capsys):
    rows = [[f"{i % 12 + 1}/{i % 11 + 1}/2023", i % 5] for i in range(60)]
    out, _ = run(capsys, "fit", write_rows("d.csv", ["when", "y"], rows), *FEW[:-1])
    said = "column 'when': dates (MM/DD/YYYY, assumed, because DD/MM/YYYY fits too), read as"
    assert said in out and said in html.unescape(
        pathlib.Path("d-fit/report.html").read_text(encoding="utf-8")
    )
    write_rows("new.csv", ["when"], [["2/1/2024"], ["13/1/2024"]])
    message = refused(capsys, "predict", "d-fit", "new.csv")
    assert (
        "new.csv, line 3, column 'when': '13/1/2024' is not a date (MM/DD/YYYY, assumed" in message
        and "--ignore" not in message
    )


def test_days_and_months_that_change_places_are_text_of_few_levels(here, capsys):
    rows = [[("1/13/2023", "13/1/2023", "2/3/2023")[i % 3], i % 5] for i in range(60)]
    out, err = run(capsys, "fit", write_rows("d.csv", ["when", "y"], rows), *FEW[:-1])
    assert (
        "column 'when': most cells are dates (MM/DD/YYYY), but '13/1/2023' is not, so the column"
        " remains text" in err
    )
    assert "when (3 levels)" in out
    rows = [[f"{i % 12 + 1}/{i % 28 + 1}/2023", i % 5] for i in range(60)] + [["31/1/2023", 2]]
    assert "d.csv, line 62, column 'when': '31/1/2023' is not a date (MM/DD/YYYY)" in refused(
        capsys, "fit", write_rows("d.csv", ["when", "y"], rows), *FEW
    )


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
    assert results("d-fit")["inputs"] == [*CYCLES, "when=(missing)"]
    fitted = fs.load_fitted("d-fit")
    write_rows("new.csv", ["when", "more"], [["2024-01-01", 1]] * 18 + [["", 1], ["later", 1]])
    capsys.readouterr()
    X = fitted.read("new.csv")
    median = fitted.encoding.columns[0].median
    np.testing.assert_array_equal(
        X[18:],
        [[*inputs_of([median])[0], 1]] * 2,
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
    assert (fitted.read("gone.csv")[:, -1] == 1).all()


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
        *CYCLES,
        "n",
    ]
    X = fs.load_fitted("d-fit").read(
        write_rows("new.csv", ["n", "when", "c"], [[3, "1970-01-02", "b"]])
    )
    np.testing.assert_array_equal(X, [[0, 1, 0, *inputs_of([1])[0], 3]])


# --- the file of the model ------------------------------------------------------------------------


GOOD = {
    "name": "a",
    "levels": None,
    "median": 0.5,
    "gaps": False,
    "form": {"name": "YYYY-MM-DD", "other": "", "before": "", "after": ""},
    "cycles": ["week"],
    "into": None,
}
CLOCK = GOOD | {"name": "b", "median": None, "form": {"name": "hh:mm"}, "cycles": [], "into": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"form": {"name": "YY"}},
        {"form": {"name": "YYYY-MM-DD", "other": 1}},
        {"form": {"other": "YYYY-MM-DD"}},
        {"form": {"name": ["YYYY-MM-DD"]}},
        {"form": "YYYY-MM-DD"},
        {"form": None},
        {"form": {"name": "1,234.5"}},
        {"median": 1e12},
        {"median": None},
        {"levels": ["u"], "median": None},
        {"cycles": ["month of Sundays"]},
        {"cycles": "week"},
        {"cycles": None},
        {"into": 1},
        {"date": {"form": "YY", "assumed": False}},
    ],
    ids=str,
)
def test_an_encoding_of_dates_that_cannot_be_is_refused(change):
    good = Encoding.from_json({"missing": "median", "columns": [GOOD, CLOCK]})
    assert good.columns[0].form == Form("YYYY-MM-DD") and good.columns[1].into == 0
    with pytest.raises((ValueError, KeyError, TypeError)):
        Encoding.from_json({"missing": "median", "columns": [GOOD | change, CLOCK]})


@pytest.mark.parametrize(
    "change",
    [
        *({"into": at} for at in (1, 2, -1, 0.0, "0")),
        {"median": 0.5},
        {"gaps": True},
        {"cycles": ["day"]},
        {"form": None},
        {"levels": ["u"]},
    ],
    ids=str,
)
def test_a_clock_joins_a_date(change):
    with pytest.raises((ValueError, KeyError, TypeError)):
        Encoding.from_json({"missing": "median", "columns": [GOOD, CLOCK | change]})


def test_no_encoding_of_dates_ends_in_another_error():
    good = Column("a", None, 0.5, True, Form("MM/DD/YYYY", "DD/MM/YYYY"), ["year", "week"])
    raw = Raw(["a"], np.array([[np.nan], [3.0]]), {}, {0: good.form})
    refused = 0
    for value in (None, "x", -1, 2.5, [], {}, float("nan"), [None], True):
        names = (
            "name",
            "levels",
            "median",
            "gaps",
            "form",
            "form.name",
            "form.other",
            "cycles",
            "into",
        )
        for name in names:
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
    assert refused > 60
