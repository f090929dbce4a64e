"""The linear part of a search: who has it, and what it may cost. Jitter of looks and noise."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes.model_search import collapsed_posterior, plain_processes, regression
from fastsvgp.recipes.model_search.candidates import Hyper
from fastsvgp.recipes.model_search.plain_processes import Exact, Plain, plain_on, smooth_on
from fastsvgp.recipes.model_search.rows import SearchRows


def search(X, y):
    return fs.search(X, y, 4.0, by_work=True, rng=0)


def test_a_line_is_linear_and_noise_alone_is_not():
    rng = np.random.default_rng(0)  # a smooth function can explain some noise of a line
    X = rng.uniform(-1, 1, (20, 2))
    found = search(X, X @ [1.0, 2.0] + 0.01 * rng.standard_normal(20))
    assert found.chosen == "exact, with a linear part"
    assert found.story[1] == "a linear function explains everything but noise"
    found = search(X, rng.standard_normal(20))
    assert "log evidence" in found.story[1]


class Trained:
    """Stands in for ``Exact``: bounds and hyperparameters as given."""

    bounds = {}

    def __init__(self, name, scale, rows, covariance=None):
        self.name, self.steps, self.scale = name, 1, scale
        self.linear = covariance is None
        self.covariance = plain_on(rows.X) if self.linear else covariance

    def take(self, plan, seconds):
        self.bound, variance = self.bounds[self.linear]
        if not self.linear:
            self.covariance = fs.Matern32(variance, np.ones(1))

    @property
    def model(self):
        return Hyper(self.covariance, 0.1, None)


@pytest.mark.parametrize(
    "above, variance, linear",
    [
        (regression.HIGHER + 0.1, 1.0, True),
        (regression.HIGHER - 0.1, 1.0, False),
        (0.0, 1.1 * regression.LINE, True),
        (0.0, 0.9 * regression.LINE, False),
    ],
)
def test_the_bound_decides_unless_the_smooth_function_is_a_line(
    rng, monkeypatch, above, variance, linear
):
    monkeypatch.setattr(regression, "Exact", Trained)
    monkeypatch.setattr(Trained, "bounds", {True: (above, None), False: (0.0, variance)})
    rows = SearchRows(rng.standard_normal((9, 1)), rng.standard_normal(9))
    race = regression.Regression(None, rows, rows, *[None] * 5, 0, lambda line: None)
    chosen = race._exact_by_bound("exact", (None, rows), 1.0)
    assert chosen.linear == linear


@pytest.mark.parametrize("N, linear", [(30, True), (31, False)])
def test_a_sparse_process_of_few_rows_has_a_linear_part(rng, tune, N, linear):
    tune(exact_rows=30)
    rows = SearchRows(rng.standard_normal((N, 2)), rng.standard_normal(N))
    plain = Plain("", None, rows, rng)
    assert isinstance(plain.model.covariance, fs.covariances.Sum) == linear
    assert plain.lengthscales().shape == (2,)
    assert isinstance(Exact("", None, rows).model.covariance, fs.covariances.Sum)
    smooth = Exact("", None, rows, smooth_on(rows.X)).model.covariance
    assert isinstance(smooth, fs.Matern32)


@pytest.mark.parametrize("kind", [Exact, Plain])
def test_a_part_that_vanished_is_not_zero_in_float32(rng, kind):
    rows = SearchRows(rng.standard_normal((9, 2)), rng.standard_normal(9))
    candidate = kind("", None, rows, *([rng] if kind is Plain else []))
    tiny, smooth = np.finfo(np.float64).tiny, smooth_on(rows.X)
    covariance = fs.covariances.Sum([fs.Linear(tiny), smooth])
    candidate._sgpr = fs.replace(candidate._sgpr, covariance=covariance)
    found = candidate.model.covariance
    assert np.float32(found.parts[0].variance) > 0
    assert found.parts[1].variance == smooth.variance
    np.testing.assert_array_equal(found.matrix(rows.X), covariance.matrix(rows.X))


def test_a_sum_is_scaled_by_its_parts(rng):
    X = rng.standard_normal((6, 2))
    covariance = plain_processes.plain_on(X)
    scaled = collapsed_posterior.rescale(covariance, 3.0)
    np.testing.assert_allclose(scaled.matrix(X), 3 * covariance.matrix(X), rtol=1e-12)


def of_line(rng, M):
    """Hyperparameters close to the limit of a line, and rows of one."""
    X = np.sort(rng.uniform(-1.7, 1.7, (60, 1)), axis=0)
    rows = SearchRows(X, X[:, 0] + 0.01 * rng.standard_normal(60))
    hyper = Hyper(fs.Matern32(6e4, np.array([800.0])), 2e-4, X if M is None else X[:: 60 // M])
    return hyper, rows


@pytest.mark.parametrize("M", [None, 20])
def test_jitter_of_a_look_is_not_taken_for_noise(rng, M):
    hyper, rows = of_line(rng, M)
    collapsed = collapsed_posterior.posterior_of(hyper, rows, 20)

    def bound(s, n):
        sgpr = fs.SGPR(collapsed_posterior.rescale(hyper.covariance, s), collapsed.Z, n)
        return fs.collapsed_bound(sgpr, rows.X, rows.y)

    assert bound(collapsed.s, collapsed.noise) >= bound(1.0, hyper.noise) - 1e-3
    if M is None:  # an exact process is at its optimum
        assert (collapsed.s, collapsed.noise) == (1.0, hyper.noise)


@pytest.mark.parametrize(
    "variance, noise, jitter",
    [(0.1, 0.5, 1e-7), (1e3, 1e-6, 1e-6), (1e3, 0.01, 1e-4), (1e3, 0.5, 1e-3)],
)
def test_jitter_of_a_look_is_small_beside_variance_and_noise(
    rng, monkeypatch, variance, noise, jitter
):
    used = []
    monkeypatch.setattr(collapsed_posterior, "sums", lambda *given: used.append(given[5]))
    X = rng.standard_normal((9, 1))
    collapsed_posterior.sums_of(
        Hyper(fs.RBF(variance, np.ones(1)), noise, None), SearchRows(X, X[:, 0]), 4
    )
    np.testing.assert_allclose(used, [jitter])
