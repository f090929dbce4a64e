"""CUDA twin of ``quadrature``: fused rules in ``kernels_cuda/quadrature.cu``, array code otherwise.

Array code serves arbitrary integrands. Everything is computed in float64, whatever the dtype of the
arguments. Nodes and points are copied to a device once, for all streams; that copy synchronises.
"""

import functools

import numpy as np

from ...runtime import cuda_devices
from ..common import quadrature_rules
from .common import loader
from .common.loader import NULL, number

BLOCK = 256  # as in quadrature.cu
BLOCKS_EACH = 8  # summing blocks per multiprocessor
FLOOR = np.float64(quadrature_rules.FLOOR)
_launch = loader.launcher("quadrature", BLOCK)


@functools.lru_cache(maxsize=32)
def _rule(cp, device, num):
    return tuple(cp.asarray(np.array(part), blocking=True) for part in quadrature_rules.rule(num))


@functools.lru_cache(maxsize=8)
def _points(cp, device, dim, num, seed):
    return cp.asarray(np.array(quadrature_rules.points(dim, num, seed)), blocking=True)


def _nodes(num):
    """Return nodes and weights on the current device."""
    cp = cuda_devices.cupy()
    return _rule(cp, cuda_devices.current_device(), num)


def _contiguous(*arrays):
    return [cuda_devices.cupy().ascontiguousarray(a) for a in arrays]


def gauss_hermite_nodes(mean, var, num):
    z = _nodes(num)[0].reshape(num, *(1,) * mean.ndim)
    return mean + np.sqrt(quadrature_rules.raised(mean, var)) * z


def _weighted(weights, G):
    """Return the sum over k of weights[k] G[k]."""
    return (weights.reshape(-1, *(1,) * (G.ndim - 1)) * G).sum(axis=0)


def gauss_hermite(G):
    return _weighted(_nodes(len(G))[1], G)


def log_gauss_hermite(log_G):
    top = log_G.max(axis=0)
    top = cuda_devices.cupy().where(np.isfinite(top), top, 0)  # every g can be 0
    return top + np.log(gauss_hermite(np.exp(log_G - top)))


def gauss_hermite_vjp(e_bar, G_prime, mean, var):
    z, w = _nodes(len(G_prime))
    slope = _weighted(w * z, G_prime) / (2 * np.sqrt(quadrature_rules.raised(mean, var)))
    return tuple(
        (e_bar * bar).astype(mean.dtype, copy=False) for bar in (_weighted(w, G_prime), slope)
    )


def _outputs(mean, need, *shapes):
    """Allocate the outputs; without ``need`` all but the first are null pointers."""
    return [
        cuda_devices.cupy().empty(shape, mean.dtype) if need or i == 0 else NULL
        for i, shape in enumerate(shapes)
    ]


def _results(outputs, need):
    return tuple(outputs) if need else (outputs[0], None, None)


def expectation(function, mean, var, num, need):
    outputs = _outputs(mean, need, mean.shape, mean.shape, mean.shape)
    if mean.size:
        given = *_contiguous(mean, var), np.int64(mean.size), *_nodes(num), np.int32(num), FLOOR
        _launch(f"expectation_{function}", mean.dtype, -(-mean.size // BLOCK), *given, *outputs)
    return _results(outputs, need)


def tabulated_average(G, nodes, weights, table, mean, var, need):
    cp, T = cuda_devices.cupy(), G.shape[1]
    outputs = [cp.empty((T, *mean.shape)) if need or i == 0 else NULL for i in range(3)]
    if mean.size:
        given = (
            *(cp.ascontiguousarray(a, dtype=np.float64) for a in (G, nodes, weights)),
            np.int32(T),
            np.int32(nodes.shape[1]),
            cp.ascontiguousarray(table, dtype=np.int64),
            *_contiguous(mean, var),
            np.int64(mean.size),
            np.float64(quadrature_rules.ENDS),
        )
        _launch("tabulated_average", mean.dtype, -(-mean.size // BLOCK), *given, *outputs)
    return _results(outputs, need)


def largest(Y, mean, var, num, need):
    cp, (C, N) = cuda_devices.cupy(), mean.shape
    outputs = _outputs(mean, need, N, (C, N), (C, N))
    if N:
        labels = cp.ascontiguousarray(Y, dtype=np.int64)
        given = (
            labels,
            *_contiguous(mean, var),
            np.int32(C),
            np.int64(N),
            *_nodes(num),
            np.int32(num),
            FLOOR,
        )
        _launch("largest", mean.dtype, -(-N // BLOCK), *given, cp.empty((5, C, N)), *outputs)
    return _results(outputs, need)


def normal_points(dim, num, rng):
    cp = cuda_devices.cupy()
    return _points(cp, cuda_devices.current_device(), dim, num, quadrature_rules.seed_of(rng))


def expected_logsumexp(mean, var, points, need):
    cp, (C, N) = cuda_devices.cupy(), mean.shape
    outputs = _outputs(mean, need, N, (C, N), (C, N))
    if N:
        given = (
            *_contiguous(mean, var),
            np.int32(C),
            np.int64(N),
            cp.ascontiguousarray(points),
            np.int32(len(points)),
            FLOOR,
        )
        _launch("expected_logsumexp", mean.dtype, N, *given, cp.empty((2, C, N)), *outputs)
    return _results(outputs, need)


def gaussian_term(Y, mean, var, variance, need=True, weights=None):
    cp, dtype, count = cuda_devices.cupy(), mean.dtype, np.int64(mean.size)
    s = number(variance, dtype)
    blocks = max(1, min(-(-mean.size // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors()))
    mean_bar, var_bar = (cp.empty(mean.shape, dtype) if need else NULL for _ in range(2))
    value, s_bar = cp.empty(()), cp.empty((), dtype)
    given = [cp.ascontiguousarray(a, dtype=dtype) for a in (Y, mean, var)]
    if weights is None:
        parts = cp.empty(blocks)
        _launch("gaussian_rows", dtype, blocks, *given, *s, count, mean_bar, var_bar, parts)
        _launch("gaussian_total", dtype, 1, parts, np.int64(blocks), count, *s, value, s_bar)
    else:
        parts, weights = cp.empty((2, blocks)), cp.ascontiguousarray(weights, dtype=dtype)
        given = *given, weights, *s, count, mean_bar, var_bar, parts
        _launch("weighted_gaussian_rows", dtype, blocks, *given)
        _launch("weighted_gaussian_total", dtype, 1, parts, np.int64(blocks), *s, value, s_bar)
    return (value, mean_bar, var_bar, s_bar) if need else (value, None, None, None)
