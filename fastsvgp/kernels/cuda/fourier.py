"""CUDA twin of ``fourier``: launches the kernels of ``kernels_cuda/fourier.cu``.

With many features cuBLAS makes the phases. Up to four right-hand sides, or one and the squares of
features, share the cosines. Sums over points and over frequencies
go through partial sums of blocks; their number depends only on the shapes and on the device, so
results are the same from run to run. If partial sums would take too much memory, the frequencies go
through in runs. Nothing waits for the device: parameters that live there stay there.
"""

import functools
import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .common.fourier_functions import Functions
from .common.fourier_parts import (
    BLOCK,
    DEGREES,
    GROUPS_EACH,
    KERNELS,
    POINTS,
    Found,
    Plan,
    Sides,
    Spectrum,
    column_products as _column_products,
    launch as _launch,
    lines as _lines,
    sum_parts as _sum_parts,
)
from .common.loader import NULL, number, parameter
from .products import matmul

SUB = 16  # as in fourier.cu: frequencies between barriers
DIMS = {4: 16, 8: 12}  # the most features for which blocks make the phases themselves
TILE = 1 << 22  # phases of a matrix product: they stay in the cache of the device
PARTS = 1 << 25  # the most numbers of partial sums: 256 MiB in float64
COTANGENTS = "X", "variance", "lengthscales"  # those that are sums over right-hand sides


def _checked(indices, num):
    """Indices as int64 on the device.

    Their range is checked only on demand: the check waits for the device.
    """
    cp = cuda_devices.cupy()
    indices = cp.ascontiguousarray(indices, dtype=np.int64)
    if loader.checking() and indices.size:
        # num may be 2^63, one too many for an int64
        wrong = indices[(indices < 0) | (indices > num - 1)]
        if wrong.size:
            raise IndexError(
                f"`indices` holds {int(wrong[0])}, but there are {num} frequencies (0 to {num - 1})"
            )
    return indices


class _Sums:
    """A sum over shares of the frequencies: parts are kept up to PARTS numbers, then added up."""

    def __init__(self, shape, shares, dtype, together=1):
        most = max(*shares, PARTS // (together * math.prod(shape)))
        self._parts = cuda_devices.cupy().empty((min(sum(shares), most), *shape), dtype)
        self._kept, self._before = 0, None

    def room_for(self, number):
        """The memory of the parts of ``number`` shares."""
        if self._kept + number > len(self._parts):
            self._before, self._kept = self._sum(), 0
        start, self._kept = self._kept, self._kept + number
        return self._parts[start : self._kept]

    def _sum(self):
        """The sum so far, in float64."""
        out = cuda_devices.cupy().empty(self._parts.shape[1:], self._parts.dtype)
        _sum_parts(self._parts[: self._kept], out)
        return out.astype(np.float64) if self._before is None else self._before + out

    def write(self, out, factor=1.0):
        if self._before is None:
            _sum_parts(self._parts[: self._kept], out, factor)
        else:
            out[...] = factor * self._sum()


@functools.lru_cache(maxsize=256)
def _share(n, groups, multiprocessors):
    """How many of n frequencies a block takes, for the fewest tiles of a multiprocessor in turn.

    A block costs one tile more. A multiprocessor counts two blocks at least: one computes while the
    other waits.
    """
    tiles = -(-n // SUB)

    def cost(each):
        blocks = groups * -(-tiles // each)
        return max(2, -(-blocks // multiprocessors)) * (each + 1)

    deals = range(1, min(tiles, GROUPS_EACH * multiprocessors) + 1)
    return SUB * min((-(-tiles // shares) for shares in deals), key=cost)


def _frequencies(family, seed, indices, D, dtype, lengthscales):
    omega = cuda_devices.cupy().empty((len(indices), D), dtype)
    tasks = len(indices) * -(-D // 4)
    if tasks:
        numbers = np.int64(len(indices)), np.int32(D)
        spectrum = np.int32(DEGREES[family]), np.uint64(seed), indices, *numbers
        given = *spectrum, *parameter(lengthscales, dtype), omega
        _launch("frequencies", dtype, -(-tasks // BLOCK), *given)
    return omega


def _part(a, *at):
    return NULL if a is None else cuda_devices.cupy().ascontiguousarray(a[at])


def _plan(kernel, X, n, count):
    """The ``Plan`` for n frequencies and ``count`` right-hand sides."""
    (N, D), size, processors = X.shape, X.dtype.itemsize, cuda_devices.multiprocessors()
    tiled, step = D > DIMS[size], kernel.together
    groups = min(-(-N // POINTS[size]), GROUPS_EACH * processors)
    run = max(SUB, TILE // N // SUB * SUB) if tiled else n
    if kernel.backward:
        numbers = (2 + kernel.squares) * groups * min(step, count)  # per frequency
        run = min(run, max(SUB, PARTS // numbers // SUB * SUB))
    share = _share(min(run, n), groups, processors)
    runs = [slice(start, min(n, start + run)) for start in range(0, n, run)]
    shares = [-(-(part.stop - part.start) // share) for part in runs]
    sides = [slice(first, min(count, first + step)) for first in range(0, count, step)]
    return Plan(tiled, groups, share, runs, shares, sides)


def _pass(name, X, sides, spectrum):
    """The ``Found`` of a kernel, by runs of the frequencies."""
    cp, dtype, (N, D), n = cuda_devices.cupy(), X.dtype, X.shape, len(spectrum.indices)
    kernel, count = KERNELS[name], len(sides.W if sides.U is None else sides.U)
    found = Found(
        cp.empty((count + kernel.squares, N if kernel.forward else 0), dtype),
        cp.empty((count, (2 + kernel.squares) * n if kernel.backward else 0), dtype),
        cp.zeros((N if kernel.slopes else 0, D), dtype),
    )
    if N == 0 or n == 0 or count == 0:
        found.total[...], found.back[...] = 0, 0
        return found
    X = cp.ascontiguousarray(X)
    plan = _plan(kernel, X, n, count)
    totals, X_total = [], None
    if kernel.forward:
        shapes = [(here.stop - here.start + kernel.squares, N) for here in plan.sides]
        totals = [_Sums(shape, plan.shares, dtype, len(shapes)) for shape in shapes]
    if kernel.slopes and not plan.tiled:
        X_total = _Sums((N, D), plan.shares * len(plan.sides), dtype)
    for part, shares in zip(plan.runs, plan.shares, strict=True):
        _run(name, X, sides, spectrum, plan, (part, shares), (totals, X_total), found)
    for here, sums in zip(plan.sides, totals, strict=False):
        sums.write(found.total if kernel.squares else found.total[here])
    if X_total is not None:
        X_total.write(found.X_bar, 2 * math.pi)
    return found


def _run(name, X, sides, spectrum, plan, run, sums, found):
    """A run of frequencies, ``(slice, blocks)``, with all right-hand sides."""
    kernel, (part, _), (totals, X_total) = KERNELS[name], run, sums
    indices, dtype, theta = spectrum.indices[part], X.dtype, NULL
    if plan.tiled:
        given = X.shape[1], dtype, spectrum.lengthscales
        omega = _frequencies(spectrum.family, spectrum.seed, indices, *given)
        if spectrum.factors is not None:
            omega *= spectrum.factors[part, None]
    for g, here in enumerate(plan.sides):
        if plan.tiled and (g == 0 or kernel.slopes):  # slopes overwrite the phases
            theta = matmul(omega, X, transpose_b=True)
        of_side = totals[g] if kernel.forward else None
        parts = _launch_side(name, X, sides, spectrum, plan, run, here, theta, (of_side, X_total))
        if kernel.backward:
            _collect_back(kernel, parts, spectrum, part, here, found.back)
        if kernel.slopes and plan.tiled:
            found.X_bar[...] += 2 * math.pi * matmul(theta, omega, transpose_a=True)


def _launch_side(name, X, sides, spectrum, plan, run, here, theta, sums):
    """Launch a kernel for the right-hand sides ``here``; return the parts of U Phi, or null."""
    kernel, (part, shares), ((N, D), dtype) = KERNELS[name], run, (X.shape, X.dtype)
    both, length = slice(2 * part.start, 2 * part.stop), part.stop - part.start
    together, back_parts = here.stop - here.start, NULL
    forward_parts, X_parts = (NULL if total is None else total.room_for(shares) for total in sums)
    if kernel.backward:
        shape = plan.groups, together, (2 + kernel.squares) * length
        back_parts = cuda_devices.cupy().empty(shape, dtype)
    indices, variance = spectrum.indices[part], number(spectrum.variance, dtype)
    numbers = np.int32(DEGREES[spectrum.family]), np.uint64(spectrum.seed), indices
    scales = *parameter(spectrum.lengthscales, dtype), *variance, np.float64(spectrum.num)
    places = X, np.int64(N), np.int32(D), *scales, theta
    weights = _part(sides.U, here, slice(None)), _part(sides.W, here, both)
    parts = forward_parts, back_parts, X_parts
    of_squares = (_part(sides.u, slice(None)), _part(sides.v, both)) if kernel.squares else ()
    sizes = np.int32(together), np.int64(plan.share)
    _launch(
        f"{name}_{1 if together == 1 else kernel.together}",
        dtype,
        (plan.groups, shares),
        *(*numbers, np.int64(length), *places, *weights, *sizes, *parts, *of_squares),
    )
    return back_parts


def _collect_back(kernel, parts, spectrum, part, here, back):
    """Add up the parts of U Phi of a run of frequencies, and those of squares."""
    both, n = slice(2 * part.start, 2 * part.stop), len(spectrum.indices)
    if kernel.squares:
        length = part.stop - part.start
        sums = cuda_devices.cupy().empty(3 * length, parts.dtype)
        _sum_parts(parts, sums)
        back[0, both], back[0, 2 * n :][part] = sums[: 2 * length], sums[2 * length :]
    else:
        variance = number(spectrum.variance, parts.dtype)
        _sum_parts(parts, back[here, both], 1.0, variance, spectrum.num)


# --- the operations ----------------------------------------------------------


def fourier_frequencies(family, seed, indices, D, dtype):
    indices, dtype = _checked(indices, 1 << 63), np.dtype(dtype)
    # phases of unit lengthscales that are not in turns
    return _frequencies(family, seed, indices, D, dtype, 1 / (2 * math.pi))


def fourier_multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    spectrum = Spectrum(family, seed, _checked(indices, num), num, variance, lengthscales)
    return _multiply(X, w, spectrum, transpose)


def _multiply(X, w, spectrum, transpose):
    lines = _lines(w)
    if transpose:
        out = _pass("transposed", X, Sides(lines, None), spectrum).back
    else:
        out = _pass("multiply", X, Sides(None, lines), spectrum).total
    return out.reshape(*w.shape[:-1], out.shape[1])


def _bars(X, W, U, spectrum, need):
    """``(W_bar, X_bar, variance_bar, lengthscales_bar)``; None if not needed."""
    W_bar = X_bar = variance_bar = lengthscales_bar = None
    if {"X", "lengthscales"} & need:
        _, W_bar, X_bar = _pass("multiply_vjp", X, Sides(_lines(U), _lines(W)), spectrum)
    elif need:
        W_bar = _multiply(X, U, spectrum, True)
    if "variance" in need:
        variance_bar = _column_products(_lines(W), W_bar, 1, 0.5, spectrum.variance).reshape(())
    if "lengthscales" in need:
        lengthscales_bar = _lengthscales_bar(X, X_bar, spectrum.lengthscales)
    W_bar, X_bar = W_bar if "W" in need else None, X_bar if "X" in need else None
    return W_bar, X_bar, variance_bar, lengthscales_bar


def _lengthscales_bar(X, X_bar, lengthscales):
    shape, columns = np.shape(lengthscales), X.shape[1] if np.ndim(lengthscales) else 1
    return _column_products(_lines(X), X_bar, columns, -1.0, lengthscales).reshape(shape)


def fourier_multiply_rows(X, w, family, seeds, num, variance, lengthscales, factors):
    functions = Functions(X, w, Spectrum(family, seeds, None, num, variance, lengthscales, factors))
    if X.shape[-1] > DIMS[X.dtype.itemsize]:
        out = functions.stacked(_multiply(*one, False) for one in functions.one_by_one())
    else:
        out = functions.products(_share, PARTS)
    return out.reshape(*w.shape[:2], X.shape[-2])


def fourier_multiply_rows_vjp(out_bar, X, w, family, seeds, num, variance, lengthscales, factors):
    functions = Functions(X, w, Spectrum(family, seeds, None, num, variance, lengthscales, factors))
    U = out_bar.reshape(*functions.w.shape[:2], X.shape[-2])
    if X.shape[-1] > DIMS[X.dtype.itemsize]:
        each = zip(U, functions.one_by_one(), strict=True)
        bars = (_bars(X, w, U_f, own, {"X"})[1] for U_f, (X, w, own) in each)
        return functions.gathered(bars)
    return functions.slopes(U, _share, PARTS)


def fourier_sweep(X, family, seed, indices, num, variance, lengthscales, W, v, U, u, need, kept):
    spectrum = Spectrum(family, seed, _checked(indices, num), num, variance, lengthscales)
    return _sweep(X, Sides(U, W, u, v), spectrum, {*need})


def _sweep(X, sides, spectrum, need):
    """One right-hand side shares the cosines and sines of the squares; others have their passes."""
    cp = cuda_devices.cupy()
    squares = sides.v is not None or sides.u is not None
    bars, rest = {name: [] for name in ("out", "W", *COTANGENTS)}, slice(int(squares), None)
    of_squares = [None, None]
    if squares:
        own, *of_squares = _with_squares(X, sides, spectrum, need)
        _keep(bars, *own)
    W, U = (None if a is None else a[rest] for a in (sides.W, sides.U))
    count = max(0 if a is None else len(a) for a in (W, U))
    if count or not squares:
        _keep(bars, *_without_squares(X, W, U, spectrum, need))
    out, W_bar = (cp.concatenate(bars[name]) if bars[name] else None for name in ("out", "W"))
    sums = (sum(bars[name][1:], bars[name][0]) if bars[name] else None for name in COTANGENTS)
    return out, of_squares[0], W_bar, of_squares[1], *sums


def _without_squares(X, W, U, spectrum, need):
    """Return ``(out, W_bar, X_bar, variance_bar, lengthscales_bar)``; None if not needed."""
    out = _multiply(X, W, spectrum, False) if "out" in need else None
    of_sides = {"W"} if W is None or U is None else {"W", *COTANGENTS}
    return out, *_bars(X, W, U, spectrum, need & of_sides)


def _with_squares(X, sides, spectrum, need):
    """``(own, squares, v_bar)`` of the first right-hand side and the squares; None if not needed.

    ``own`` is (out (1, N), W_bar (1, 2 n), X_bar, variance_bar, lengthscales_bar). Missing sides
    are zeros.
    """
    cp, N, dtype, n = cuda_devices.cupy(), len(X), X.dtype, len(spectrum.indices)
    variance, lengthscales = spectrum.variance, spectrum.lengthscales
    some = any(a is not None and len(a) for a in (sides.W, sides.U))
    W, U = (
        cp.zeros((1, size), dtype) if a is None or not len(a) else a[:1]
        for a, size in ((sides.W, 2 * n), (sides.U, N))
    )
    v, u = (
        cp.zeros(size, dtype) if a is None else a for a, size in ((sides.v, 2 * n), (sides.u, N))
    )
    scale = np.sqrt(variance / spectrum.num).astype(dtype)
    total, back, X_bar = _squares_passes(X, Sides(U, W, u, v), spectrum, need)
    out = squares = W_bar = v_bar = variance_bar = lengthscales_bar = None
    if total is not None:
        out, squares = total[:1], total[1] + scale * scale * _sum(v[1::2])
    if back is not None:
        W_bar, cosines = scale * back[:, : 2 * n], scale * scale * back[0, 2 * n :]
        v_bar = cp.empty(2 * n, dtype)
        v_bar[::2] = cosines
        v_bar[1::2] = scale * scale * _sum(u) - cosines
    if "variance" in need:
        variance_bar = ((0.5 * _sum(W * W_bar) + _sum(v * v_bar)) / variance).astype(dtype)
    if "lengthscales" in need:
        lengthscales_bar = _lengthscales_bar(X, X_bar, lengthscales)
    own = out if some and "out" in need else None, W_bar if some and "W" in need else None
    own = *own, X_bar if "X" in need else None, variance_bar, lengthscales_bar
    return own, squares if "squares" in need else None, v_bar if "v" in need else None


def _squares_passes(X, sides, spectrum, need):
    """``(total, back, X_bar)`` from one pass with squares, or two: None if not needed."""
    forward, slopes = {"out", "squares"} & need, {"X", "lengthscales"} & need
    backward = slopes or {"W", "v", "variance"} & need
    total = back = X_bar = None
    if forward and (slopes or not backward):
        total = _pass("squares_forward", X, sides._replace(U=None), spectrum).total
    if slopes:
        _, back, X_bar = _pass("squares_slopes", X, sides, spectrum)
    elif forward and backward:
        total, back, _ = _pass("squares_both", X, sides, spectrum)
    elif backward:
        back = _pass("squares_backward", X, sides._replace(W=None), spectrum).back
    return total, back, X_bar


def _keep(bars, *found):
    for parts, bar in zip(bars.values(), found, strict=True):
        if bar is not None:
            parts.append(bar)


def _sum(v):
    """The sum, accumulated in float64, in the dtype of ``v``."""
    return v.sum(dtype=np.float64).astype(v.dtype)
