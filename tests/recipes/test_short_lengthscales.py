"""Shorter initial lengthscales: only where the start explains less than noise, and those help."""

import logging

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes import routine, second_try
from fastsvgp.recipes.second_try import DIVISORS, bound_of_noise, choose_by_bound


def sine(rng, cycles, N=60):
    X = (np.arange(N)[:, None] + rng.random((N, 1))) / N
    y = np.sin(2 * np.pi * cycles * X[:, 0]) + 0.05 * rng.standard_normal(N)
    return (X - X.mean()) / X.std(), (y - y.mean()) / y.std()


def start_at(X, lengthscale=1.3):
    smooth = fs.Matern32(1.0, np.array([lengthscale]))
    return fs.SGPR(fs.covariances.Sum((fs.Linear(1.0), smooth)), X.copy(), 0.1)


def lengthscale(sgpr):
    return float(sgpr.covariance.parts[1].lengthscales[0])


def test_a_start_above_noise_is_kept(rng):
    X, y = sine(rng, 1)
    start = start_at(X)
    assert choose_by_bound(start, X, y) == (start, 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_of_many_cycles_the_highest_bound_decides(rng, weighted):
    X, y = sine(rng, 8)
    weights = rng.uniform(0.5, 2, len(X)) if weighted else None
    start = start_at(X)
    found, tried = choose_by_bound(start, X, y, weights)
    bounds = [
        fs.collapsed_bound(start_at(X, 1.3 / divisor), X, y, weights=weights)
        for divisor in DIVISORS
    ]
    assert tried == 1 + len(DIVISORS) and max(bounds) > bound_of_noise(start, X, y, weights)
    assert lengthscale(found) == 1.3 / DIVISORS[int(np.argmax(bounds))]


def test_noise_and_fixed_lengthscales_keep_the_start(rng):
    X, y = sine(rng, 8)
    start = start_at(X)
    fixed = ("covariance.parts.1.lengthscales",)
    assert choose_by_bound(start, X, y, fixed=fixed)[0] is start
    assert choose_by_bound(start, X, np.zeros(len(X)))[0] is start  # equal targets have no noise
    white = rng.standard_normal(len(X))
    shorter = [fs.collapsed_bound(start_at(X, 1.3 / d), X, white) for d in DIVISORS]
    kept = max(shorter) <= bound_of_noise(start, X, white)
    assert (choose_by_bound(start, X, white)[0] is start) == kept


def test_a_bound_that_does_not_factorise_is_not_chosen(rng, monkeypatch):
    def fails(*_, **__):
        raise fs.NotPositiveDefinite((), 3, 1e-6, 5, np.float64)

    X, y = sine(rng, 8)
    start = start_at(X)
    monkeypatch.setattr(second_try, "collapsed_bound", fails)
    assert choose_by_bound(start, X, y)[0] is start


def test_a_training_at_all_rows_is_repeated_from_shorter_lengthscales(rng, caplog):
    X, y = sine(rng, 8)
    start = fs.SGPR(fs.RBF(1.0, np.array([1.3])), X.copy(), 0.1)
    with caplog.at_level(logging.INFO, "fastsvgp"):
        settings = {"steps": 60, "fixed": "inducing"}
        _, info, _ = routine.train(start, X, y, settings, lambda *_: None)
    assert "once more with all 60 distinct rows and shorter lengthscales" in caplog.text
    assert info.values[-1] > bound_of_noise(start, X, y) + 20
