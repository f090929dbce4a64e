"""The streaming bound by its definition, by differences, and by the collapsed bound."""

import numpy as np
import pytest
from conditioning.test_condition import KINDS, N, assert_same, problem, single, untrained
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp.testing import assert_gradient

FEW_DIGITS = {fs.posteriors.DualSites: 1e-7}


def moved(rng, sgpr, P=None):
    """Other parameters, and inducing inputs that are no old ones."""
    Z = sgpr.inducing + 0.1 * rng.standard_normal(sgpr.inducing.shape)
    covariance = fs.RBF(1.4, np.array([0.7, 1.3])) + fs.Matern32(0.2, np.array([0.4, 0.5]))
    mean = fs.means.LinearMean(np.array([0.2, -0.1]), 0.1)
    if P:
        mean = fs.means.LinearMean(rng.standard_normal((P, 2)), rng.standard_normal(P))
    return fs.SGPR(covariance, np.concatenate([Z, [[2.6, 0], [-2.6, 0.3]]]), 0.07, mean)


def before(rng, kind=fs.Whitened, P=None, rows=60):
    """A model of the first rows, and all rows."""
    sgpr, X, Y = problem(rng, P, fs.means.ConstantMean(0.3))
    old = fs.optimal_svgp(sgpr, X[:rows], Y[:rows], jitter=JITTER)
    return fs.posteriors.convert(old, kind, jitter=JITTER), sgpr, X, Y


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_bounds_of_batches_add_up_to_the_collapsed_bound(rng, kind, P):
    sgpr, X, Y = problem(rng, P, fs.means.ConstantMean(0.3))
    w = None if P else rng.uniform(0, 2, N)
    if w is not None:
        w[:5], Y[:5] = 0, np.nan
    whole = fs.collapsed_bound(sgpr, X, Y, weights=w)
    parts = np.array_split(rng.permutation(N), 4)
    for order in (parts, parts[::-1], [parts[i] for i in (2, 0, 3, 1)]):
        total, model = 0.0, untrained(sgpr, kind, batch=() if P is None else (P,))
        for rows in order:
            more = X[rows], Y[rows]
            options = {} if P else {"weights": w[rows]}
            value, _ = fs.bounds.streaming_bound_and_grad(model, sgpr, *more, wrt=(), **options)
            model, total = fs.bounds.streaming_svgp(model, sgpr, *more, **options), total + value
        assert type(model.posterior) is kind
        np.testing.assert_allclose(total, whole, rtol=FEW_DIGITS.get(kind, 1e-10))
        best = fs.optimal_svgp(sgpr, X, Y, weights=w)
        assert_same(model, best, X, FEW_DIGITS.get(kind, 1e-10))


def test_added_inducing_inputs_lose_nothing(rng):
    """The bounds of q(u) with more rows of Z add up too: a row that stays keeps its jitter."""
    sgpr, X, Y = problem(rng)
    more = fs.replace(sgpr, inducing=np.concatenate([X[70:75], sgpr.inducing]))
    start = untrained(sgpr)
    first, _ = fs.bounds.streaming_bound_and_grad(start, more, X[:50], Y[:50])
    model = fs.bounds.streaming_svgp(start, more, X[:50], Y[:50])
    second, _ = fs.bounds.streaming_bound_and_grad(model, more, X[50:], Y[50:])
    np.testing.assert_allclose(first + second, fs.collapsed_bound(more, X, Y), rtol=1e-9)


def test_the_gradient_at_the_old_model_is_that_of_the_new_rows_and_the_prior(rng):
    """The first batch: q(u) is the prior, which says nothing, so the bound is the collapsed one."""
    sgpr, X, Y = problem(rng)
    ours = fs.bounds.streaming_bound_and_grad(untrained(sgpr), sgpr, X, Y)
    truth = fs.collapsed_bound_and_grad(sgpr, X, Y)
    np.testing.assert_allclose(ours[0], truth[0], rtol=1e-12)
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(ours[1]), fs.records.leaves(truth[1]), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8, err_msg=path)


def old_term(old, new, jitter):
    """E log q(u) / p(u) of the old model under the new one, dense, on u itself."""
    Z, q = old.inducing, old.posterior
    mean, cov = fs.predict_f(new, Z, full_cov=True, jitter=jitter)
    mean, cov = mean - old.mean(Z), cov + jitter * np.eye(len(Z))
    K = old.covariance.Kuu(Z) + jitter * np.eye(len(Z))
    W = np.tril(q.scale_tril)

    def expected_log_density(m, S):
        P = np.linalg.inv(S)
        return -0.5 * (np.linalg.slogdet(S)[1] + (mean - m) @ P @ (mean - m) + np.sum(P * cov))

    return expected_log_density(q.mean, W @ W.T) - expected_log_density(0 * q.mean, K)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_by_its_definition(rng, weighted):
    old, sgpr, X, Y = before(rng, fs.Marginal)
    new, more = moved(rng, sgpr), (X[60:], Y[60:])
    options = {"weights": rng.uniform(0, 2, 30)} if weighted else {}
    value, _ = fs.bounds.streaming_bound_and_grad(old, new, *more, jitter=JITTER, **options)
    model = fs.bounds.streaming_svgp(old, new, *more, jitter=JITTER, **options)

    def by_definition(model):
        data = fs.elbo(model, *more, jitter=JITTER, **options)
        return data + old_term(old, model, JITTER)

    np.testing.assert_allclose(value, by_definition(model), rtol=1e-9)
    q = model.posterior
    for _ in range(3):  # q(u) is the optimum
        other = fs.replace(q, mean=q.mean + 1e-2 * rng.standard_normal(q.mean.shape))
        assert by_definition(fs.replace(model, posterior=other)) < value
        other = fs.replace(q, scale_tril=q.scale_tril * rng.uniform(0.9, 1.1))
        assert by_definition(fs.replace(model, posterior=other)) < value


@pytest.mark.parametrize("P", [None, 3])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_gradient(rng, kind, P):
    old, sgpr, X, Y = before(rng, kind, P)
    new = moved(rng, sgpr, P)
    options = dict(jitter=JITTER, weights=None if P else rng.uniform(0, 2, 30))

    def bound(new):
        return fs.bounds.streaming_bound_and_grad(old, new, X[60:], Y[60:], **options, wrt=())[0]

    _, grad = fs.bounds.streaming_bound_and_grad(old, new, X[60:], Y[60:], **options)
    assert_gradient(bound, new, grad, rng=rng)
    _, some = fs.bounds.streaming_bound_and_grad(
        old, new, X[60:], Y[60:], **options, wrt=("covariance.parts.0", "noise_variance")
    )
    assert some.inducing is some.mean is some.covariance.parts[1].variance is None
    np.testing.assert_allclose(some.noise_variance, grad.noise_variance)


def test_gradient_where_inducing_inputs_stay(rng):
    """The old inducing inputs, and more: the rows that stay are the same variables."""
    old, sgpr, X, Y = before(rng)
    new = moved(rng, sgpr)
    new = fs.replace(new, inducing=np.concatenate([sgpr.inducing[2:], new.inducing[-2:]]))
    given = X[60:], Y[60:]
    wrt = "covariance", "noise_variance", "mean"

    def bound(new):
        return fs.bounds.streaming_bound_and_grad(old, new, *given, jitter=JITTER, wrt=())[0]

    _, grad = fs.bounds.streaming_bound_and_grad(old, new, *given, jitter=JITTER, wrt=wrt)
    assert_gradient(bound, new, grad, wrt=wrt, rng=rng)
    assert grad.inducing is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_at_the_old_parameters_it_is_condition(rng, kind):
    old, sgpr, X, Y = before(rng, kind)
    Z = np.concatenate([sgpr.inducing, [[2.6, 0], [-2.6, 0.3]]])
    new = fs.replace(sgpr, inducing=Z)
    ours = fs.bounds.streaming_svgp(old, new, X[60:], Y[60:], jitter=JITTER)
    truth = fs.condition(old, X[60:], Y[60:], inducing=Z, jitter=JITTER)
    for one, other in zip(
        vars(ours.posterior).values(), vars(truth.posterior).values(), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def test_one_row_and_one_inducing_input(rng):
    sgpr = fs.SGPR(fs.RBF(1.0, 0.7), np.zeros((1, 1)), 0.1)
    X, Y = rng.standard_normal((2, 1)), rng.standard_normal(2)
    old = fs.optimal_svgp(sgpr, X[:1], Y[:1])
    new = fs.SGPR(fs.RBF(1.3, 0.8), np.array([[0.3]]), 0.2)
    _, grad = fs.bounds.streaming_bound_and_grad(old, new, X[1:], Y[1:])
    assert_gradient(
        lambda new: fs.bounds.streaming_bound_and_grad(old, new, X[1:], Y[1:])[0],
        new,
        grad,
        rng=rng,
    )


def test_float32(rng):
    old, sgpr, X, Y = before(rng)
    new, options = moved(rng, sgpr), {"jitter": JITTER}
    X32, Y32 = X[60:].astype(np.float32), Y[60:].astype(np.float32)
    value, grad = fs.bounds.streaming_bound_and_grad(single(old), single(new), X32, Y32, **options)
    truth, exact = fs.bounds.streaming_bound_and_grad(old, new, X[60:], Y[60:], **options)
    np.testing.assert_allclose(value, truth, rtol=1e-4)
    largest = max(float(np.abs(leaf).max()) for _, _, leaf in fs.records.leaves(exact))
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(grad), fs.records.leaves(exact), strict=True
    ):
        assert np.asarray(one).dtype == np.float32
        atol = 2e-3 * np.abs(other).max() + 1e-6 * largest
        np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=path)
    model = fs.bounds.streaming_svgp(single(old), single(new), X32, Y32, **options)
    assert_same(model, fs.bounds.streaming_svgp(old, new, X[60:], Y[60:], **options), X32, 5e-3)


def test_bad_input(rng):
    sgpr, X, Y = problem(rng)
    old = fs.optimal_svgp(sgpr, X, Y)
    network = fs.covariances.Network.random((2, 4, 2), rng=rng)
    mapped = fs.covariances.OnFeatures(sgpr.covariance, network)
    cases = [
        ((sgpr, sgpr, X, Y), TypeError, "`old` must be a fastsvgp.SVGP, got SGPR"),
        ((old, old, X, Y), TypeError, "`new` must be an SGPR.* got SVGP; .*fs.condition"),
        ((fs.predictor(old), sgpr, X, Y), TypeError, "a predictor only predicts"),
        ((fs.replace(old, covariance=mapped), sgpr, X, Y), TypeError, "OnFeatures"),
        ((old, fs.replace(sgpr, covariance=mapped), X, Y), TypeError, "OnFeatures"),
        ((single(old), sgpr, X, Y), TypeError, "`old` is in float32, the rest in float64"),
        ((old, sgpr, X, Y[:-1]), ValueError, "`Y` must be"),
        ((old, sgpr, X, Y * np.nan), ValueError, "`Y` contains nan"),
        ((old, sgpr, X[:, :1], Y), ValueError, "`X` has 1 columns"),
        ((old, sgpr, X, np.stack([Y, Y], 1)), ValueError, "2 output.* where `old` has one"),
    ]
    for name in ("streaming_bound_and_grad", "streaming_svgp"):
        for arguments, kind, message in cases:
            with pytest.raises(kind, match=message):
                getattr(fs.bounds, name)(*arguments)
    with pytest.raises(ValueError, match="`wrt` names 'noise'"):
        fs.bounds.streaming_bound_and_grad(old, sgpr, X, Y, wrt="noise")
