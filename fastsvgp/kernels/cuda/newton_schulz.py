"""CUDA twin of ``newton_schulz``: triangular products by tiles, their norms in the same pass; nothing waits for the device.

The flops are those of the CPU twin. Step sizes may live on the device.
"""

import math

import numpy as np

from . import loader, tiled
from .tiled import (
    BETWEEN,
    DEVIATION,
    EVERYTHING,
    FROM_ROW,
    HALF,
    INNER,
    LOWER,
    MIRRORED,
    NN,
    NT,
    ROWS_UP_TO_ROW,
    TN,
    UNTOUCHED,
    UP_TO_COLUMN,
    WHOLE,
    ZEROS,
)

BLOCK, TILE = 256, 64  # as in newton_schulz.cu


def _launch(kernel, dtype, blocks, *arguments):
    loader.launch("newton_schulz", kernel, dtype, (blocks,), (BLOCK,), arguments)


def _broadcast(*shapes):
    """As ``np.broadcast_shapes``, which takes 3 us where there is nothing to do."""
    return np.broadcast_shapes(*shapes) if any(shapes) else ()


def _batch(*arrays):
    return _broadcast(*(X.shape[:-2] for X in arrays))


def _empty(batch, like):
    return loader.cupy().empty((*batch, *like.shape[-2:]), like.dtype)


def _contiguous(X):
    return loader.cupy().ascontiguousarray(X)


def _sizes(step_size, batch):
    """``(sizes, factor)``: an array on the device, or a number."""
    if not hasattr(step_size, "ndim") or (step_size.ndim == 0 and not hasattr(step_size, "__cuda_array_interface__")):
        return None, float(step_size)
    cp = loader.cupy()
    return cp.ascontiguousarray(cp.broadcast_to(cp.asarray(step_size, dtype=np.float64), batch)), 1.0


def _product_of_lower(P, Q, batch, p_kind=LOWER, q_kind=LOWER):
    """P Q, lower, with zeros above the diagonal."""
    out = _empty(batch, P)
    tiled.multiply(NN, P, Q, out, BETWEEN, batch=batch, left_kind=p_kind, right_kind=q_kind, upper=ZEROS)
    return out


def _deviation(A, L, D, Y, measured=True):
    """``D = L' A L - I``, and what sums over its tiles leave; None where it is empty. Y is scratch."""
    if not D.size:
        return None
    batch = D.shape[:-2]
    tiled.multiply(NN, A, L, Y, BETWEEN, batch=batch, left_kind=HALF, right_kind=LOWER)
    return tiled.multiply(TN, L, Y, D, FROM_ROW, batch=batch, left_kind=LOWER, right_kind=LOWER, both=True, upper=ZEROS,
                          epilogue=DEVIATION, measured=measured)  # fmt: skip


def newton_schulz_gram(A, L, out=None):
    batch = _batch(A, L)
    D = _empty(batch, L) if out is None else out
    sums = _deviation(A, L, D, _empty(batch, L))
    stats = loader.cupy().empty((*D.shape[:-2], 4), np.float64)
    if sums is not None:
        _launch("sum_deviations", L.dtype, len(sums), sums, np.int32(sums.shape[1]), stats)
    return D, stats


def newton_schulz_update(L, D, step_size, overwrite_d=False):
    return _update(L, D, step_size)  # D is read until the end, so the result has memory of its own


def _update(L, D, step_size, out=None):
    """L - g L Phi(D)."""
    batch = _broadcast(L.shape[:-2], D.shape[:-2], getattr(step_size, "shape", ()))
    sizes, factor = _sizes(step_size, batch)
    out = _empty(batch, D) if out is None else out
    tiled.multiply(NN, L, D, out, BETWEEN, batch=batch, left_kind=LOWER, right_kind=HALF, base=L, sizes=sizes, factor=-factor,
                   upper=ZEROS)  # fmt: skip
    return out


def newton_schulz_step(A, L, step_size, out=None):
    batch = _batch(A, L)
    whole = _broadcast(batch, getattr(step_size, "shape", ()))
    D, out = _empty(batch, L), _empty(whole, L) if out is None else out
    _deviation(A, L, D, out if whole == batch else _empty(batch, L), measured=False)
    return _update(L, D, step_size, out)


def newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need=("A", "L")):
    # as in the CPU twin: C = L' G with G = tril(L_new_bar), S = Phi(C) + Phi(C)', whose lower triangle is that of C, and
    #   A_bar = -g/2 L S L',    L_bar = tril(G - g G Phi(D)') - g tril(A L S).
    batch = _broadcast(L_new_bar.shape[:-2], getattr(step_size, "shape", ()))
    sizes, factor = _sizes(step_size, batch)
    scaled = dict(batch=batch, sizes=sizes)
    S, A_bar, L_bar = _empty(batch, L), _empty(batch, L), None
    tiled.multiply(TN, L, L_new_bar, S, FROM_ROW, batch=batch, left_kind=LOWER, right_kind=LOWER, upper=MIRRORED)
    if "L" not in need:
        _congruence(L, S, A_bar, MIRRORED, factor=-factor / 2, **scaled)
        return tiled.summed_to(A_bar, A), None
    LS, L_bar = _empty(batch, L), _empty(batch, L)
    tiled.multiply(NN, L, S, LS, ROWS_UP_TO_ROW, batch=batch, left_kind=LOWER, upper=EVERYTHING)
    tiled.multiply(NT, L_new_bar, D, L_bar, UP_TO_COLUMN, left_kind=LOWER, right_kind=HALF, base=L_new_bar, factor=-factor,
                   upper=ZEROS, **scaled)  # fmt: skip
    cp = loader.cupy()
    full = cp.tril(A) + cp.tril(A, -1).swapaxes(-1, -2)
    tiled.multiply(NN, full, LS, L_bar, WHOLE, base=L_bar, factor=-factor, upper=ZEROS, **scaled)
    if "A" in need:
        tiled.multiply(NT, LS, L, A_bar, UP_TO_COLUMN, right_kind=LOWER, factor=-factor / 2, upper=MIRRORED, **scaled)
        A_bar = tiled.summed_to(A_bar, A)
    else:
        A_bar = None
    return A_bar, tiled.summed_to(L_bar, L)


def _congruence(L, S, out, upper, **scale):
    # S = B + B', B its lower triangle with half the diagonal: with Y = L B, lower, L S L' = L Y' + Y L'
    Y = _product_of_lower(L, S, out.shape[:-2], q_kind=HALF)
    tiled.multiply(NT, L, Y, out, UP_TO_COLUMN, left_kind=LOWER, right_kind=LOWER, both=True, upper=upper, **scale)


def tril_congruence(L, S):
    batch = _batch(L, S)
    out = _empty(batch, S)
    _congruence(L, S, out, UNTOUCHED, batch=batch)
    return out


def newton_schulz_curvature(A, L, D):
    # <P, A P> = <P, (B + B') P> = 2 <P, B P>
    batch = _batch(A, L, D)
    P = _product_of_lower(L, D, batch, q_kind=HALF)
    curvature = loader.cupy().zeros(batch, np.float64)
    if P.size:
        sums = tiled.multiply(NN, A, P, None, BETWEEN, batch=batch, left_kind=HALF, right_kind=LOWER, epilogue=INNER, base=P)
        _launch("sum_inner", P.dtype, len(sums), sums, np.int32(sums.shape[1]), curvature)
    return P, curvature


def power_iteration(S, v, shift=0.0, iterations=3):
    cp = loader.cupy()
    batch = _broadcast(S.shape[:-2], v.shape[:-1])
    n, items = S.shape[-1], math.prod(batch)
    S, _, item_size = tiled.items_of(_contiguous(S), batch)
    v = cp.ascontiguousarray(cp.broadcast_to(v, (*batch, n)))
    if iterations == 0 or not items:
        return cp.zeros(batch, np.float64), v
    high, pieces = -(-n // TILE), -(-n // BLOCK)
    parts, none = cp.empty((items, high, n), np.float64), np.uint64(0)
    squares, following = cp.empty((2, items, pieces), np.float64)
    out = cp.empty(v.shape, v.dtype)
    _launch("sum_parts", v.dtype, items * pieces, parts, np.int32(0), np.int32(n), v, np.float64(1), none, out, squares)
    for _ in range(iterations):
        v, out = out, cp.empty(v.shape, v.dtype)
        tiles = items * high * (high + 1) // 2
        _launch("symmetric_times", v.dtype, tiles, S, item_size, np.int32(n), v, squares, np.int32(pieces), parts)
        both = np.int32(high), np.int32(n), v, np.float64(shift), squares
        _launch("sum_parts", v.dtype, items * pieces, parts, *both, out, following)
        squares, following = following, squares
    return cp.sqrt(squares.sum(-1)).reshape(batch), out


def newton_schulz_sizes(stats, D, v, tolerance, iterations=3):
    tops, v = power_iteration(D, v, 1.0, iterations)
    sizes = loader.cupy().empty(tops.shape, np.float64)
    if sizes.size:
        limits = np.int32(sizes.size), np.float64(math.sqrt(D.shape[-1])), np.float64(tolerance)
        _launch("choose_sizes", D.dtype, -(-sizes.size // BLOCK), _contiguous(stats), tops, *limits, sizes)
    return sizes, v
