"""Likelihoods of counts, positive numbers, proportions and grades; second columns of a target."""

import json
import pathlib

import numpy as np
import pytest
from support.cli_runs import fit, refused, results, run, stop_at, write_csv

import fastsvgp as fs
from fastsvgp.cli import main

FEW = ["--steps", "60", "--inducing", "8", "--batch-size", "64", "--learning-rate", "0.05"]
N = 100


@pytest.fixture
def columns(here, rng):
    """The columns of the file d.csv by name: the input x, targets, and second columns."""
    x = rng.uniform(-3, 3, N)
    f = np.sin(2 * x)
    n, c, sd = rng.integers(2, 30, N), rng.uniform(1, 9, N), rng.uniform(5, 50, N)
    p, z = 1 / (1 + np.exp(-2 * f)), 100 + 50 * f
    found = {
        "x": x,
        "n": n,
        "won": rng.binomial(n, p),
        "c": c,
        "cases": rng.poisson(c * np.exp(f)),
        "var": sd**2,
        "known": z + sd * rng.standard_normal(N),
        "side": (z > 120) * 1,
        "seen": np.minimum(z + 3 * rng.standard_normal(N), 120),
        "visits": rng.poisson(np.exp(2 + f) * rng.gamma(3, 1 / 3, N)),
        "cost": np.exp(f + 6) * rng.gamma(9, 1 / 9, N),
        "share": rng.beta(9 * p, 9 - 9 * p),
        "grade": np.digitize(f, (-0.5, 0.0, 0.5)) + 1,
        "word": np.where(f > 0, "good", "bad"),
    }
    write_csv("d.csv", ",".join(found), *found.values())
    return found


def interrupt():
    raise KeyboardInterrupt


def of(columns, target, second=None):
    """Arguments for one target, with x as the only input."""
    used = {"x", target, second}
    left_out = ",".join(name for name in columns if name not in used)
    return ["d.csv", "--target", target, "--ignore", left_out, *FEW]


@pytest.mark.parametrize(
    ("target", "name", "trivial"),
    [
        ("visits", "negative-binomial", "mean rate"),
        ("visits", "zero-inflated-poisson", "mean rate"),
        ("cost", "gamma", "gamma, mean and sd"),
        ("cost", "exponential", "gamma, mean and sd"),
        ("share", "beta", "beta, mean and sd"),
        ("grade", "ordinal", "class frequencies"),
    ],
)
def test_a_likelihood_of_numbers(columns, unplotted, capsys, target, name, trivial):
    out, _ = run(capsys, "fit", *of(columns, target), "--likelihood", name)
    assert f"as asked -> {fs.load_fitted('d-fit').model.likelihood.__class__.__name__}" in out
    found = results("d-fit")
    assert f"trivial predictor ({trivial})" in out and found["likelihood"] == name
    assert found["inputs"] == ["x"] and found["second_column"] is None
    assert found["test"]["model"]["nlpd"] < found["test"]["trivial"]["nlpd"]
    out, err = run(capsys, "predict", "d-fit", "d.csv")
    header = out.splitlines()[0]
    of_grades = name == "ordinal"
    assert header == ("class,p(1),p(2),p(3),p(4)" if of_grades else "mean,sd,q0.025,q0.975")
    assert f"target {target!r} is in the file: {'accuracy' if of_grades else 'RMSE'}" in err
    fitted = fs.load_fitted("d-fit")
    y = columns[target] - 1 if of_grades else columns[target]
    density = fitted.log_density(columns["x"][:, None], y)
    np.testing.assert_allclose(
        -np.mean(density), float(err.split("NLPD ")[1].split()[0]), atol=5e-3
    )
    if of_grades:
        p = fitted.predict(columns["x"][:, None]).probabilities
        np.testing.assert_allclose(np.log(p[np.arange(N), y]), density, atol=1e-6)


@pytest.mark.parametrize(
    ("target", "option", "second", "likelihood"),
    [
        ("won", "trials", "n", "binomial"),
        ("cases", "exposure", "c", "poisson"),
        ("cases", "exposure", "c", "negative-binomial"),
        ("known", "noise", "var", "known-noise"),
        ("seen", "side", "side", "censored"),
    ],
)
def test_a_second_column(columns, unplotted, capsys, target, option, second, likelihood):
    named = ["--likelihood", likelihood] if likelihood == "negative-binomial" else []
    options = [f"--{option}", second, *named]
    out, _ = run(capsys, "fit", *of(columns, target, second), *options)
    assert f"  {option:<11}column {second!r}" in out
    found = results("d-fit")
    assert (found["inputs"], found["likelihood"]) == (["x"], likelihood)
    assert found["second_column"]["name"] == second and found["second_column"]["option"] == option
    for measure in ("rmse", "nlpd"):
        assert found["test"]["model"][measure] < found["test"]["trivial"][measure]
    # predictions need neither the target nor its second column
    out, err = run(capsys, "predict", "d-fit", "d.csv")
    assert f"target {target!r} is in the file: RMSE" in err
    write_csv("new.csv", f"x,{target}", columns["x"], columns[target])
    again, err = run(capsys, "predict", "d-fit", "new.csv")
    assert again == out and "in the file" not in err
    fitted, X = fs.load_fitted("d-fit"), columns["x"][:, None]
    mean, y, other = fitted.predict(X).mean, columns[target], columns[second]
    per_unit = y / other if option in ("trials", "exposure") else y
    seen = other == 0 if option == "side" else np.ones(N, bool)
    assert np.corrcoef(mean[seen], per_unit[seen])[0, 1] > 0.5
    density = fitted.log_density(X, y, other)
    assert density.shape == (N,) and np.isfinite(density).all()
    at = fitted.cdf(X, y, other)
    assert ((at >= 0) & (at <= 1)).all()
    # files with more than the format allows are refused
    assert json.loads(pathlib.Path("d-fit/metrics.json").read_text())["second_column"]["position"]


def test_known_noise_can_be_all_noise(columns, unplotted, capsys):
    argv = of(columns, "known", "var")
    run(capsys, "fit", *argv, "--noise", "var", "--no-extra-noise")
    assert fs.load_fitted("d-fit").model.likelihood.excess == 0
    assert results("d-fit")["no_extra_noise"] is True


def test_few_rows_are_trained_as_a_whole_unless_minibatches_are_asked_for(
    columns, unplotted, capsys
):
    argv = "fit", "d.csv", "--target", "cost", "--likelihood", "laplace", "--inducing", "10"
    out, _ = run(capsys, *argv, "--out", "whole")
    assert "so natural steps and L-BFGS on all" in out and "short of convergence" not in out
    assert 1 < results("whole")["steps"] < 200
    for given in (["--steps", "3"], ["--steps", "3", "--learning-rate", "0.02"]):
        out, _ = run(capsys, *argv, *given, "--out", "short")
        unit = "iterations" if len(given) == 2 else "steps"
        assert f"short of convergence, after 3 {unit}; try more --steps" in out
        assert ("L-BFGS on all" in out) is (len(given) == 2)


def test_columns_by_position_and_plots(columns, capsys):
    rows = np.column_stack([columns["n"], columns["x"], columns["won"]])
    np.savetxt("d.csv", rows, delimiter=",")
    run(capsys, "fit", "d.csv", "--trials", "0", *FEW)
    assert (pathlib.Path("d-fit") / "fit.png").exists()
    whole = run(capsys, "predict", "d-fit", "d.csv")
    assert "is in the file" in whole[1]
    np.savetxt("inputs.csv", rows[:, [1]], delimiter=",")
    assert run(capsys, "predict", "d-fit", "inputs.csv")[0] == whole[0]
    write_csv("two.csv", "n,x,z,won", columns["n"], columns["x"], columns["c"], columns["won"])
    run(capsys, "fit", "two.csv", "--trials", "n", *FEW)
    assert (pathlib.Path("two-fit") / "predictions.png").exists()


def test_resume_knows_the_second_column(columns, unplotted, capsys, monkeypatch):
    options = [*of(columns, "cases", "c"), "--exposure", "c"]
    stop_at(monkeypatch, 20, interrupt)
    assert main(["fit", *options]) == 130
    capsys.readouterr()
    without = [*of(columns, "cases"), "--resume"]
    err = refused(capsys, "fit", *without)
    assert "second column --exposure c then, None now" in err
    assert main(["fit", *options, "--resume"]) == 0
    resumed = fs.load_fitted("d-fit").model
    assert main(["fit", *options, "--out", "whole"]) == 0
    np.testing.assert_allclose(
        resumed.posterior.mean, fs.load_fitted("whole").model.posterior.mean, rtol=1e-10
    )


@pytest.mark.parametrize("more", [["--layers", "2"], ["--method", "lsvgp"], ["--dtype", "float32"]])
def test_other_models_start_at_the_mean(columns, unplotted, capsys, more):
    fit(capsys, *of(columns, "cost")[:5], "--likelihood", "gamma", *more)
    mean = fs.load_fitted("d-fit").predict(columns["x"][:, None]).mean
    assert 0.3 < np.median(mean) / np.median(columns["cost"]) < 10


def test_several_targets_can_be_missing(columns, unplotted, capsys):
    visits = columns["visits"].astype(object)
    visits[::7] = ""
    write_csv("d.csv", "x,a,b", columns["x"], visits, columns["cases"])
    out, _ = run(
        capsys, "fit", "d.csv", "--target", "a,b", "--likelihood", "negative-binomial", *FEW
    )
    assert "15 of 200 targets are missing" in out
    assert fs.load_fitted("d-fit").predict(columns["x"][:, None]).mean.shape == (N, 2)
    cost = columns["cost"]
    write_csv("two.csv", "x,a,b", columns["x"], cost, np.where(cost > 300, "", 1000 * cost))
    run(capsys, "fit", "two.csv", "--target", "a,b", "--likelihood", "gamma", *FEW)
    for one in results("two-fit")["test"]["targets"].values():
        assert one["scale"] == "positive numbers"
        assert one["model"]["nlpd"] < one["trivial"]["nlpd"] + 0.5


@pytest.mark.parametrize(
    ("target", "argv", "message"),
    [
        ("won", ["--likelihood", "binomial"], "binomial needs a second column of the target: give"
         " --trials COLUMN"),
        ("won", ["--trials", "n", "--likelihood", "gamma"], "--trials is for --likelihood binomial,"
         " not gamma"),
        ("won", ["--trials", "n", "--exposure", "c"], "--trials, --exposure: a target has one"),
        ("won", ["--trials", "won"], "--trials: column 'won' is the target"),
        ("won", ["--trials", "m"], "--trials: no column 'm'"),
        ("won", ["--trials", "c"], "column 'c' of --trials: trials are whole numbers from 1, got"),
        ("n", ["--trials", "won"], "column 'won' of --trials: "),
        ("cases", ["--exposure", "side"], "of --exposure: exposures are positive, got 0"),
        ("known", ["--noise", "side"], "of --noise: variances of the noise are positive, got 0"),
        ("known", ["--side", "n"], "of --side: sides are 0 (the target was seen), 1"),
        ("known", ["--noise", "word"], "--noise 'word' must hold numbers, but line 2 has"),
        ("known,seen", ["--noise", "var"], "--noise is for one target, and here are several"),
        ("known", ["--likelihood", "laplace", "--no-extra-noise"], "the likelihood is laplace"),
        ("won", ["--trials", "n", "--seconds", "5"], "there is no search with --trials"),
        ("cases", ["--exposure", "c", "--method", "qsgp"], "qsgp: there is no --exposure"),
        ("known", ["--likelihood", "gamma"], "gamma needs positive numbers, but the target"),
        ("cost", ["--likelihood", "beta"], "beta needs numbers between 0 and 1, without 0 and 1"),
        ("cost", ["--likelihood", "negative-binomial"], "negative-binomial needs counts 0, 1, 2"),
        ("word", ["--likelihood", "ordinal"], "such as 'bad'; number the grades in their order"),
        ("cost", ["--likelihood", "ordinal"], "which is too many for classes"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(columns, capsys, target, argv, message):
    if target in ("known", "known,seen") and "gamma" in argv:
        columns["known"][3] = -1.0
        write_csv("d.csv", ",".join(columns), *columns.values())
    if target == "word":
        columns["word"][0] = "bad"
        write_csv("d.csv", ",".join(columns), *columns.values())
    err = refused(capsys, "fit", "d.csv", "--target", target, *argv)
    assert message in err
