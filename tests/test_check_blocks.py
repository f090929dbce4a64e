"""Messages for bad covariance blocks."""

import numpy as np
import pytest
from support.small_models import X, Y, good

import fastsvgp as fs


def test_blocks_are_checked(rng):
    m = good(rng)
    k = np.eye(3)
    for blocks in (
        fs.records.Blocks(k, np.ones((2, 5)), np.ones(5)),
        fs.records.Blocks(k, np.ones((3, 5)), np.ones(4)),
        fs.records.Blocks(k, Y, Y),
    ):
        with pytest.raises(ValueError, match="`blocks` must hold Kuu"):
            fs.bounds.elbo_and_grad_from_blocks(blocks, m.posterior, m.likelihood, Y)
    blocks = m.covariance.blocks(m.inducing, X)
    with pytest.raises(ValueError, match="`num_data` is 4, smaller than the batch of 5"):
        fs.bounds.elbo_and_grad_from_blocks(blocks, m.posterior, m.likelihood, Y, num_data=4)
    with pytest.raises(ValueError, match="`Y` must have one row for each of the 5 rows"):
        fs.bounds.elbo_and_grad_from_blocks(blocks, m.posterior, m.likelihood, Y[:4])
    with pytest.raises(ValueError, match="`blocks.Kuf` contains nan"):
        fs.bounds.elbo_and_grad_from_blocks(
            fs.records.Blocks(k, np.full((3, 5), np.nan), np.ones(5)), m.posterior, m.likelihood, Y
        )


def test_blocks_of_predictions_are_checked(rng):
    m = good(rng)
    q, whole = m.posterior, m.covariance.blocks(m.inducing, X, full_cov=True)
    mean, cov = fs.bounds.predict_from_blocks(whole, q, full_cov=True)
    assert mean.shape == (5,) and cov.shape == (5, 5)
    for changes, error, message in (
        (
            {"Kff": None},
            TypeError,
            r"`full_cov` needs `blocks.Kff`, the covariances \(N, N\) .* and it is None",
        ),
        (
            {"Kff": np.ones((5, 4))},
            ValueError,
            r"`blocks` must hold Kuu .*, Kff \(B, B\) for full_cov, got .* \(5, 4\)",
        ),
        ({"Kff": np.full((5, 5), np.inf)}, ValueError, "`blocks.Kff` contains inf"),
        ({"Kuf": np.ones(5)}, ValueError, r"`blocks` must hold Kuu \(M, M\)"),
        ({"kff": None}, TypeError, "`blocks.kff` is None; give the array"),
        ({"Kuu": np.eye(4)}, ValueError, "`blocks` must hold Kuu"),
        ({"Kuu": np.zeros((3, 3))}, fs.NotPositiveDefinite, "pivot 0 with jitter 0 in float64"),
    ):
        with pytest.raises(error, match=message):
            fs.bounds.predict_from_blocks(
                fs.replace(whole, **changes), q, full_cov=True, jitter=0.0
            )
    np.testing.assert_allclose(
        fs.bounds.predict_from_blocks(fs.replace(whole, Kff=None), q)[0], mean, rtol=1e-12
    )
    with pytest.raises(TypeError, match="`full_cov` must be True or False, got 'yes'"):
        fs.bounds.predict_from_blocks(whole, q, full_cov="yes")
    for call in (
        fs.bounds.predict_from_blocks,
        lambda *a: fs.bounds.elbo_and_grad_from_blocks(*a, m.likelihood, Y),
    ):
        with pytest.raises(
            TypeError,
            match=r"`blocks` must be fastsvgp.records.Blocks\(Kuu, Kuf, kff\), got ndarray",
        ):
            call(np.eye(3), q)
        with pytest.raises(
            TypeError, match=r"`posterior` of the model must .* fastsvgp.Whitened\(...\), got RBF"
        ):
            call(whole, m.covariance)
        with pytest.raises(ValueError, match=r"`posterior` has mean \(4,\)"):
            call(whole, fs.Whitened(np.zeros(4), np.eye(4)))
    hidden = fs.Whitened(q.mean, q.scale_tril + np.tril(np.full((3, 3), np.nan), -1))
    with pytest.raises(ValueError, match="`posterior.scale_tril` contains nan"):
        fs.bounds.predict_from_blocks(whole, hidden)
