"""CUDA twin of ``distances``: ``kernels_cuda/distances.cu``, and the pass of ``pairwise``.

Its pass for an RBF with a given matrix k reads no distances: its weights are K_bar k. A cotangent
of some columns depends on these columns alone, so many columns go in groups that the pass takes.
"""

import numpy as np

from ...runtime import cuda_devices
from . import pairwise
from .common import loader
from .common.scalars import parameter

BLOCK = 256  # as in distances.cu


def squared_distances(X1, X2, lengthscales):
    cp = cuda_devices.cupy()
    X1 = cp.ascontiguousarray(X1)
    X2 = X1 if X2 is None else cp.ascontiguousarray(X2)
    (N1, D), N2, dtype = X1.shape, len(X2), X1.dtype
    R = cp.empty((N1, N2), dtype)
    if R.size:
        inputs = X1, np.int64(N1), X2, np.int64(N2), np.int32(D)
        loader.launch(
            "distances",
            "squared_distances",
            dtype,
            (-(-R.size // BLOCK),),
            (BLOCK,),
            (*inputs, *parameter(lengthscales, dtype), R),
        )
    return R


def squared_distances_vjp(R_bar, X1, X2, lengthscales, need):
    cp, D, most = cuda_devices.cupy(), X1.shape[1], pairwise.DIRECT_BELOW - 1
    weights = cp.full_like(R_bar, -2)
    groups = []
    for first in range(0, D, most):
        part = slice(first, first + most)
        one = lengthscales[part] if np.ndim(lengthscales) else lengthscales
        second = None if X2 is None else X2[:, part]
        bars = pairwise.stationary_vjp(R_bar, "rbf", X1[:, part], second, 1.0, one, need, weights)
        groups.append((*bars[:2], bars[3]))
    if len(groups) == 1:
        return groups[0]
    X1_bar, X2_bar, lengthscales_bar = (
        None if parts[0] is None else parts for parts in zip(*groups, strict=True)
    )
    if lengthscales_bar is not None:
        join = cp.concatenate if np.ndim(lengthscales) else sum
        lengthscales_bar = join(lengthscales_bar)
    X1_bar, X2_bar = (
        None if parts is None else cp.concatenate(parts, axis=1) for parts in (X1_bar, X2_bar)
    )
    return X1_bar, X2_bar, lengthscales_bar
