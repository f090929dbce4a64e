"""Advice after a training without success: by how it ended, in terms of each interface."""

import numpy as np
import pytest

from fastsvgp.cli.report import metrics
from fastsvgp.recipes.remedies import Outcome, how_it_ended, remedies
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor, training


@pytest.mark.parametrize(
    "solver, ended, collapses, rows, inputs, inducing, command, estimator",
    [
        ("lbfgs", "converged", True, 300, 3, 50,
         "L-BFGS has converged; try --method svgp, --inducing 300 (all rows) or another"
         " --covariance",
         "L-BFGS has converged; try solver='natural', n_inducing=300 (all rows) or another"
         " covariance"),
        ("lbfgs", "converged", True, 300, 3, 300,
         "L-BFGS has converged; try --method svgp or another --covariance",
         "L-BFGS has converged; try solver='natural' or another covariance"),
        ("lbfgs", "converged", True, 4000, 3, 1000,
         "L-BFGS has converged; try --method svgp, --inducing 2000 or another --covariance",
         "L-BFGS has converged; try solver='natural', n_inducing=2000 or another covariance"),
        ("lbfgs", "short", True, 300, 3, 300,
         "the training was short; try more --steps or another --covariance",
         "the training was short; try a larger max_iter or another covariance"),
        ("natural", "short", True, 300, 3, 50,
         "the training was short; try more --steps, --method sgpr --inducing 300 (all rows) or"
         " another --covariance",
         "the training was short; try a larger max_iter, solver='lbfgs' with n_inducing=300 (all"
         " rows) or another covariance"),
        ("adam", "level", False, 300, 3, 50,
         "more steps gain nothing; try --inducing 300 (all rows) or another --covariance",
         "more steps gain nothing; try n_inducing=300 (all rows) or another covariance"),
        ("natural", "level", True, 7400, 32, 256,
         "more steps gain nothing; try --inducing 512, --ignore for columns that cannot matter or"
         " another --covariance",
         "more steps gain nothing; try n_inducing=512, fewer columns of X or another covariance"),
        ("natural", "level", True, 2000, 3, 1500,
         "more steps gain nothing; try --inducing 2000 or another --covariance",
         "more steps gain nothing; try n_inducing=2000 or another covariance"),
        ("adam", "level", False, 7400, 3, None, "more steps gain nothing; try another --covariance",
         "more steps gain nothing; try another covariance"),
    ],
)  # fmt: skip
def test_the_advice_of_each_end(
    solver, ended, collapses, rows, inputs, inducing, command, estimator
):
    outcome = Outcome(solver, ended, collapses, rows, inputs, inducing)
    assert remedies(outcome, metrics.WORDS) == command
    assert remedies(outcome, training.WORDS) == estimator


@pytest.mark.parametrize(
    "ended, inputs, command",
    [
        ("short", 3, "the search used all of its time; try more --seconds"),
        (
            "short",
            10,
            "the search used all of its time; try more --seconds or --ignore for columns that"
            " cannot matter",
        ),
        ("level", 3, "the search ended before its time"),
    ],
)
def test_a_search_is_advised_nothing_that_it_chose(ended, inputs, command):
    for collapses in (True, False):
        outcome = Outcome("search", ended, collapses, 300, inputs, 50)
        assert remedies(outcome, metrics.WORDS) == command


@pytest.mark.parametrize("reason", ["callback", "converged"])
def test_how_lbfgs_ends(reason):
    assert how_it_ended("lbfgs", reason, np.zeros(3), 100) == "converged"
    assert how_it_ended("lbfgs", "steps", np.zeros(3), 100) == "short"
    assert how_it_ended("lbfgs", "interrupted", np.zeros(3), 100) == "short"


def test_how_minibatches_end(rng):
    flat = 100 * rng.standard_normal(500)
    for values, ended in (
        (flat, "level"),
        (flat + 3 * np.arange(500), "short"),
        (flat[:10], "short"),
        (1e-4 * np.arange(500), "level"),
    ):
        assert how_it_ended("natural", "steps", values, 100) == ended
        assert how_it_ended("natural", "interrupted", values, 100) == "short"


@pytest.mark.parametrize("solver", ["lbfgs", "natural"])
def test_held_out_rows_end_a_training_that_no_longer_gains(rng, solver, monkeypatch):
    monkeypatch.setattr(training, "HARDLY", 100.0)  # no model is good enough
    assert how_it_ended(solver, "patience", np.arange(500.0), 1) == "level"
    X, y = rng.standard_normal((400, 3)), rng.standard_normal(400)
    model = SVGPRegressor(
        solver=solver,
        early_stopping=True,
        n_inducing=10,
        n_iter_no_change=2,
        max_iter=300,
        random_state=0,
    )
    with pytest.warns(UserWarning, match="trivial predictor: more steps gain nothing; try"):
        model.fit(X, y)


def nothing(rng, N=80):
    """Inputs without information."""
    return rng.standard_normal((N, 2)), rng.standard_normal(N)


def far(rng, likelihood):
    """A model that stays where it starts, and targets that are noise."""
    X, y = nothing(rng)
    if likelihood == "classes":
        return (
            SVGPClassifier(
                solver="natural",
                n_inducing=10,
                max_iter=5,
                learning_rate=1e-6,
                natural_step_size=1e-6,
                random_state=0,
            ),
            X,
            y > 0,
        )
    if "two" in likelihood:
        y = rng.standard_normal((len(X), 2))
    if likelihood in ("poisson", "two counts"):
        y = rng.poisson(3, y.shape).astype(float)
    likelihood = {"two": "gaussian", "two counts": "poisson"}.get(likelihood, likelihood)
    return (
        SVGPRegressor(
            likelihood=likelihood,
            solver="natural",
            n_inducing=10,
            max_iter=5,
            learning_rate=1e-6,
            random_state=0,
            natural_step_size=1e-6,
        ),
        X,
        y,
    )


@pytest.mark.parametrize(
    "likelihood", ["gaussian", "laplace", "poisson", "two", "two counts", "classes"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_an_estimator_that_found_nothing_warns(rng, likelihood, weighted):
    model, X, y = far(rng, likelihood)
    weights = rng.uniform(0.5, 2, len(X)) if weighted else None
    exact = "solver='lbfgs' with " if likelihood in ("gaussian", "two") else ""
    with pytest.warns(
        UserWarning,
        match="no better than the trivial predictor: the training was short; try a larger "
        "max_iter, "
        f"{exact}n_inducing=80 .all rows. or another covariance; or X carries little information "
        "about y",
    ):
        model.fit(X, y, weights)


def test_an_estimator_that_found_something_does_not_warn(rng, recwarn):
    X, _ = nothing(rng)
    for model, y in (
        (SVGPRegressor(n_inducing=20, random_state=0), np.sin(2 * X[:, 0])),
        (
            SVGPRegressor(n_inducing=20, random_state=0),
            np.stack([np.sin(X[:, 0]), X[:, 1]], axis=1),
        ),
        (SVGPClassifier(n_inducing=20, random_state=0), X[:, 0] > 0),
    ):
        model.fit(X, y)
    # equal targets have no trivial predictor to beat
    SVGPRegressor(max_iter=3).fit(X, np.full(80, 2.0))
    assert not [w for w in recwarn if "trivial" in str(w.message)]


@pytest.mark.parametrize("N, warned", [(training.FEW - 1, False), (training.FEW, True)])
def test_few_rows_are_compared_with_the_trivial_predictor(rng, recwarn, N, warned):
    model, *_ = far(rng, "gaussian")
    model.fit(*nothing(rng, N))
    assert any("trivial" in str(w.message) for w in recwarn) == warned


def test_a_converged_estimator_is_not_told_to_train_longer(rng, monkeypatch):
    monkeypatch.setattr(training, "HARDLY", 100.0)
    X, y = rng.standard_normal((400, 3)), rng.standard_normal(400)
    with pytest.warns(
        UserWarning,
        # noise decides whether the second training, with all rows, is the better one
        match="L-BFGS has converged; try solver='natural'(, n_inducing=400 .all rows.)? or another",
    ):
        SVGPRegressor(n_inducing=20, max_iter=300, random_state=0).fit(X, y)
