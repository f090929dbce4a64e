"""CUDA twin of ``newton_schulz``: tiled triangular products, with norms in the same pass.

Nothing synchronises. The flops are those of the CPU twin. Step sizes may be device arrays.
"""

import math

import numpy as np

from ...runtime import cuda_devices
from . import tiled
from .common import loader
from .tiled import (
    BETWEEN,
    DEVIATION,
    EVERYTHING,
    FROM_ROW,
    GATED,
    HALF,
    INNER,
    LEFT,
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
    Epilogue,
    Gemm,
    Target,
    TileScale,
)

BLOCK, TILE = 256, 64  # as in newton_schulz.cu
_launch = loader.launcher("newton_schulz", BLOCK)


def _broadcast(one, *others):
    """Act as ``np.broadcast_shapes``, which takes 3 us even if the shapes are equal."""
    for other in others:
        one = one if one == other else np.broadcast_shapes(one, other)
    return one


def _batch(*arrays):
    return _broadcast(*(X.shape[:-2] for X in arrays))


def _empty(batch, like):
    return cuda_devices.cupy().empty((*batch, *like.shape[-2:]), like.dtype)


def _contiguous(X):
    return cuda_devices.cupy().ascontiguousarray(X)


def _scale(step_size, batch):
    """Return the ``TileScale`` by a step size: sizes on the device, or a number."""
    if not hasattr(step_size, "ndim") or (
        step_size.ndim == 0 and not hasattr(step_size, "__cuda_array_interface__")
    ):
        return TileScale(float(step_size))
    cp = cuda_devices.cupy()
    sizes = cp.broadcast_to(cp.asarray(step_size, dtype=np.float64), batch)
    return TileScale(1.0, cp.ascontiguousarray(sizes))


def _product_of_lower(P, Q, batch, p_kind=LOWER, q_kind=LOWER):
    """Compute P Q, lower, with zeros above the diagonal."""
    out = _empty(batch, P)
    tiled.multiply(Gemm(NN, P, Q, p_kind, q_kind), Target(out, BETWEEN, ZEROS), batch=batch)
    return out


def _deviation(A, L, D, Y, sums=None, gate=tiled.PLAIN):
    """Compute ``D = L' A L - I``; Y is scratch."""
    given = {"batch": D.shape[:-2], "scale": gate}
    tiled.multiply(Gemm(NN, A, L, HALF, LOWER), Target(Y, BETWEEN), **given)
    tiled.multiply(
        Gemm(TN, L, Y, LOWER, LOWER, both=True),
        Target(D, FROM_ROW, ZEROS),
        epilogue=Epilogue(DEVIATION, sums),
        **given,
    )


def newton_schulz_gram(A, L):
    batch, stats = _batch(A, L), cuda_devices.cupy().empty((*_batch(A, L), 4), np.float64)
    D = _empty(batch, L)
    if D.size:
        sums = tiled.sums_of(batch, L.shape[-1])
        _deviation(A, L, D, _empty(batch, L), sums)
        _launch("sum_deviations", L.dtype, len(sums), sums, np.int32(sums.shape[1]), stats)
    return D, stats


def newton_schulz_update(L, D, step_size, overwrite_d=False):
    return _update(L, D, step_size)  # D is read until the end, so the result needs its own memory


def _update(L, D, step_size, out=None):
    """Compute L - g L Phi(D)."""
    batch = _broadcast(L.shape[:-2], D.shape[:-2], getattr(step_size, "shape", ()))
    out = _empty(batch, D) if out is None else out
    tiled.multiply(
        Gemm(NN, L, D, LOWER, HALF),
        Target(out, BETWEEN, ZEROS),
        batch=batch,
        base=L,
        scale=_scale(step_size, batch).times(-1.0),
    )
    return out


def newton_schulz_step(A, L, step_size):
    batch = _batch(A, L)
    whole = _broadcast(batch, getattr(step_size, "shape", ()))
    D, out = _empty(batch, L), _empty(whole, L)
    _deviation(A, L, D, out if whole == batch else _empty(batch, L))
    return _update(L, D, step_size, out)


def newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need=("A", "L")):
    # as in the CPU twin: C = L' G with G = tril(L_new_bar), S = Phi(C) + Phi(C)', whose lower
    # triangle is that of C, and
    #   A_bar = -g/2 L S L',    L_bar = tril(G - g G Phi(D)') - g tril(A L S).
    batch = _broadcast(L_new_bar.shape[:-2], getattr(step_size, "shape", ()))
    scale = _scale(step_size, batch)
    less, half_less = scale.times(-1.0), scale.times(-0.5)
    S, A_bar, L_bar = _empty(batch, L), _empty(batch, L), None
    tiled.multiply(Gemm(TN, L, L_new_bar, LOWER, LOWER), Target(S, FROM_ROW, MIRRORED), batch=batch)
    if "L" not in need:
        _congruence(L, S, Target(A_bar, UP_TO_COLUMN, MIRRORED), batch, half_less)
        return tiled.summed_to(A_bar, A), None
    LS, L_bar = _empty(batch, L), _empty(batch, L)
    tiled.multiply(Gemm(NN, L, S, LOWER), Target(LS, ROWS_UP_TO_ROW, EVERYTHING), batch=batch)
    tiled.multiply(
        Gemm(NT, L_new_bar, D, LOWER, HALF),
        Target(L_bar, UP_TO_COLUMN, ZEROS),
        batch=batch,
        base=L_new_bar,
        scale=less,
    )
    cp = cuda_devices.cupy()
    full = cp.tril(A) + cp.tril(A, -1).swapaxes(-1, -2)
    tiled.multiply(
        Gemm(NN, full, LS), Target(L_bar, WHOLE, ZEROS), batch=batch, base=L_bar, scale=less
    )
    if "A" in need:
        tiled.multiply(
            Gemm(NT, LS, L, right_kind=LOWER),
            Target(A_bar, UP_TO_COLUMN, MIRRORED),
            batch=batch,
            scale=half_less,
        )
        A_bar = tiled.summed_to(A_bar, A)
    else:
        A_bar = None
    return A_bar, tiled.summed_to(L_bar, L)


def _congruence(L, S, target, batch, scale=tiled.PLAIN):
    # S = B + B' with B its lower triangle with half the diagonal: for Y = L B, lower,
    # L S L' = L Y' + Y L'
    Y = _product_of_lower(L, S, batch, q_kind=HALF)
    tiled.multiply(Gemm(NT, L, Y, LOWER, LOWER, both=True), target, batch=batch, scale=scale)


def tril_congruence(L, S):
    batch = _batch(L, S)
    out = _empty(batch, S)
    _congruence(L, S, Target(out, UP_TO_COLUMN, UNTOUCHED), batch)
    return out


def newton_schulz_curvature(A, L, D):
    # <P, A P> = <P, (B + B') P> = 2 <P, B P>
    batch = _batch(A, L, D)
    P = _product_of_lower(L, D, batch, q_kind=HALF)
    curvature = cuda_devices.cupy().zeros(batch, np.float64)
    if P.size:
        sums = tiled.sums_of(batch, P.shape[-1])
        tiled.multiply(
            Gemm(NN, A, P, HALF, LOWER),
            Target(None, BETWEEN),
            batch=batch,
            base=P,
            epilogue=Epilogue(INNER, sums),
        )
        _launch("sum_inner", P.dtype, len(sums), sums, np.int32(sums.shape[1]), curvature)
    return P, curvature


class _Power:
    """A vector per item, and the sums of squares of its parts."""

    def __init__(self, v, batch):
        cp, self.n, self.items = cuda_devices.cupy(), v.shape[-1], math.prod(batch)
        self.high, self.pieces = -(-self.n // TILE), -(-self.n // BLOCK)
        v = cp.ascontiguousarray(cp.broadcast_to(v, (*batch, self.n)))
        self.parts = cp.empty((self.items, self.high, self.n), np.float64)
        self.squares, self.following = (
            cp.empty((self.items, self.pieces), np.float64) for _ in range(2)
        )
        self.v, self.other = cp.empty(v.shape, v.dtype), cp.empty(v.shape, v.dtype)
        self._sum(np.int32(0), v, np.float64(1), None, self.v, self.squares)

    def _sum(self, high, *arguments):
        given = self.parts, high, np.int32(self.n), *arguments
        _launch("sum_parts", self.v.dtype, self.items * self.pieces, *given)

    def iterate(self, S, shift, iterations):
        """Iterate with S of contiguous matrices, one per item or one for all."""
        item_size, tiles = (
            np.int64(self.n**2 if S.size > self.n**2 else 0),
            self.items * self.high * (self.high + 1) // 2,
        )
        high, pieces, shift = np.int32(self.high), np.int32(self.pieces), np.float64(shift)
        for _ in range(iterations):
            given = S, item_size, np.int32(self.n), self.v, self.squares, pieces, self.parts
            _launch("symmetric_times", self.v.dtype, tiles, *given)
            self._sum(high, self.v, shift, self.squares, self.other, self.following)
            self.v, self.other, self.squares, self.following = (
                self.other,
                self.v,
                self.following,
                self.squares,
            )


def power_iteration(S, v, shift=0.0, iterations=3):
    cp = cuda_devices.cupy()
    batch = _broadcast(S.shape[:-2], v.shape[:-1])
    if iterations == 0 or not math.prod(batch):
        return cp.zeros(batch, np.float64), cp.ascontiguousarray(
            cp.broadcast_to(v, (*batch, v.shape[-1]))
        )
    power = _Power(v, batch)
    power.iterate(tiled.items_of(_contiguous(S), batch)[0], shift, iterations)
    return cp.sqrt(power.squares.sum(-1)).reshape(batch), power.v


def newton_schulz_walk(A, L, v, tolerance, steps, start=None, iterations=(3, 3)):
    cp, batch, n = cuda_devices.cupy(), _batch(A, L), L.shape[-1]
    items, given = math.prod(batch), start is not None
    factors, rows = (
        cp.empty((steps, *batch, n, n), L.dtype),
        cp.empty((steps + 1, *batch, 6), np.float64),
    )
    D, stats = (start[0], cp.ascontiguousarray(start[1])) if given else (_empty(batch, L), None)
    if not items:
        return factors, D, rows, v
    sizes, sums, Y = cp.empty(batch, np.float64), tiled.sums_of(batch, n), _empty(batch, L)
    power = _Power(v, batch) if steps and any(iterations) else None
    if not given:
        _deviation(A, L, D, Y, sums)
    for step in range(steps + 1):
        repeated = iterations[step > 0] if step < steps else 0
        if repeated:
            power.iterate(D, 1.0, repeated)
        squares = (power.squares, np.int32(power.pieces)) if repeated else (None, np.int32(0))
        tiles = np.int32(0 if given and step == 0 else sums.shape[1])
        schedule = np.float64(tolerance), np.int32(step), np.int32(step < steps)
        lower, stride, item_size = tiled.items_of(L, batch)
        factor = lower, stride, item_size, np.int32(n)
        given = stats, sums, tiles, *factor, *squares, *schedule, rows, sizes
        _launch("decide", L.dtype, items, *given)
        if step < steps:
            before, L = L, factors[step]
            tiled.multiply(
                Gemm(NN, before, D, LOWER, HALF),
                Target(L, BETWEEN, ZEROS),
                batch=batch,
                base=before,
                scale=TileScale(-1.0, sizes, LEFT),
            )
            _deviation(A, L, D, Y, sums, TileScale(1.0, sizes, GATED))
    return factors, D, rows, v if power is None else power.v
