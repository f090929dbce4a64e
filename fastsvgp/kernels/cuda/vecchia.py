"""CUDA twin of ``near_rows``: one warp a row; sums over the batch as in ``sparse_rows``."""

import numpy as np

from ...runtime import cuda_devices
from . import sparse_rows
from .common import loader

WARP, BLOCK = 32, 256  # as in vecchia.cu
_launch = loader.launcher("vecchia", WARP)
FLOAT64 = np.dtype(np.float64)


def near_rows(K, Lam, rows, noise):
    cp, (n, k), M = cuda_devices.cupy(), noise.shape, Lam.shape[1]
    a, s, phi = cp.empty((n, k)), cp.empty(n), cp.empty((n, M))
    factor, failed = cp.empty((n, k, k)), cp.empty(n, np.int64)
    if n:
        given = _plain(K), _plain(Lam), _plain(rows, np.int64), _plain(noise)
        sizes, shared = (np.int32(k), np.int32(M)), 8 * (k + 1) ** 2
        results = a, s, phi, factor, failed
        _launch("forward", FLOAT64, n, *given, *sizes, *results, shared_memory=shared)
    return a, s, phi, factor, failed


def near_rows_vjp(Lam, rows, a, factor, a_bar, s_bar, phi_bar):
    cp, (n, k), M = cuda_devices.cupy(), a.shape, Lam.shape[1]
    K_bar, noise_bar = cp.empty((n, k + 1, k + 1)), cp.empty((n, k))
    Lam_bar = cp.zeros(Lam.shape)
    if n == 0:
        return K_bar, Lam_bar, noise_bar
    Lam, rows, a = _plain(Lam), _plain(rows, np.int64), _plain(a)
    phi_bar = loader.NULL if phi_bar is None else _plain(phi_bar)
    sizes = np.int32(k), np.int32(M)
    given = Lam, rows, a, _plain(factor), _plain(a_bar), _plain(s_bar), phi_bar
    _launch(
        "residual_bars", FLOAT64, n, *given, *sizes, K_bar, noise_bar, shared_memory=8 * (k + 1)
    )
    parts = cp.empty((n * (k + 1), M))
    grid, count = -(-parts.size // BLOCK), np.int64(parts.size)
    _launch(
        "contribute", FLOAT64, grid, Lam, rows, a, phi_bar, K_bar, count, *sizes, parts,
        threads=BLOCK,
    )  # fmt: skip
    distinct, sums = sparse_rows.sum_rows((rows.reshape(-1),), (parts,))
    _launch("place", FLOAT64, grid, distinct, sums, count, sizes[1], Lam_bar, threads=BLOCK)
    return K_bar, Lam_bar, noise_bar


def _plain(A, dtype=np.float64):
    return cuda_devices.cupy().ascontiguousarray(A, dtype=dtype)
