"""CUDA twin of ``pairwise``: ``kernels_cuda/pairwise.cu``, and cuBLAS for wide inner products.

Nothing synchronises: device parameters stay on the device. The splitting of sums depends only on
the shapes and on the device, so results are the same from run to run.
"""

import math

import numpy as np

from ....runtime import cuda_devices
from ..common import loader
from ..common.loader import NULL, number, on_device, parameter
from ..products import matmul
from . import wide

BLOCK, TILE = 256, 64  # as in pairwise_tiles.cuh: threads of a block, rows and columns of its tile
HIGH = 65_535  # maximum blocks along the second and the third dimension of a grid
BLOCKS_EACH = 8  # contraction blocks per multiprocessor: two to four waves
# features from which cuBLAS's products and the passes that they need beat direct differences
DIRECT_BELOW = 41
FAMILIES = {"rbf": 0, "matern12": 1, "matern32": 2, "matern52": 3}  # as in pairwise.cu
_launch = loader.launcher("pairwise", BLOCK)


def _tiles(n):
    return -(-n // TILE)


def _grid(items, N1, N2):
    """Return a grid with a block per tile, and the number of lines of tiles.

    Two grid dimensions count the lines, and may count a few more.
    """
    lines = items * _tiles(N1)
    return (_tiles(N2), min(lines, HIGH), -(-lines // HIGH)), np.uint32(lines)


def _pair(X1, X2):
    """Return both inputs C-contiguous as (items, N, D), and the leading axes."""
    cp = cuda_devices.cupy()
    first = cp.ascontiguousarray(X1)
    second = first if X2 is None else cp.ascontiguousarray(X2)
    *lead, _, _ = first.shape
    items = math.prod(lead)
    return tuple(x.reshape(items, *x.shape[-2:]) for x in (first, second)), tuple(lead)


def _shape(X1, X2):
    return X1, np.int64(X1.shape[-2]), X2, np.int64(X2.shape[-2]), np.int32(X1.shape[-1])


# --- matrices -------------------------------------------------------------------------------------


def stationary(family, X1, X2, variance, lengthscales):
    symmetric = X2 is None
    (X1, X2), lead = _pair(X1, X2)
    items, N1, dtype = len(X1), X1.shape[1], X1.dtype
    K = cuda_devices.cupy().empty((*lead, N1, X2.shape[1]), dtype)
    if K.size and X1.shape[2] >= DIRECT_BELOW:
        for x1, x2, k in zip(X1, X2, K.reshape(items, *K.shape[-2:]), strict=True):
            wide.matrix(FAMILIES[family], x1, x1 if symmetric else x2, variance, lengthscales, k)
    elif K.size:
        parameters = *number(variance, dtype), *parameter(lengthscales, dtype)
        grid, lines = _grid(items, N1, X2.shape[1])
        given = np.int32(FAMILIES[family]), lines, *_shape(X1, X2)
        _launch("matrix", dtype, grid, *given, *parameters, K, np.int32(loader.is_aligned(K)))
    return K


def inner(X1, X2, weights):
    cp, dtype, symmetric = cuda_devices.cupy(), X1.dtype, X2 is None
    if not symmetric and X1.shape[1] >= DIRECT_BELOW:
        return matmul((X1 * _weak(weights, dtype)).astype(dtype, copy=False), X2, transpose_b=True)
    X1 = cp.ascontiguousarray(X1)
    X2 = X1 if symmetric else cp.ascontiguousarray(X2)
    K = cp.empty((len(X1), len(X2)), dtype)
    if K.size:
        grid, lines = _grid(1, len(X1), len(X2))
        given = *_shape(X1, X2), *parameter(weights, dtype), np.int32(symmetric)
        _launch("inner", dtype, grid, lines, *given, K, np.int32(loader.is_aligned(K)))
    return K


# --- contractions ---------------------------------------------------------------------------------


def _shares(N1, N2, items):
    """Return the number of tiles of a block, down and across.

    There are enough blocks for the device, in the grid that needs the least memory: with bands x
    strips blocks the partial sums are (bands N2 + strips N1) D numbers, which grow as the square
    root of N1 N2.
    """
    tiles1, tiles2 = _tiles(N1), _tiles(N2)
    blocks = max(1, BLOCKS_EACH * cuda_devices.multiprocessors() // items)
    bands = min(tiles1, max(1, round(math.sqrt(blocks * tiles1 / tiles2))))
    strips = min(tiles2, -(-blocks // bands))
    bands = min(tiles1, -(-blocks // strips))
    return -(-tiles1 // bands), -(-tiles2 // strips)


def stationary_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K):
    symmetric = X2 is None
    if _is_fortran_ordered(K_bar):
        if not symmetric:
            return _transposed_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K)
        K_bar, K = K_bar.T, None if K is None else K.T
    elif symmetric and K is not None and K.ndim == 2 and not K.flags.c_contiguous:
        K = K.T
    (X1, X2), lead = _pair(X1, X2)
    sides, totals = _room(X1, None if symmetric else X2, lead, lengthscales, need)
    if K_bar.size == 0:
        for bar in (*sides.values(), *totals.values()):
            bar[...] = 0
    elif sides or totals:
        parameters, given = (variance, lengthscales), (sides, totals, 2 if symmetric else 1)
        K_bar = cuda_devices.cupy().ascontiguousarray(K_bar)
        if X1.shape[2] >= DIRECT_BELOW:
            second = X1 if symmetric else X2
            _contract_wide(K_bar, family, X1, second, *parameters, *given)
        else:
            K = K if _helps(family, K) else NULL
            _contract(K_bar, family, X1, X2, *parameters, K, *given)
    return *(sides.get(name) for name in ("X1", "X2")), *(
        totals.get(name) for name in ("variance", "lengthscales")
    )


def _is_fortran_ordered(matrix):
    """Whether one matrix is in Fortran order only."""
    return matrix.ndim == 2 and matrix.flags.f_contiguous and not matrix.flags.c_contiguous


def _helps(family, K):
    """Whether reading K saves time; it costs no less than the other families compute."""
    return family == "rbf" and K is not None and K.flags.c_contiguous


def _transposed_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K):
    """Contract a Fortran-ordered cotangent with both inputs exchanged."""
    swap = {"X1": "X2", "X2": "X1"}
    need, K = tuple(swap.get(name, name) for name in need), None if K is None else K.T
    X2_bar, X1_bar, *rest = stationary_vjp(K_bar.T, family, X2, X1, variance, lengthscales, need, K)
    return X1_bar, X2_bar, *rest


def _room(X1, X2, lead, lengthscales, need):
    """Allocate the requested cotangents: of the sides, and of the parameters, as dictionaries.

    ``X2`` is None in the symmetric case.
    """
    empty, dtype = cuda_devices.cupy().empty, X1.dtype
    sides = {"X1": X1.shape[1:]} | ({} if X2 is None else {"X2": X2.shape[1:]})
    totals = {"variance": (), "lengthscales": np.shape(lengthscales)}
    return (
        {name: empty((*lead, *shape), dtype) for name, shape in sides.items() if name in need},
        {name: empty(shape, dtype) for name, shape in totals.items() if name in need},
    )


def _contract(K_bar, family, X1, X2, variance, lengthscales, K, sides, totals, factor):
    """Fill the requested arrays in ``sides`` and ``totals``.

    ``factor`` scales the side of X1.
    """
    cp, (items, N1, D), N2, dtype = cuda_devices.cupy(), X1.shape, X2.shape[1], X1.dtype
    down, across = _shares(N1, N2, items)
    bands, strips = -(-_tiles(N1) // down), -(-_tiles(N2) // across)
    blocks, both, contracted = (
        items * bands * strips,
        "X2" in sides,
        bool(sides) or "lengthscales" in totals,
    )
    features = D if contracted else 0
    side1, side2 = (
        cp.empty((items, strips, features, N1)),
        cp.empty((items, bands, features if both else 0, N2)),
    )
    squares, total = cp.empty((blocks, features)), cp.empty(blocks)
    aligned = loader.is_aligned(K_bar) and (K is NULL or loader.is_aligned(K))
    parameters = *number(variance, dtype), *parameter(lengthscales, dtype)
    given = np.int32(FAMILIES[family]), K_bar, np.int32(aligned), K, *_shape(X1, X2), *parameters
    split = np.int32(down), np.int32(across)
    if both:
        _launch("contract_both", dtype, blocks, *given, *split, side1, side2, squares, total)
    else:
        found = np.int32(contracted), side1, squares, total
        _launch("contract_rows", dtype, blocks, *given, *split, *found)
    for name, partial, sign in (("X1", side1, factor), ("X2", side2, -1)):
        if name in sides:
            _sum_sides(partial, sign, lengthscales, sides[name])
    if "variance" in totals:
        _sum_parts(total, variance, False, totals["variance"])
    if "lengthscales" in totals:
        _sum_parts(squares, lengthscales, True, totals["lengthscales"])


def _contract_wide(K_bar, family, X1, X2, variance, lengthscales, sides, totals, factor):
    for bar in totals.values():
        bar[...] = 0
    wanted = {**sides, **totals}
    for i, (x1, k_bar) in enumerate(
        zip(X1, K_bar.reshape(len(X1), X1.shape[1], X2.shape[1]), strict=True)
    ):
        x2 = x1 if X2 is X1 else X2[i]
        for name, bar in wide.contract(
            k_bar, FAMILIES[family], x1, x2, variance, lengthscales, set(wanted)
        ).items():
            if name in sides:
                sides[name].reshape(-1, *bar.shape)[i] = bar * factor if name == "X1" else bar
            else:
                totals[name] += bar.astype(totals[name].dtype)


# --- final sums of the parts of contractions, of ``patches`` too: float64, in a fixed order ------


def _sum_sides(parts, factor, lengthscales, out):
    """Set out (items, N, D) to factor / lengthscales^2 times the sum of parts over the shares.

    parts : (items, shares, D, N)
    """
    if out.size:
        _, shares, D, N = parts.shape
        sizes = np.int32(shares), np.int64(N), np.int32(D), np.float64(factor)
        spread = parameter(lengthscales, out.dtype)
        given = parts, *sizes, *spread, out, np.int64(out.size)
        _launch("sum_sides", out.dtype, -(-out.size // BLOCK), *given)


def _sum_parts(parts, values, cubed, out):
    """Set out () or (D,) to the sum of all parts, or of each column of (blocks, D).

    The sum is divided by the values, or by their cubes.
    """
    if out.size:
        sizes = np.int64(parts.size // out.size), np.int32(out.size)
        given = parts, *sizes, *parameter(values, out.dtype), np.int32(cubed), out
        _launch("sum_parts", out.dtype, out.size, *given)


# --- inner products: their cotangents -------------------------------------------------------------


def _weak(value, dtype):
    return value if on_device(value) else dtype.type(value)


def inner_vjp(K_bar, X1, X2, weights, need):
    dtype, symmetric = X1.dtype, X2 is None
    X2 = X1 if symmetric else X2
    factor = _weak(weights, dtype)
    X1_bar = X2_bar = weights_bar = None
    if "X1" in need or "weights" in need:
        P = matmul(K_bar, X2)
        if "weights" in need:
            weights_bar = (
                (X1 * P).sum(None if np.ndim(weights) == 0 else 0, dtype=np.float64).astype(dtype)
            )
        if "X1" in need:
            X1_bar = P * (2 * factor if symmetric else factor)
    if "X2" in need and not symmetric:
        X2_bar = matmul(K_bar, X1, transpose_a=True) * factor
    return X1_bar, X2_bar, weights_bar


# --- squared distances: their pullback is that of an RBF whose given values are -2, for groups of
# features that are few enough for the pass by differences


def squared_distances(X1, X2, lengthscales):
    cp = cuda_devices.cupy()
    X1 = cp.ascontiguousarray(X1)
    X2 = X1 if X2 is None else cp.ascontiguousarray(X2)
    (N1, D), N2, dtype = X1.shape, len(X2), X1.dtype
    R = cp.empty((N1, N2), dtype)
    if R.size:
        inputs = X1, np.int64(N1), X2, np.int64(N2), np.int32(D)
        inputs = *inputs, *parameter(lengthscales, dtype)
        _launch("squared_distances", dtype, -(-R.size // BLOCK), *inputs, R)
    return R


def squared_distances_vjp(R_bar, X1, X2, lengthscales, need):
    cp, D, most = cuda_devices.cupy(), X1.shape[1], DIRECT_BELOW - 1
    weights = cp.full_like(R_bar, -2)
    groups = []
    for first in range(0, D, most):
        part = slice(first, first + most)
        one = lengthscales[part] if np.ndim(lengthscales) else lengthscales
        second = None if X2 is None else X2[:, part]
        bars = stationary_vjp(R_bar, "rbf", X1[:, part], second, 1.0, one, need, weights)
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
