"""Estimators and command line: the same data and settings give the same model."""

import json
import pathlib

import numpy as np
import pytest
from support.cli_runs import run

import fastsvgp as fs
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

N, HELD = 150, 30
POSTERIORS = {
    "svgp": "whitened",
    "tsvgp": "absorbed_dual_sites",
    "lsvgp": "likelihood_form",
    "rsvgp": "relaxed",
    "solvegp": "whitened_orthogonal",
    "odvgp": "decoupled_weights",
    "sgpr": "whitened",
}


def problem(rng, target):
    """Inputs, targets, and a mask of held-out rows."""
    X = rng.uniform(-2, 2, (N, 3))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(N)
    if target == "counts":
        y = rng.poisson(np.exp(1 + y)).astype(float)
    if target in (2, 3):
        y = np.digitize(y, np.quantile(y, np.arange(1, target) / target)).astype(float)
    return X, y, np.arange(N) >= N - HELD


CASES = [
    ("real", "sgpr", [], {"solver": "lbfgs"}),
    ("real", "sgpr", ["--covariance", "rbf", "--no-ard"],
     {"solver": "lbfgs", "covariance": "rbf", "ard": False}),
    ("real", "svgp", [], {}),
    ("real", "svgp", ["--natural-step", "0"], {"solver": "adam"}),
    ("real", "svgp", ["--likelihood", "student-t", "--natural-step", "0.3"],
     {"likelihood": "student-t", "natural_step_size": 0.3}),
    ("real", "tsvgp", [], {}),
    ("real", "lsvgp", [], {}),
    ("real", "rsvgp", [], {}),
    ("real", "solvegp", [], {}),
    ("real", "odvgp", [], {}),
    ("counts", "svgp", ["--likelihood", "poisson"], {"likelihood": "poisson"}),
    (2, "svgp", ["--likelihood", "bernoulli-probit"], {}),
    (3, "svgp", ["--likelihood", "softmax"], {}),
]  # fmt: skip


@pytest.mark.parametrize(
    "target, method, options, settings, drawn",
    [(*case, True) for case in CASES] + [(*case, False) for case in (CASES[0], CASES[-1])],
)
def test_both_doors_train_the_same_model(
    rng, here, unplotted, capsys, tune, target, method, options, settings, drawn
):
    """``drawn``: with many rows, some are sampled for the relevance of the inputs."""
    tune(relevance_rows=60 if drawn else N)
    X, y, held = problem(rng, target)
    np.savez("data.npz", X=X, y=y)
    np.savetxt("mask.csv", held, fmt="%d")
    likelihood = (
        [] if "--likelihood" in options or target != "real" else ["--likelihood", "gaussian"]
    )
    batch = [] if method == "sgpr" else ["--batch-size", "40", "--learning-rate", "0.02"]
    run(
        capsys,
        "fit",
        "data.npz",
        "--out",
        "out",
        "--test-mask",
        "mask.csv:0",
        "--method",
        method,
        "--inducing",
        "12",
        "--seed",
        "5",
        "--epochs",
        "6",
        "--quiet",
        *likelihood,
        *batch,
        *options,
    )
    ours = fs.load_fitted("out")
    kind = SVGPClassifier if target in (2, 3) else SVGPRegressor
    settings = {
        "solver": "adam" if method in ("lsvgp", "rsvgp") else "natural",
        "posterior": POSTERIORS[method],
    } | settings
    settings |= {
        "n_inducing": 12,
        "max_iter": 6,
        "batch_size": 40,
        "learning_rate": 0.02,
        "random_state": 5,
    }
    theirs = kind(**settings).fit(X[~held], y[~held])
    assert ours.jitter == theirs.jitter_
    for (path, _, one), (other, _, two) in zip(
        fs.records.leaves(ours.model), fs.records.leaves(theirs.model_), strict=True
    ):
        assert path == other
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-11, err_msg=path)
    results = json.loads(pathlib.Path("out/metrics.json").read_text())
    density = theirs.log_predictive_density(X[held], y[held])
    shift = np.log(theirs.scale_.y_scale) if kind is SVGPRegressor else 0.0
    assert results["test"]["model"]["nlpd"] == pytest.approx(-np.mean(density) - shift, rel=1e-9)


def test_another_seed_is_another_model(rng):
    X, y, _ = problem(rng, "real")
    settings = {"n_inducing": 12, "max_iter": 3, "solver": "natural"}
    first, again, other = (
        SVGPRegressor(random_state=seed, **settings).fit(X, y) for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first.inducing_, again.inducing_)
    assert abs(first.inducing_ - other.inducing_).max() > 1e-3
