"""Sampled bounds for tests: all samples of three units, and comparisons with the exact bound."""

import itertools

import numpy as np
import pytest
from support.numerics import nine_point
from support.weight_problems import basis_of, weights

import fastsvgp as fs

UNITS = 3
JITTER = 1e-6  # the default of float64
FIRST, SECOND = np.array([0, 1]), np.array([2, 0])
LIKELIHOODS = [
    fs.Gaussian(variance=0.2),
    fs.likelihoods.BernoulliLogit(),
    fs.likelihoods.Laplace(scale=0.4),
    fs.Poisson(),
]


def each_of(likelihoods):
    """Return the mark of a test that runs for each likelihood, by its name."""
    names = [type(likelihood).__name__ for likelihood in likelihoods]
    return pytest.mark.parametrize("likelihood", likelihoods, ids=names)


def problem(rng, name, k, likelihood, N=7):
    m = UNITS * (2 if name == "fourier" else 1)
    model = fs.QSGP(basis_of(rng, name, m), weights(rng, m, k), likelihood)
    X, f = rng.standard_normal((N, 2)), 2 * rng.standard_normal(N)
    return (
        model,
        X,
        (f > 0) * 1.0 if isinstance(likelihood, (fs.likelihoods.BernoulliLogit, fs.Poisson)) else f,
    )


def every_sample(scheme, size=2):
    """Return ``(units, weights)`` of all draws, which are equally likely."""
    if scheme == "with":
        return [(np.array(i), None) for i in itertools.product(range(UNITS), repeat=size)]
    if scheme == "without":
        return [(np.array(i), None) for i in itertools.combinations(range(UNITS), size)]
    return [(np.array([0, i]), np.array([1.0, 2.0])) for i in (1, 2)]


def pairs(scheme):
    both = itertools.product(every_sample(scheme), repeat=2)
    return [
        fs.qsgp.BasisSample(i, j, None, weight_i, weight_j) for (i, weight_i), (j, weight_j) in both
    ]


def as_dense(grad, model):
    """Return the same gradient with all rows."""
    shapes = {path: np.shape(value) for path, _, value in fs.records.leaves(model)}
    q = grad.posterior
    if q is not None:
        parts = {n: getattr(q, n) for n in ("mean", "columns", "diagonal")}
        q = fs.qsgp.ChevronWeights(
            **{n: a and a.dense(shapes[f"posterior.{n}"][0]) for n, a in parts.items()}
        )
    basis = grad.basis
    if basis is not None:
        rows = {n: getattr(basis, n) for n in basis.per_function if getattr(basis, n) is not None}
        basis = fs.replace(
            basis, **{n: a.dense(len(model.posterior.mean)) for n, a in rows.items()}
        )
    return fs.QSGP(basis, q, grad.likelihood)


def fields(model):
    return (
        ("posterior", "likelihood")
        if isinstance(model.basis, fs.qsgp.InducingBasis) and model.basis.dense_precision
        else None
    )


def log_det(model, jitter=JITTER):
    """Return half of log|S|, which a dense S leaves out."""
    if not model.basis.dense_precision:
        return 0.0
    return (
        0.5
        * np.linalg.slogdet(model.basis.precision_times(np.eye(len(model.posterior.mean)), jitter))[
            1
        ]
    )


def assert_unbiased(found, model, X, Y, wrt, jitter=JITTER):
    """Compare the mean over all samples with the exact bound, in value and gradients."""
    value, grad = fs.qsgp.bound_and_grad(model, X, Y, num_data=20, jitter=jitter, wrt=wrt)
    np.testing.assert_allclose(
        np.mean([v for v, _, _ in found]), value - log_det(model, jitter), rtol=1e-9
    )
    dense_ones = [
        [a for _, _, a in fs.records.leaves(as_dense(g, model)) if a is not None]
        for _, g, _ in found
    ]
    expected = [(path, a) for path, _, a in fs.records.leaves(grad) if a is not None]
    for (path, truth), *ours in zip(expected, *dense_ones, strict=True):
        np.testing.assert_allclose(np.mean(ours, axis=0), truth, rtol=1e-8, atol=1e-8, err_msg=path)


def assert_gradient_at(sample, model, X, Y, grad, rng, **options):
    """Compare with differences along a random direction, field by field."""
    vector, unravel = fs.ravel(model, unconstrained=False, fixed="basis" if fields(model) else ())
    bar = unravel.pullback(vector, as_dense(grad, model))

    def value(s):
        return fs.qsgp.sampled_bound_and_grad(
            unravel(vector + s * d), X, Y, sample, num_data=20, wrt=(), **options
        )[0]

    for path, at in unravel.slices.items():
        d = np.zeros_like(vector)
        d[at] = rng.standard_normal(at.stop - at.start)
        allowed = 1e-7 * max(1.0, abs(value(0.0)), np.linalg.norm(bar[at]) * np.linalg.norm(d))
        assert abs(nine_point(value, 1e-4) - bar @ d) <= allowed, path
