"""Reading tables: formats, delimiters, headers, and messages for anything else."""

import gzip
import io
import os
import threading

import numpy as np
import pytest
from support.looped import looped

from fastsvgp.cli.data.headers import HEADER_RULES
from fastsvgp.cli.data.notes import note_indexes
from fastsvgp.cli.data.tables import read_table
from fastsvgp.cli.errors import UsageError
from fastsvgp.errors import DataFileError

NUMBERS = np.array([[1.5, -2.0, 3e-4], [4.0, 5.25, 6.0]])


@pytest.fixture
def write(tmp_path):
    def make(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return str(path)

    return make


@looped("name", ["data.csv", "data.csv.gz", "oddly.named"])
@looped("header", [None, "a,b,c", "0,1,2", "# a,b,c", "# a remark"])
@looped("delimiter", [",", ";", "\t", "|", " ", "   "])
@looped("newline", ["\n", "\r\n"])
def test_text_of_every_layout(write, name, header, delimiter, newline):
    lines = ([header] if header else []) + ["1.5,-2.0,3e-4", "4,5.25,6"]
    table = read_table(
        write(newline.join(line.replace(",", delimiter) for line in lines) + newline, name)
    )
    np.testing.assert_array_equal(table.numbers, NUMBERS)
    assert table.named == (header in ("a,b,c", "0,1,2", "# a,b,c"))
    assert table.names == (
        ["a", "b", "c"]
        if header in ("a,b,c", "# a,b,c")
        else ["0", "1", "2"]
        if table.named
        else ["x0", "x1", "x2"]
    )


def test_numpy_savetxt_header_and_remarks_above_it(write):
    table = read_table(write("# written in May\n# a b c\n1 2 3\n4 5 6\n"))
    assert table.names == ["a", "b", "c"] and table.numbers.shape == (2, 3)


def test_bom_blank_lines_quotes_and_text(write):
    table = read_table(write('\ufeff"size, cm",colour\n\n1.5,"dark ""red"""\n2.5, blue\n\n'))
    assert table.names == ["size, cm", "colour"]
    assert table.text == {1: ['dark "red"', "blue"]}
    np.testing.assert_array_equal(table.numbers[:, 0], [1.5, 2.5])


def test_header_can_be_forced(write):
    path = write("1,2\n3,4\n")
    assert read_table(path, header="yes").names == ["1", "2"]
    assert read_table(path, header="yes").numbers.shape == (1, 2)
    path = write("a,b\n3,4\n")
    assert read_table(path, header="no").text == {0: ["a", "3"], 1: ["b", "4"]}


@pytest.mark.parametrize(
    "text, names, said",
    [
        (
            "0,1,2\n3,4,5\n6,7,8\n",
            None,
            "(0, 1, 2) is read as data; give --header yes if it is column names",
        ),
        ("0,1,2\n3,,5\n", None, "is read as data"),
        ("0,1,2\n", None, "is read as data"),
        (
            "0,1,2\n3,4,5\n6,7.5,8\n",
            "0,1,2",
            "(0, 1, 2) is read as column names; give --header no if it is data",
        ),
        ("0,1,2\n3,4,red\n", "0,1,2", "is read as column names"),
        (
            "year,1990,2000\n1,2,3\n",
            "year,1990,2000",
            "(year, 1990, 2000) is read as column names",
        ),
        (",yes\n1.5,no\n", "column 0,yes", "(, yes) is read as column names"),
        ("?,yes\n1.5,no\n", None, None),
        ("1,NA,3\n4,5,6\n", None, None),
        ("NA,-,?\n4,5,6\n", None, None),
        ("red,1\nblue,2\n", None, None),
        ("red,dark\nblue,pale\nred,dark\n", None, "(red, dark) is read as data; give --header yes"),
        ("red,dark\nblue,pale\nred,pale\n", "red,dark", None),
        (",a,b\n0,1.5,2\n", "column 0,a,b", None),
        ("na,a\n1,2\n", "na,a", None),
    ],
)
def test_no_first_row_of_data_becomes_names_unsaid(write, caplog, text, names, said):
    path = write(text)
    table = read_table(path)
    assert (",".join(table.names) if table.named else None) == names
    assert table.num_rows == text.count("\n") - (names is not None)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (said is not None) and all(
        m.startswith(path) and said in m for m in messages
    )
    caplog.clear()
    assert read_table(path, header="no").num_rows == text.count("\n") and not caplog.records


def test_one_column_and_one_row(write):
    assert read_table(write("1\n2\n3\n")).numbers.shape == (3, 1)
    assert read_table(write("1,2,3")).numbers.shape == (1, 3)


def test_numpy_files(tmp_path):
    np.save(tmp_path / "a.npy", NUMBERS.astype(np.float32))
    np.savez(tmp_path / "b.npz", X=NUMBERS, y=np.array(["no", "yes"]))
    assert read_table(tmp_path / "a.npy").numbers.dtype == np.float64
    table = read_table(tmp_path / "b.npz")
    assert list(table.target) == ["no", "yes"] and table.numbers.shape == (2, 3)
    np.savez(tmp_path / "b.npz", X=NUMBERS, y=np.array([b"no", b"yes"]))
    assert list(read_table(tmp_path / "b.npz").target) == ["no", "yes"]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a,b,c\n1,2,3\n4,5\n", r"line 3: 2 cells, but the header names 3 columns"),
        ("1,2,3\n\n4,5,6,7\n", r"line 3: 4 cells, but line 1 has 3"),
        ('1,2\n"multi\nline",3\n4,5,6\n', r"line 4: 3 cells"),
        ("", "holds no rows of data"),
        ("\n\n", "holds no rows of data"),
        ("a,b\n", "no rows of data"),
        ("# only a remark\n", "holds no rows of data"),
    ],
)
def test_ragged_and_empty_files(write, text, message):
    with pytest.raises(DataFileError, match=message):
        read_table(write(text))


@pytest.mark.parametrize("cell", ["nan", "", "NA", "?", "inf"])
@pytest.mark.parametrize("header", ["", "a,b\n"])
def test_missing_cells_say_line_and_column(write, cell, header):
    table = read_table(write(f"{header}1,2\n\n3,{cell}\n5,{cell}\n"))
    line = 4 if header else 3
    with pytest.raises(
        DataFileError, match=rf"line {line}, column '{'b' if header else 'x1'}'.*first of 2"
    ):
        table.inputs([0, 1])
    np.testing.assert_array_equal(table.inputs([0])[:, 0], [1, 3, 5])


def test_text_columns_are_named_with_what_to_do(write):
    table = read_table(write("name,size,colour\nann,1,red\nbob,2,blue\n"))
    with pytest.raises(
        UsageError, match=r"columns 'name' \('ann', line 2\), 'colour'.*--ignore name,colour"
    ):
        table.inputs([0, 1, 2])


def test_advice_quotes_names_for_the_shell(write):
    table = read_table(write("name,the size\nann,large one\nbob,small\n"))
    with pytest.raises(UsageError, match="--ignore 'name,the size'$"):
        table.inputs([0, 1])


def test_columns_by_name_and_index(write):
    table = read_table(write("a,b,b\n1,2,3\n4,5,6\n"))
    assert [table.index_of(c, "--target") for c in ("a", "0", "-1")] == [0, 0, 2]
    for column, message in (
        ("b", "2 columns named 'b'"),
        ("3", "0 to 2"),
        ("aa", "did you mean 'a'"),
        ("-4", "no column -4"),
    ):
        with pytest.raises(UsageError, match=f"--target: .*{message}"):
            table.index_of(column, "--target")


def test_files_that_are_no_tables(tmp_path):
    cases = {
        "png.csv": (b"\x89PNG\r\n\x1a\n\x00\x01\xff\xfe", "is not UTF-8"),
        "cut.csv.gz": (gzip.compress(b"1,2\n" * 500)[:-12], "cannot read"),
        "bad.npz": (b"PK\x03\x04 and then nothing", "damaged"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataFileError, match=message):
            read_table(tmp_path / name)
    with pytest.raises(DataFileError, match="cannot read .*No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DataFileError, match="cannot read"):
        read_table(tmp_path)
    np.savez(tmp_path / "keys.npz", A=NUMBERS)
    np.savez(tmp_path / "rows.npz", X=NUMBERS, y=np.ones(3))
    np.savez(tmp_path / "complex.npz", X=NUMBERS, y=np.ones(2, complex))
    np.savez(
        tmp_path / "dates.npz", X=NUMBERS, y=np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")
    )
    np.savez(tmp_path / "object.npz", X=np.array([{}, {}]), y=np.ones(2))
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    for name, message in (
        ("keys.npz", "holds A; .*needs X"),
        ("rows.npz", r"y has shape \(3,\)"),
        ("complex.npz", "y must be numbers, booleans or text, got dtype complex128"),
        ("dates.npz", "y must be numbers, booleans or text, got dtype datetime64"),
        ("object.npz", "pickled"),
        ("cube.npy", r"\(2, 2, 2\)"),
    ):
        with pytest.raises(DataFileError, match=message):
            read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["data.npz", "data.npy", "data.csv.gz", "data.csv"])
def test_damaged_bytes_never_come_through_as_anything_else(tmp_path, rng, name):
    path = tmp_path / name
    if name.startswith("data.csv"):
        text = b"1,2\n3,4\n" * 20
        path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    elif name == "data.npz":
        np.savez(path, X=NUMBERS, y=np.ones(2))
    else:
        np.save(path, NUMBERS)
    content = path.read_bytes()
    for at in range(0, len(content), 2 if len(content) < 300 else 5):
        damaged = bytearray(content)
        damaged[at] ^= 1 << rng.integers(8)
        for piece in (damaged, content[:at]):
            path.write_bytes(piece)
            try:
                read_table(path)
            except (DataFileError, UsageError) as error:
                assert name in str(error)


def test_unknown_delimiter(write):
    with pytest.raises(UsageError, match="--delimiter.*'::'"):
        read_table(write("1,2\n"), delimiter="::")
    assert read_table(write("1:2\n3:4\n"), delimiter=":").numbers.shape == (2, 2)


@pytest.fixture
def pipe(tmp_path):
    """A path that delivers bytes once, like ``<(command)`` in a shell."""
    writers = []

    def make(content, name="pipe"):
        path = tmp_path / f"{name}{len(writers)}"
        os.mkfifo(path)
        writers.append(threading.Thread(target=path.write_bytes, args=(content,), daemon=True))
        writers[-1].start()
        return path

    yield make
    for writer in writers:
        writer.join(10)


def contents():
    """Bytes of each kind of table, more than a pipe or buffer holds, so that rereading fails."""
    numbers = np.arange(60000.0).reshape(-1, 3)
    text = "\n".join(["a,b,c", *(",".join(map(repr, row)) for row in numbers.tolist())]).encode()
    yield "csv", text, numbers
    yield "csv.gz", gzip.compress(text), numbers
    for name, write in (
        ("npy", lambda file: np.save(file, numbers)),
        ("npz", lambda file: np.savez(file, X=numbers)),
    ):
        write(file := io.BytesIO())
        yield name, file.getvalue(), numbers


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "npy", "npz"])
def test_a_pipe_and_standard_input_lose_no_row(pipe, monkeypatch, kind):
    content, numbers = next(
        (content, numbers) for name, content, numbers in contents() if name == kind
    )
    np.testing.assert_array_equal(read_table(pipe(content)).numbers, numbers)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    table = read_table("-")
    np.testing.assert_array_equal(table.numbers, numbers)
    assert table.path == "standard input"


def test_errors_about_a_pipe_know_the_line(pipe, monkeypatch):
    table = read_table(pipe(b"a,b\n1,2\n\n3,nan\n"))
    with pytest.raises(DataFileError, match="line 4, column 'b'"):
        table.inputs([0, 1])
    for stdin, message in (
        (io.TextIOWrapper(io.BytesIO(b"a,b\n1,2\n3\n")), "standard input, line 3: 1 cell"),
        (io.TextIOWrapper(io.BytesIO(b"")), "standard input is empty"),
        (io.TextIOWrapper(io.BytesIO(b"PK\x03\x04 and then nothing")), "standard input: .*damaged"),
        (None, "standard input is closed"),
    ):
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(DataFileError, match=message):
            read_table("-")


@pytest.mark.parametrize(
    "text, message",
    [
        ("a,b,y\n1,2,3,4\n5,6,7,8\n1,5,6,7\n", r"line 2: 4 cells.*see --delimiter"),
        ("a,b,y\n1,2,3,4,5\n", r"line 2: 5 cells, but line 1 has 3 names.*see --delimiter"),
        ("a,b,c\n1,2,\n4,5,\n", "line 2, column 'c': the value is missing"),
        ("a,b,\n1,2,\n4,5,7\n", "line 2, column 'column 2': the value is missing"),
    ],
)
def test_a_delimiter_at_the_end_of_the_lines(write, text, message):
    with pytest.raises(DataFileError, match=message):
        table = read_table(write(text))
        table.inputs(range(table.num_columns))


@pytest.mark.parametrize("rule", HEADER_RULES, ids=lambda rule: rule.holds.__name__)
def test_each_rule_on_headers_decides_its_example(rule, tmp_path, caplog):
    first, *following = ([*map(str.strip, line.split(","))] for line in rule.example)
    applying = [one for one in HEADER_RULES if one.holds(first, following[0], following)]
    assert applying[0] is rule
    path = tmp_path / "table.csv"
    path.write_text("\n".join(rule.example) + "\n")
    assert read_table(path).named is rule.names
    assert ("is read as" in caplog.text) is rule.ambiguous


@pytest.mark.parametrize("index, named", [("123456789", True), ([""], False), (("7", ""), False)])
def test_the_header_of_pandas_without_names(write, caplog, index, named):
    rows = [f"{index[i % len(index)]},{i},2,{i * i}\n" for i in range(9)]
    table = read_table(write(",0,1,2\n" + "".join(rows)))
    assert table.named == named
    if named:  # the name 0 is taken
        note_indexes(table, [0, 1, 2])
        assert "--ignore 'column 0' leaves it out" in caplog.text
