"""The default method and inducing inputs of ``fastsvgp fit``, and when L-BFGS stops."""

import json
import pathlib

import numpy as np
import pytest
from support.interruptions import after_step

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.settings.defaults import choose
from fastsvgp.recipes.routine import GAIN, PATIENCE, Settled


@pytest.mark.parametrize(
    "likelihood, rows, distinct, given, method, inducing, at_data",
    [
        # Gaussian, by size
        ("gaussian", 60, 60, {}, "sgpr", 60, True),
        ("gaussian", 1500, 1500, {}, "sgpr", 1500, True),
        ("gaussian", 1501, 1501, {}, "sgpr", 1000, False),
        ("gaussian", 5000, 5000, {}, "sgpr", 1000, False),
        ("gaussian", 5001, 5001, {}, "svgp", 256, False),
        ("gaussian", 5000, 900, {}, "sgpr", 900, True),
        # no collapsed bound
        ("poisson", 60, 60, {}, "svgp", 60, True),
        ("student-t", 512, 512, {}, "svgp", 256, False),
        ("student-t", 60, 60, {"minibatch": "--batch-size"}, "svgp", 256, False),
        ("softmax", 5001, 5001, {}, "svgp", 256, False),
        # given by the user
        ("gaussian", 60, 60, {"method": "svgp"}, "svgp", 256, False),
        ("gaussian", 60, 60, {"method": "lsvgp", "inducing": 60}, "lsvgp", 60, False),
        ("gaussian", 60, 60, {"minibatch": "--batch-size"}, "svgp", 256, False),
        ("gaussian", 60, 60, {"inducing": 20}, "sgpr", 20, False),
        ("gaussian", 60, 60, {"inducing": 60}, "sgpr", 60, True),
        ("gaussian", 60, 50, {"inducing": 55}, "sgpr", 50, True),
        ("gaussian", 5001, 5001, {"method": "sgpr"}, "sgpr", 256, False),
        ("gaussian", 5001, 5001, {"inducing": 2000}, "svgp", 2000, False),
        ("gaussian", 4000, 4000, {"inducing": 2000}, "sgpr", 2000, False),
        ("gaussian", 1000, 1000, {"inducing": 20}, "sgpr", 20, False),
        ("gaussian", 1001, 1001, {"inducing": 999}, "svgp", 999, False),
        ("gaussian", 1001, 1001, {"inducing": 1000}, "sgpr", 1000, False),
        ("gaussian", 5000, 50, {"inducing": 50}, "sgpr", 50, True),
        ("gaussian", 1001, 1001, {"inducing": 20, "method": "sgpr"}, "sgpr", 20, False),
        ("gaussian", 4000, 4000, {"method": "sgpr", "inducing": 4000}, "sgpr", 4000, True),
    ],
)
def test_choice(likelihood, rows, distinct, given, method, inducing, at_data):
    choice = choose(likelihood, rows, distinct, **given)
    assert (choice.method, choice.inducing, choice.at_data) == (method, inducing, at_data)
    assert (choice.reason == "as asked") is ("method" in given)


def fit(capsys, rows, *options, out="out"):
    np.save("data.npy", rows)
    code = main(["fit", "data.npy", "--out", out, *options])
    said, err = capsys.readouterr()
    assert code == 0, err
    return said, json.loads(pathlib.Path(out, "metrics.json").read_text())


@pytest.fixture
def rows(tmp_path, monkeypatch, rng):
    """66 rows of two inputs; the last six repeat the first six with other noise."""
    monkeypatch.chdir(tmp_path)
    X = rng.uniform(-2, 2, (60, 2))
    X = np.concatenate([X, X[:6]])
    return np.column_stack([X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(66)])


def test_small_data_train_an_exact_gp(rows, capsys):
    said, results = fit(capsys, rows, "--test-fraction", "0", "--covariance", "matern32")
    assert "Gaussian noise, and at most 5000 training rows -> SGPR (--method changes it)" in said
    assert (
        "SGPR, Matérn 3/2 ARD, 60 inducing inputs (the distinct training inputs, held fixed" in said
    )
    assert (results["method"], results["inducing"]) == ("sgpr", 60) and results[
        "method_reason"
    ].startswith("Gaussian noise")
    model, X, y = fs.load_fitted("out").model, rows[:, :2], rows[:, 2]
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    np.testing.assert_allclose(model.inducing, np.unique(X, axis=0), rtol=1e-12, atol=1e-12)

    # the predictions are those of the exact GP with these hyperparameters, which are a maximum of
    # its marginal likelihood
    K = np.asarray(model.covariance.matrix(X)) + float(model.likelihood.variance) * np.eye(66)
    new = np.random.default_rng(0).uniform(-1.5, 1.5, (20, 2))
    Kfs = np.asarray(model.covariance.matrix(X, new))
    mean, var = fs.predict_y(model, new, jitter=1e-7)
    np.testing.assert_allclose(mean, Kfs.T @ np.linalg.solve(K, y), atol=1e-3)
    exact = (
        float(model.covariance.variance)
        - np.sum(Kfs * np.linalg.solve(K, Kfs), axis=0)
        + float(model.likelihood.variance)
    )
    np.testing.assert_allclose(var, exact, rtol=1e-3)
    sign, log_det = np.linalg.slogdet(2 * np.pi * K)
    assert (
        results["elbo"] == pytest.approx(-0.5 * (y @ np.linalg.solve(K, y) + log_det), abs=0.05)
        and sign == 1
    )


def test_interrupted_run_continues_with_fixed_inducing_inputs(rows, capsys):
    np.save("data.npy", rows)
    with after_step(3):
        assert main(["fit", "data.npy", "--out", "out", "--quiet", "--method", "sgpr"]) == 130
    before = fs.load_fitted("out").model.inducing
    # the checkpoint shows that it was a training, not a search
    assert main(["fit", "data.npy", "--out", "out", "--quiet", "--resume"]) == 0
    np.testing.assert_array_equal(fs.load_fitted("out").model.inducing, before)


def test_what_was_asked_for_is_trained(rows, capsys):
    said, results = fit(capsys, rows, "--inducing", "12", "--steps", "5")
    assert (results["method"], results["inducing"], results["steps"]) == (
        "sgpr",
        12,
        5,
    ) and "held fixed" not in said
    said, results = fit(capsys, rows, "--batch-size", "30", "--steps", "2")
    assert results["method"] == "svgp" and "--batch-size needs minibatches -> SVGP" in said
    said, results = fit(capsys, rows, "--method", "svgp", "--inducing", "12", "--steps", "2")
    assert results["method"] == "svgp" and "method     as asked -> SVGP\n" in said


def test_lbfgs_ends_when_the_bound_no_longer_rises():
    seen = []
    settled = Settled(lambda *arguments: seen.append(arguments), size=100)
    values = [*range(-20, 0), *(-0.1 * GAIN * k for k in range(300, -1, -1)), *[0.0] * 20]
    ends = [settled(step, value, None) for step, value in enumerate(values, 1)]
    assert len(seen) == len(values) and seen[0] == (1, -20, None)
    gains = np.subtract(values[PATIENCE:], values[:-PATIENCE])
    np.testing.assert_array_equal(ends[PATIENCE:], gains < 100 * GAIN)
    assert not any(ends[:PATIENCE]) and 0 < np.sum(ends) < len(ends) - PATIENCE


def test_a_constant_bound_needs_more_than_the_window_to_end():
    settled = Settled(lambda *_: None, size=1)
    assert [settled(step, 1.0, None) for step in range(PATIENCE + 2)] == [False] * PATIENCE + [
        True
    ] * 2


def test_the_command_line_and_the_recipes_have_the_same_names():
    """The command line lists them again, so that --help needs no import."""
    from fastsvgp import recipes
    from fastsvgp.cli.settings import names

    for ours, theirs in (
        (names.COVARIANCES, recipes.COVARIANCES),
        (names.REGRESSION | names.COUNTS | names.POSITIVE | names.PROPORTIONS, recipes.REGRESSION),
        (names.ORDERED, recipes.ORDERED),
        (names.BINARY, recipes.BINARY),
        (names.MULTICLASS, recipes.MULTICLASS),
    ):
        assert ours == {name: kind.__name__ for name, kind in theirs.items()}
