"""``fit(..., collapsed=True)``: L-BFGS-B on the bound of any likelihood at its optimal q(u)."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes import routine


def wave(rng, N=40):
    X = rng.uniform(-2, 2, (N, 1))
    return X, np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(N)


def start(X, y, likelihood, **settings):
    found = fs.recipes.regression(X, y, 12, likelihood=likelihood, rng=0, **settings)
    return found, found.scale.X(X), found.scale.y(y)


def test_with_gaussian_noise_it_is_the_collapsed_bound(rng):
    X, y = wave(rng)
    sgpr = fs.SGPR(fs.RBF(1.0, 1.0), X[:8].copy(), 0.1)
    model = fs.SVGP(
        sgpr.covariance, sgpr.inducing, fs.Whitened(np.zeros(8), np.eye(8)), fs.Gaussian(0.1)
    )
    trained, info = fs.fit(model, X, y, steps=3, collapsed=True)
    noise, where = trained.likelihood.variance, trained.inducing
    at = fs.SGPR(trained.covariance, where, noise)
    np.testing.assert_allclose(info.values[-1], fs.collapsed_bound(at, X, y), rtol=1e-9)
    assert fs.collapsed_bound(at, X, y) > fs.collapsed_bound(sgpr, X, y)


def test_with_known_noise_it_is_the_evidence_of_an_exact_gp(rng):
    X, y = wave(rng)
    known = rng.uniform(0.01, 0.1, len(X))
    q = fs.Whitened(np.zeros(len(X)), np.eye(len(X)))
    model = fs.SVGP(fs.Matern32(1.0, 1.0), X.copy(), q, fs.likelihoods.KnownNoise(1e-9))
    fixed = ("inducing", "likelihood")
    trained, info = fs.fit(
        model, X, np.stack([y, known], 1), collapsed=True, fixed=fixed, jitter=1e-10
    )
    r = np.sqrt(3) * np.abs(X - X.T) / trained.covariance.lengthscales
    K = trained.covariance.variance * (1 + r) * np.exp(-r) + np.diag(known + 1e-9)
    evidence = -0.5 * (
        y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + len(X) * np.log(2 * np.pi)
    )
    np.testing.assert_allclose(info.values[-1], evidence, atol=1e-4)
    assert info.reason == "converged"


@pytest.mark.parametrize(
    "likelihood, settings",
    [
        ("student-t", {}),
        ("heteroskedastic", {}),
        ("laplace", {"posterior": "absorbed_dual_sites"}),
        ("gaussian", {"posterior": "whitened_orthogonal", "latents": None}),
    ],
)
def test_it_ends_above_many_minibatches(rng, likelihood, settings):
    X, y = wave(rng)
    s, Xs, ys = start(X, y, likelihood, solver="natural", max_iter=150, **settings)
    slow, _ = fs.fit(s.model, Xs, ys, **s.fit)
    fast, info = fs.fit(s.model, Xs, ys, steps=100, collapsed=True, rng=0)
    assert np.all(np.diff(info.values) > -1e-6 * np.abs(info.values[1:]))
    assert fs.elbo(fast, Xs, ys) > fs.elbo(slow, Xs, ys) - 0.1
    np.testing.assert_allclose(fs.elbo(fast, Xs, ys), info.values[-1], rtol=1e-6)


def test_weights_count_rows_as_repeated_rows_do(rng):
    X, y = wave(rng, 20)
    counts = rng.integers(0, 4, len(X))
    s, Xs, ys = start(X, y, "laplace")
    options = {"steps": 4, "collapsed": True, "rng": 0}
    weighted, one = fs.fit(s.model, Xs, ys, weights=counts.astype(float), **options)
    _, two = fs.fit(s.model, np.repeat(Xs, counts, axis=0), np.repeat(ys, counts), **options)
    np.testing.assert_allclose(one.values, two.values, rtol=1e-5)


def test_a_posterior_alone_is_trained_by_one_e_step(rng):
    X, y = wave(rng)
    s, Xs, ys = start(X, y, "student-t")
    fixed = ("covariance", "inducing", "likelihood")
    trained, info = fs.fit(s.model, Xs, ys, fixed=fixed, collapsed=True)
    best, _ = fs.sites.natural_steps(s.model, Xs, ys, steps=50, step_size=1.0, monotone=True)
    assert info.steps == 1
    np.testing.assert_allclose(info.values[0], fs.elbo(best, Xs, ys), atol=1e-4)


def test_a_checkpoint_continues(rng, tmp_path):
    X, y = wave(rng)
    s, Xs, ys = start(X, y, "student-t")
    path = tmp_path / "state"
    options = {"collapsed": True, "rng": 0, "checkpoint": path}
    fs.fit(s.model, Xs, ys, steps=2, **options)
    _, info = fs.fit(s.model, Xs, ys, steps=5, resume=path, **options)
    assert info.steps == 5
    assert info.values[-1] > info.values[1]


def test_options_of_minibatches_are_refused(rng):
    X, y = wave(rng)
    s, Xs, ys = start(X, y, "student-t")
    for name, value in (
        ("batch_size", 10),
        ("epochs", 3.0),
        ("optimiser", fs.adam(0.1)),
        ("natural_step_size", 0.1),
        ("patience", 3),
    ):
        with pytest.raises(ValueError, match=f"collapsed.*L-BFGS-B; `{name}` would have no effect"):
            fs.fit(s.model, Xs, ys, collapsed=True, **{name: value})
    with pytest.raises(ValueError, match="'posterior' is fixed, and `collapsed` moves it"):
        fs.fit(s.model, Xs, ys, collapsed=True, fixed="posterior")
    relaxed, *_ = start(X, y, "student-t", posterior="relaxed")
    with pytest.raises(TypeError, match="natural steps of all of q.u., which a Relaxed has not"):
        fs.fit(relaxed.model, Xs, ys, collapsed=True)


def test_a_line_search_that_fails_begins_again(rng, monkeypatch):
    X, y = wave(rng)
    s, Xs, ys = start(X, y, "student-t")
    statuses, counts = [2, 2, 0], []

    def minimise(self, count, record, real=fs.train.kinds.sgpr.CollapsedSteps._minimise):
        real(self, min(count, 2), record)
        counts.append(count)
        return statuses[len(counts) - 1]

    monkeypatch.setattr(fs.train.kinds.profiled.ProfiledSteps, "_minimise", minimise)
    _, info = fs.fit(s.model, Xs, ys, steps=20, collapsed=True, rng=0)
    assert counts == [20, 18, 16]
    assert info.steps == 6


def test_the_routine_stops_by_the_level_of_the_bound(rng):
    X, y = wave(rng)
    s, Xs, ys = start(X, y, "student-t")
    _, info, _ = routine.train(s.model, Xs, ys, s.fit, lambda *_: None, patience=2, tolerance=0.1)
    assert info.reason == "callback"
    assert info.values[-1] - info.values[-3] < 0.1 * len(X)
