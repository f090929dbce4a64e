"""The inputs of a row are not read if all its targets have weight 0, and can be NaN."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs

N, D, M = 29, 2, 6


def problem(rng, outputs=()):
    """``(model, X, Y, weights)``; rows of weight 0 are NaN, some of them among the first."""
    posterior = fs.Whitened(
        0.3 * rng.standard_normal((*outputs, M)), lower_factor(rng, *outputs, M, off=0.1)
    )
    covariance = fs.RBF(1.3, np.array([0.9, 1.2])) + fs.Linear(np.array([0.2, 0.3]))
    model = fs.SVGP(
        covariance,
        rng.uniform(-2, 2, (M, D)),
        posterior,
        fs.Gaussian(0.3),
        fs.means.LinearMean(np.ones(D), 0.1),
    )
    X, w = rng.uniform(-2, 2, (N, D)), rng.permutation(np.arange(N) % 3)
    w[0] = 0
    Y = rng.standard_normal((N, *outputs))
    X[w == 0], Y[w == 0] = np.nan, np.nan
    return model, X, Y, w


def one_set(model):
    return fs.SGPR(model.covariance, model.inducing, 0.3, model.mean)


def two_sets(model):
    return fs.bounds.OrthogonalSGPR(
        model.covariance,
        fs.posteriors.InducingPair(model.inducing[:4], model.inducing[4:]),
        0.3,
        mean=model.mean,
    )


def deep(model):
    return fs.DeepGP(
        (fs.layers.Layer(model.covariance, model.inducing, model.posterior),), model.likelihood
    )


CALLS = {
    "elbo": lambda model, *data, **w: fs.elbo(model, *data, **w),
    "elbo_and_grad": lambda model, *data, **w: fs.elbo_and_grad(model, *data, **w),
    "data_term_and_grad": lambda model, *data, **w: fs.bounds.data_term_and_grad(model, *data, **w),
    "natural_step": (
        lambda model, *data, **w: fs.natural_step(model, *data, step_size=0.4, **w)[0].posterior
    ),
    "natural_step_and_grad": lambda model, *data, **w: fs.optim.natural_step_and_grad(
        model, *data, step_size=0.4, **w
    )[2:],
    "collapsed": lambda model, *data, **w: fs.collapsed_bound_and_grad(one_set(model), *data, **w),
    "collapsed, two sets": lambda model, *data, **w: fs.collapsed_bound_and_grad(
        two_sets(model), *data, **w
    ),
    "optimal": lambda model, *data, **w: fs.optimal_svgp(one_set(model), *data, **w),
    "tighter": lambda model, *data, **w: fs.bounds.tighter_bound_and_grad(
        one_set(model), *data, **w
    ),
    "deep": lambda model, *data, **w: fs.elbo_and_grad(deep(model), *data, **w),
    "deep natural_step": lambda model, *data, **w: fs.natural_step(
        deep(model), *data, step_size=0.4, **w
    )[0],
    "fit": lambda model, *data, **w: fs.fit(model, *data, steps=4, batch_size=8, rng=0, **w)[0],
    "fit, all rows": lambda model, *data, **w: fs.fit(
        model, *data, steps=4, batch_size=N, natural_step_size=0.2, rng=0, **w
    )[0],
    "fit, collapsed": lambda model, *data, **w: fs.fit(one_set(model), *data, steps=4, **w)[0],
    "fit, collapsed, two sets": lambda model, *data, **w: fs.fit(
        two_sets(model), *data, steps=4, **w
    )[0],
    "fit, deep": lambda model, *data, **w: fs.fit(
        deep(model), *data, steps=4, batch_size=8, rng=0, **w
    )[0],
}


def numbers(found):
    """Return all results of a call as arrays."""
    if isinstance(found, tuple):
        return [number for part in found for number in numbers(part)]
    if not hasattr(found, "_record_fields"):
        return [found]
    return [value for _, _, value in fs.records.leaves(found) if value is not None]


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("call", CALLS)
def test_results_are_those_of_the_remaining_rows(rng, call, outputs):
    model, X, Y, w = problem(rng, outputs)
    left, rest = w > 0, X.copy()
    found = numbers(CALLS[call](model, X, Y, weights=w, jitter=1e-3))
    expected = numbers(CALLS[call](model, X[left], Y[left], weights=w[left], jitter=1e-3))
    for one, other in zip(found, expected, strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.max(np.abs(other)))
    np.testing.assert_array_equal(X, rest)


def test_the_gradient_in_unread_inputs_is_zero(rng):
    model, X, Y, w = problem(rng, (2,))
    *_, X_bar = fs.elbo_and_grad(model, X, Y, weights=w, inputs=True)
    *_, expected = fs.elbo_and_grad(model, X[w > 0], Y[w > 0], weights=w[w > 0], inputs=True)
    np.testing.assert_allclose(X_bar[w > 0], expected, rtol=1e-9, atol=1e-12)
    assert not X_bar[w == 0].any()


def test_a_row_counts_if_one_of_its_targets_does(rng):
    model, X, Y, w = problem(rng, (2,))
    W = np.stack([w, np.where(w == 0, 0, 1 - w % 2)], axis=1)
    assert np.isfinite(fs.elbo(model, X, Y, weights=W))
    W[0, 1] = 1
    Y[0] = 0.5
    with pytest.raises(ValueError, match=r"`X` contains nan at index \(0, 0\)"):
        fs.elbo(model, X, Y, weights=W)


@pytest.mark.parametrize("at", [1, 7, N - 1])
def test_bad_inputs_are_found_where_they_are(rng, at):
    """The index is right although other rows replace those left out."""
    model, X, Y, _ = problem(rng)
    w = np.where(np.arange(N) < at, 0, 1)
    X, Y = np.where(w[:, None] > 0, 0.5, np.nan) * np.ones((N, D)), np.zeros(N)
    X[at, 1] = np.inf
    for call in (
        "elbo",
        "natural_step",
        "collapsed",
        "tighter",
        "deep",
        "fit",
        "fit, all rows",
        "fit, collapsed",
    ):
        with pytest.raises(ValueError, match=rf"`X` contains inf at index \({at}, 1\)"):
            CALLS[call](model, X, Y, weights=w)
    with pytest.raises(ValueError, match="`weights` are all zero"):
        fs.elbo(model, X, Y, weights=np.zeros(N))
    with pytest.raises(ValueError, match="`Y` must have one row for each of the 28 rows of `X`"):
        fs.elbo(model, np.ones((N - 1, D)), Y, weights=w)
    with pytest.raises(ValueError, match=r"`X` must have shape \(N, D\)"):
        fs.elbo(model, np.ones(N), Y, weights=w)


@pytest.mark.parametrize("call", ["elbo", "natural_step", "collapsed", "tighter", "deep"])
def test_no_rows_at_all(rng, call):
    """The message is that without weights."""
    model, X, Y, w = problem(rng)
    with pytest.raises(ValueError, match=r"`X` is an empty batch, shape \(0, 2\)"):
        CALLS[call](model, X[:0], Y[:0], weights=w[:0])
    with pytest.raises(ValueError, match="`Y` must have rows, got a single value"):
        CALLS[call](model, X, np.array(1.0), weights=np.array(2.0))


def test_recipes_start_from_the_rest(rng):
    model, X, Y, w = problem(rng)
    left, some = w > 0, {"inducing": 5, "rng": 0}
    for recipe, y in (
        (fs.recipes.regression, Y),
        (fs.recipes.classification, np.where(np.arange(N) % 2, "odd", "even")),
    ):
        start, other = (
            recipe(X, y, weights=w, **some),
            recipe(X[left], y[left], weights=w[left], **some),
        )
        for one, expected in zip(numbers(start.model), numbers(other.model), strict=True):
            np.testing.assert_array_equal(one, expected)
        trained, _ = fs.fit(
            start.model,
            start.scale.X(X),
            start.scale.y(y),
            **start.fit | {"steps": 2, "epochs": None},
        )
        assert all(np.isfinite(value).all() for value in numbers(trained))
    for x, y, said in (  # shapes as they came, not those of what is left
        (X[:, 0], Y, rf"`X` must have shape \(N, D\), got \({N},\); for {N} points"),
        (X, Y[:, None, None], rf"`y` must be \({N},\) or \({N}, P\), .* got \({N}, 1, 1\)"),
        (X[:0], Y[:0], r"`X` is an empty batch, shape \(0, 2\)"),
    ):
        with pytest.raises(ValueError, match=said):
            fs.recipes.regression(x, y, weights=w[: len(y)], **some)
    w[1], at = 1, int(np.flatnonzero(w > 0)[2])
    X[1], Y[1], X[at, 1] = 0.0, 0.0, np.inf
    with pytest.raises(ValueError, match=rf"`X` contains inf at index \({at}, 1\)"):
        fs.recipes.regression(X, Y, weights=w, **some)
    X[at, 1], Y[at] = 0.0, np.nan
    with pytest.raises(ValueError, match=f"`y` contains nan at index {at};"):
        fs.recipes.regression(X, Y, weights=w, **some)
