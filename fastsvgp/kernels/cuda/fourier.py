"""CUDA twin of ``fourier``: what ``kernels_cuda/fourier.cu`` is launched with; with many features cuBLAS makes the phases.

Up to four right-hand sides (two in one of the reverse rules), or one and the squares of features,
share the cosines. Sums over points and over frequencies go through partial sums of blocks; how many
depends on the shapes and on the device alone, so results are the same from run to run. Where they
would take too much memory, the frequencies go through in runs. Nothing waits for the device:
parameters that live there stay there.
"""

import functools
import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .products import matmul

# as in fourier.cu: threads of a block, frequencies between barriers, columns that a block sums up
BLOCK, SUB, FINISHED = 256, 16, 32
# right-hand sides at once; or one
TOGETHER = {"multiply": 4, "transposed": 4, "multiply_vjp": 4, "transposed_vjp": 2}
SQUARES = "squares_"  # kernels that take squares along, with one right-hand side
POINTS = {4: 256, 8: 128}  # of a block, by the bytes of an element
DIMS = {4: 16, 8: 12}  # the most features for which blocks make the phases themselves
GROUPS_EACH = 8  # blocks along points for each multiprocessor, where there are so many points
TILE = 1 << 22  # phases that a matrix product makes at a time: they stay in the cache of the device
PARTS = 1 << 25  # numbers that partial sums may take: 256 MiB in float64
# of freedom of the Student-t spectrum; 0: normal
DEGREES = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}
NULL = np.uint64(0)


def _checked(indices, num):
    """Indices as int64 on the device.

    Their range is checked only on demand: it costs a wait for the device.
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


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return cuda_devices.cupy().ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _parameter(value, dtype):
    """A parameter () or (D,) as kernels take it: its place or null, its value if it is here, the step from feature to feature."""
    cp = cuda_devices.cupy()
    if isinstance(value, cp.ndarray) or np.ndim(value):
        return cp.ascontiguousarray(value, dtype=dtype), dtype.type(0), np.int32(np.ndim(value))
    return NULL, dtype.type(value), np.int32(0)


def _launch(kernel, dtype, grid, *arguments):
    loader.launch("fourier", kernel, dtype, grid, (BLOCK,), arguments)


def _sum_parts(parts, out, factor=1.0, variance=None, num=0):
    place, value = variance or (NULL, parts.dtype.type(0))
    target = out if out.flags.c_contiguous else cuda_devices.cupy().empty(out.shape, out.dtype)
    arguments = (
        parts,
        np.int32(len(parts)),
        np.int64(out.size),
        np.float64(factor),
        place,
        value,
        np.float64(num),
        target,
    )
    _launch("sum_parts", out.dtype, (-(-out.size // FINISHED),), *arguments)
    if target is not out:
        out[...] = target


class _Sums:
    """A sum over shares of the frequencies whose parts are kept until there are PARTS numbers of them, then added up."""

    def __init__(self, shape, shares, dtype, together=1):
        most = max(*shares, PARTS // (together * math.prod(shape)))
        self._parts = cuda_devices.cupy().empty((min(sum(shares), most), *shape), dtype)
        self._kept, self._before = 0, None

    def room_for(self, number):
        """The memory of the parts of so many shares."""
        if self._kept + number > len(self._parts):
            self._before, self._kept = self._sum(), 0
        start, self._kept = self._kept, self._kept + number
        return self._parts[start : self._kept]

    def _sum(self):
        """Of all so far, in float64."""
        out = cuda_devices.cupy().empty(self._parts.shape[1:], self._parts.dtype)
        _sum_parts(self._parts[: self._kept], out)
        return out.astype(np.float64) if self._before is None else self._before + out

    def write(self, out, factor=1.0):
        if self._before is None:
            _sum_parts(self._parts[: self._kept], out, factor)
        else:
            out[...] = factor * self._sum()


def _column_products(a, b, columns, factor, divisor):
    out = cuda_devices.cupy().empty(columns, a.dtype)
    rows = np.int64(a.size // columns), np.int32(columns)
    _launch(
        "column_products",
        a.dtype,
        (columns,),
        a,
        b,
        *rows,
        np.float64(factor),
        *_parameter(divisor, a.dtype),
        out,
    )
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
    omega = cuda_devices.cupy().empty((len(indices), D), dtype)
    tasks = len(indices) * -(-D // 4)
    if tasks:
        spectrum = (
            np.int32(DEGREES[family]),
            np.uint64(seed),
            indices,
            np.int64(len(indices)),
            np.int32(D),
        )
        _launch(
            "frequencies",
            dtype,
            (-(-tasks // BLOCK),),
            *spectrum,
            *_parameter(lengthscales, dtype),
            omega,
        )
    return omega


def _part(a, *at):
    return NULL if a is None else cuda_devices.cupy().ascontiguousarray(a[at])


def _pass(kernel, X, U, W, family, seed, indices, num, variance, lengthscales, u=None, v=None):
    """``(total, back, X_bar)``: W Phi' (R, N), U Phi (R, 2 n) and sum_p g omega_p / l (N, D), those that the kernel makes.

    With squares, and R = 1, ``total`` has one more line, s^2 sum_p d cos^2, and ``back`` is (1, 3
    n): U Phi / s, and the sums sum_i u[i] cos^2.
    """
    cp, dtype, (N, D), n = cuda_devices.cupy(), X.dtype, X.shape, len(indices)
    squares = int(kernel.startswith(SQUARES))
    forward = kernel in ("multiply", "transposed_vjp", "squares_forward", "squares_both")
    slopes = kernel.endswith(("vjp", "slopes"))
    backward = not forward or kernel == "squares_both"
    count, width = len(W if U is None else U), 2 + squares
    total = cp.empty((count + squares, N if forward else 0), dtype)
    back = cp.empty((count, width * n if backward else 0), dtype)
    X_bar = cp.zeros((N if slopes else 0, D), dtype)
    if N == 0 or n == 0 or count == 0:
        total[...], back[...] = 0, 0
        return total, back, X_bar
    X, tiled, step = cp.ascontiguousarray(X), D > DIMS[dtype.itemsize], TOGETHER.get(kernel, 1)
    groups = min(-(-N // POINTS[dtype.itemsize]), GROUPS_EACH * cuda_devices.multiprocessors())
    run = max(SUB, TILE // N // SUB * SUB) if tiled else n
    if backward:
        run = min(run, max(SUB, PARTS // (width * groups * min(step, count)) // SUB * SUB))
    share = _share(min(run, n), groups, cuda_devices.multiprocessors())
    runs = [slice(start, min(n, start + run)) for start in range(0, n, run)]
    shares = [-(-(part.stop - part.start) // share) for part in runs]
    scales, variance = _parameter(lengthscales, dtype), _parameter(variance, dtype)[:2]
    sides = [slice(first, min(count, first + step)) for first in range(0, count, step)]
    widths = [here.stop - here.start for here in sides]
    totals = (
        [_Sums((lines + squares, N), shares, dtype, len(sides)) for lines in widths]
        if forward
        else []
    )
    X_total = _Sums((N, D), shares * len(sides), dtype) if slopes and not tiled else None
    for part, number in zip(runs, shares, strict=True):
        both, length = slice(2 * part.start, 2 * part.stop), part.stop - part.start
        omega = _frequencies(family, seed, indices[part], D, dtype, lengthscales) if tiled else None
        theta = matmul(omega, X, transpose_b=True) if tiled else NULL
        spectrum = np.int32(DEGREES[family]), np.uint64(seed), indices[part], np.int64(length)
        for g, (here, together) in enumerate(zip(sides, widths, strict=True)):
            if slopes and tiled and g:
                theta = matmul(omega, X, transpose_b=True)  # slopes took the place of the phases
            forward_parts = totals[g].room_for(number) if forward else NULL
            back_parts = cp.empty((groups, together, width * length), dtype) if backward else NULL
            X_parts = NULL if X_total is None else X_total.room_for(number)
            places = X, np.int64(N), np.int32(D), *scales, *variance, np.float64(num), theta
            weights = (
                _part(U, here, slice(None)),
                _part(W, here, both),
                np.int32(together),
                np.int64(share),
            )
            name = f"{kernel}_{1 if together == 1 else step}"
            of_squares = (_part(u, slice(None)), _part(v, both)) if squares else ()
            _launch(
                name,
                dtype,
                (groups, number),
                *spectrum,
                *places,
                *weights,
                forward_parts,
                back_parts,
                X_parts,
                *of_squares,
            )
            if backward and squares:
                sums = cp.empty(3 * length, dtype)
                _sum_parts(back_parts, sums)
                back[0, both], back[0, 2 * n :][part] = sums[: 2 * length], sums[2 * length :]
            elif backward:
                _sum_parts(back_parts, back[here, both], 1.0, variance, num)
            if slopes and tiled:
                X_bar += 2 * math.pi * matmul(theta, omega, transpose_a=True)
    for here, sums in zip(sides, totals, strict=False):
        sums.write(total if squares else total[here])
    if X_total is not None:
        X_total.write(X_bar, 2 * math.pi)
    return total, back, X_bar


# --- the operations ----------------------------------------------------------------------------------------------------


def fourier_frequencies(family, seed, indices, D, dtype):
    indices, dtype = _checked(indices, 1 << 63), np.dtype(dtype)
    # phases of unit lengthscales that are not in turns
    return _frequencies(family, seed, indices, D, dtype, 1 / (2 * math.pi))


def fourier_multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    lines, spectrum = _lines(w), (family, seed, _checked(indices, num), num, variance, lengthscales)
    if transpose:
        _, out, _ = _pass("transposed", X, lines, None, *spectrum)
    else:
        out, _, _ = _pass("multiply", X, None, lines, *spectrum)
    return out.reshape(*w.shape[:-1], out.shape[1])


def fourier_multiply_vjp(
    out_bar, X, w, family, seed, indices, num, variance, lengthscales, transpose, need
):
    spectrum = family, seed, _checked(indices, num), num, variance, lengthscales
    X_bar = w_bar = variance_bar = lengthscales_bar = None
    if {"X", "lengthscales"} & {*need}:
        if transpose:
            w_bar, _, X_bar = _pass("transposed_vjp", X, _lines(w), _lines(out_bar), *spectrum)
        else:
            _, w_bar, X_bar = _pass("multiply_vjp", X, _lines(out_bar), _lines(w), *spectrum)
        w_bar = w_bar.reshape(w.shape)
    elif {"w", "variance"} & {*need}:
        w_bar = fourier_multiply(X, out_bar, *spectrum, not transpose)
    if "variance" in need:
        variance_bar = _column_products(_lines(w), w_bar, 1, 0.5, variance).reshape(())
    if "lengthscales" in need:
        shape = np.shape(lengthscales)
        columns = X.shape[1] if shape else 1
        lengthscales_bar = _column_products(_lines(X), X_bar, columns, -1.0, lengthscales).reshape(
            shape
        )
    return (
        X_bar if "X" in need else None,
        w_bar if "w" in need else None,
        variance_bar,
        lengthscales_bar,
    )


def fourier_sweep(X, W, v, U, u, family, seed, indices, num, variance, lengthscales, need, kept):
    """One right-hand side goes with the squares, through the same cosines and sines; others through passes of their own."""
    model = family, seed, _checked(indices, num), num, variance, lengthscales
    need, cotangents = {*need}, ("X", "variance", "lengthscales")
    squares = v is not None or u is not None
    bars, rest = {name: [] for name in ("out", "W", *cotangents)}, slice(int(squares), None)
    found = [None, None]
    if squares:
        own, *found = _with_squares(X, W, v, U, u, model, need)
        _keep(bars, *own)
    W, U = (None if a is None else a[rest] for a in (W, U))
    count = max(0 if a is None else len(a) for a in (W, U))
    if count or not squares:
        out = fourier_multiply(X, W, *model, False) if "out" in need else None
        asked = (
            [name for name in cotangents if name in need] if W is not None and U is not None else []
        )
        W_bar, others = None, (None, None, None)
        if asked:
            X_bar, W_bar, *others = fourier_multiply_vjp(
                U, X, W, *model, False, [*asked, *({"W"} & need and {"w"})]
            )
            others = X_bar, *others
        elif "W" in need:
            W_bar = fourier_multiply(X, U, *model, True)
        _keep(bars, out, W_bar, *others)
    cp = cuda_devices.cupy()
    out, W_bar = (cp.concatenate(bars[name]) if bars[name] else None for name in ("out", "W"))
    sums = (sum(bars[name][1:], bars[name][0]) if bars[name] else None for name in cotangents)
    return out, found[0], W_bar, found[1], *sums


def _with_squares(X, W, v, U, u, model, need):
    """``((out (1, N), W_bar (1, 2 n), X_bar, variance_bar, lengthscales_bar), squares, v_bar)`` of the first right-hand side and
    the squares; what is not needed is None. Zeros stand for sides that are not there.
    """
    cp, (N, D), dtype = cuda_devices.cupy(), X.shape, X.dtype
    _, _, indices, num, variance, lengthscales = model
    n, some = len(indices), [a for a in (W, U) if a is not None and len(a)]
    forward, slopes = {"out", "squares"} & need, {"X", "lengthscales"} & need
    backward = slopes or {"W", "v", "variance"} & need
    W, U = (
        cp.zeros((1, size), dtype) if a is None or not len(a) else a[:1]
        for a, size in ((W, 2 * n), (U, N))
    )
    v, u = (cp.zeros(size, dtype) if a is None else a for a, size in ((v, 2 * n), (u, N)))
    sides, scale = {"u": u, "v": v}, np.sqrt(variance / num).astype(dtype)
    total = back = X_bar = None
    if forward and (slopes or not backward):
        total, _, _ = _pass("squares_forward", X, None, W, *model, **sides)
    if slopes:
        _, back, X_bar = _pass("squares_slopes", X, U, W, *model, **sides)
    elif forward and backward:
        total, back, _ = _pass("squares_both", X, U, W, *model, **sides)
    elif backward:
        _, back, _ = _pass("squares_backward", X, U, None, *model, **sides)
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
        shape = np.shape(lengthscales)
        lengthscales_bar = _column_products(
            _lines(X), X_bar, D if shape else 1, -1.0, lengthscales
        ).reshape(shape)
    own = out if some and "out" in need else None, W_bar if some and "W" in need else None
    own = *own, X_bar if "X" in need else None, variance_bar, lengthscales_bar
    return own, squares if "squares" in need else None, v_bar if "v" in need else None


def _keep(bars, *found):
    for parts, bar in zip(bars.values(), found, strict=True):
        if bar is not None:
            parts.append(bar)


def _sum(v):
    """Accumulated in float64, in the dtype that came."""
    return v.sum(dtype=np.float64).astype(v.dtype)
