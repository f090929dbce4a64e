"""``fastsvgp update``: from a model and new rows to the model that has seen both."""

import io
import pathlib

import numpy as np
import pytest
from support.cli_runs import refused, run, write_csv, write_table

import fastsvgp as fs
from fastsvgp.recipes.scaling import Scale

SGPR = ["--method", "sgpr", "--steps", "30", "--inducing", "12", "--quiet"]
FEW = ["--method", "svgp", "--steps", "60", "--inducing", "10", "--batch-size", "64", "--quiet"]


@pytest.fixture
def days(table, unplotted, capsys, rng):
    """A fit of d.csv in the folder d-fit; the rows of two days to come, as files."""
    run(capsys, "fit", "d.csv", *SGPR)
    found = []
    for name in ("one.csv", "two.csv"):
        X = table[rng.integers(40, size=25), :2] + 0.05 * rng.standard_normal((25, 2))
        rows = np.column_stack([X, X.sum(axis=1) + 0.1 * rng.standard_normal(25)])
        write_table(name, rows)
        found.append(rows)
    return found


def rewrite(old, likelihood, name, classes=None, P=None, **columns):
    """Write m.npz: a model at the prior, with the inputs of the model d-fit."""
    fitted = fs.load_fitted(old)
    model = fitted.model
    q = fs.posteriors.at_prior(fs.Whitened, model.covariance, model.inducing, outputs=P)
    fitted.model = fs.replace(model, posterior=q, likelihood=likelihood)
    fitted.likelihood, fitted.classes, fitted.columns = name, classes, fitted.columns | columns
    scale = fitted.scale
    if name != "gaussian":
        fitted.scale = Scale(scale.x_mean, scale.x_scale, x_ends=scale.x_ends)
    elif P:
        fitted.scale = Scale(scale.x_mean, scale.x_scale, np.zeros(P), np.array([2.0, 3.0]))
        fitted.target_name = ["y", "z"]
    fitted.save("m.npz")
    return fitted


def test_rows_in_any_batches_are_all_rows_at_once(days, capsys):
    start = fs.load_fitted("d-fit")
    _, err = run(capsys, "update", "d-fit", "one.csv", "--out", "first.npz")
    assert "before the update: target 'y' is in the file: RMSE 0." in err
    assert "wrote the model with 25 more rows to first.npz" in err
    run(capsys, "update", "first.npz", "two.csv")
    run(capsys, "update", "d-fit", "two.csv")
    run(capsys, "update", "d-fit", "one.csv")
    first, other = fs.load_fitted("first.npz"), fs.load_fitted("d-fit")
    rows = np.concatenate(days)
    Xs, ys = start.scale.X(rows[:, :2]), start.scale.y(rows[:, 2])
    truth = fs.condition(start.model, Xs, ys, jitter=start.jitter)
    for found in (first, other):
        assert vars(found).keys() == vars(start).keys() and found.input_names == ["a", "b"]
        np.testing.assert_allclose(found.model.posterior.mean, truth.posterior.mean, rtol=1e-7)
    out, err = run(capsys, "predict", "first.npz", "two.csv")
    assert out.count("\n") == 26 and "RMSE" in err


def test_columns_by_name_rows_without_a_target_and_standard_input(days, capsys, monkeypatch):
    text = "y,b,c,a\n0.5,0.1,7,0.4\n,0.2,7,0.1\nNA,0.2,7,0.1\n0.2,0,7,0.2\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    start = fs.load_fitted("d-fit")
    _, err = run(capsys, "update", "d-fit", "-", "--out", "m.npz")
    assert "2 rows without a target are left out" in err and "with 2 more rows" in err
    X, y = np.array([[0.4, 0.1], [0.2, 0.0]]), np.array([0.5, 0.2])
    truth = fs.condition(start.model, start.scale.X(X), start.scale.y(y), jitter=start.jitter)
    ours = fs.load_fitted("m.npz").model.posterior.mean
    np.testing.assert_allclose(ours, truth.posterior.mean, rtol=1e-9)


def test_classes(days, capsys):
    start = rewrite("d-fit", fs.likelihoods.BernoulliProbit(), "bernoulli-probit", ["no", "yes"])
    rows = days[0]
    labels = np.where(rows[:, 2] > 0, "yes", "no")
    write_csv("c.csv", "a,b,y", rows[:, 0], rows[:, 1], labels)
    _, err = run(capsys, "update", "m.npz", "c.csv")
    assert "before the update: target 'y' is in the file: accuracy" in err
    codes, Xs = (rows[:, 2] > 0).astype(float), start.scale.X(rows[:, :2])
    truth = fs.condition(start.model, Xs, codes, jitter=start.jitter).posterior.mean
    np.testing.assert_allclose(fs.load_fitted("m.npz").model.posterior.mean, truth, rtol=1e-7)
    before = pathlib.Path("m.npz").read_bytes()
    write_csv("z.csv", "a,b,y", [0, 1], [0, 1], ["no", "maybe"])
    assert refused(capsys, "update", "m.npz", "z.csv") == (
        "fastsvgp update: error: z.csv, line 3: the class maybe is none of those of the model (no,"
        " yes); fit old and new rows together"
    )
    assert pathlib.Path("m.npz").read_bytes() == before


def test_several_targets_some_missing(days, capsys):
    fitted = rewrite("d-fit", fs.Gaussian(0.1), "gaussian", P=2, width=4, target=[2, 3])
    rows = days[0]
    Y = np.column_stack([rows[:, 2], -rows[:, 2]])
    Y[3, 0] = Y[5, 1] = Y[7] = np.nan
    write_csv("s.csv", "a,b,y,z", *rows[:, :2].T, *Y.T)
    _, err = run(capsys, "update", "m.npz", "s.csv")
    assert "1 rows without a target" in err and "target 'z' is in the file" in err
    w = ~np.isnan(Y)
    Xs, Ys = fitted.scale.X(rows[:, :2]), fitted.scale.y(Y)
    truth = fs.condition(fitted.model, Xs, Ys, weights=w.astype(float), jitter=fitted.jitter)
    ours = fs.load_fitted("m.npz").model.posterior.mean
    np.testing.assert_allclose(ours, truth.posterior.mean, rtol=1e-7, atol=1e-9)
    write_csv("t.csv", "a,b,y,z", [0, 1], [0, 1], [1, 2], ["x", "y"])
    assert "the target 'z' must hold numbers, but line 2 has 'x'" in refused(
        capsys, "update", "m.npz", "t.csv"
    )


def test_a_second_column_of_the_target(days, capsys, rng):
    second = {"option": "trials", "name": "n", "position": 3}
    rewrite("d-fit", fs.likelihoods.Binomial(), "binomial", second=second, width=4)
    rows = days[0]
    won = rng.binomial(9, 1 / (1 + np.exp(-rows[:, 2])))
    write_csv("w.csv", "a,b,y,n", *rows[:, :2].T, won, np.full(25, 9))
    _, err = run(capsys, "update", "m.npz", "w.csv")
    assert "with 25 more rows" in err
    write_csv("v.csv", "a,b,y", *rows[:, :2].T, won)
    message = refused(capsys, "update", "m.npz", "v.csv")
    assert message == "fastsvgp update: error: v.csv lacks the column 'n' of the target, as numbers"


def test_rows_far_outside_are_named(days, capsys):
    write_table("far.csv", np.array([[50.0, 0, 1], [0, 0, 0]]))
    _, err = run(capsys, "update", "d-fit", "far.csv")
    assert (
        "note       1 of 2 rows are far outside the training range of a, where the model has no"
        " inducing inputs; fit old and new rows together"
    ) in " ".join(err.split("\n"))


def test_bad_input_leaves_the_model_as_it_is(days, capsys, rng):
    before = pathlib.Path("d-fit/model.npz").read_bytes()
    write_csv("none.csv", "a,b", [0, 1], [0, 1])
    write_csv("empty.csv", "a,b,y", [0, 1], [0, 1], ["", ""])
    write_csv("text.csv", "a,b,y", [0, 1], [0, 1], ["low", "high"])
    write_csv("hole.csv", "a,b,y", [0, ""], [0, 1], [0, 1])
    for name, message in (
        ("none.csv", "none.csv lacks the target 'y', from which the model learns"),
        ("empty.csv", "empty.csv: the target is missing in every row"),
        ("text.csv", "the target 'y' must hold numbers, but line 2 has 'low'"),
        ("hole.csv", "'a'"),
        ("gone.csv", "No such file"),
    ):
        assert message in refused(capsys, "update", "d-fit", name)
    assert pathlib.Path("d-fit/model.npz").read_bytes() == before


def test_a_model_that_cannot_take_rows(days, capsys):
    fitted = fs.load_fitted("d-fit")
    model = fitted.model
    fitted.model = fs.predictor(model)
    fitted.save("p.npz")
    assert refused(capsys, "update", "p.npz", "one.csv") == (
        "fastsvgp update: error: p.npz cannot take new rows (condition: a predictor only predicts;"
        " give the model that it was made of); fit old and new rows together"
    )
    run(capsys, "fit", "d.csv", *FEW, "--layers", "2", "--out", "deep")
    assert "deep/model.npz cannot take new rows (condition: `model` must be" in refused(
        capsys, "update", "deep", "one.csv"
    )
