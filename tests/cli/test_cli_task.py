"""From tables to a task: target, likelihood, held-out rows, scaling."""

import re

import numpy as np
import pytest

from fastsvgp.cli.arguments import parser
from fastsvgp.cli.data.held_out import split
from fastsvgp.cli.data.task import FileFormat, interpret_target, load_task
from fastsvgp.cli.errors import UsageError
from fastsvgp.errors import DataFileError
from fastsvgp.recipes.scaling import Scale

REPEATED = np.tile(np.arange(4.0), 20)


@pytest.mark.parametrize(
    "values, likelihood, classes",
    [
        (np.linspace(0, 1, 80), "gaussian", None),
        (np.arange(80.0), "gaussian", None),
        (REPEATED + 0.5, "gaussian", None),
        (np.tile([0.0, 1.0], 40), "bernoulli-probit", ["0", "1"]),
        (np.tile([-1, 1], 40), "bernoulli-probit", ["-1", "1"]),
        (np.tile([False, True], 40), "bernoulli-probit", ["False", "True"]),
        (np.array(["yes", "no"] * 40), "bernoulli-probit", ["no", "yes"]),
        (np.array(["b", "a", "c"] * 20), "softmax", ["a", "b", "c"]),
        (REPEATED, "softmax", ["0", "1", "2", "3"]),
    ],
)
def test_kind_of_target_is_inferred(values, likelihood, classes):
    y, inferred, reason, names = interpret_target(values, "t")
    assert (inferred, names) == (likelihood, classes) and "the target" in reason
    if names:
        assert y.dtype.kind == "i" and [names[code] for code in y[:3]] == [
            str(v).removesuffix(".0") for v in values[:3]
        ]
    else:
        np.testing.assert_array_equal(y, values)


@pytest.mark.parametrize(
    "values, likelihood, message",
    [
        (np.full(9, 2.5), None, "constant: all 9 values are 2.5"),
        (np.array(["a"] * 9), None, "constant"),
        (np.array(["a", "b"] * 9), "gaussian", "needs numbers.*text such as 'a'"),
        (REPEATED, "bernoulli-logit", "two classes, but the target 't' has 4 values: 0, 1, 2, 3"),
        (np.linspace(0, 1, 80), "softmax", "80 different values in 80 rows"),
        (np.array([str(i) for i in range(80)]), None, "80 different values"),
        (REPEATED - 1, "poisson", "counts.*from -1 to 2"),
        (REPEATED + 0.5, "poisson", "with fractions"),
    ],
)
def test_targets_that_cannot_work(values, likelihood, message):
    with pytest.raises(UsageError, match=message):
        interpret_target(values, "t", likelihood)


def test_useless_numbers_in_the_target_of_an_npz(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((3, 1)), y=np.array([1.0, 1e200, 2.0]))
    with pytest.raises(DataFileError, match=r"1e\+200, too large to be squared, in row 1;"):
        load_task(tmp_path / "a.npz")


def test_default_target_of_an_npz_without_y_is_the_last_column(tmp_path, capsys):
    X = np.arange(12.0).reshape(4, 3)
    np.savez(tmp_path / "a.npz", X=X)
    task = load_task(tmp_path / "a.npz")
    np.testing.assert_array_equal(task.y, X[:, 2])
    np.testing.assert_array_equal(task.X, X[:, :2])
    with pytest.raises(SystemExit):
        parser().parse_args(["fit", "--help"])
    assert "for an npz file y, or the last column of X if there is no y" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data.csv"
    rows = "".join(f"{i},{i % 7},{i * i % 11}.5,{'red' if i % 3 else 'blue'}\n" for i in range(40))
    path.write_text("size,age,price,colour\n" + rows)
    return str(path)


def test_target_by_default_name_and_index(file):
    assert load_task(file).target_name == "colour"
    for target in ("price", "2", "-2"):
        task = load_task(file, target=target, ignore=["colour"])
        assert (task.target_name, task.input_names, task.kind) == (
            "price",
            ["size", "age"],
            "regression",
        )
    assert load_task(file, ignore=["colour", "0"]).input_names == ["age"]


def test_target_file(file, tmp_path):
    np.save(tmp_path / "y.npy", np.arange(40.0))
    task = load_task(file, target_file=tmp_path / "y.npy", ignore=["colour"])
    assert task.X.shape == (40, 3) and task.target_name == "y"
    (tmp_path / "two.csv").write_text("u,v\n" + "1,2\n3,4\n" * 20)
    assert (
        load_task(file, target_file=tmp_path / "two.csv", target="v", ignore=["colour"]).target_name
        == "v"
    )
    with pytest.raises(UsageError, match="2 columns; choose one with --target"):
        load_task(file, target_file=tmp_path / "two.csv", ignore=["colour"])
    np.savez(tmp_path / "both.npz", X=np.ones((40, 2)), y=np.arange(40.0))
    assert load_task(file, target_file=tmp_path / "both.npz", ignore=["colour"]).target_name == "y"
    with pytest.raises(
        UsageError, match="--target: the target is y of .*both.npz; leave --target out"
    ):
        load_task(file, target_file=tmp_path / "both.npz", target="1", ignore=["colour"])
    np.save(tmp_path / "y.npy", np.arange(39.0))
    with pytest.raises(DataFileError, match="39 rows, but .* has 40"):
        load_task(file, target_file=tmp_path / "y.npy")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"target": "cost"}, "--target: no column 'cost'"),
        ({"ignore": ["cost"]}, "--ignore: no column 'cost'"),
        ({"target": "price", "file_format": FileFormat(images=True)}, "text is in column 'colour'"),
        (
            {"target": "price", "file_format": FileFormat(images=True), "missing": "median"},
            "--missing median: with --patch-shape inputs are pixels",
        ),
        ({"target": "price", "ignore": ["price"]}, "'price' is the target"),
        ({"target": "0", "ignore": ["1", "2", "3"]}, "no column left"),
    ],
)
def test_columns_that_cannot_work(file, options, message):
    with pytest.raises(UsageError, match=message):
        load_task(file, **options)


def test_single_column(tmp_path):
    (tmp_path / "one.csv").write_text("1\n2\n3\n")
    with pytest.raises(UsageError, match="only one column"):
        load_task(tmp_path / "one.csv")


def test_split_is_random_reproducible_and_sized(file):
    first, again, other = (split(load_task(file), fraction=0.25, seed=s).test for s in (1, 1, 2))
    assert first.sum() == 10 and (first == again).all() and (first != other).any()
    assert split(load_task(file), fraction=0).test.sum() == 0
    assert split(load_task(file), fraction=1e-9).test.sum() == 1
    with pytest.raises(UsageError, match="two are needed|constant over the training rows"):
        split(load_task(file), fraction=0.999)


def test_split_by_mask(file, tmp_path):
    mask = tmp_path / "mask.csv"
    mask.write_text("a,b\n" + "0,1\n1,0\n" * 20)
    np.testing.assert_array_equal(
        split(load_task(file), mask=f"{mask}:b").test, np.tile([True, False], 20)
    )
    np.testing.assert_array_equal(
        split(load_task(file), mask=f"{mask}:0").test, np.tile([False, True], 20)
    )
    for argument, message in (
        (f"{mask}", "cannot read|2 columns"),
        (f"{mask}:", "2 columns; choose one"),
        (f"{mask}:c", "no column 'c'"),
        (f"{file}:age", "must be 0 .* or 1"),
    ):
        with pytest.raises((UsageError, DataFileError), match=message):
            split(load_task(file), mask=argument)
    mask.write_text("part\n" + "0\ntest\n" * 20)
    with pytest.raises(
        DataFileError, match="--test-mask: column part .* must be 0 .* or 1 .*, got test"
    ):
        split(load_task(file), mask=f"{mask}:part")
    mask.write_text("0\n1\n")
    with pytest.raises(DataFileError, match="2 rows, but the data have 40"):
        split(load_task(file), mask=f"{mask}:0")


def test_standardisation_and_constant_columns(rng):
    X, y = np.column_stack([rng.normal(1e6, 3, 65), np.full(65, 0.1)]), rng.normal(5, 2, 65)
    scale = Scale.fit(X, y, scale_target=True)
    Xs, ys = scale.X(X), scale.y(y)
    np.testing.assert_allclose(
        [Xs[:, 0].mean(), Xs[:, 0].std(), ys.mean(), ys.std()], [0, 1, 0, 1], atol=1e-9
    )
    np.testing.assert_allclose(Xs[:, 1], 0, atol=1e-15)
    np.testing.assert_array_equal(Scale.fit(X, y, scale_target=False).y(y), y)


@pytest.mark.parametrize(
    "header, first, said",
    [
        (
            ",a,y",
            "{i}",
            (
                "the first column numbers the rows from 0, like an index; .* --ignore 0 leaves"
                " it out"
            ),
        ),
        ("Unnamed: 0,a,y", "{i}", "column 'Unnamed: 0' numbers the rows from 0, .* --ignore 'Unna"),
        (
            ",a,y",
            "{k}",
            "the first column has no name and numbers the rows, with gaps; .* 0 leaves",
        ),
        ("Unnamed: 0,a,y", "{j}", "column 'Unnamed: 0' identifies the rows"),
        ("time,a,y", "{i}", "column 'time' numbers the rows from 0, .* --ignore time leaves"),
        ("Nr.,a,y", "{j}", "column 'Nr.' identifies the rows"),
        ("PassengerId,a,y", "{j}", "column 'PassengerId' identifies the rows"),
        ("SAMPLE_ID,a,y", "{j}", "column 'SAMPLE_ID' identifies the rows"),
        ("OBJECTID,a,y", "{j}", "column 'OBJECTID' identifies the rows"),
        (
            "ID,a,y",
            "{j}",
            "column 'ID' identifies the rows; it is used as an input; --ignore ID leaves it out",
        ),
        (None, "{i}", "the first column numbers the rows from 0"),
        ("time,a,y", "{j}", None),
        ("time,a,y", "{k}", None),
        ("year,a,y", "19{i:02d}", None),
        ("humid,a,y", "{j}", None),
        ("GRID,a,y", "{j}", None),
        (",a,y", "{j}", None),
        ("id,a,y", "{i}.5", None),
        ("id,a,y", "7", None),
        (None, "{j}", None),
        (None, "{k}", None),
    ],
)
def test_a_column_that_numbers_the_rows_is_noted_and_stays(tmp_path, caplog, header, first, said):
    rows = [f"{first.format(i=i, j=7 * i % 41, k=2 * i)},{i % 5},{i * i % 11}.5" for i in range(40)]
    (tmp_path / "d.csv").write_text("\n".join([header] * (header is not None) + rows) + "\n")
    task = load_task(str(tmp_path / "d.csv"))
    assert task.X.shape == (40, 2)
    assert len(caplog.records) == (said is not None)
    if said:
        assert re.search(said, caplog.records[0].getMessage())
        caplog.clear()
        assert (
            load_task(str(tmp_path / "d.csv"), ignore=["0"]).X.shape == (40, 1)
            and not caplog.records
        )


def test_an_index_that_is_the_only_input_is_none(tmp_path, caplog):
    (tmp_path / "d.csv").write_text("id,y\n" + "".join(f"{i},{i * i % 11}.5\n" for i in range(40)))
    assert load_task(str(tmp_path / "d.csv")).X.shape == (40, 1) and not caplog.records


@pytest.mark.parametrize(
    "values, said",
    [
        ([str(i) for i in range(80)], "its text cells are numbers: store it as numbers"),
        ([str(i) for i in range(79)] + ["oops"], "79 cells are numbers, but 'oops' is not"),
    ],
)
def test_what_made_text_of_a_numeric_target(values, said):
    with pytest.raises(UsageError, match=said):
        interpret_target(np.array(values), "t")
