"""Data weights that are refused, and functions that take none."""

import itertools

import numpy as np
import pytest
from support.data_weights import B, problem
from support.public import BY_NAME

import fastsvgp as fs

CALLS = {
    "elbo": lambda model, X, Y, w: fs.elbo(model, X, Y, weights=w),
    "elbo_and_grad": lambda model, X, Y, w: fs.elbo_and_grad(model, X, Y, weights=w),
    "natural_step": lambda model, X, Y, w: fs.natural_step(model, X, Y, weights=w),
    "collapsed": lambda model, X, Y, w: fs.collapsed_bound(
        fs.SGPR(model.covariance, model.inducing, 0.3), X, Y, weights=w
    ),
    "fit": lambda model, X, Y, w: fs.fit(model, X, Y, weights=w, steps=1),
}


def changed(index, value, shape=(B,)):
    w = np.ones(shape)
    w[index] = value
    return w


BAD = [
    (
        changed(3, -0.5),
        ValueError,
        "`weights` must be zero or more, and finite; got -0.5 at index 3; give the weight 0",
    ),
    (
        changed(3, np.nan),
        ValueError,
        "`weights` must be zero or more, and finite; got nan at index 3; give the weight",
    ),
    (
        changed(3, np.inf),
        ValueError,
        "`weights` must be zero or more, and finite; got inf at index 3; give the weight",
    ),
    (
        np.zeros(B),
        ValueError,
        "`weights` are all zero, so that no target counts; give at least one that is positive",
    ),
    (
        np.ones(B - 1),
        ValueError,
        (
            r"`weights` must have shape \(23,\), one for each row of `Y`, or \(23, 2\), .*; got"
            r" \(22,\)"
        ),
    ),
    (np.ones((2, B)), ValueError, r"`weights` must have shape .*; got \(2, 23\)"),
    (1.0, ValueError, r"`weights` must have (shape .*; got \(\)|rows, got a single value)"),
    (["one"] * B, TypeError, "`weights` must hold real numbers"),
    (np.ma.masked_array(np.ones(B), np.arange(B) == 0), TypeError, "`weights` is a masked array"),
]


@pytest.mark.parametrize(
    "call, bad",
    list(itertools.product(CALLS, BAD)),
    ids=lambda x: x if isinstance(x, str) else x[2][:30],
)
def test_bad_weights(rng, call, bad):
    model, X, Y = problem(rng)
    w, error, message = bad
    with pytest.raises(error, match=message):
        CALLS[call](model, X, Y, w)


def test_bad_targets_are_named_by_their_index(rng):
    """The index is right although other targets replace those of weight 0."""
    model, X, Y = problem(rng)
    for zeros, at in (((0, 0), (7, 1)), (slice(0, 5), (5, 0)), ((0, 0), (0, 1))):
        W, bad = changed(zeros, 0, Y.shape), Y.copy()
        bad[zeros], bad[at] = np.nan, np.nan
        with pytest.raises(ValueError, match=rf"`Y` contains nan at index \({at[0]}, {at[1]}\)"):
            fs.elbo(model, X, bad, weights=W)
    with pytest.raises(ValueError, match="`weights` are all zero"):
        fs.elbo(model, X, np.full_like(Y, np.nan), weights=np.zeros(B))
    model, X, Y = problem(rng, "probit")
    Y[4] = 3
    with pytest.raises(ValueError, match="`Y` must hold labels 0 or 1; got 3 at index 4"):
        fs.elbo(model, X, Y, weights=changed(slice(0, 4), 0))
    model, X, Y = problem(rng, "softmax")
    with pytest.raises(
        ValueError,
        match=r"`weights` must have shape \(23,\), one for each row of `Y`; got \(23, 3\)",
    ):
        fs.elbo(model, X, Y, weights=np.ones((B, 3)))


def test_functions_without_weights_refuse_them(rng):
    model, X, Y = problem(rng)
    w = np.ones(B)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.3)
    with pytest.raises(
        ValueError,
        match=r"`weights` has shape \(23, 2\), .* give \(23,\), one SGPR per output",
    ):
        fs.collapsed_bound_and_grad(sgpr, X, Y, weights=np.ones_like(Y))
    column = fs.collapsed_bound(sgpr, X, Y[:, :1], weights=w[:, None])
    assert column == fs.collapsed_bound(sgpr, X, Y[:, 0], weights=w)
    q = fs.qsgp.ChevronWeights(np.zeros(8), np.zeros((8, 0)), np.ones(8))
    qsgp = fs.QSGP(fs.qsgp.RandomFourier(model.covariance, num_features=8), q, fs.Gaussian(0.3))
    with pytest.raises(TypeError, match="bound has no option `weights` for QSGP"):
        fs.qsgp.bound(qsgp, X, Y[:, 0], weights=w)
    with pytest.raises(
        ValueError, match="a QSGP is trained on samples of its basis; `weights` would have"
    ):
        fs.fit(qsgp, X, Y[:, 0], weights=w, steps=1)
    sites = fs.sites.VGP(
        model.covariance, fs.sites.Sites(np.zeros(B), np.ones(B)), fs.Gaussian(0.3)
    )
    with pytest.raises(TypeError, match="natural_step has no option `weights` for VGP"):
        fs.natural_step(sites, X, Y[:, 0], weights=w)
    for name in ("natural_steps", "em"):
        with pytest.raises(TypeError, match=f"{name} has no option `weights` for SVGP; it takes"):
            BY_NAME[name](model, X, Y, weights=w)
    with pytest.raises(TypeError, match="elbo: .*VGP"):
        fs.elbo(sites, X, Y[:, 0], weights=w)
