"""Test the reverse rule of any posterior against its definition."""

import numpy as np
from support import definitions
from support.derivatives import assert_gradient
from support.posterior_problems import through

import fastsvgp as fs


def assert_reverse_rule(rng, posterior, blocks, jitter, **random):
    """Assert the cotangents of every field and block.

    The cotangents of the marginals have both signs; that of the KL term is one number.
    """
    shape, kl_bar = (*posterior.check_size(len(blocks.Kuu)), len(blocks.kff)), -0.7
    f_bar = fs.records.Marginals(*rng.standard_normal((2, *shape)))
    back = through(posterior, blocks, f_bar, kl_bar, jitter=jitter, **random)
    np.testing.assert_array_equal(back.Kuu, back.Kuu.T)
    for path, kind, bar in fs.records.leaves(back.posterior):
        assert kind != "tril" or not np.triu(bar, 1).any(), path
        assert kind != "symmetric" or (bar == bar.swapaxes(-1, -2)).all(), path

    def value(q, b):
        mean, var, kl = definitions.moments(
            q, fs.replace(b, Kuu=b.Kuu + jitter * np.eye(len(b.Kuu))), **random
        )
        return (
            (f_bar.mean * mean.reshape(shape)).sum()
            + (f_bar.var * var.reshape(shape)).sum()
            + kl_bar * kl
        )

    blocks, kff_bar = fs.replace(blocks, Kff=None), np.atleast_2d(f_bar.var).sum(axis=0)
    assert_gradient(lambda q: value(q, blocks), posterior, back.posterior, rng)
    assert_gradient(
        lambda b: value(posterior, b), blocks, fs.records.Blocks(back.Kuu, back.Kuf, kff_bar), rng
    )


def symmetric_behind(W_bar, W):
    """Return the symmetric X with tril(2 X W) = W_bar.

    W' (2 X W) is symmetric, and has the lower triangle of W' W_bar.
    """
    H = np.tril(W.T @ W_bar)
    inverse = np.linalg.inv(W)
    return inverse.T @ (H + np.tril(H, -1).T) @ inverse / 2
