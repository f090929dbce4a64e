"""The training step of the benchmarks: ARD RBF, D = 8, Gaussian noise, q not the prior."""

import numpy as np

D = 8
STEP_SIZES = [(100, 256), (512, 1024), (256, 8192), (1000, 1000), (2000, 1000)]


def step_problem(M, B, dtype=np.float64, seed=0, D=D):
    """Return arrays of one whitened step; the condition of Kuu is about 1e3 at M = 1000."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((B, D))
    W = np.tril(rng.standard_normal((M, M))) * (0.1 / np.sqrt(M))
    W[np.diag_indices(M)] = rng.uniform(0.5, 1.0, M)
    arrays = dict(
        Z=rng.standard_normal((M, D)),
        X=X,
        y=np.sin(X).sum(axis=1) + 0.3 * rng.standard_normal(B),
        variance=np.asarray(1.3),
        lengthscales=rng.uniform(0.9, 1.5, D),
        noise=np.asarray(0.2),
        mean=0.5 * rng.standard_normal(M),
        scale_tril=W,
    )
    return {name: a.astype(dtype)[()] for name, a in arrays.items()}


def step_flops(M, B):
    """Return the flops of value and all gradients of a whitened step.

    They are those of the cheapest of the long, the Gram and the batch form.
    """
    return min(
        4 * M**2 * B + 14 / 3 * M**3, 5 * M**2 * B + 10 / 3 * M**3, 6 * M**2 * B + 4 / 3 * M**3
    )


def outputs_flops(M, B, P):
    """Return the flops of a whitened step of P outputs with Gaussian noise, and all gradients.

    It solves with L on both sides; the rest is one Gram matrix and one product for all, and M x M
    products of each output, of which this counts the least: ``whitening.common_cotangents``.
    """
    return 5 * M**2 * B + (P + 8 / 3) * M**3


def natural_step_flops(M, B, P=1):
    """Return the flops of a natural-gradient step of absorbed dual sites.

    It needs Lam, V, one weighted product, factors, and products with Kuu^-1 on both sides.
    """
    return (1 + 2 * P) * M**2 * B + (1 / 3 + 8 / 3 * P) * M**3
