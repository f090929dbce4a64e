"""Bases and models in weight space for tests."""

import numpy as np

import fastsvgp as fs

COVARIANCE = {1: fs.RBF(1.3, 0.8), 2: fs.RBF(1.3, np.array([0.8, 1.4]))}
BASES = "fourier", "inducing", "relevance"


def basis_of(rng, name, m, D=2):
    """Return a basis of m functions of D inputs."""
    if name == "fourier":
        return fs.qsgp.RandomFourier(COVARIANCE[D], num_features=m, seed=3)
    Z = rng.standard_normal((m, D))
    if name == "inducing":
        return fs.qsgp.InducingBasis(COVARIANCE[D], Z)
    return fs.qsgp.RelevanceBasis(COVARIANCE[D], Z, rng.uniform(0.5, 2, m))


def weights(rng, m, k):
    """Return a posterior with k dense columns; entries above the diagonal are never read."""
    columns = 0.3 * rng.standard_normal((m, k))
    columns[np.triu_indices(k, 1)] = np.nan
    columns[np.arange(k), np.arange(k)] = rng.uniform(0.3, 0.9, k)
    return fs.qsgp.ChevronWeights(
        0.3 * rng.standard_normal(m), columns, rng.uniform(0.2, 0.8, m - k)
    )


def dense(q):
    """Return the factor C of a posterior."""
    m, k = q.columns.shape
    C = np.zeros((m, m))
    C[:, :k] = np.where(np.arange(m)[:, None] >= np.arange(k), q.columns, 0)
    C[range(k, m), range(k, m)] = q.diagonal
    return C
