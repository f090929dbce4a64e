"""CUDA twin of ``fourier``: what ``kernels_cuda/fourier.cu`` is launched with; with many features cuBLAS makes the phases.

Up to four right-hand sides (two in one of the reverse rules) share the cosines. Sums over points and over frequencies go through
partial sums of blocks; how many depends on the shapes and on the device alone, so results are the same from run to run. Where
they would take too much memory, the frequencies go through in runs. Nothing waits for the device: parameters that live there stay
there.
"""

import functools
import math

import numpy as np

from . import loader

# as in fourier.cu: threads of a block, frequencies between barriers, columns that a block sums up
BLOCK, SUB, FINISHED = 256, 16, 32
TOGETHER = {"multiply": 4, "transposed": 4, "multiply_vjp": 4, "transposed_vjp": 2}  # right-hand sides at once; or one
POINTS = {4: 256, 8: 128}  # of a block, by the bytes of an element
DIMS = {4: 16, 8: 12}  # the most features for which blocks make the phases themselves
GROUPS_EACH = 8  # blocks along points for each multiprocessor, where there are so many points
TILE = 1 << 22  # phases that a matrix product makes at a time: they stay in the cache of the device
PARTS = 1 << 25  # numbers that partial sums may take: 256 MiB in float64
DEGREES = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}  # of freedom of the Student-t spectrum; 0: normal
NULL = np.uint64(0)


def _checked(indices, num):
    """Indices as int64 on the device. Their range is checked only on demand: it costs a wait for the device."""
    cp = loader.cupy()
    indices = cp.ascontiguousarray(indices, dtype=np.int64)
    if loader.checking() and indices.size:
        wrong = indices[(indices < 0) | (indices > num - 1)]  # num may be 2^63, one too many for an int64
        if wrong.size:
            raise IndexError(f"`indices` holds {int(wrong[0])}, but there are {num} frequencies (0 to {num - 1})")
    return indices


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return loader.cupy().ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _parameter(value, dtype):
    """A parameter () or (D,) as kernels take it: its place or null, its value if it is here, the step from feature to feature."""
    cp = loader.cupy()
    if isinstance(value, cp.ndarray) or np.ndim(value):
        return cp.ascontiguousarray(value, dtype=dtype), dtype.type(0), np.int32(np.ndim(value))
    return NULL, dtype.type(value), np.int32(0)


def _launch(kernel, dtype, grid, *arguments):
    loader.launch("fourier", kernel, dtype, grid, (BLOCK,), arguments)


def _sum_parts(parts, out, factor=1.0, variance=None, num=0):
    place, value = variance or (NULL, parts.dtype.type(0))
    target = out if out.flags.c_contiguous else loader.cupy().empty(out.shape, out.dtype)
    arguments = parts, np.int32(len(parts)), np.int64(out.size), np.float64(factor), place, value, np.float64(num), target
    _launch("sum_parts", out.dtype, (-(-out.size // FINISHED),), *arguments)
    if target is not out:
        out[...] = target


class _Sums:
    """A sum over shares of the frequencies whose parts are kept until there are PARTS numbers of them, then added up."""

    def __init__(self, shape, shares, dtype, together=1):
        most = max(*shares, PARTS // (together * math.prod(shape)))
        self._parts = loader.cupy().empty((min(sum(shares), most), *shape), dtype)
        self._kept, self._before = 0, None

    def room_for(self, number):
        """The memory of the parts of so many shares."""
        if self._kept + number > len(self._parts):
            self._before, self._kept = self._sum(), 0
        start, self._kept = self._kept, self._kept + number
        return self._parts[start : self._kept]

    def _sum(self):
        """Of all so far, in float64."""
        out = loader.cupy().empty(self._parts.shape[1:], self._parts.dtype)
        _sum_parts(self._parts[: self._kept], out)
        return out.astype(np.float64) if self._before is None else self._before + out

    def write(self, out, factor=1.0):
        if self._before is None:
            _sum_parts(self._parts[: self._kept], out, factor)
        else:
            out[...] = factor * self._sum()


def _column_products(a, b, columns, factor, divisor):
    out = loader.cupy().empty(columns, a.dtype)
    rows = np.int64(a.size // columns), np.int32(columns)
    _launch("column_products", a.dtype, (columns,), a, b, *rows, np.float64(factor), *_parameter(divisor, a.dtype), out)
    return out


@functools.lru_cache(maxsize=256)
def _share(n, groups, multiprocessors):
    """How many of n frequencies a block takes: such that a multiprocessor has the fewest tiles of them in turn, where a block
    costs one more, and at least two blocks, so that one computes while the other waits.
    """
    tiles = -(-n // SUB)

    def cost(each):
        blocks = groups * -(-tiles // each)
        return max(2, -(-blocks // multiprocessors)) * (each + 1)

    deals = range(1, min(tiles, GROUPS_EACH * multiprocessors) + 1)
    return SUB * min((-(-tiles // shares) for shares in deals), key=cost)


def _frequencies(family, seed, indices, D, dtype, lengthscales):
    omega = loader.cupy().empty((len(indices), D), dtype)
    tasks = len(indices) * -(-D // 4)
    if tasks:
        spectrum = np.int32(DEGREES[family]), np.uint64(seed), indices, np.int64(len(indices)), np.int32(D)
        _launch("frequencies", dtype, (-(-tasks // BLOCK),), *spectrum, *_parameter(lengthscales, dtype), omega)
    return omega


def _part(a, rows, columns):
    return NULL if a is None else loader.cupy().ascontiguousarray(a[rows, columns])


def _pass(kernel, X, U, W, family, seed, indices, num, variance, lengthscales):
    """``(total, back, X_bar)``: W Phi' (R, N), U Phi (R, 2 n) and sum_p g omega_p / l (N, D), those that the kernel makes."""
    cp, dtype, (N, D), n = loader.cupy(), X.dtype, X.shape, len(indices)
    forward, slopes = kernel in ("multiply", "transposed_vjp"), kernel.endswith("vjp")
    backward = not forward
    count = len(W if U is None else U)
    total, back = cp.empty((count, N if forward else 0), dtype), cp.empty((count, 2 * n if backward else 0), dtype)
    X_bar = cp.zeros((N if slopes else 0, D), dtype)
    if N == 0 or n == 0 or count == 0:
        total[...], back[...] = 0, 0
        return total, back, X_bar
    X, tiled, step = cp.ascontiguousarray(X), D > DIMS[dtype.itemsize], TOGETHER[kernel]
    groups = min(-(-N // POINTS[dtype.itemsize]), GROUPS_EACH * loader.multiprocessors())
    run = max(SUB, TILE // N // SUB * SUB) if tiled else n
    if backward:
        run = min(run, max(SUB, PARTS // (2 * groups * min(step, count)) // SUB * SUB))
    share = _share(min(run, n), groups, loader.multiprocessors())
    runs = [slice(start, min(n, start + run)) for start in range(0, n, run)]
    shares = [-(-(part.stop - part.start) // share) for part in runs]
    scales, variance = _parameter(lengthscales, dtype), _parameter(variance, dtype)[:2]
    sides = [slice(first, min(count, first + step)) for first in range(0, count, step)]
    widths = [here.stop - here.start for here in sides]
    totals = [_Sums((width, N), shares, dtype, len(sides)) for width in widths] if forward else []
    X_total = _Sums((N, D), shares * len(sides), dtype) if slopes and not tiled else None
    for part, number in zip(runs, shares, strict=True):
        both, length = slice(2 * part.start, 2 * part.stop), part.stop - part.start
        omega = _frequencies(family, seed, indices[part], D, dtype, lengthscales) if tiled else None
        theta = cp.matmul(omega, X.T) if tiled else NULL
        spectrum = np.int32(DEGREES[family]), np.uint64(seed), indices[part], np.int64(length)
        for g, (here, together) in enumerate(zip(sides, widths, strict=True)):
            if slopes and tiled and g:
                theta = cp.matmul(omega, X.T)  # slopes took the place of the phases
            forward_parts = totals[g].room_for(number) if forward else NULL
            back_parts = cp.empty((groups, together, 2 * length), dtype) if backward else NULL
            X_parts = NULL if X_total is None else X_total.room_for(number)
            places = X, np.int64(N), np.int32(D), *scales, *variance, np.float64(num), theta
            weights = _part(U, here, slice(None)), _part(W, here, both), np.int32(together), np.int64(share)
            name = f"{kernel}_{1 if together == 1 else step}"
            _launch(name, dtype, (groups, number), *spectrum, *places, *weights, forward_parts, back_parts, X_parts)
            if backward:
                _sum_parts(back_parts, back[here, both], 1.0, variance, num)
            if slopes and tiled:
                X_bar += 2 * math.pi * cp.matmul(theta.T, omega)
    for here, sums in zip(sides, totals, strict=False):
        sums.write(total[here])
    if X_total is not None:
        X_total.write(X_bar, 2 * math.pi)
    return total, back, X_bar


# --- the operations ----------------------------------------------------------------------------------------------------


def frequencies(family, seed, indices, D, dtype):
    indices, dtype = _checked(indices, 1 << 63), np.dtype(dtype)
    return _frequencies(family, seed, indices, D, dtype, 1 / (2 * math.pi))  # phases of unit lengthscales that are not in turns


def multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    lines, spectrum = _lines(w), (family, seed, _checked(indices, num), num, variance, lengthscales)
    if transpose:
        _, out, _ = _pass("transposed", X, lines, None, *spectrum)
    else:
        out, _, _ = _pass("multiply", X, None, lines, *spectrum)
    return out.reshape(*w.shape[:-1], out.shape[1])


def multiply_vjp(out_bar, X, w, family, seed, indices, num, variance, lengthscales, transpose, need):
    spectrum = family, seed, _checked(indices, num), num, variance, lengthscales
    X_bar = w_bar = variance_bar = lengthscales_bar = None
    if {"X", "lengthscales"} & {*need}:
        if transpose:
            w_bar, _, X_bar = _pass("transposed_vjp", X, _lines(w), _lines(out_bar), *spectrum)
        else:
            _, w_bar, X_bar = _pass("multiply_vjp", X, _lines(out_bar), _lines(w), *spectrum)
        w_bar = w_bar.reshape(w.shape)
    elif {"w", "variance"} & {*need}:
        w_bar = multiply(X, out_bar, *spectrum, not transpose)
    if "variance" in need:
        variance_bar = _column_products(_lines(w), w_bar, 1, 0.5, variance).reshape(())
    if "lengthscales" in need:
        shape = np.shape(lengthscales)
        columns = X.shape[1] if shape else 1
        lengthscales_bar = _column_products(_lines(X), X_bar, columns, -1.0, lengthscales).reshape(shape)
    return X_bar if "X" in need else None, w_bar if "w" in need else None, variance_bar, lengthscales_bar


def sweep(X, W, v, U, u, family, seed, indices, num, variance, lengthscales, need, kept):
    """Products and squares go through passes of their own: (Phi * Phi) v = s / 2 [s sum(v) + Phi(2 X) d], where d has v of
    cosines less v of sines for the cosines, and zeros for the sines.
    """
    model, need, cotangents = (family, seed, indices, num, variance, lengthscales), {*need}, ("X", "variance", "lengthscales")
    asked = [name for name in cotangents if name in need]
    bars = {name: [] for name in cotangents}
    out = multiply(X, W, *model, False) if "out" in need else None
    squares = W_bar = v_bar = None
    if "W" in need:
        W_bar = multiply(X, U, *model, True)
    if asked and W is not None and U is not None:
        X_bar, _, *others = multiply_vjp(U, X, W, *model, False, asked)
        _keep(bars, X_bar, *others)
    half, d = (0.5 * np.sqrt(variance / num)).astype(X.dtype), None if v is None else _differences(v)
    if "squares" in need:
        squares = half * (2 * half * _sum(v) + multiply(2 * X, d, *model, False))
    if u is not None and ("v" in need or asked and v is not None):
        each, wave_bar = 2 * half * half * _sum(u), multiply(2 * X, half * u, *model, True)
        v_bar = each + wave_bar
        v_bar[1::2] = each - wave_bar[::2]
    if asked and v is not None and u is not None:
        X_bar, _, _, lengthscales_bar = multiply_vjp(half * u, 2 * X, d, *model, False, asked)
        _keep(bars, None if X_bar is None else 2 * X_bar, (_sum(v * v_bar) / variance).astype(X.dtype), lengthscales_bar)
    found = (sum(bars[name][1:], bars[name][0]) if name in need and bars[name] else None for name in cotangents)
    return out, squares, W_bar, v_bar if "v" in need else None, *found


def _keep(bars, *found):
    for parts, bar in zip(bars.values(), found, strict=True):
        if bar is not None:
            parts.append(bar)


def _differences(v):
    """Right-hand sides (2 n,) of the waves: those of cosines, zeros of sines."""
    d = loader.cupy().zeros_like(v)
    d[::2] = v[::2] - v[1::2]
    return d


def _sum(v):
    """Accumulated in float64, in the dtype that came."""
    return v.sum(dtype=np.float64).astype(v.dtype)
