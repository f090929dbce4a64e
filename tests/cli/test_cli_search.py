"""``fastsvgp fit`` without a method: the search, its report, its saved model, and --resume."""

import json
import os

import numpy as np
import pytest
from support.cli_runs import results, run

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.report import metrics
from fastsvgp.recipes.model_search.regression import Regression

pytestmark = pytest.mark.usefixtures("here", "unplotted")


@pytest.fixture
def table(rng):
    """400 rows with two inputs, one of them skewed."""
    X = np.c_[np.exp(rng.standard_normal(400)), rng.standard_normal(400)]
    rows = np.c_[X, np.sin(2 * np.log(X[:, 0])) + X[:, 1] + 0.1 * rng.standard_normal(400)]
    np.savetxt("data.csv", rows, delimiter=",", header="a,b,target", comments="")
    return rows


def test_a_search_from_file_to_predictions(table, capsys):
    said, _ = run(capsys, "fit", "data.csv", "--seconds", "4.5", "--out", "out")
    assert "the best model that 4.5 s find" in said and " inputs, because" in said
    found = results("out")
    assert (found["method"], found["budget"]) == ("search", 4.5)
    assert found["test"]["model"]["rmse"] < 0.4 * found["test"]["trivial"]["rmse"]
    assert found["chosen"] in {look["candidate"] for look in found["looks"]}
    assert all(f"search     {line}" in said for line in found["story"])
    page = open("out/report.html", encoding="utf-8").read()
    assert "<h2>Candidates</h2>" in page and "plain, raw inputs" in page
    run(capsys, "predict", "out", "data.csv", "--out", "p.csv")
    fitted = fs.load_fitted("out")
    mean = fitted.predict(table[:, :2]).mean
    written = np.loadtxt("p.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(written[:, 0], mean, rtol=1e-5)


def test_a_map_of_inputs_is_in_the_file_and_checked(table, capsys):
    run(capsys, "fit", "data.csv", "--seconds", "1", "--out", "out", "--quiet")
    fitted = fs.load_fitted("out")
    fitted.scale = fitted.scale.add_column_maps(table[:, :2])
    fitted.save("ranks.npz")
    X = table[:20, :2]
    np.testing.assert_array_equal(
        fs.load_fitted("ranks.npz").predict(X).mean, fitted.predict(X).mean
    )
    for damaged in ([], [None], [None, {"knots": [0.0, 1.0], "values": [1.0, 0.0]}], 3):
        model, extra = fs.records.load_with_extra("ranks.npz")
        extra["command_line"]["scale"]["x_map"] = damaged
        fs.save("damaged.npz", model, **extra)
        with pytest.raises(fs.DataFileError, match="does not match this version"):
            fs.load_fitted("damaged.npz")


def test_rows_far_outside_are_named_and_extrapolation_is_an_option(table, capsys, tune):
    tune(race_seconds=0.5)
    fit = "fit", "data.csv", "--seconds", "1", "--quiet", "--out"
    run(capsys, *fit, "out")
    far = table[:4].copy()
    far[1:, 1] = [5e3, -5e3, 0]
    np.savetxt("far.csv", far[:, :2], delimiter=",", header="a,b", comments="")
    _, said = run(capsys, "predict", "out", "far.csv", "--out", "p.csv")
    assert "2 of 4 rows are far outside the training range of b: the model is unsure there" in said
    mean, sd = np.loadtxt("p.csv", delimiter=",", skiprows=1).T
    assert (sd[1:3] > 2 * table[:, 2].std()).all() and sd[3] < 0.5 * table[:, 2].std()
    _, said = run(capsys, "predict", "out", "data.csv", "--out", "p.csv")
    assert "outside" not in said
    run(capsys, *fit, "other", "--extrapolate")
    assert results("other")["chosen"] in ("plain, raw inputs", "exact, raw inputs")
    _, said = run(capsys, "predict", "other", "far.csv", "--out", "p.csv")
    assert "outside" not in said
    for more, message in (
        ("--method=sgpr", "--extrapolate: the search decides model and training, and --method"),
        ("--likelihood=student-t", "--extrapolate: there is no search for the student-t"),
    ):
        assert main(["fit", "data.csv", "--extrapolate", more, "--out", "new"]) == 2
        assert message in capsys.readouterr().err


def test_few_rows_are_averaged_unless_told_not_to(table, capsys):
    np.savetxt("few.csv", table[:60], delimiter=",", header="a,b,y", comments="")
    fit = "fit", "few.csv", "--seconds", "2", "--quiet", "--out"
    run(capsys, *fit, "out")
    run(capsys, *fit, "one", "--no-average")
    assert any(line.startswith("average over") for line in results("out")["story"])
    noises = [f"models.{k}.likelihood.variance" for k in range(16)]
    assert noises == [one for one in results("out")["parameters"] if one in noises]
    assert type(fs.load_fitted("out").model) is fs.Mixture
    assert type(fs.load_fitted("one").model) is fs.SVGP
    assert main(["fit", "few.csv", "--no-average", "--method=sgpr", "--out", "new"]) == 2
    assert "--no-average: the search decides model" in capsys.readouterr().err


def test_a_method_and_a_time_are_one_too_many(table, capsys):
    for options in (["--method", "svgp"], ["--steps", "5"], ["--no-ard"], ["--natural-step", "0"]):
        assert main(["fit", "data.csv", "--seconds", "5", *options]) == 2
        assert f"{options[0].replace('--no-', '--')} does, too" in capsys.readouterr().err
    assert main(["fit", "data.csv", "--seconds", "5", "--likelihood", "student-t"]) == 2
    assert "there is no search for the student-t likelihood" in capsys.readouterr().err
    for seconds in ("0", "-1", "nan", "a"):
        assert main(["fit", "data.csv", "--seconds", seconds]) == 2
        assert "--seconds" in capsys.readouterr().err


def test_ctrl_c_keeps_best_look_and_resume_goes_on_after_it(table, capsys, monkeypatch):
    look_at, seen = Regression._look_at, []

    def interrupted(*args):
        seen.append(args)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return look_at(*args)

    monkeypatch.setattr(Regression, "_look_at", interrupted)
    assert main(["fit", "data.csv", "--seconds", "4.5", "--out", "out", "--quiet"]) == 130
    assert "--resume goes on after the last candidate" in capsys.readouterr().err
    fs.load_fitted("out")
    plan, before = json.load(open("out/plan.json")), results("out")
    assert len(fs.load("out/search.npz").stages) == len(before["looks"]) == 2
    looked = []
    monkeypatch.setattr(Regression, "_look_at", lambda *args: looked.append(args) or look_at(*args))
    assert main(["fit", "data.csv", "--seconds", "4.5", "--out", "out", "--quiet", "--resume"]) == 0
    then = results("out")
    assert then["looks"][:2] == before["looks"] and len(looked) == len(then["looks"]) - 2
    assert not os.path.exists("out/search.npz") and not os.path.exists("out/plan.json")
    decided = [list(pair) for pair in plan["counts"]]
    # the last count of an interrupted search belongs to its last posterior
    assert then["plan"]["counts"][: len(decided)] == decided
    assert main(["fit", "data.csv", "--out", "out", "--quiet", "--resume"]) == 2
    assert "holds no checkpoint and no plan.json" in capsys.readouterr().err


def test_resume_refuses_the_search_of_another_table(table, capsys, monkeypatch):
    look_at, seen = Regression._look_at, []

    def interrupted(*args):
        seen.append(args)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return look_at(*args)

    monkeypatch.setattr(Regression, "_look_at", interrupted)
    command = ["fit", "data.csv", "--seconds", "4.5", "--out", "out", "--quiet"]
    assert main(command) == 130
    table[5, 0] += 1.0
    np.savetxt("data.csv", table, delimiter=",", header="a,b,target", comments="")
    assert main([*command, "--resume"]) == 2
    assert "`resume` is of another search: the numbers in `X` are others" in capsys.readouterr().err


def test_search_for_classes_from_file_to_predictions(rng, capsys):
    X = rng.standard_normal((300, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0, "even", "odd")
    with open("classes.csv", "w", encoding="utf-8") as file:
        file.write("a,b,sign\n")
        file.writelines(f"{a},{b},{c}\n" for (a, b), c in zip(X, y, strict=True))
    said, _ = run(capsys, "fit", "classes.csv", "--seconds", "4.5", "--out", "out")
    assert "the best model that 4.5 s find" in said
    found = results("out")
    assert found["method"] == "search" and found["likelihood"].startswith("bernoulli")
    assert found["test"]["model"]["nlpd"] < found["test"]["trivial"]["nlpd"]
    page = open("out/report.html", encoding="utf-8").read()
    assert "<h2>Candidates</h2>" in page and "accuracy" in page
    run(capsys, "predict", "out", "classes.csv", "--out", "p.csv")
    assert open("p.csv", encoding="utf-8").readline() == "class,p(even),p(odd)\n"


def test_advice_after_a_search_of_counts_names_no_method(rng, capsys):
    X, y = rng.standard_normal((200, 2)), rng.poisson(3, 200)
    np.savetxt("n.csv", np.c_[X, y], delimiter=",", header="a,b,n", comments="")
    run(capsys, "fit", "n.csv", "--seconds", "0.5", "--out", "out")
    outcome = results("out")["outcome"]
    assert (outcome["solver"], outcome["collapses"]) == ("search", False)
    for rmse, said in ((2, "the search "), (1, "give --likelihood negative-binomial")):
        scores = {"model": {"rmse": rmse, "nlpd": 2}, "trivial": {"rmse": 1.5, "nlpd": 1}}
        text = metrics.advice({"scale": "counts"} | scores, 40, outcome)
        assert said in text and "--method" not in text and "--inducing" not in text
