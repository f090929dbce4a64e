"""Errors about arrays on a device have the messages of the CPU."""

import numpy as np
import pytest
from support.device_models import B, Copies, D, M, check_bound, errors, f8, moved, small_model

import fastsvgp as fs
from fastsvgp.errors import NotPositiveDefinite, VarianceClampWarning


def test_faults_have_the_same_words(gpu, rng):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    good = small_model(rng)

    def with_leaf(path, value):
        return fs.records.replace_at(good, path, value)

    spoilt, W = X.copy(), good.posterior.scale_tril.copy()
    spoilt[3, 1], W[4, 4] = np.nan, -1
    inside = good.posterior.scale_tril.copy()
    inside[5, 2] = np.inf
    twice = good.inducing.copy()
    twice[1] = twice[0]
    labels = fs.replace(good, likelihood=fs.BernoulliProbit())
    classes = small_model(rng, (3,), likelihood=fs.likelihoods.RobustMax(num_classes=3))
    # some of these pass Cholesky
    pairs = [np.where(np.arange(M)[:, None] == 4, Z[2], Z) for Z in rng.standard_normal((6, M, D))]
    cases = [
        (good, spoilt, Y),
        (with_leaf("covariance.lengthscales", None), X, Y),
        *((with_leaf("inducing", Z), X, Y, 0.0) for Z in pairs),
        (good, X, np.where(Y == Y.max(), np.inf, Y)),
        (with_leaf("covariance.lengthscales", np.array([1.0, -1, 1])), X, Y),
        (with_leaf("covariance.variance", f8(np.nan)), X, Y),
        (with_leaf("likelihood.variance", f8(0)), X, Y),
        (with_leaf("posterior.scale_tril", W), X, Y),
        (with_leaf("posterior.scale_tril", inside), X, Y),
        (labels, X, np.arange(B) % 3),
        (classes, X, np.arange(B) % 4),
        (with_leaf("inducing", twice), X, Y, 0.0),
    ]
    for model, *data in cases:
        settings = {"jitter": data.pop()} if len(data) == 3 else {}
        here, there = errors(
            lambda *a, s=settings: fs.elbo_and_grad(*a, **s),
            (model, *data),
            moved(gpu, model, *data),
        )
        assert here == there
    assert NotPositiveDefinite is here[0]
    # no state is left behind
    check_bound(gpu, fs.elbo_and_grad, (good, X, Y), moved(gpu, good, X, Y))


def test_faults_of_the_other_entries(gpu, rng):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    good = small_model(rng)
    bad = fs.records.replace_at(good, "covariance.lengthscales", -np.ones(D))
    sgpr = fs.SGPR(bad.covariance, good.inducing, f8(0.3))
    silent = fs.SGPR(good.covariance, good.inducing, f8(1e-310))
    twice = fs.SGPR(
        good.covariance,
        np.where(np.arange(M)[:, None] == 4, good.inducing[2], good.inducing),
        f8(0.3),
    )
    q = good.posterior
    # too far from the root; this is checked first
    stopped = fs.replace(
        good, posterior=fs.posteriors.InverseFreeWhitened(q.mean, q.scale_tril, np.eye(M))
    )
    stopped = fs.records.replace_at(stopped, "covariance.variance", f8(np.nan))
    for function, model, *data in [
        (fs.elbo, stopped, X, Y), (fs.natural_step, bad, X, Y),
        (fs.predict_y, bad, X), (fs.bounds.kl_term_and_grad, bad),
        (fs.collapsed_bound, sgpr, X, Y), (fs.collapsed_bound_and_grad, silent, X, Y),
        (lambda *a: fs.collapsed_bound(*a, jitter=0.0), twice, X, Y),
        (fs.optimal_svgp, sgpr, X, Y), (fs.sample_f, bad, X),
        (lambda *a: fs.fit(*a, steps=1), bad, X, Y),
    ]:  # fmt: skip
        here, there = errors(function, (model, *data), moved(gpu, model, *data))
        assert here == there


def test_mixed_devices_are_named(gpu, rng):
    gpu, X, Y = gpu, rng.standard_normal((B, D)), rng.standard_normal(B)
    model = small_model(rng)
    there = fs.to_device(model)
    with pytest.raises(TypeError, match="`X` on the GPU, `Y` on the CPU"):
        fs.elbo_and_grad(there, gpu.there(X), Y)
    with pytest.raises(TypeError, match="`covariance.variance`.* on the GPU, `X`, `Y` on the CPU"):
        fs.elbo_and_grad(there, X, Y)
    with pytest.raises(
        TypeError, match="`X`, `Y` on the GPU, `covariance.lengthscales`, `inducing`"
    ):
        fs.elbo_and_grad(model, gpu.there(X), gpu.there(Y))
    with pytest.raises(TypeError, match="different devices"):
        fs.collapsed_bound(fs.SGPR(model.covariance, model.inducing, 0.3), gpu.there(X), Y)


def test_raised_variances_are_reported(gpu, rng):
    model = small_model(rng)
    X = np.repeat(model.inducing, 20, axis=0)  # many chances for rounding errors
    X += 1e-9 * rng.standard_normal(X.shape)
    tiny = fs.replace(
        model,
        covariance=fs.RBF(f8(1.3), f8(4)),
        posterior=fs.Whitened(np.zeros(M), 1e-9 * np.eye(M)),
    )
    with pytest.warns(VarianceClampWarning) as here:
        value = fs.elbo(tiny, X, X[:, 0], jitter=1e-15)
    with pytest.warns(VarianceClampWarning) as there, Copies(gpu, 1):
        assert abs(fs.elbo(*moved(gpu, tiny, X, X[:, 0]), jitter=1e-15) - value) < 1e-8 * abs(value)
    assert here[0].message.args[0].split()[1:] == there[0].message.args[0].split()[1:]
