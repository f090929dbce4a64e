"""The choice of the solver, and the thresholds that all interfaces share."""

import argparse
import pathlib
import re

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.cli.fit_arguments import add_fit
from fastsvgp.cli.settings.defaults import choose
from fastsvgp.recipes import POSTERIORS, solver_for, solvers
from fastsvgp.runtime import thresholds
from fastsvgp.sklearn import SVGPRegressor

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
CHOICES = [  # rows, inducing inputs, and the solver
    (1000, 5, "lbfgs"),
    (1001, 256, "natural"),
    (1001, 999, "natural"),
    (1001, 1000, "lbfgs"),
    (5000, 1000, "lbfgs"),
    (5001, 1000, "natural"),
    (5001, 5001, "natural"),
]


@pytest.mark.parametrize("rows, inducing, solver", CHOICES)
def test_all_interfaces_choose_by_the_same_numbers(rows, inducing, solver):
    chosen = solver_for("auto", fs.Gaussian(0.1), fs.Whitened, rows, inducing)
    method = choose("gaussian", rows, rows, inducing=inducing).method
    assert (chosen, method) == (solver, "sgpr" if solver == "lbfgs" else "svgp")


def test_without_collapsed_bound_there_are_no_thresholds():
    assert solver_for("auto", fs.StudentT(1.0), fs.Whitened, 50, 50) == "natural"
    assert solver_for("auto", fs.Gaussian(0.1), fs.posteriors.LikelihoodForm, 50, 50) == "adam"
    assert solver_for("natural", fs.Gaussian(0.1), fs.Whitened, 50, 50) == "natural"
    assert solver_for("lbfgs", fs.Gaussian(0.1), fs.Whitened, 10**6, 5) == "lbfgs"


def test_starts_count_all_rows_and_both_sets(rng, monkeypatch):
    seen = []
    monkeypatch.setattr(
        solvers, "solver_for", lambda *given: seen.append(given[3:5]) or solver_for(*given)
    )
    X = np.repeat(rng.standard_normal((30, 1)), 40, axis=0)
    y = rng.standard_normal(len(X))
    pair = fs.posteriors.InducingPair(X[:3], X[40:44])
    for inducing, posterior in (
        (29, "whitened"),
        (30, "whitened"),
        ((4, 5), "whitened_orthogonal"),
        (pair, "whitened_orthogonal"),
        (X[:7].tolist(), "whitened"),
    ):
        fs.recipes.regression(X, y, inducing, posterior=posterior, rng=0)
    assert seen == [(1200, 29), (1200, 1200), (1200, 9), (1200, 7), (1200, 7)]


def test_the_estimator_chooses_by_its_inducing_inputs(rng, monkeypatch):
    monkeypatch.setattr(thresholds, "FEW_ROWS", 30)
    monkeypatch.setattr(thresholds, "MANY", 20)
    for name in ("FEW_ROWS", "MANY"):
        monkeypatch.setattr(solvers, name, getattr(thresholds, name))
    X = rng.standard_normal((40, 2))
    for inducing, collapsed in ((19, False), (20, True)):
        model = SVGPRegressor(n_inducing=inducing, max_iter=1, warm_start=True, random_state=0)
        for _ in range(2):  # the second one is a warm start
            start, _ = model._start(X, X[:, 0], None, 0)
            assert isinstance(start.model, fs.SGPR) is collapsed
            model.fit(X, X[:, 0])


def test_pages_and_help_have_the_thresholds():
    parser = argparse.ArgumentParser()
    add_fit(parser.add_subparsers())
    fit = next(iter(parser._subparsers._group_actions[0].choices.values()))
    helps = {action.dest: action.help for action in fit._actions}
    few, most, many, exact = (
        getattr(thresholds, name) for name in ("FEW_ROWS", "MOST_ROWS", "MANY", "EXACT_ROWS")
    )
    assert f"at most {exact}; else {many} up to {most} rows" in helps["inducing"]
    assert f"up to {most} training rows, unless --inducing is below {many}" in helps["method"]
    pages = {name: (DOCS / f"{name}.md").read_text("utf-8") for name in ("choose", "sklearn")}
    line = "up to {:,}( rows)?[;,] (and )?up to {:,} (rows )?with (M of )?at least {:,}"
    for name, text in pages.items():
        assert re.search(line.format(few, most, many), text), name
    text = " ".join((DOCS / "command_line.md").read_text("utf-8").split())
    assert f"up to {most:,} training rows: `sgpr`" in text
    assert f"Up to {exact:,} rows all of them are inducing inputs" in text
    assert f"fewer than {many:,} inducing inputs and there are more than {few:,} rows" in text


def test_every_posterior_has_a_solver():
    for kind in POSTERIORS.values():
        assert solver_for("auto", fs.Poisson(), kind, 50) in ("natural", "adam")
