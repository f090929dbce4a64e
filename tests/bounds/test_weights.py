"""Data weights: integers repeat rows, 0 omits a row unread; gradients are those of the value."""

import numpy as np
import pytest
from support.data_weights import (
    TABLE,
    B,
    D,
    M,
    assert_close,
    axes,
    counts,
    each,
    problem,
    summed,
    without,
)
from support.gp_problems import spread
from support.posterior_problems import EVERY, JITTER, PAIRS, ROWS

import fastsvgp as fs
from fastsvgp.likelihoods import layout
from fastsvgp.testing import assert_gradient


@each
def test_whole_weights_are_repeated_rows(rng, name):
    model, X, Y = problem(rng, name)
    w, rows = counts(rng)
    Y = without(Y, w, name)
    for bound in (fs.elbo_and_grad, fs.bounds.data_term_and_grad):
        value, grad, X_bar = bound(model, X, Y, weights=w, num_data=2.5 * B, inputs=True)
        expected, *bars = bound(model, X[rows], Y[rows], num_data=2.5 * len(rows), inputs=True)
        assert value == pytest.approx(expected, rel=1e-12)
        assert_close((grad, X_bar), (bars[0], summed(bars[1], rows)))
    assert fs.elbo(model, X, Y, weights=list(w), num_data=2.5 * B) == pytest.approx(
        fs.elbo(model, X[rows], Y[rows], num_data=2.5 * len(rows)), rel=1e-12
    )


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (likelihood, _, outputs, _) in TABLE.items()
        if likelihood.num_latent is None and layout.outputs_of(likelihood, outputs)
    ],
)
def test_a_weight_for_each_target(rng, name):
    """The data term is a sum over outputs, each with its own column of weights."""
    model, X, Y = problem(rng, name)
    columns = [counts(rng) for _ in range(2)]
    W = np.stack([w for w, _ in columns], axis=1)
    same = fs.elbo_and_grad(model, X, Y, weights=np.repeat(W[:, :1], 2, axis=1), jitter=JITTER)
    assert_close(fs.elbo_and_grad(model, X, Y, weights=W[:, 0], jitter=JITTER), same, 1e-15)
    Y = without(Y, W, name)
    value, grad, X_bar = fs.bounds.data_term_and_grad(model, X, Y, weights=W, inputs=True)
    parts = []
    for p, (_, rows) in enumerate(columns):
        # its functions; an integer removes the axis
        p = p if model.likelihood.latents_per_output == 1 else slice(p, None, 2)
        q = fs.records.tree_map(lambda a, p=p: a[p], model.posterior)
        one = fs.replace(model, posterior=q, mean=fs.means.ConstantMean(model.mean.value[p]))
        column = len(parts)
        part, bars, X_part = fs.bounds.data_term_and_grad(
            one, X[rows], Y[rows, column], inputs=True
        )
        parts.append((part, bars, summed(X_part, rows)))
        assert_close(fs.records.tree_map(lambda a, p=p: a[p], grad.posterior), bars.posterior)
        assert grad.mean.value[p] == pytest.approx(bars.mean.value, rel=1e-10)
    assert value == pytest.approx(sum(part for part, *_ in parts), rel=1e-12)
    for field in ("covariance", "likelihood"):
        assert_close(
            getattr(grad, field),
            fs.records.tree_map(
                lambda a, b: a + b, *(getattr(bars, field) for _, bars, _ in parts)
            ),
        )
    assert_close(
        (grad.inducing, X_bar),
        (sum(bars.inducing for _, bars, _ in parts), sum(bar for *_, bar in parts)),
    )


@each
def test_gradients_are_those_of_the_value(rng, name):
    """For weights of any size, in each field and in the inputs."""
    model, X, Y = problem(rng, name)
    options = {
        "weights": rng.gamma(1.0, 1.0, axes(model, Y)),
        "num_data": 3.0 * B,
        "jitter": JITTER,
    }
    _, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **options)
    assert_gradient(lambda m: fs.elbo(m, X, Y, **options), model, grad, rng=rng, rtol=1e-9)
    assert_gradient(lambda X: fs.elbo(model, X, Y, **options), X, X_bar, rng=rng, rtol=1e-9)


@each
def test_a_target_of_weight_zero_is_never_read(rng, name):
    model, X, Y = problem(rng, name)
    w, _ = counts(rng)
    results = [
        fs.elbo_and_grad(model, X, Z, weights=w, inputs=True) for Z in (Y, without(Y, w, name))
    ]
    assert_close(results[1], results[0], 1e-15)
    value, grad, _ = results[0]
    left = w > 0
    expected, bars, _ = fs.elbo_and_grad(model, X[left], Y[left], weights=w[left], inputs=True)
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close(grad, bars)


def test_overflowing_rates_of_weight_zero_have_no_effect(rng):
    """An unread far input, at which Poisson's rate overflows, has no effect."""
    model, X, Y = problem(rng, "poisson")
    model = fs.replace(model, mean=fs.means.LinearMean(np.full((2, D), 1e3), np.zeros(2)))
    X, w = 1e-3 * X, np.ones(B)
    X[5], w[5] = 1.0, 0
    value, grad = fs.elbo_and_grad(model, X, Y, weights=w)
    left = w > 0
    expected, bars = fs.elbo_and_grad(model, X[left], Y[left])
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close(grad, bars)


@each
def test_single_precision(rng, name):
    """The dtype is that of model and data, not of the weights."""
    model, X, Y = problem(rng, name)
    w = rng.gamma(1.0, 1.0, B)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    y = Y.astype(np.float32) if Y.dtype == float else Y
    value, grad, X_bar = fs.elbo_and_grad(
        single, X.astype(np.float32), y, weights=w, inputs=True, jitter=1e-2
    )
    expected, bars, exact = fs.elbo_and_grad(model, X, Y, weights=w, inputs=True, jitter=1e-2)
    assert value == pytest.approx(expected, rel=1e-4)
    assert X_bar.dtype == np.float32 and all(
        bar.dtype == np.float32 for _, _, bar in fs.records.leaves(grad)
    )
    assert_close((grad, X_bar), (bars, exact), 2e-3)


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("name", EVERY)
def test_every_posterior(rng, name, outputs):
    Z = spread(rng, M, D)
    inducing = fs.posteriors.InducingPair(Z[:4].copy(), Z[4:].copy()) if name in PAIRS else Z
    covariance = fs.Matern52(1.2, np.ones(D))
    q = EVERY[name].make(rng, covariance.Kuu(inducing) + JITTER * np.eye(M), outputs)
    model = fs.SVGP(covariance, inducing, q, fs.Gaussian(0.3))
    w, rows = counts(rng)
    X, Y = rng.uniform(-2, 2, (B, D)), rng.standard_normal((B, *outputs))
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, weights=w, jitter=JITTER, inputs=True)
    expected, bars, exact = fs.elbo_and_grad(model, X[rows], Y[rows], jitter=JITTER, inputs=True)
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close((grad, X_bar), (bars, summed(exact, rows)))


def test_a_long_batch_is_processed_in_chunks(rng, tune):
    model, X, Y = problem(rng)
    W = rng.gamma(1.0, 1.0, Y.shape)
    whole = fs.elbo_and_grad(model, X, Y, weights=W, inputs=True, jitter=JITTER)
    tune(bound_chunk_columns=5, bound_chunk_numbers=1)
    assert_close(fs.elbo_and_grad(model, X, Y, weights=W, inputs=True, jitter=JITTER), whole)


@pytest.mark.parametrize("columns", [None, 2])
def test_on_blocks(rng, columns):
    model, X, Y = problem(rng)
    model, w = fs.replace(model, mean=None), counts(rng)[0]
    w = w if columns is None else np.stack([w, w[::-1]], axis=1)
    Y = without(Y, w, "gaussian")
    blocks = model.covariance.blocks(model.inducing, X)
    options = {"weights": w, "num_data": 100, "jitter": JITTER}
    value, (_, *bars) = fs.bounds.elbo_and_grad_from_blocks(
        blocks, model.posterior, model.likelihood, Y, **options
    )
    expected, grad = fs.elbo_and_grad(model, X, Y, **options)
    assert value == pytest.approx(expected, rel=1e-13)
    assert_close(tuple(bars), (grad.posterior, grad.likelihood), 1e-12)
    with pytest.raises(ValueError, match="`weights` are all zero"):
        fs.bounds.elbo_and_grad_from_blocks(
            blocks, model.posterior, model.likelihood, Y, weights=np.zeros(B)
        )


def test_the_direction_of_the_likelihood_form(rng):
    Z, covariance = spread(rng, M, D), fs.RBF(1.2, np.ones(D))
    q = ROWS["relaxed"].make(rng, covariance.Kuu(Z) + JITTER * np.eye(M), ())
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(0.3))
    (w, rows), X, Y = counts(rng), rng.uniform(-2, 2, (B, D)), rng.standard_normal(B)
    value, grad = fs.bounds.lsvgp_direction(model, X, Y, weights=w, jitter=JITTER)
    expected, bars = fs.bounds.lsvgp_direction(model, X[rows], Y[rows], jitter=JITTER)
    assert value == pytest.approx(expected, rel=1e-12)
    assert_close(grad, bars)


@each
def test_without_weights_the_likelihood_gets_no_weights_argument(rng, monkeypatch, name):
    """User-defined likelihoods without a ``weights`` argument keep working."""
    model, X, Y = problem(rng, name)
    plain, heard = type(model.likelihood).expected_log_prob, []

    def listening(self, Y, f, *args, **options):
        heard.append(options)
        return plain(self, Y, f, *args, **options)

    monkeypatch.setattr(type(model.likelihood), "expected_log_prob", listening)
    fs.elbo(model, X, Y), fs.elbo_and_grad(model, X, Y), fs.natural_step(model, X, Y)
    fs.elbo(
        fs.DeepGP(
            (fs.layers.Layer(model.covariance, model.inducing, model.posterior),), model.likelihood
        ),
        X,
        Y,
    )
    assert len(heard) == 4 and not any("weights" in options for options in heard)
