"""The reverse rule of any posterior, held to its definition."""

import definitions
import numpy as np
from derivatives import assert_gradient

import fastsvgp as fs


def assert_reverse_rule(rng, posterior, blocks, jitter, **probes):
    """Cotangents of every field and block, for cotangents of both signs of the marginals and one of the KL term."""
    f, _, saved = posterior.forward(blocks, jitter, **probes)
    f_bar, kl_bar = fs.Marginals(*rng.standard_normal((2, *f.mean.shape))), -0.7
    posterior_bar, blocks_bar = posterior.vjp(f_bar, kl_bar, saved)
    np.testing.assert_array_equal(blocks_bar.Kuu, blocks_bar.Kuu.T)
    for path, kind, bar in fs.leaves(posterior_bar):
        assert kind != "tril" or not np.triu(bar, 1).any(), path

    def value(q, b):
        mean, var, kl = definitions.moments(q, fs.replace(b, Kuu=b.Kuu + jitter * np.eye(len(b.Kuu))), **probes)
        return (f_bar.mean * mean.reshape(f.mean.shape)).sum() + (f_bar.var * var.reshape(f.var.shape)).sum() + kl_bar * kl

    blocks = fs.replace(blocks, Kff=None)
    assert_gradient(lambda q: value(q, blocks), posterior, posterior_bar, rng)
    assert_gradient(lambda b: value(posterior, b), blocks, blocks_bar, rng)
