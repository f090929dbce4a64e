"""Ranks with one device each, on threads: the ways in which they sum, and a problem for them."""

import numpy as np
import pytest
from support import mpi_on_threads

import fastsvgp as fs

N, D, M = 47, 2, 7
WAYS = {
    "nccl": lambda comm: fs.distributed.nccl(comm),
    "device pointers": lambda comm: fs.distributed.mpi(comm, device_pointers=True),
    "pinned": lambda comm: fs.distributed.mpi(comm),
}
every_way = pytest.mark.parametrize("way", WAYS)
emulated = pytest.mark.parametrize("gpu", ["emulated"], indirect=True)


def problem(gpu, M=M):
    """Return ``(model, X, Y)`` on the device."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, D))
    q = fs.Whitened(
        0.2 * rng.standard_normal(M), np.tril(0.1 * rng.standard_normal((M, M))) + np.eye(M)
    )
    model = fs.SVGP(fs.RBF(1.2, np.array([0.8, 1.1])), X[:M].copy(), q, fs.Gaussian(0.1))
    return (
        fs.to_device(model),
        gpu.there(X),
        gpu.there(np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)),
    )


def on_ranks(gpu, way, size, function):
    """Call ``function(group)`` on ``size`` ranks, each on its own host.

    Raises the first error that is not a ``RemoteError``.
    """
    results = mpi_on_threads.run(list(range(size)), lambda comm: function(WAYS[way](comm)))
    errors = [result for result in results if isinstance(result, Exception)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, fs.RemoteError))
    return results


def numbers(gpu, found):
    """Return records, tuples and numbers as one list of NumPy arrays."""
    if isinstance(found, tuple):
        return [array for part in found for array in numbers(gpu, part)]
    if hasattr(found, "_record_fields"):
        return [
            np.asarray(gpu.back(value))
            for _, _, value in fs.records.leaves(found)
            if value is not None
        ]
    return [np.asarray(gpu.back(found))]


def assert_same_on_all_and_close(gpu, results, expected, rtol):
    results, expected = [numbers(gpu, one) for one in results], numbers(gpu, expected)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    size = max(np.max(np.abs(due)) for due in expected[1:])
    for found, due in zip(results[0], expected, strict=True):
        np.testing.assert_allclose(found, due, rtol=rtol, atol=rtol * size)


def sgpr_of(model):
    return fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
