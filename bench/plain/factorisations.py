"""A step of a pivoted Cholesky factorisation, against NumPy."""

import numpy as np

from fastsvgp.kernels.cpu import factorisations

from .common import Case


def deflate(factor, j, pivot, column, variance):
    root = np.sqrt(variance[pivot])
    factor[:, j] = (column - factor[:, :j] @ factor[pivot, :j]) / root
    variance -= factor[:, j] ** 2


def cases(dtype):
    rng = np.random.default_rng(0)
    for N, j in (10_000, 50), (100_000, 20):
        factor = rng.standard_normal((N, j + 1)).astype(dtype)
        column, variance = rng.standard_normal(N).astype(dtype), np.ones(N, dtype)

        def step(function):
            left = variance.copy()
            function(factor, j, 5, column, left)
            return factor[:, j], left

        yield Case(
            f"deflate, {N} x {j}",
            lambda: step(factorisations.deflate),
            lambda: step(deflate),
            1e-4,
        )
