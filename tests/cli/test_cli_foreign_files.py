"""Tables as other programs write them: what is above, below and beside the rows is found and said.

Every form is read twice: by ``fit``, which leaves out what is no row and says so, and as a file for
``predict``, which has one row per line below the header or is refused.
"""

import pathlib
from dataclasses import dataclass

import numpy as np
import pytest
from support.columns_zoo import ZOO
from support.looped import looped

from fastsvgp.cli.data.tables import read_table
from fastsvgp.cli.data.task import FileFormat, load_task
from fastsvgp.cli.errors import UsageError
from fastsvgp.errors import DataFileError

N = 24
ROWS = [
    [f"{0.1 * i - 1:.2f}", f"{(7 * i) % 24 - 11.5}", f"{(i * i) % 17 + 0.25}"] for i in range(N)
]
NUMBERS = np.array(ROWS, float)


def joined(rows, sep=",", begin="", end=""):
    return "".join(f"{begin}{sep.join(row)}{end}\n" for row in rows)


BODY = joined(ROWS)
SPACED = joined(ROWS, " ")
TABLE = "a,b,y\n" + BODY
NUMBERED = [[str(i + 1), *row] for i, row in enumerate(ROWS)]


@dataclass(frozen=True)
class Form:
    """A file: its text, what is said about it, and how many rows it has for ``predict``.

    ``rows`` is 0 if ``predict`` refuses the file. ``names``: those of the inputs and of the target.
    """

    text: str
    said: str | None
    rows: int = N
    names: tuple = ("a", "b", "y")
    encoding: str = "utf-8"
    skip: int = 0


FORMS = {
    "plain": Form(TABLE, None),
    # above the rows
    "a title": Form("Weather station 12\n" + TABLE, "1 line above the rows (line 1: 'Weather stat"),
    "a title with commas": Form("Report, 2023\n\n" + TABLE, "(line 1: 'Report, 2023')"),
    "a title in quotes": Form('"Report, 2023"\n\n' + TABLE, "(line 1: 'Report, 2023')"),
    "a title over spaces": Form("Station\na b y\n" + SPACED, "(line 1: 'Station')"),
    "a title padded by a spreadsheet": Form("Station,,\n,,\n" + TABLE, "2 lines above the rows"),
    "facts padded by a spreadsheet": Form(
        "Station,12,\nLat,47.5,\n,,\n" + TABLE, "3 lines above the rows (line 1: 'Station, 12')"
    ),
    "no header below a title": Form(
        "All stations\n" + BODY, "(line 1: 'All stations')", names=("x0", "x1", "column 2")
    ),
    "60 lines of text": Form('" 1 of, 60 "\n' * 60 + TABLE, "60 lines above the rows (line 1: '1"),
    "the delimiter for a spreadsheet": Form(
        "sep=;\r\n" + TABLE.replace(",", ";").replace("\n", "\r\n"), "(line 1: 'sep=')"
    ),
    "units": Form("a,b,y\nm,kg,s\n" + BODY, "1 line above the rows (line 2: 'm, kg, s')"),
    "units of some": Form("a,b,y\n[m],,°C\n" + BODY, "(line 2: '[m], °C')"),
    "units over spaces": Form("a b y\nm % s\n" + SPACED, "(line 2: 'm, %, s')"),
    "two lines of names": Form("one,one,two\n" + TABLE, "(line 1: 'one, one, two')"),
    "a data logger": Form(
        '"TOA5","st","CR1","7"\n"a","b","y"\n"degC","mm",""\n"Avg","Tot","Smp"\n' + BODY,
        "3 lines above the rows (line 1: 'TOA5, st, CR1, 7')",
    ),
    "comments": Form("# station 12\n#units: m, kg, s, K\n" + TABLE, None),
    "names in a comment": Form("# station 12\n# a b y\n" + SPACED, None),
    "a comment below the names": Form("a,b,y\n# in m and kg\n" + BODY, "(line 2: '# in m and kg')"),
    "text below the names": Form("a,b,y\nall in metres\n" + BODY, "(line 2: 'all in metres')"),
    "skipped lines": Form("24,3\n" + TABLE, None, skip=1),
    "attributes": Form(
        "@relation r\n@attribute a numeric\n@data\n" + BODY,
        "3 lines above the rows",
        names=("x0", "x1", "column 2"),
    ),
    # below the rows
    "a total": Form(TABLE + "Total,3.2,4.5\n", "1 line below the table (line 26: 'Total,", N + 1),
    "totals": Form(TABLE + "Mean,1,\nSD,1,2\n", "2 lines below the table (line 26: 'Mean,", N + 2),
    "a last line of text": Form(TABLE + "End of file\n", "(line 26: 'End of file')", 0),
    "a source": Form(TABLE + "\nSource: WHO, 2023\n", "(line 27: 'Source: WHO, 2023')", 0),
    "a comment at the end": Form(TABLE + "# end\n", "1 line of comments (line 26: '# end')", 0),
    "comments between rows": Form(
        "a,b,y\n" + joined(ROWS[:9]) + "# batch 2\n" + joined(ROWS[9:]), "'# batch 2'", 0
    ),
    "names on each page": Form(
        "a,b,y\n" + joined(ROWS[:9]) + "a,b,y\n" + joined(ROWS[9:]),
        "1 line of names (line 11: 'a, b, y')", N + 1,
    ),
    "lines of delimiters": Form(TABLE + ",,\n,,\n", "2 lines of delimiters (line 26: no", N + 2),
    # beside the rows
    "delimiters at the end of rows": Form("a,b,y\n" + joined(ROWS, end=","), "1 column without a"),
    "delimiters at all ends": Form(
        "a,b,y,,\n" + joined(ROWS, end=",,"), "2 columns without a name or cells"
    ),
    "a delimiter after the names": Form("a,b,y,\n" + BODY, None),
    "delimiters without names": Form(
        joined(ROWS, ";", end=";"), "1 column without a name", names=("x0", "x1", "column 2")
    ),
    "names of rows": Form(
        '"a" "b" "y"\n' + joined(NUMBERED, " "), "the names of rows in the first column"
    ),
    "names of rows in words": Form(
        '"a","b","y"\n' + joined([[f'"no, {n}"', *row] for n, *row in NUMBERED]), "names of rows"
    ),
    "markdown": Form(
        "| a | b | y |\n|---|:-:|--:|\n" + joined(ROWS, " | ", "| ", " |"),
        "(line 2: '---, :-:, --:'); 2 columns without a name or cells",
    ),
    "a database": Form(
        " a | b | y\n---+---+---\n" + joined(ROWS, " | ") + "(24 rows)\n", "'(24 rows)'", False
    ),
    "single quotes": Form("'a','b','y'\n" + joined(ROWS, "','", "'", "'"), None),
    # encodings
    "utf-16": Form(TABLE, None, encoding="utf-16"),
    "Windows-1252": Form(
        TABLE.replace("a", "Höhe"), "byte 1 is not UTF-8; the text is read as Windows-1252",
        names=("Höhe", "b", "y"), encoding="cp1252",
    ),
}  # fmt: skip


@pytest.fixture(params=FORMS, ids=lambda name: name.replace(" ", "_"))
def form(request, here):
    """A form, whose text is in foreign.csv."""
    found = FORMS[request.param]
    pathlib.Path("foreign.csv").write_bytes(found.text.encode(found.encoding))
    return found


def test_fit_finds_the_rows_and_says_what_is_left_out(form, caplog):
    task = load_task("foreign.csv", file_format=FileFormat(skip=form.skip))
    assert (*task.input_names, task.target_name) == form.names
    np.testing.assert_array_equal(np.column_stack([task.X, task.y]), NUMBERS)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (form.said is not None)
    assert all(m.startswith("foreign.csv: ") and form.said in m for m in messages)


def test_predict_has_one_row_per_line_or_refuses(form):
    if not form.rows:
        with pytest.raises(
            DataFileError, match=r"foreign.csv, line \d+: \d cells?, but the header"
        ):
            read_table("foreign.csv", whole=True)
        return
    table = read_table("foreign.csv", skip=form.skip, whole=True)
    assert table.num_rows == form.rows and table.count_lines() == (form.rows, 0)
    kept = [i for i in range(3) if i not in table.text]
    np.testing.assert_array_equal(table.numbers[:N, kept], NUMBERS[:, kept])


@pytest.mark.parametrize(
    "text, message",
    [
        (TABLE + "1.5,2", "line 26: 2 cells, but the header names 3 columns"),
        (TABLE.replace(",".join(ROWS[7]), "1.5,2"), "line 9: 2 cells, but the header"),
        ("a,b,y\nred,1.5\n" + BODY, "line 3: 3 cells, but line 2 has 2"),
        ("a,b,y,z\n" + BODY, "line 2: 3 cells, but line 1 has 4 names"),
        ("a,b\n" + BODY, "line 2: 3 cells, but line 1 has 2 names"),
        ("x\n1,5\n2,5\n", "line 2: 2 cells, but line 1 has 1 names"),
        ("24 3\n" + SPACED, "line 2: 3 cells, but line 1 has 2; .*--skip"),
        ("c,y\n" + joined([["red", "1"], ["blue", "2"]]) + "green,dark,3\n", "line 4: 3 cells"),
        ("\n".join("#" + line for line in BODY.splitlines()), "all of its lines begin with #"),
        ("a\0,y\n1,2\n", "it holds NUL bytes"),
    ],
)
def test_lines_that_may_be_rows_are_never_left_out(here, text, message):
    pathlib.Path("d.csv").write_text(text)
    for whole in (False, True):
        with pytest.raises(DataFileError, match=message):
            read_table("d.csv", whole=whole)


@pytest.mark.parametrize(
    "first, below, named",
    [
        ("a,1990,1991,1992", "x,1,2,3", True),
        ("a,1990,1991,1992,", "x,1,2,3,", True),
        ("World,,,\na,1990,1991,1992", "x,1,2,3", True),
        ("1990,1995,2000", "1,2,3", True),
        ("2000,1995,1990", "1,2,3", True),
        ("1500,2000,2500", "1,2,3", True),
        ("1499,1999,2499", "1,2,3", False),
        ("1501,2001,2501", "1,2,3", False),
        ("1990,1991,1993", "1,2,3", False),
        ("1990,1990,1990", "1,2,3", False),
        ("a,1990,1991", "x,1,2", False),
        ("1990,1991.5,1993", "1,2,3", False),
        ("1990,1991,1992", "1,2,2003", False),
        ("x,1990,1991,1992", "x,1,2,3", False),
    ],
)
def test_which_years_are_names(here, caplog, first, below, named):
    pathlib.Path("d.csv").write_text(first + f"\n{below}" * 3 + "\n")
    table = read_table("d.csv")
    assert table.named == named and table.num_rows == 4 - named
    assert ("is read as column names" in caplog.text) == named


@pytest.mark.parametrize("mark", ["..", ":", "2 p", "n.d."])
def test_years_above_numbers_and_marks_are_names(here, mark):
    rows = [[f"x{i}", mark if i % 3 == 0 else f"{i}", f"{2 * i}", f"{3 * i}"] for i in range(N)]
    for first in ("geo,1990,1991,1992\n", "geo,1990,1991,1992,\n"):
        pathlib.Path("d.csv").write_text(first + joined(rows, end="," * first.endswith(",\n")))
        assert read_table("d.csv").names == ["geo", "1990", "1991", "1992"]


def test_lines_before_a_line_of_words_are_rows_unless_padded(here):
    for above, count in (("1,2,\n", N), ("1,2,3\n", N + 2), ("a,b,y\n1,2,\n", N + 2)):
        pathlib.Path("d.csv").write_text(above + "c,d,e\n" + BODY)
        assert read_table("d.csv").num_rows == count


def test_digits_with_underscores_are_names(here):
    names = [f"6_{i:02}" for i in range(N)]
    rows = [[name, *row] for name, row in zip(names, ROWS, strict=True)]
    pathlib.Path("d.csv").write_text("site,1_0,4_00060,y\n5s,4n,5n,3n\n" + joined(rows))
    table = read_table("d.csv")
    assert table.text == {0: names} and table.names == ["site", "1_0", "4_00060", "y"]
    assert table.index_of("1_0", "--target") == 1
    with pytest.raises(UsageError, match="no column '0_1'"):
        table.index_of("0_1", "--target")


@pytest.mark.parametrize("gap, width", [("   ", 5), (" ", 2)])
def test_columns_of_numbers_beside_a_tab(here, gap, width):
    rows = [[gap.join([f"{10 + i}", *row]), f'"car no {i}"'] for i, row in enumerate(ROWS)]
    pathlib.Path("d.txt").write_text(joined(rows, "\t"))
    table = read_table("d.txt", header="no")
    assert table.num_columns == width and table.text[width - 1] == [f"car no {i}" for i in range(N)]


@pytest.mark.parametrize("place", [0, 1, N - 1])
@pytest.mark.parametrize("header", ["", "a,b,y\n"])
@pytest.mark.parametrize(
    "cell", ["#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!", "1.#QNAN", "<NA>"]
)
def test_errors_of_spreadsheets_are_missing_values(here, place, header, cell):
    rows = [list(row) for row in ROWS]
    rows[place][0] = cell
    pathlib.Path("d.csv").write_text(header + joined(rows))
    table = read_table("d.csv")
    assert np.flatnonzero(np.isnan(table.numbers[:, 0])).tolist() == [place] and not table.text
    assert table.num_rows == N


def test_text_that_begins_with_a_hash_is_text(here):
    colours = [["#ff0000", "#00ff00", "red"][i % 3] for i in range(N)]
    for header in ("colour,a,b,y\n", ""):
        rows = [[c, *row] for c, row in zip(colours, ROWS, strict=True)]
        pathlib.Path("d.csv").write_text(header + joined(rows))
        assert read_table("d.csv", whole=True).text == {0: colours}


def test_a_row_that_is_commented_out(here, caplog):
    pathlib.Path("d.csv").write_text("a,b,y\n#1,2,3\n" + BODY)
    assert read_table("d.csv").num_rows == N and "(line 2: '#1, 2, 3')" in caplog.text
    with pytest.raises(DataFileError, match="line 2: it begins with #, but has the cells of a row"):
        read_table("d.csv", whole=True)
    pathlib.Path("d.csv").write_text("a,b,y\n" + joined(ROWS[:9]) + "#1,2,3\n" + joined(ROWS[9:]))
    assert read_table("d.csv").text[0][9] == "#1"


@pytest.mark.parametrize(
    "rows, kept",
    [
        ("1,2 3,4 5,6 Summary,7", 3),
        ("2020-01-01,2 2020-01-02,4 ,6 Summary,7", 3),
        ("1,2 3,4 Summary,7", 3),  # too few rows to tell
        ("1,2 3,4 5,6 n.d.,7", 4),  # as codes are written
        ("1,2 none_yet,4 5,6 Summary,7", 4),
        (",2 ,4 ,6 Summary,7", 4),
        ("1,2 3,4 5,6 7,Summary", 4),
        ("A1,2 A2,4 A3,6 control,7", 4),
        ("ann,2 bob,4 cat,6 Total:,7", 3),
        ("ann,2 total,4 cat,6 total,7", 4),
        # text alone in a row
        ("ann,2,1 bob,4,1 cat,6,1 Data:_WHO,,", 3),
        ("ann,2,1 bob,4,1 cat,6,1 ,see_note,", 3),
        ("ann,2,1 bob,4,1 cat,6,1 ann,,", 4),
        ("ann,2,1 bob,4,1 cat,6,1 dora,1,", 4),
        ("ann,2,1 bob,4,1 cat,6,1 9,,", 4),
        ("ann,2 bob,4 cat,6 dora,", 4),
        ("1,2,1 3,4,1 5,6,1 Total,7, *_late,,", 3),
    ],
)
def test_which_last_row_is_no_row(here, rows, kept):
    rows = [row.replace("_", " ").split(",") for row in rows.split(" ")]
    pathlib.Path("d.csv").write_text("a,b,y\n"[-2 * len(rows[0]) :] + joined(rows))
    assert read_table("d.csv").num_rows == kept
    assert read_table("d.csv", whole=True).num_rows == len(rows)


def test_a_first_row_of_codes_is_no_line_of_units(here):
    rows = [["M", "M", "1"], *ROWS[:5], ["M", "2", "3"], *ROWS[5:]]
    pathlib.Path("d.csv").write_text("a,b,y\n" + joined(rows))
    assert read_table("d.csv").num_rows == N + 2
    pathlib.Path("d.csv").write_text("a,b,y\nn.d.,n.d.,n.d.\n" + BODY)
    assert read_table("d.csv", na=["n.d."]).num_rows == N + 1
    pathlib.Path("d.csv").write_text("n.d.,n.d.,n.d.\n" + BODY)
    table = read_table("d.csv", na=["n.d."])
    assert table.num_rows == N + 1 and not table.named


# --- columns with forms ---------------------------------------------------------------------------

AROUND = {
    "no header": ("", "", 0),
    "a title": ("Stations\na,y\n", "", 1),
    "a padded title": ("Stations,\na,y\n", "", 1),
    "units": ("a,y\nsome unit,kg\n", "", 1),
    "a total": ("a,y\n", "Total,3.5 kg\n", 1),
    "a source": ("a,y\n", "Source: WHO,\n", 1),
    "a text": ("a,y\n", "End of file\n", 1),
}


@looped("around", AROUND)
@pytest.mark.parametrize("name", ZOO)
def test_cells_with_forms_are_figures(here, caplog, name, around):
    caplog.clear()
    above, below, said = AROUND[around]
    cells, numbers, _ = ZOO[name]
    rows = [[f'"{cell}"', f"{7 * i % 24 - 11.5} kg"] for i, cell in enumerate(cells)]
    pathlib.Path("d.csv").write_text(above + joined(rows) + below, encoding="utf-8")
    task = load_task("d.csv")
    values = task.X if task.raw is None else task.raw.numbers
    inputs = values[:, 0] * (24 if name.startswith("clocks") and "dots" not in name else 1)
    np.testing.assert_allclose(inputs, numbers, rtol=1e-12, atol=1e-9)
    assert caplog.text.count("left out of the table: 1 line") == said
    assert (task.target_name == "y") == bool(above)


@pytest.mark.parametrize("name", ZOO)
def test_a_first_row_of_forms_and_words_is_a_row(here, caplog, name):
    rows = [[f'"{cell}"', ["red", "blue"][i % 2]] for i, cell in enumerate(ZOO[name][0])]
    for above in ("", "a,y\n"):
        pathlib.Path("d.csv").write_text(above + joined(rows), encoding="utf-8")
        table = read_table("d.csv")
        assert table.named == bool(above) and table.num_rows == len(rows) and not caplog.records


@pytest.mark.parametrize(
    "name, inputs",
    [
        ("ISO with an offset", 2),
        ("clocks with seconds", 2),
        ("names of months", 2),
        ("days and hours", 1),
    ],
)
def test_names_of_rows_that_are_times_are_an_input(here, caplog, name, inputs):
    cells = [*dict.fromkeys(ZOO[name][0])][:N]
    rows = [[f'"{cell}"', *row[1:]] for cell, row in zip(cells, ROWS, strict=True)]
    pathlib.Path("d.csv").write_text("a,y\n" + joined(rows), encoding="utf-8")
    task = load_task("d.csv")
    assert task.input_names == ["column 0", "a"][-inputs:]
    assert ("the names of rows" in caplog.text) == (inputs == 1)


def test_dates_above_other_forms_are_names(here):
    days = [f"2023-01-{j:02}" for j in range(1, 4)]
    for unit in ("", " mm"):
        rows = [["c", *(cell + unit for cell in row)] for row in ROWS]
        pathlib.Path("d.csv").write_text(joined([["id", *days], *rows]))
        assert read_table("d.csv").names == ["id", *days]
