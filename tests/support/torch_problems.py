"""Small problems for the PyTorch modules."""

import numpy as np
import pytest
from support.posterior_problems import in_model

import fastsvgp as fs

torch = pytest.importorskip("torch")
JITTER = 1e-2


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]


def gp_of(
    rng, posterior="whitened", P=None, M=6, B=9, D=2, covariance=None, likelihood=None, mean=None
):
    """Return ``(model, module, X, Y)``; X and Y are NumPy arrays."""
    from fastsvgp.interop.torch import SVGP

    likelihood = likelihood or fs.Gaussian(0.3)
    P = likelihood.num_latent or P
    X, batch = rng.standard_normal((B, D)), () if P is None else (P,)
    Y = (
        np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal((*batch, B))
        if likelihood.num_latent is None
        else rng.integers(0, P, B)
    )
    covariance = covariance or fs.RBF(1.3, np.linspace(0.8, 1.6, D))
    model = fs.SVGP(covariance, 1.5 * rng.standard_normal((M, D)), None, likelihood, mean)
    model, _ = in_model(rng, posterior, model, batch, jitter=JITTER)
    return model, SVGP(model), X, Y.T


def deep(rng, N=60, D=3):
    """Return ``(network, module, X, Y)`` of a process on two features; X and Y are tensors."""
    _, gp, _, _ = gp_of(rng, covariance=fs.Matern32(0.8, np.ones(2)), M=8)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(D, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)
    ).double()
    X = rng.standard_normal((N, D))
    return net, gp, *tensors(X, np.sin(2 * X.sum(axis=1)))
