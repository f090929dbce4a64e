"""Inducing inputs in two sets: a posterior that stacks them gives the results of one array."""

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_gradient, assert_restricted
from support.gp_problems import lower_factor
from support.posterior_problems import StackedWhitened

import fastsvgp as fs

M, M2, N, D = 5, 3, 19, 2
JITTER = 1e-3


COVARIANCES = [
    fs.RBF(1.3, np.array([0.9, 1.4])),
    fs.Matern32(0.8, 1.1) * fs.Linear(0.4) + fs.covariances.Constant(0.2) + fs.RBF(0.5, np.ones(D)),
]


def problem(rng, covariance=COVARIANCES[0], batch=(), likelihood=None):
    """``(model of the pair, the same model of one array, X, Y)``."""
    pair = fs.posteriors.InducingPair(rng.uniform(-2, 2, (M, D)), rng.uniform(-2, 2, (M2, D)))
    q = rng.standard_normal((*batch, M + M2)), lower_factor(rng, *batch, M + M2, off=0.2)
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, *batch))
    model = fs.SVGP(
        covariance,
        pair,
        StackedWhitened(*q),
        likelihood or fs.Gaussian(0.2),
        fs.means.LinearMean(np.ones(D), 0.1),
    )
    if batch:
        model = fs.replace(model, mean=fs.means.ConstantMean(0.3))
    return (
        model,
        fs.replace(model, inducing=np.vstack([pair.Z, pair.O]), posterior=fs.Whitened(*q)),
        X,
        Y,
    )


def assert_same_gradient(grad, stacked):
    assert type(grad.inducing) is fs.posteriors.InducingPair
    np.testing.assert_allclose(
        np.vstack([grad.inducing.Z, grad.inducing.O]), stacked.inducing, rtol=1e-12, atol=1e-12
    )
    for name in ("covariance", "posterior", "likelihood", "mean"):
        for (path, _, a), (_, _, b) in zip(
            *(fs.records.leaves(getattr(g, name)) for g in (grad, stacked)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=path)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("covariance", COVARIANCES, ids=lambda c: type(c).__name__)
def test_bounds_and_gradients_are_those_of_the_stack(rng, covariance, batch):
    model, stacked, X, Y = problem(rng, covariance, batch)
    for bound in (fs.elbo_and_grad, fs.bounds.data_term_and_grad):
        value, grad, X_bar = bound(model, X, Y, num_data=40, jitter=JITTER, inputs=True)
        truth, truth_grad, truth_X_bar = bound(
            stacked, X, Y, num_data=40, jitter=JITTER, inputs=True
        )
        assert value == pytest.approx(truth, rel=1e-13)
        assert_same_gradient(grad, truth_grad)
        np.testing.assert_allclose(X_bar, truth_X_bar, rtol=1e-12, atol=1e-12)
    assert fs.elbo(model, X, Y, jitter=JITTER) == pytest.approx(
        fs.elbo(stacked, X, Y, jitter=JITTER), rel=1e-13
    )
    kl, kl_grad = fs.bounds.kl_term_and_grad(model, jitter=JITTER)
    truth, truth_grad = fs.bounds.kl_term_and_grad(stacked, jitter=JITTER)
    assert kl == pytest.approx(truth, rel=1e-13)
    assert_same_gradient(kl_grad, truth_grad)


def test_gradients_by_definition(rng):
    model, stacked, X, Y = problem(rng)
    _, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)

    def definition(m):
        q = fs.Whitened(m.posterior.mean, m.posterior.scale_tril)
        one = fs.replace(m, inducing=np.vstack([m.inducing.Z, m.inducing.O]), posterior=q)
        return definitions.elbo(one, X, Y, 1.0, JITTER)

    assert_gradient(definition, model, grad, rng)


def test_the_gradient_of_one_set_is_available(rng):
    model, _, X, Y = problem(rng)
    _, whole = fs.elbo_and_grad(model, X, Y)
    for wrt in (("inducing.O",), ("inducing.Z", "posterior.mean"), ("inducing",)):
        _, some = fs.elbo_and_grad(model, X, Y, wrt=wrt)
        assert_restricted(some, whole, wrt, atol=1e-12)
    with pytest.raises(
        ValueError, match="`wrt` names 'inducing.W', which is not a field.*inducing.O, inducing.Z"
    ):
        fs.elbo_and_grad(model, X, Y, wrt=("inducing.W",))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_predictions_and_natural_steps(rng, batch):
    model, stacked, X, Y = problem(rng, batch=batch)
    for predict in (fs.predict_f, fs.predict_y, lambda *a,
                    **s: fs.predict_f(*a, full_cov=True, **s),
                    lambda *a, **s: [fs.sample_f(*a, 3, rng=1, **s),
                                     fs.predict_log_density(*a, Y, **s)]):  # fmt: skip
        for ours, theirs in zip(
            predict(model, X, jitter=JITTER), predict(stacked, X, jitter=JITTER), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    stepped, info = fs.natural_step(model, X, Y, step_size=0.5, jitter=JITTER)
    truth, truth_info = fs.natural_step(stacked, X, Y, step_size=0.5, jitter=JITTER)
    assert type(stepped.posterior) is StackedWhitened and info.value == pytest.approx(
        truth_info.value, rel=1e-13
    )
    np.testing.assert_allclose(
        stepped.posterior.scale_tril, truth.posterior.scale_tril, rtol=1e-10, atol=1e-12
    )


def test_every_leaf_moves_and_files_keep_the_pair(rng, tmp_path):
    model, _, X, Y = problem(rng)
    vector, unravel = fs.ravel(model)
    assert {"inducing.Z", "inducing.O"} <= set(unravel.slices)
    for (path, kind, a), (_, _, b) in zip(
        fs.records.leaves(unravel(vector + 0.1)), fs.records.leaves(model), strict=True
    ):
        moved = np.tril(a) != np.tril(b) if kind == "tril" else np.asarray(a) != b
        assert (moved | (np.tri(*np.shape(a)) == 0 if kind == "tril" else False)).all(), path
    pulled = unravel.pullback(vector, fs.elbo_and_grad(model, X, Y)[1])
    assert np.abs(pulled[unravel.slices["inducing.O"]]).max() > 0
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    assert type(loaded.inducing) is fs.posteriors.InducingPair and fs.elbo(loaded, X, Y) == fs.elbo(
        model, X, Y
    )


@pytest.mark.parametrize("optimiser", [fs.adam(1e-2), fs.sgd(1e-3)], ids=["adam", "sgd"])
def test_training_moves_both_sets(rng, optimiser):
    model, _, X, Y = problem(rng)
    found, info = fs.fit(model, X, Y, steps=3, batch_size=7, optimiser=optimiser)
    assert np.isfinite(info.values).all()
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(found), fs.records.leaves(model), strict=True
    ):
        assert (np.asarray(a) != b).any(), path


def test_float32_and_mixed_dtypes(rng):
    model, _, X, Y = problem(rng)
    narrow = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    _, grad, X_bar = fs.elbo_and_grad(
        narrow, X.astype(np.float32), Y.astype(np.float32), inputs=True
    )
    assert {a.dtype for a in (X_bar, *(bar for _, _, bar in fs.records.leaves(grad)))} == {
        np.dtype(np.float32)
    }
    whole = fs.replace(
        model, inducing=fs.posteriors.InducingPair(np.arange(2 * M).reshape(M, 2), model.inducing.O)
    )
    assert fs.elbo_and_grad(whole, X, Y)[1].inducing.Z.dtype == np.float64


def test_bad_pairs_are_refused(rng):
    model, _, X, Y = problem(rng)
    Z, O = model.inducing.Z, model.inducing.O  # noqa: E741
    for pair, error, message in (
        (fs.posteriors.InducingPair(Z, O[:, :1]), ValueError,
         r"`inducing.O` must have shape \(M, D\) with M and D > 0, "
         r"D the 2 columns of the first set, got \(3, 1\)"),
        (fs.posteriors.InducingPair(Z, O[:0]), ValueError,
            r"`inducing.O` must have shape .* got \(0, 2\)"),
        (fs.posteriors.InducingPair(Z[:, 0], O), ValueError,
         r"`inducing.Z` must have shape \(M, D\) with M and D > 0, got \(5,\)"),
        (fs.posteriors.InducingPair(Z, None), TypeError,
         "`inducing.O` is None where a number or an array must be"),
        (fs.posteriors.InducingPair(Z, np.full((M2, D), np.nan)), ValueError,
            "`inducing.O` contains nan"),
        (fs.posteriors.InducingPair(Z, "three"), TypeError, "`inducing.O` must hold real numbers"),
        (fs.posteriors.InducingPair(Z, O[:2]), ValueError, r"`posterior` has mean \(8,\)"),
        (np.vstack([Z, O]), TypeError,
         "`inducing` is an array, one set of inducing inputs, and a StackedWhitened posterior "
         r"takes 2: a record such as fastsvgp.posteriors.InducingPair\(Z, O\)"),
    ):  # fmt: skip
        for call in (
            lambda m: fs.elbo(m, X, Y),
            lambda m: fs.elbo_and_grad(m, X, Y),
            lambda m: fs.predict_f(m, X),
        ):
            with pytest.raises(error, match=message):
                call(fs.replace(model, inducing=pair))
    with pytest.raises(ValueError, match="`X` has 1 columns where `inducing` has 2"):
        fs.elbo(model, X[:, :1], Y)
