"""The streaming bound of a trained q(u): by theory, and by differences."""

import numpy as np
import pytest
from conditioning.test_condition import KINDS, single
from conditioning.test_streaming import JITTER, before, moved, old_term
from support.multi_gp_problems import multi_of

import fastsvgp as fs
from fastsvgp import likelihoods as ls
from fastsvgp.testing import assert_gradient


def bound(*args, **options):
    return fs.bounds.streaming_bound_and_grad(*args, jitter=JITTER, **options)


def targets(rng, likelihood, N, axes):
    """Draw valid targets."""
    if isinstance(likelihood, fs.Poisson | fs.BernoulliProbit):
        return rng.integers(0, 2, (*axes, N)).T.astype(float)
    return rng.standard_normal((*axes, N)).T


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_at_the_optimum_it_is_the_collapsed_one(rng, kind, P):
    """Value and gradient of the parameters, by the envelope theorem; that of q(u) is zero."""
    old, sgpr, X, Y = before(rng, kind, P)
    new, more = moved(rng, sgpr, P), (X[60:], Y[60:])
    w = {} if P else {"weights": rng.uniform(0, 2, 30)}
    want, want_grad = bound(old, new, *more, **w)
    best = fs.bounds.streaming_svgp(old, new, *more, jitter=JITTER, **w)
    value, grad = bound(old, best, *more, **w)
    np.testing.assert_allclose(value, want, rtol=1e-8)
    size = max(float(np.abs(leaf).max()) for _, _, leaf in fs.records.leaves(want_grad))
    pairs = [
        (grad.likelihood.variance, want_grad.noise_variance),
        (grad.inducing, want_grad.inducing),
    ]
    for name in ("covariance", "mean"):
        found, known = (fs.records.leaves(getattr(one, name)) for one in (grad, want_grad))
        pairs += [(one[2], other[2]) for one, other in zip(found, known, strict=True)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * size)
    if kind is fs.Whitened:
        np.testing.assert_allclose(grad.posterior.mean, 0, atol=1e-6 * size)
        np.testing.assert_allclose(np.tril(grad.posterior.scale_tril), 0, atol=1e-6 * size)


LIKELIHOODS = {
    "poisson": (fs.Poisson(), ()),
    "probit": (fs.BernoulliProbit(), (2,)),
    "student": (fs.StudentT(scale=0.3, df=4.0), ()),
    "heteroskedastic": (ls.HeteroskedasticGaussian(), (2,)),
}


def problem(rng, name, kind):
    """An old model, a new one with its own q(u), and rows; q is narrow in some directions."""
    likelihood, axes = LIKELIHOODS[name]
    old, sgpr, X, _ = before(rng, kind, axes[0] if axes else None, rows=30)
    start = moved(rng, sgpr, axes[0] if axes else None)
    M = len(start.inducing)
    tril = np.tril(0.1 * rng.standard_normal((*axes, M, M)), -1) + 0.6 * np.eye(M)
    q = fs.Whitened(0.5 * rng.standard_normal((*axes, M)), tril)
    new = fs.SVGP(start.covariance, start.inducing, q, likelihood, start.mean)
    old = fs.replace(old, likelihood=likelihood)
    outputs = () if name == "heteroskedastic" else axes
    return (
        old,
        fs.posteriors.convert(new, kind, jitter=JITTER),
        X[60:],
        targets(rng, likelihood, 30, outputs),
    )


@pytest.mark.parametrize("kind", [fs.Whitened, fs.posteriors.Marginal])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradient(rng, name, kind):
    old, new, X, Y = problem(rng, name, kind)
    value, grad = bound(old, new, X, Y)
    assert_gradient(lambda new: bound(old, new, X, Y, wrt=())[0], new, grad, rng=rng)
    same, none = bound(old, new, X, Y, wrt=())
    np.testing.assert_allclose(same, value, rtol=1e-12)
    assert none.covariance is none.posterior is none.likelihood is None
    _, some = bound(old, new, X, Y, wrt=("covariance.parts.0", "posterior"))
    assert some.inducing is some.mean is some.covariance.parts[1].variance is None
    np.testing.assert_array_equal(some.posterior.mean, grad.posterior.mean)


def test_the_value_by_its_definition(rng):
    old, new, X, Y = problem(rng, "poisson", fs.posteriors.Marginal)
    value, _ = bound(old, new, X, Y)
    want = fs.elbo(new, X, Y, jitter=JITTER) + old_term(old, new, JITTER)
    np.testing.assert_allclose(value, want, rtol=1e-9)


def test_where_inducing_inputs_stay_it_is_the_bound_of_all_rows(rng):
    """An old q(u) that is optimal for Gaussian noise is exactly what its rows told."""
    old, sgpr, X, Y = before(rng)
    q = fs.posteriors.convert(old, fs.posteriors.Marginal, jitter=JITTER).posterior
    new = fs.replace(old, posterior=fs.replace(q, mean=q.mean + 0.1, scale_tril=1.1 * q.scale_tril))
    value, _ = bound(old, new, X[60:], Y[60:])
    whole = fs.elbo(new, X, Y, jitter=JITTER)
    first = fs.collapsed_bound(sgpr, X[:60], Y[:60], jitter=JITTER)
    np.testing.assert_allclose(value, whole - first, rtol=1e-8)


@pytest.mark.parametrize("name", ["separate", "mixed", "one layer"])
def test_several_functions(rng, name):
    """Separate functions of several layers, mixed ones, and one layer: gradients, and the rest."""
    old, X, Y = multi_of(rng, name)
    new, _, _ = multi_of(rng, name)
    value, grad = bound(old, new, X, Y)
    data = fs.elbo(new, X, Y, jitter=JITTER)
    assert abs(value - data) > 1e-3
    wrt = tuple(
        f"latents.{i}.{part}"
        for i in range(len(new.latents))
        for part in ("posterior", "covariance")
    )
    assert_gradient(lambda new: bound(old, new, X, Y, wrt=())[0], new, grad, wrt=wrt, rng=rng)
    _, some = bound(old, new, X, Y, wrt="latents.0.covariance")
    assert some.likelihood is None and some.latents[0].posterior.mean is None


def test_float32(rng):
    old, new, X, Y = problem(rng, "poisson", fs.Whitened)
    value, grad = bound(old, new, X, Y)
    ours, of_single = bound(single(old), single(new), X.astype("f4"), Y.astype("f4"))
    np.testing.assert_allclose(ours, value, rtol=1e-3)
    assert of_single.posterior.mean.dtype == np.float32
    size = np.abs(grad.posterior.mean).max()
    np.testing.assert_allclose(of_single.posterior.mean, grad.posterior.mean, atol=1e-2 * size)


def test_bad_input(rng):
    old, new, X, Y = problem(rng, "poisson", fs.Whitened)
    M = len(new.inducing)
    two = fs.replace(
        new, mean=None, posterior=fs.Whitened(np.zeros((2, M)), np.eye(M) * np.ones((2, 1, 1)))
    )
    several, rows, values = multi_of(rng, "separate")
    network = fs.covariances.Network.random((2, 4, 2), rng=rng)
    mapped = fs.covariances.OnFeatures(fs.RBF(), network)
    form = fs.posteriors.LikelihoodForm(np.zeros(M), np.ones(M))
    cases = [
        (
            (old, several, X, Y),
            TypeError,
            "`new` must be an SGPR or SVGP, as `old` is, got MultiGP",
        ),
        ((several, new, rows, values), TypeError, "`new` must be a MultiGP, as `old` is, got SVGP"),
        ((old, two, X, Y), ValueError, "`new` has posteriors of other leading axes than `old`"),
        ((single(old), new, X, Y), TypeError, "`old` is in float32, the rest in float64"),
        ((old, fs.predictor(new), X, Y), TypeError, "a predictor only predicts"),
        (
            (old, fs.replace(new, posterior=form), X, Y),
            TypeError,
            "LikelihoodForm posterior cannot",
        ),
        ((old, fs.replace(new, covariance=mapped), X, Y), TypeError, "OnFeatures"),
    ]
    for arguments, kind, message in cases:
        with pytest.raises(kind, match=message):
            bound(*arguments)
