"""Natural-gradient update from a gradient: to second order, and always positive definite."""

import numpy as np
import pytest
from support.gp_problems import lower_factor
from support.numerics import generator

import fastsvgp as fs

M = 5


def plain(m, W, m_bar, W_bar, size):
    """Return ``(m, S)`` after the step in the natural parameters; W_bar = tril(2 dS W)."""
    A = np.tril(W.T @ W_bar)
    A = A + np.tril(A, -1).T
    back = np.linalg.inv(W)
    S = np.linalg.inv(back.T @ (np.eye(len(m)) - size * A) @ back)
    return m + size * S @ m_bar, S


def gaussian(rng, kind=fs.Whitened, *batch):
    mean, tril = rng.standard_normal((*batch, M)), lower_factor(rng, *batch, M)
    return kind(
        mean, tril, *([lower_factor(rng, M)] if kind is fs.posteriors.InverseFreeWhitened else [])
    )


def gradient(rng, q, size=1.0):
    return fs.records.tree_map(
        lambda a: (
            size
            * np.asarray(
                np.tril(rng.standard_normal(a.shape))
                if a.ndim > 1 and a.shape[-1] == a.shape[-2]
                else rng.standard_normal(a.shape),
                a.dtype,
            )
        ),
        q,
    )


@pytest.mark.parametrize("kind", [fs.Whitened, fs.Marginal, fs.posteriors.InverseFreeWhitened])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_update_is_the_plain_step_up_to_second_order(rng, kind, batch):
    q = gaussian(rng, kind, *batch)
    bar, errors = gradient(rng, q), []
    for size in (1e-2, 1e-3):
        new = fs.optim.natural_update(q, bar, size)
        mean, tril = (x.reshape(-1, *x.shape[len(batch) :]) for x in (new.mean, new.scale_tril))
        fields = (
            x.reshape(-1, *x.shape[len(batch) :])
            for x in (q.mean, q.scale_tril, bar.mean, bar.scale_tril)
        )
        due = [plain(*one, size) for one in zip(*fields, strict=True)]
        errors.append(
            [
                max(np.abs(m - d[0]).max() for m, d in zip(mean, due, strict=True)),
                max(np.abs(W @ W.T - d[1]).max() for W, d in zip(tril, due, strict=True)),
            ]
        )
        np.testing.assert_array_equal(np.triu(new.scale_tril, 1), 0)
    assert (np.array(errors[1]) < 0.02 * np.array(errors[0])).all() and (
        np.array(errors[1]) < 1e-3
    ).all()
    if kind is fs.posteriors.InverseFreeWhitened:
        assert new.inverse_root is q.inverse_root


def test_the_precision_is_that_of_the_retraction(rng):
    q = gaussian(rng)
    bar = gradient(rng, q, 3.0)
    W = fs.optim.natural_update(q, bar, 0.5).scale_tril
    A = np.tril(q.scale_tril.T @ bar.scale_tril)
    A = A + np.tril(A, -1).T
    due = 0.5 * (np.eye(M) + np.linalg.matrix_power(np.eye(M) - 0.5 * A, 2))
    back = np.linalg.solve(W, q.scale_tril)
    np.testing.assert_allclose(back.T @ back, due, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_wild_gradients_stay_in_the_cone(dtype):
    """10^4 gradients of all sizes and signs: no eigenvalue of the precision falls below half."""
    rng, P = generator(3), 2500
    for exponent in (-1, 1, 4, 12):
        q = fs.Whitened(
            rng.standard_normal((P, M)).astype(dtype), lower_factor(rng, P, M).astype(dtype)
        )
        bar = gradient(rng, q, 10.0**exponent)
        new = fs.optim.natural_update(q, bar, float(rng.uniform(0.01, 1)))
        assert new.mean.dtype == new.scale_tril.dtype == dtype and np.isfinite(new.mean).all()
        assert (np.diagonal(new.scale_tril, axis1=1, axis2=2) > 0).all()
        W = np.linalg.solve(q.scale_tril.astype(float), new.scale_tril.astype(float))
        assert np.linalg.norm(W, 2, axis=(1, 2)).max() ** 2 < 2.1


def test_update_moves_two_sets_one_by_one(rng):
    parts = [gaussian(rng, fs.Whitened, 2) for _ in range(2)]
    q = fs.posteriors.WhitenedOrthogonal(
        *(x for part in parts for x in (part.mean, part.scale_tril))
    )
    bars = [gradient(rng, part) for part in parts]
    new = fs.optim.natural_update(
        q,
        fs.posteriors.WhitenedOrthogonal(
            *(x for part in bars for x in (part.mean, part.scale_tril))
        ),
        0.3,
    )
    for name, part, bar in zip("uv", parts, bars, strict=True):
        due = fs.optim.natural_update(part, bar, 0.3)
        np.testing.assert_array_equal(getattr(new, f"mean_{name}"), due.mean)
        np.testing.assert_array_equal(getattr(new, f"scale_tril_{name}"), due.scale_tril)


def test_small_updates_equal_the_closed_form(rng):
    """A small update of a last layer equals its natural step; the upper triangles are ignored."""
    q = gaussian(rng)
    model = fs.SVGP(fs.RBF(), rng.standard_normal((M, 2)), q, fs.StudentT(0.3))
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    _, grad = fs.elbo_and_grad(model, X, Y)
    due, _ = fs.natural_step(model, X, Y, step_size=1e-4)
    holed = fs.replace(
        grad.posterior, scale_tril=grad.posterior.scale_tril + np.triu(np.full((M, M), np.nan), 1)
    )
    for bar in (grad.posterior, holed):
        new = fs.optim.natural_update(q, bar, 1e-4)
        np.testing.assert_allclose(
            new.mean - q.mean, due.posterior.mean - q.mean, rtol=0.05, atol=1e-7
        )
        np.testing.assert_allclose(
            new.scale_tril - q.scale_tril,
            due.posterior.scale_tril - q.scale_tril,
            rtol=0.05,
            atol=1e-5,
        )


def test_posteriors_without_factors_are_rejected(rng):
    q = gaussian(rng)
    bar = gradient(rng, q)
    cases = [
        (
            fs.posteriors.LikelihoodForm(np.zeros(M), np.ones(M)),
            "LikelihoodForm posterior cannot .* its S~ is diagonal",
        ),
        (
            fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M)),
            "Relaxed posterior cannot .* its S~ is diagonal",
        ),
        (
            fs.posteriors.DualSites(np.zeros(M), np.eye(M)),
            "DualSites posterior cannot .* it holds sites",
        ),
        (
            fs.posteriors.Decoupled(np.zeros(M), np.eye(M), np.zeros(2)),
            "Decoupled posterior cannot .* no factor beside mean_v",
        ),
    ]
    for posterior, message in cases:
        with pytest.raises(TypeError, match=message):
            fs.optim.natural_update(posterior, posterior, 0.1)
    with pytest.raises(
        TypeError, match="`posterior_bar` must be a Whitened as the posterior is.*got Marginal"
    ):
        fs.optim.natural_update(q, fs.Marginal(bar.mean, bar.scale_tril), 0.1)
    with pytest.raises(TypeError, match=r"`posterior_bar.mean` is None; ask for it in `wrt`"):
        fs.optim.natural_update(q, fs.replace(bar, mean=None), 0.1)
    with pytest.raises(
        ValueError,
        match=r"`posterior_bar.mean` must have shape \(5,\) as the posterior, got \(4,\)",
    ):
        fs.optim.natural_update(q, fs.replace(bar, mean=bar.mean[1:]), 0.1)
    with pytest.raises(
        ValueError, match=r"`posterior_bar.scale_tril` contains nan at index \(1, 0\)"
    ):
        fs.optim.natural_update(
            q,
            fs.replace(bar, scale_tril=np.where(np.eye(M, k=-1) > 0, np.nan, bar.scale_tril)),
            0.1,
        )
    with pytest.raises(ValueError, match="`step_size` must be positive, got 0"):
        fs.optim.natural_update(q, bar, 0.0)
