"""Updates of inverse factors: the field, the matrix, and both stopping rules."""

import numpy as np
import pytest
from oracles import inverse_factor as oracle

import fastsvgp as fs

M, N = 9, 30
KINDS = ["Relaxed", "InverseFreeWhitened"]


def problem(rng, kind, dtype=np.float64, likelihood=None):
    X, Z = rng.uniform(-2, 2, (N, 2)).astype(dtype), rng.uniform(-2, 2, (M, 2)).astype(dtype)
    Y = np.sin(X.sum(axis=1))
    start = np.eye(M, dtype=dtype)
    if kind == "Relaxed":
        posterior = fs.posteriors.Relaxed(
            np.zeros(M, dtype), rng.uniform(0.01, 0.1, M).astype(dtype), 1e-3 * start
        )
    else:
        posterior = fs.posteriors.InverseFreeWhitened(np.zeros(M, dtype), 0.5 * start, 1e-3 * start)
    return fs.SVGP(fs.RBF(1.2, 0.9), Z, posterior, likelihood or fs.Gaussian(0.1)), X, Y


def target(model, jitter):
    """Return (factor, matrix that it should invert)."""
    A = model.covariance.matrix(model.inducing) + jitter * np.eye(M)
    if isinstance(model.posterior, fs.posteriors.Relaxed):
        return model.posterior.inverse_tril, A + np.diag(model.posterior.variance)
    return model.posterior.inverse_root, A


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_refresh_fits_the_factor_and_moves_nothing_else(rng, kind, dtype):
    model, X, Y = problem(rng, kind, dtype)
    fresh, info = fs.optim.update_inverse_factor(model, jitter=1e-3)
    L, A = target(fresh, 1e-3)
    assert info.converged and L.dtype == dtype
    assert oracle.residual(A.astype(float), L.astype(float)) < 1.1e-3
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(model), fs.records.leaves(fresh), strict=True
    ):
        if "inverse" not in path:
            np.testing.assert_array_equal(np.asarray(a, dtype), np.asarray(b, dtype), err_msg=path)
    again, info = fs.optim.update_inverse_factor(fresh, jitter=1e-3)
    assert info.steps == 0
    np.testing.assert_array_equal(target(again, 1e-3)[0], L)
    assert np.isfinite(fs.elbo(fresh, X, Y.astype(dtype), jitter=1e-3))


@pytest.mark.parametrize("kind", KINDS)
def test_refresh_from_a_start_that_is_far_too_small(rng, kind):
    """A variance of 1e-8 needs a factor ten million times the start."""
    model, _, _ = problem(rng, kind)
    model = fs.records.replace_at(model, "covariance.variance", 1e-8)
    if kind == "Relaxed":
        model = fs.records.replace_at(model, "posterior.variance", np.full(M, 1e-9))
    fresh, info = fs.optim.update_inverse_factor(model, jitter=1e-10)
    L, A = target(fresh, 1e-10)
    assert info.converged and info.steps > 0 and oracle.residual(A, L) <= 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_nats_limit_the_cost_of_the_variances(rng, kind):
    model, X, _ = problem(rng, kind)
    jitter, nats = 0.02, 0.03
    fresh, info = fs.optim.inverse_updates(nats=nats).update_factor(
        model, jitter, X, num_data=3 * N
    )
    L, A = target(fresh, jitter)
    Kuf = model.covariance.matrix(model.inducing, X)
    smallest = jitter + (model.posterior.variance.min() if kind == "Relaxed" else 0)
    assert np.linalg.eigvalsh(A)[0] >= smallest
    G = 3 * (oracle.slack(A, L, Kuf) / smallest).sum()
    assert info.converged and info.gap == pytest.approx(G, rel=1e-6) and G <= 2 * 0.1 * nats
    U, _ = oracle.variance_bounds(A, L, Kuf, model.covariance.diag(X), smallest)
    assert 3 * (U - oracle.variances(A, Kuf, model.covariance.diag(X))).sum() / (2 * 0.1) <= nats


def test_steps_are_limited_and_scheduled(rng):
    model, _, _ = problem(rng, "Relaxed")
    # near enough to be stepped from as it is
    model = fs.records.replace_at(model, "posterior.inverse_tril", 0.7 * np.eye(M))
    one, info = fs.optim.inverse_updates(1e-9, step_size=1.0, max_steps=1).update_factor(model, 0.0)
    assert info.steps == 1 and info.reason == "steps"
    L, A = target(model, 0.0)
    np.testing.assert_array_equal(
        one.posterior.inverse_tril, fs.optim.newton_schulz_step(A, L, 1.0)
    )
    _, info = fs.optim.inverse_updates(
        1e-6, step_size=fs.optim.schedules.log_linear(1e-5, 1.0, 10)
    ).update_factor(model, 0.0)
    assert info.converged and info.steps > 10  # slow, but it arrives


def test_bad_arguments_of_inverse_updates_are_rejected(rng):
    with pytest.raises(ValueError, match="either `tolerance` or `nats`"):
        fs.optim.inverse_updates(1e-3, nats=1.0)
    for name in ("tolerance", "nats"):
        with pytest.raises(ValueError, match=f"`{name}` must be positive"):
            fs.optim.inverse_updates(**{name: 0.0})
    with pytest.raises(ValueError, match="`max_steps` must be a whole number"):
        fs.optim.inverse_updates(max_steps=-1)
    with pytest.raises(ValueError, match="step_size"):
        fs.optim.inverse_updates(step_size=-1.0)
    for direction in ("best", None, "Likelihood", np.ones(2)):
        with pytest.raises(
            ValueError,
            match="inverse_updates: `direction` must be one of 'exact', 'likelihood', got",
        ):
            fs.optim.inverse_updates(direction=direction)
    model, _, _ = problem(rng, "Relaxed")
    with pytest.raises(ValueError, match="kind Whitened holds no factor of an inverse"):
        fs.optim.update_inverse_factor(
            fs.replace(model, posterior=fs.Whitened(np.zeros(M), np.eye(M)))
        )
    with pytest.raises(ValueError, match="`nats` needs.*likelihood is StudentT; give `tolerance`"):
        fs.optim.inverse_updates(nats=0.1).check_model(
            fs.replace(model, likelihood=fs.StudentT(0.1, df=4.0))
        )


def test_directions_that_the_posterior_lacks_are_rejected(rng):
    updates = fs.optim.inverse_updates(direction="likelihood")
    updates.check_model(problem(rng, "Relaxed")[0])
    model, X, Y = problem(rng, "InverseFreeWhitened")
    fs.optim.inverse_updates(direction="exact").check_model(model)
    message = (
        "inverse_updates: a InverseFreeWhitened posterior has no direction 'likelihood'; leave"
        " `direction` out"
    )
    for call in (
        lambda: updates.check_model(model),
        lambda: fs.fit(model, X, Y, steps=1, inverse_updates=updates),
    ):
        with pytest.raises(ValueError, match=message):
            call()
