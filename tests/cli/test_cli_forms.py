"""Columns in the forms of other people's files: what fit reads, and predict after it."""

import logging
import pathlib
import re

import numpy as np
import pytest
from support.cli_runs import refused, results, run, write_rows
from support.columns_zoo import CLOCKS, MOMENTS, MONTHS, NUMBERS, ZOO, N, days

import fastsvgp as fs
from fastsvgp.cli.data import dates, quantities
from fastsvgp.cli.data.cells import is_number
from fastsvgp.cli.data.forms import PLAIN, Form, find
from fastsvgp.cli.data.held_out import split
from fastsvgp.cli.data.tables import read_table
from fastsvgp.cli.data.task import load_task
from fastsvgp.cli.errors import UsageError
from fastsvgp.errors import DataFileError

pytestmark = pytest.mark.usefixtures("unplotted")
FEW = ["--steps", "20", "--inducing", "12", "--quiet"]


def fitted_to(path, **options):
    return split(load_task(path, **options))


@pytest.mark.parametrize("name", ZOO)
def test_a_column_of_each_form_is_numbers(here, rng, caplog, name):
    cells, numbers, form = ZOO[name]
    rows = [[cell, f"{y:.3f}"] for cell, y in zip(cells, rng.standard_normal(N + 1), strict=True)]
    task = fitted_to(write_rows("d.csv", ["a", "y"], rows[:N]))
    np.testing.assert_allclose(task.X[:, 0], numbers[:N], rtol=1e-12, atol=1e-9)
    said = "".join(task.encoding.describe())
    assert f"({form}" in said and said.startswith("column 'a': ") and not caplog.records
    column = task.encoding.columns[0]
    assert task.input_names[0] == "a" and task.input_names[1:] == [
        f"a.{cycle}.{part}" for cycle in column.cycles for part in ("sin", "cos")
    ]
    # a row by itself has the form of the column
    table = read_table(write_rows("new.csv", ["a", "y"], rows[N:]))
    again = type(task.encoding).from_json(task.encoding.to_json())
    np.testing.assert_allclose(again.read(table, [0])[0, 0], numbers[N], rtol=1e-12, atol=1e-9)
    for odd in ("soon", "3.5 furlongs", "12345")[: 2 if name == "decimal commas" else 3]:
        table = read_table(write_rows("odd.csv", ["a", "y"], [rows[0], [odd, 1]]))
        with pytest.raises(
            DataFileError, match=f"odd.csv, line 3, column 'a': '{odd}' is not an? "
        ):
            task.encoding.read(table, [0])


def test_the_examples_of_the_page_are_read():
    page = (pathlib.Path(__file__).parents[2] / "docs/command_line.md").read_text(encoding="utf-8")
    rows = page.partition("| form of the cells |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [cell for row in rows for cell in re.findall("`(.*?)`", row)]
    assert len(cells) > 40
    for cell in cells:
        cell = f"2024-01-31 18:30{cell}" if cell in ("Z", "+02:00") else cell
        codes = [name for name in dates.CODES if dates.days_of(cell, name) is not None]
        assert codes if is_number(cell) else find([cell])[0] is not None, cell


def test_cycles_of_clocks_and_months(here, rng):
    for name, cycles in (("clocks", ["day"]), ("months", ["year"]), ("a unit", [])):
        rows = [[cell, i % 7] for i, cell in enumerate(ZOO[name][0])]
        task = fitted_to(write_rows("d.csv", ["a", "y"], rows))
        assert task.encoding.columns[0].cycles == cycles
        circle = [dates.parts(task.X[:, 0] / 24, "day"), dates.parts(task.X[:, 0], "year")]
        for cycle, parts in zip(("day", "year"), circle, strict=True):
            if cycle in cycles:
                np.testing.assert_allclose(task.X[:, 1:].T, parts, atol=1e-12)


# --- two columns ----------------------------------------------------------------------------------


def two_columns(rows, names, order=(0, 1, 2)):
    return write_rows(
        "two.csv", [names[k] for k in order], [[row[k] for k in order] for row in rows]
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_a_date_and_a_clock_in_two_columns_are_one_date(here, rng, capsys, order):
    y = rng.standard_normal(N)
    pairs = [
        [f"{m:%d/%m/%Y}", f"{m:%H.%M.%S}", f"{v:.3f}"] for m, v in zip(MOMENTS, y, strict=False)
    ]
    one = fitted_to(write_rows("one.csv", ["Date", "y"], [[" ".join(p[:2]), p[2]] for p in pairs]))
    path = two_columns(pairs, ["Date", "Time", "y"], order)
    two = fitted_to(path)
    np.testing.assert_array_equal(two.X, one.X)
    assert two.input_names == one.input_names and "Date.day.sin" in two.input_names
    out, _ = run(capsys, "fit", path, *FEW[:-1])
    assert (
        "column 'Date': dates (DD/MM/YYYY) with the time in column 'Time' (hh:mm), read as day"
        " number, place in the year, place in the week, place in the day" in out
    )
    X = fs.load_fitted("two-fit").read(
        write_rows("new.csv", ["Time", "Date"], [["06.00.00", "02/01/1970"]])
    )
    assert X[0, 0] == 1.25 and X.shape[1] == len(one.input_names)
    np.testing.assert_allclose(X[0, -2:], [1, 0], atol=1e-15)
    message = refused(
        capsys, "predict", "two-fit", write_rows("new.csv", ["Time", "Date"], [["6", "02/01/1970"]])
    )
    assert "column 'Time': '6' is not a time of day (hh:mm)" in message


def test_a_missing_clock_is_a_missing_date(here, rng):
    rows = [[f"{m:%Y-%m-%d}", f"{m:%H:%M}" if i else "", i % 5] for i, m in enumerate(MOMENTS)]
    path = two_columns(rows, ["Date", "Time", "y"])
    with pytest.raises(DataFileError, match="line 2, column 'Time': the value is missing"):
        load_task(path)
    task = split(load_task(path, missing="median"), fraction=0)
    assert task.input_names[-1] == "Date=(missing)" and task.X[:, -1].sum() == task.X[0, -1] == 1
    assert task.X[0, 0] == np.median(days(MOMENTS[1:]))


@pytest.mark.parametrize(
    "columns, joined",
    [
        (["date", "clock"], {1: 0}),
        (["date", "n", "clock"], {2: 0}),
        (["clock", "n", "date"], {0: 2}),
        (["date", "clock", "date", "clock"], {1: 0, 3: 2}),
        (["date", "n", "clock", "date"], {2: 3}),
        (["date", "n", "clock", "n", "date"], {}),
        (["moment", "clock"], {}),
        (["month", "clock"], {}),
        (["digits", "clock"], {1: 0}),
        (["clock"], {}),
    ],
)
def test_which_clocks_belong_to_which_dates(here, columns, joined):
    cells = {
        "date": lambda i: f"{MOMENTS[i]:%Y-%m-%d}",
        "moment": lambda i: f"{MOMENTS[i]:%Y-%m-%d %H:%M}",
        "month": lambda i: f"{MONTHS[i]:%Y-%m}",
        "digits": lambda i: f"{MOMENTS[i]:%Y%m%d}",
        "clock": lambda i: CLOCKS[i],
        "n": lambda i: NUMBERS[i],
    }
    rows = [[*[cells[kind](i) for kind in columns], i * i % 11] for i in range(N)]
    names = [f"{kind}{i}" for i, kind in enumerate(columns)]
    task = fitted_to(write_rows("d.csv", [*names, "y"], rows))
    found = {j: c.into for j, c in enumerate(task.encoding.columns) if c.into is not None}
    assert found == joined


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells, form, numbers",
    [
        (["1,012", "12", "3,456,789.5"], Form("1,234.5"), [1012, 12, 3456789.5]),
        (["1,012", "12"], Form("1,234.5", "1.234,5"), [1012, 12]),
        (["1,5", "2"], Form("1.234,5"), [1.5, 2]),
        (["1,012", "2,5"], Form("1.234,5"), [1.012, 2.5]),
        (["0,436", "1,012"], Form("1.234,5"), [0.436, 1.012]),
        (["$1,234", "$850"], Form("1,234.5", "1.234,5", "$"), [1234, 850]),
        (["-$5", "$-6", "+$7"], Form("1,234.5", "", "$"), [-5, -6, 7]),
        (["US$5", "US$ 6"], Form("1,234.5", "", "US$"), [5, 6]),
        (["−5 mm", "1.5e-3 mm", "1.2D+01mm"], Form("1,234.5", "", "", "mm"), [-5, 0.0015, 12]),
        (["12 months", "1 month"], Form("1,234.5", "", "", "months"), [12, 1]),
        (["5 µg/m³", "6,5 µg/m³"], Form("1.234,5", "", "", "µg/m³"), [5, 6.5]),
        (["7.5 %", ".5%"], Form("1,234.5", "", "", "%"), [7.5, 0.5]),
        (["20.5 °C", "-3 °C"], Form("1,234.5", "", "", "°C"), [20.5, -3]),
        (["₹ 4,50,000", "₹ 1,23,45,678"], Form("1,234.5", "", "₹"), [450000, 12345678]),
        (["1,000+", "10,000,000+"], Form("1,234.5", "", "", "+"), [1000, 10000000]),
        (["1.5 m", "3"], None, None),
        (["5 m", "6 cm"], None, None),
        (["$5M", "$600K"], Form("1,234.5", "", "$", "M"), [5, 0.6]),
        (["201k", "1.2M", "3.4B", "5k"], Form("1,234.5", "", "", "k"), [201, 1200, 3.4e6, 5]),
        (["5 M", "6 cm"], None, None),
        (["$5M", "€6K"], None, None),
        (["1,0,1", "1,01,1"], None, None),
        (["5'11\"", "6'1\""], None, None),
        (["9.2*", "8.1*"], None, None),
        (["120/80", "130/85"], None, None),
        (["10-12", "12-14"], None, None),
        (["A1", "A2"], None, None),
        (["1.2.3", "1.2.4"], None, None),
    ],
)  # fmt: skip
def test_numbers_with_marks_and_units(cells, form, numbers):
    found, odd = find(cells)
    assert (found, odd) == (form, None)
    if form is not None:
        assert [found.number(cell) for cell in cells] == pytest.approx(numbers, rel=1e-15)


@pytest.mark.parametrize(
    "cell, seconds",
    [
        ("75:30", 4530),
        ("1:00:00.5", 3600.5),
        ("-0:30", -30),
        ("2 days 03:00:00", 183600),
        ("1d 00:00", 86400),
        ("54.23", 54.23),
        ("75.1", None),
        ("1:60", None),
        ("1:60:00", None),
        ("1:5", None),
        ("", None),
    ],
)
def test_elapsed_times(cell, seconds):
    assert quantities.parse_elapsed(cell, "h:mm:ss") == seconds


@pytest.mark.parametrize(
    "cell, degrees",
    [
        ("47°30'N", 47.5),
        ("47° 30' 36\" S", -47.51),
        ("W 12°15′", -12.25),
        ("12.5E", 12.5),
        ("47°30'", 47.5),
        ("-47°30'", -47.5),
        ("47", None),
        ("47°", None),
        ("N47N", None),
        ("S047", None),
        ("S47°", -47),
        ("S47.0", -47),
        ("S47 30", -47.5),
        ("047S", -47),
        ("47°75'N", None),
    ],
)
def test_angles(cell, degrees):
    assert quantities.angle(cell, "47°30′N") == pytest.approx(degrees)


def test_no_cell_of_a_quantity_ends_in_an_error(rng):
    pieces = [*"0123456789-+.,' %$€°\"NW:hmsde/", "µ", "1e9", "\u2212", "\u202f", "km", "٣"]
    names = [*quantities.NUMBERS, *quantities.ELAPSED, *quantities.ANGLES]
    for _ in range(3000):
        cell = "".join(rng.choice(pieces, rng.integers(0, 9)))
        for form in [Form(name) for name in names] + [Form("1,234.5", "", "$", "km")]:
            number = form.number(cell)
            assert number is None or number == number
        find([cell])


def test_plain_numbers_of_another_font_and_language_are_numbers(here):
    rows = [["\u22121.5", "1.5D+03", i % 5] for i in range(20)] + [["2", "-.5d-01", 1]]
    task = load_task(write_rows("d.csv", ["a", "b", "y"], rows))
    np.testing.assert_array_equal(task.X[[0, -1]], [[-1.5, 1500], [2, -0.05]])


@pytest.mark.parametrize(
    "other, cells, numbers",
    [
        ("3,5", ["93.841", "512", "1.250"], [93841, 512, 1250]),
        ("3,5", ["-93.841", "", "0"], [-93841, np.nan, 0]),
        ("3,5", ["1,234", "2,5", "3"], [1.234, 2.5, 3]),
        ("3,5", ["1,234", "12,345", "9"], [1.234, 12.345, 9]),
        ("3,5", ["93.841", "512", "0.250"], [93.841, 512, 0.25]),
        ("3,5", ["93.841", "512", "1.25"], [93.841, 512, 1.25]),
        ("3,5", ["93.841", "512", "1.5e3"], [93.841, 512, 1500]),
        ("3", ["93.841", "512", "1.250"], [93.841, 512, 1.25]),
        ("3,500", ["93.841", "512", "1.250"], [93.841, 512, 1.25]),
        ("3,500", ["1,234", "12,345", "9"], [1234, 12345, 9]),
        ("red", ["93.841", "512", "1.250"], [93.841, 512, 1.25]),
    ],
)
def test_the_decimal_mark_of_other_columns(here, other, cells, numbers):
    rows = [[cell, other, other if i else "4"] for i, cell in enumerate(cells * 4)]
    write_rows("d.csv", ["a", "b", "y"], rows)
    task = split(load_task("d.csv", ignore=["b"], missing="median"), fraction=0)
    filled = np.where(np.isnan(numbers), np.nanmedian(numbers), numbers)
    np.testing.assert_allclose(task.X[:3, 0], filled, rtol=1e-12)
    table = read_table(write_rows("new.csv", ["a"], [[cells[0]]]), whole=True)
    np.testing.assert_allclose(task.encoding.read(table, [0])[0, 0], numbers[0], rtol=1e-12)


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels, out", [(30, False), (31, True)])
def test_text_of_many_levels_is_left_out(here, caplog, levels, out):
    rows = [[f"name {min(i, levels - 1)}", NUMBERS[i], i % 7] for i in range(60)]
    path = write_rows("d.csv", ["who", "n", "y"], rows)
    with caplog.at_level(logging.WARNING):
        task = fitted_to(path)
    said = "column 'who' holds text with 31 levels in 60 rows ('name 0', line 2), so it is left out"
    assert (said in caplog.text) == out == ("who" not in "".join(task.input_names))
    assert task.columns["inputs"] == ([1] if out else [0, 1])
    if out:
        with pytest.raises(UsageError, match="no input is left, because column 'who' holds text"):
            load_task(path, ignore=["n"])


@pytest.mark.parametrize(
    "cells, odd, noun",
    [
        (ZOO["months"][0], "1950", "a date (YYYY-MM)"),
        ([f"{moment:%Y-%m-%d}" for moment in MOMENTS], "2023", "a date (YYYY-MM-DD)"),
        ([f"12:{i:02}" for i in range(N)], "noon", "a time of day (hh:mm)"),
        (ZOO["a unit"][0], "3.5 cm", "a number (1,234.5 mm)"),
        (ZOO["percent"][0], "0.3", "a number (1,234.5 %)"),
        (NUMBERS, "9.2*", "a number"),
        (ZOO["angles"][0], "here", "an angle (47°30′N)"),
    ],
)
def test_a_column_of_two_forms_is_refused_or_partly_missing(here, caplog, cells, odd, noun):
    rows = [[odd if i in (3, 20) else cell, i % 7] for i, cell in enumerate(cells[:N])]
    said = f"d.csv, line 5, column 'a': {odd!r} is not {noun} (the first of 2 such cells)"
    with pytest.raises(DataFileError) as error:
        load_task(write_rows("d.csv", ["a", "y"], rows))
    assert said in str(error.value) and "--ignore a" in str(error.value)
    task = split(load_task("d.csv", missing="median"))
    assert f"{said}; it counts as missing" in caplog.text
    assert task.input_names[-1] == "a=(missing)" and task.X[:, -1].sum() == 2
    rows = [[odd if i % 3 == 0 else cell, i % 7] for i, cell in enumerate(cells[:N])]
    with pytest.raises(DataFileError, match="the first of 20 such cells"):  # too many
        load_task(write_rows("d.csv", ["a", "y"], rows), missing="median")


def test_few_names_of_which_most_look_like_numbers_are_levels(here, caplog):
    rows = [[["10 mm", "12 mm", "large"][i % 3], i % 7] for i in range(N)]
    task = fitted_to(write_rows("d.csv", ["size", "y"], rows))
    assert task.input_names == ["size=10 mm", "size=12 mm", "size=large", "size=(other)"]
    assert (
        "column 'size': most cells are numbers (1,234.5 mm), but 'large' is not, so the column"
        " remains text" in caplog.text
    )
    caplog.clear()
    rows = [[["1", "2", "A"][i % 3], i % 7] for i in range(N)]
    assert len(fitted_to(write_rows("d.csv", ["code", "y"], rows)).input_names) == 4
    assert not caplog.records and find([row[0] for row in rows]) == (PLAIN, "A")


def test_digits_most_of_which_are_dates_are_said(here, caplog):
    rows = [[f"{m:%Y%m}", i % 7] for i, m in enumerate(MONTHS)] + [["195813", 3]]
    task = load_task(write_rows("d.csv", ["when", "y"], rows))
    assert task.input_names == ["when"] and task.raw is None
    assert (
        "column 'when': most numbers are dates (YYYYMM), but 195813 is not, so all are read as"
        " numbers" in caplog.text
    )


# --- targets --------------------------------------------------------------------------------------


def test_targets_with_units(here, capsys, rng):
    x = rng.uniform(-1, 1, 80)
    rows = [[f"{v:.4f}", f"{1000 * (2 + v):,.2f} $".replace(",", " ")] for v in x]
    rows = [[v, y.replace(".", ",")] for v, y in rows]
    path = write_rows("d.csv", ["x", "y"], rows)
    out, err = run(capsys, "fit", path, *FEW[:-1], "--steps", "60")
    assert "the target 'y' is read as numbers (1.234,5 $)" in err
    one = write_rows("one.csv", ["x", "y"], [["0.5", "2 000,00 $"]])
    out, err = run(capsys, "predict", "d-fit", one)
    mean = float(out.splitlines()[1].split(",")[0])
    assert abs(mean - 2500) < 200 and f"RMSE {abs(mean - 2000):.4g}" in err
    _, err = run(capsys, "predict", "d-fit", write_rows("one.csv", ["x", "y"], [["0.5", "2500 €"]]))
    assert err == ""  # no target that can be read
    form = {"name": "1.234,5", "other": "", "before": "", "after": "$"}
    fitted = fs.load_fitted("d-fit")
    assert fitted.columns["target_forms"] == [form] and results("d-fit")["inputs"] == ["x"]
    for bad in ([], [form, form], [form | {"name": "1"}], [{"name": 3}]):
        fitted.columns["target_forms"] = bad
        fitted.save("bad.npz")
        with pytest.raises(DataFileError, match="bad.npz does not match this version"):
            fs.load_fitted("bad.npz")


def test_targets_with_the_decimal_mark_of_inputs(here, capsys):
    rows = [[f"{i},5", "9.500" if i == 7 else f"{100 + i}.{500 + i}"] for i in range(40)]
    _, err = run(capsys, "fit", write_rows("d.csv", ["x", "y"], rows), *FEW[:-1])
    assert "'y' is read as numbers (1.234,5, assumed, because 1,234.5 fits too: --decimal .)" in err
    out, err = run(capsys, "predict", "d-fit", write_rows("one.csv", ["x", "y"], rows[7:8]))
    mean = float(out.splitlines()[1].split(",")[0])
    assert f"RMSE {abs(mean - 9500):.4g}" in err and mean > 2000


def test_several_targets_with_units(here, rng):
    rows = [[f"{v:.3f}", f"{v * 2:.1f} kg", f"{v * 3:.1f}%"] for v in rng.standard_normal(40)]
    rows[3][1] = ""
    task = load_task(write_rows("d.csv", ["x", "a", "b"], rows), target="a,b")
    assert np.isnan(task.y[3, 0]) and np.isnan(task.y).sum() == 1
    assert [form["after"] for form in task.columns["target_forms"]] == ["kg", "%"]


def test_classes_remain_text(here):
    rows = [[i % 7, ["1 kg", "2 kg", "many"][i % 3]] for i in range(40)]
    assert load_task(write_rows("d.csv", ["x", "y"], rows)).classes == ["1 kg", "2 kg", "many"]
