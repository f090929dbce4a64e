"""Text columns and missing values as inputs: learning from training rows, and later files."""

import io
import pathlib

import numpy as np
import pytest
from support.cli_runs import refused, results, run, write_rows
from support.interruptions import after_step

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.data.columns import OTHER, Encoding, learn
from fastsvgp.cli.data.held_out import split
from fastsvgp.cli.data.reading import Raw
from fastsvgp.cli.data.task import load_task
from fastsvgp.cli.errors import UsageError
from fastsvgp.cli.settings.names import LEVELS

pytestmark = pytest.mark.usefixtures("unplotted")
FEW = [
    "--steps",
    "30",
    "--inducing",
    "12",
    "--batch-size",
    "32",
    "--learning-rate",
    "0.05",
    "--quiet",
]
COLOURS = ["red", 'a "dark" blue, nearly black', "grün <b>&", "日本"]
EFFECT = dict(zip(COLOURS, [0.0, 3.0, -3.0, 6.0], strict=True))


@pytest.fixture
def coloured(here, rng):
    """A target that depends on colour and size; large sizes are missing."""
    colours, size = rng.choice(COLOURS, 120), rng.standard_normal(120)
    y = [
        EFFECT[c] + s + 0.05 * e
        for c, s, e in zip(colours, size, rng.standard_normal(120), strict=True)
    ]
    rows = [
        [c, "" if s > 1 else f"{s:.4f}", f"{v:.4f}"]
        for c, s, v in zip(colours, size, y, strict=True)
    ]
    return write_rows("coloured.csv", ["colour", "size", "y"], rows)


def predicted(capsys, *argv):
    out, err = run(capsys, "predict", *argv)
    return np.array([float(line.split(",")[0]) for line in out.splitlines()[1:]]), err


def test_predict_encodes_text_and_missing_values_as_fit_does(coloured, capsys):
    out, _ = run(capsys, "fit", coloured, "--missing", "median", *FEW[:-1], "--steps", "150")
    assert (
        "colour (4 levels)" in out
        and "marks them: size" in out
        and "without information" not in out
    )
    found = results("coloured-fit")
    assert found["inputs"] == [
        *(f"colour={c}" for c in sorted(COLOURS)),
        f"colour={OTHER}",
        "size",
        "size=(missing)",
    ]
    assert (
        found["missing"] == "median"
        and found["test"]["model"]["rmse"] < 0.4 * found["test"]["trivial"]["rmse"]
    )
    write_rows("new.csv", ["size", "extra", "colour"], [["0", "x", c] for c in COLOURS])
    mean, err = predicted(capsys, "coloured-fit", "new.csv")
    np.testing.assert_allclose(mean, list(EFFECT.values()), atol=1.0)
    assert err == ""
    write_rows("order.csv", ["colour", "size"], [[c, "0"] for c in COLOURS])
    np.testing.assert_array_equal(predicted(capsys, "coloured-fit", "order.csv")[0], mean)
    fitted = fs.load_fitted("coloured-fit")
    X = fitted.read("new.csv")
    assert X.shape == (4, 7) and fitted.input_names == found["inputs"]
    np.testing.assert_allclose(fitted.predict(X).mean, mean, rtol=1e-8)
    _, err = predicted(capsys, "coloured-fit", coloured)  # sizes are missing as in training
    assert err.startswith("target 'y' is in the file: RMSE")


def test_the_matrix_by_hand():
    numbers = np.array([[np.nan, 1.0], [np.nan, np.nan], [np.nan, 5.0], [np.nan, 90.0]])
    raw = Raw(["c", "n"], numbers, {0: ["b", "a", None, "z"]})
    encoding = learn(raw, np.array([True, True, True, False]), "median")
    assert encoding.input_names == ["c=a", "c=b", "c=(other)", "c=(missing)", "n", "n=(missing)"]
    # the median of 1 and 5
    expected = [[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 3, 1], [0, 0, 0, 1, 5, 0], [0, 0, 1, 0, 90, 0]]
    np.testing.assert_array_equal(encoding.matrix(raw), expected)
    again = Encoding.from_json(encoding.to_json())
    assert again == encoding
    np.testing.assert_array_equal(again.matrix(raw), expected)
    with pytest.raises(
        UsageError,
        match="--missing median: column 'n' is missing in all 1 training rows; .*--ignore n",
    ):
        learn(raw, np.array([False, True, False, False]), "median")


def test_rare_levels_share_one_input(here, capsys, rng):
    names = [f"level {i:02}" for i in range(LEVELS + 5)]
    # the first five are rarest
    cells = [name for i, name in enumerate(names) for _ in range(2 + (i >= 5))]
    rows = [[c, f"{i % 7}", f"{np.sin(i):.4f}"] for i, c in enumerate(cells)]
    path = write_rows("many.csv", ["c", "n", "y"], rows)
    _, err = run(capsys, "fit", path, "--test-fraction", "0", *FEW[:-1])
    assert (
        "text column 'c' has 25 levels in the training rows: the 20 most frequent have an input"
        " each"
        in err
        and "--ignore c" in err
    )
    assert results("many-fit")["inputs"] == [
        *(f"c={name}" for name in names[5:]),
        f"c={OTHER}",
        "n",
    ]
    write_rows(
        "new.csv", ["c", "n"], [[names[0], 3], [names[1], 3], ["never seen", 3], [names[9], 3]]
    )
    mean, err = predicted(capsys, "many-fit", "new.csv")
    assert mean[0] == mean[1] == mean[2] != mean[3]
    assert (
        "note       new.csv, column 'c': 3 of 4 rows hold a level without an input"
        " (first 'level 00', line 2)" in err
    )


def test_levels_and_medians_are_of_the_training_rows_alone(here):
    rows = [
        [
            "held" if i % 3 == 0 else "ab"[i % 2],
            "100" if i % 3 == 0 else "" if i == 1 else f"{i % 5}",
            i * i % 11,
        ]
        for i in range(30)
    ]
    path = write_rows("d.csv", ["c", "n", "y"], rows)
    write_rows("mask.csv", ["m"], [[int(i % 3 == 0)] for i in range(30)])
    task = split(load_task(path, missing="median"), mask="mask.csv:m")
    column, number = task.encoding.columns
    assert column.levels == ["a", "b"] and number.gaps
    assert number.median == np.median([i % 5 for i in range(30) if i % 3 and i != 1])
    assert (task.X[task.test, 2] == 1).all() and (task.X[task.test, 3] == 100).all()


def test_column_is_text_in_one_file_and_numbers_in_the_other(here, capsys):
    rows = [
        [["1", "02", "A"][i % 3], i % 7, f"{[0, 5, 9][i % 3] + 0.01 * (i % 7)}"] for i in range(60)
    ]
    run(
        capsys, "fit", write_rows("codes.csv", ["code", "n", "y"], rows), *FEW[2:], "--steps", "150"
    )
    assert results("codes-fit")["inputs"] == ["code=02", "code=1", "code=A", "code=(other)", "n"]
    # a file in which the column holds only numbers
    write_rows("numbers.csv", ["code", "n"], [["02", 3], ["1", 3], ["2", 3]])
    mean, err = predicted(capsys, "codes-fit", "numbers.csv")
    np.testing.assert_allclose(mean[:2], [5, 0], atol=1)
    assert "1 of 3 rows hold a level without an input (first '2', line 4)" in err
    write_rows("other.csv", ["code", "n"], [["A", "three"], ["A", "4"]])
    assert "inputs must be numbers, but text is in column 'n' ('three', line 2)" in refused(
        capsys, "predict", "codes-fit", "other.csv"
    )
    np.savez("bare.npz", X=np.array([[1.0, 3.0], [2.0, 3.0]]))
    again, _ = predicted(capsys, "codes-fit", "bare.npz")
    np.testing.assert_array_equal(again, mean[1:])


def test_numbers_with_a_misspelt_one_are_no_text(here, capsys):
    rows = [[f"{i}.5", i % 7] for i in range(40)]
    rows[7][0] = "1o.5"
    message = refused(capsys, "fit", write_rows("d.csv", ["n", "y"], rows), *FEW)
    assert (
        "d.csv, line 9, column 'n': '1o.5' is not a number; correct such cells" in message
        and "--missing" in message
    )
    assert "correct such cells, empty them and give --missing median, or leave out" in message


def test_missing_values_are_refused_by_default(coloured, here, capsys):
    message = refused(capsys, "fit", coloured, *FEW)
    assert (
        "column 'size': the value is missing or NaN" in message
        and "or fill them in with --missing median" in message
    )
    rows = [["red" if i % 2 else "blue", i % 7, i * i % 11] for i in range(40)]
    rows[3][0] = "NA"
    message = refused(capsys, "fit", write_rows("d.csv", ["c", "n", "y"], rows), *FEW)
    assert (
        "d.csv, line 5, column 'c': the value is missing" in message
        and "give --missing median to make them a level" in message
    )
    rows[3][0] = "red"
    run(capsys, "fit", write_rows("d.csv", ["c", "n", "y"], rows), *FEW)
    for new in (["", 1], ["red", ""]):
        write_rows("new.csv", ["c", "n"], [["red", 2], new])
        message = refused(capsys, "predict", "d-fit", "new.csv")
        assert "new.csv, line 3, column" in message and "fit again with --missing median" in message
    rows[3][2] = "inf"
    assert "infinite" in refused(
        capsys,
        "fit",
        write_rows("d.csv", ["y", "n", "c"], [r[::-1] for r in rows]),
        "--missing",
        "median",
        "--target",
        "n",
    )
    assert (
        "argument --missing: invalid choice: 'mean' (choose from 'error', 'median')"
        in refused_early(capsys, "fit", "d.csv", "--missing", "mean")
    )


def refused_early(capsys, *argv):
    assert main(list(argv)) == 2
    return capsys.readouterr().err


def test_values_that_are_missing_in_predict_only(here, capsys):
    rows = [["red" if i % 2 else "blue", i % 7, i * i % 11] for i in range(41)]
    run(
        capsys,
        "fit",
        write_rows("d.csv", ["c", "n", "y"], rows),
        "--missing",
        "median",
        "--test-fraction",
        "0",
        *FEW,
    )
    # no indicator: nothing was missing
    assert results("d-fit")["inputs"] == ["c=blue", "c=red", "c=(other)", "n"]
    write_rows("gaps.csv", ["c", "n"], [["red", ""], ["", "3"], ["", ""]])
    # the median of n is 3
    write_rows("filled.csv", ["c", "n"], [["red", "3"], ["green", "3"], ["green", "3"]])
    mean, err = predicted(capsys, "d-fit", "gaps.csv")
    np.testing.assert_array_equal(mean, predicted(capsys, "d-fit", "filled.csv")[0])
    assert (
        "column 'n': 2 missing values (the first in line 2), but none in the training rows: filled"
        " in with"
        " the training median, 3" in err
    )
    assert "column 'c': 2 of 3 rows hold a level without an input (first (missing), line 3)" in err
    write_rows("empty.csv", ["c", "n"], [["", ""], ["", ""]])
    np.testing.assert_array_equal(predicted(capsys, "d-fit", "empty.csv")[0], mean[[2, 2]])


def test_a_column_without_a_value_in_all_rows(here, capsys):
    path = write_rows("d.csv", ["gone", "n", "y"], [["", i % 7, i * i % 11] for i in range(40)])
    message = refused(capsys, "fit", path, "--missing", "median", *FEW)
    assert (
        "--missing median: column 'gone' is missing in all 36 training rows; leave it out with"
        " --ignore gone" in message
    )
    run(capsys, "fit", path, "--missing", "median", "--ignore", "gone", *FEW)


def test_npz_files(here, capsys, rng):
    X = rng.standard_normal((60, 2))
    y = X[:, 0] + X[:, 1]
    X[::6, 1] = np.nan
    np.savez("d.npz", X=X, y=y)
    assert "column 'x1': the value is missing or NaN" in refused(capsys, "fit", "d.npz", *FEW)
    run(capsys, "fit", "d.npz", "--missing", "median", *FEW)
    assert results("d-fit")["inputs"] == ["x0", "x1", "x1=(missing)"]
    np.save("new.npy", X[:7])
    np.save("filled.npy", np.where(np.isnan(X), 0, X)[1:6])
    np.testing.assert_array_equal(
        predicted(capsys, "d-fit", "new.npy")[0][1:6], predicted(capsys, "d-fit", "filled.npy")[0]
    )


def test_pixels_are_neither_text_nor_missing(here, capsys, rng):
    X = rng.standard_normal((40, 4, 4))
    X[3, 0, 0] = np.nan
    np.savez("images.npz", X=X, y=X[:, 1:].sum(axis=(1, 2)))
    message = refused(capsys, "fit", "images.npz", "--patch-shape", "2x2", *FEW)
    assert "the value is missing" in message and "--missing" not in message
    message = refused(
        capsys, "fit", "images.npz", "--patch-shape", "2x2", "--missing", "median", *FEW
    )
    assert "--missing median: with --patch-shape inputs are pixels" in message
    rows = [
        ["black" if i == 5 else f"{v:.3f}" for v in rng.standard_normal(4)] + [f"{i}.5"]
        for i in range(40)
    ]
    message = refused(
        capsys,
        "fit",
        write_rows("pixels.csv", ["a", "b", "c", "d", "y"], rows),
        "--patch-shape",
        "1x1",
        *FEW,
    )
    assert "inputs must be numbers, but text is in columns 'a' ('black', line 7)" in message


@pytest.mark.parametrize("piped", [False, True])
def test_a_resumed_fit_ends_where_an_uninterrupted_one_ends(coloured, capsys, monkeypatch, piped):
    def fit(folder, *more):
        if piped:
            monkeypatch.setattr(
                "sys.stdin", io.TextIOWrapper(io.BytesIO(pathlib.Path(coloured).read_bytes()))
            )
        return main(
            ["fit", "-" if piped else coloured, "--missing", "median", *FEW, "--out", folder, *more]
        )

    assert fit("whole") == 0
    with after_step(20):
        assert fit("parts") == 130
    capsys.readouterr()
    assert fit("parts", "--ignore", "size", "--resume") == 2
    assert "--resume" in (err := capsys.readouterr().err) and "inputs colour=" in err
    assert fit("parts", "--resume") == 0
    capsys.readouterr()
    assert (
        run(capsys, "predict", "parts", coloured)[0] == run(capsys, "predict", "whole", coloured)[0]
    )
