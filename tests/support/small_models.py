"""A small SVGP with five data, for tests of messages."""

import numpy as np

import fastsvgp as fs

X, Y = np.linspace(-1, 1, 10).reshape(5, 2), np.linspace(0, 1, 5)


def good(rng, likelihood=None, P=None):
    batch = () if P is None else (P,)
    q = fs.Whitened(
        rng.standard_normal((*batch, 3)), np.broadcast_to(np.eye(3), (*batch, 3, 3)).copy()
    )
    return fs.SVGP(
        fs.RBF(1.0, np.ones(2)), rng.standard_normal((3, 2)), q, likelihood or fs.Gaussian(0.1)
    )


def relaxed(rng):
    q = fs.posteriors.Relaxed(rng.standard_normal(3), np.ones(3), np.eye(3))
    return fs.replace(good(rng), posterior=q)
