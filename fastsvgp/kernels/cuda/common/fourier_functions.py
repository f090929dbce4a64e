"""Features of many functions for the CUDA twin of ``fourier``: one launch for all of them.

Blocks along the third axis of the grid are functions. With many features, whose phases are a matrix
product, the functions go through one after the other.
"""

import math

import numpy as np

from ....runtime import cuda_devices
from .fourier_parts import DEGREES, GROUPS_EACH, KERNELS, POINTS, launch, sum_parts
from .loader import NULL, number, parameter

FUNCTIONS = 65_535  # the most blocks along the third axis


class Functions:
    """Functions with right-hand sides of their own: inputs (1 or F, N, D), w (F, R, 2 num).

    Functions that share inputs and frequencies become right-hand sides of one.
    """

    def __init__(self, X, w, spectrum):
        cp, seeds, factors = cuda_devices.cupy(), spectrum.seed, spectrum.factors
        self.shape = X.shape
        if X.ndim == 2 and np.ndim(seeds) == 0 and (factors is None or factors.ndim == 1):
            w = w.reshape(1, math.prod(w.shape[:2]), w.shape[2])
        self.w, self.X = w, cp.ascontiguousarray(X if X.ndim == 3 else X[None])
        self.spectrum = spectrum
        if factors is not None:
            self.spectrum = spectrum._replace(factors=cp.ascontiguousarray(factors, dtype=X.dtype))

    # --- one after the other ---

    def one_by_one(self):
        """Yield ``(X, w, spectrum)`` of each function; seeds of their own are read back."""
        seeds, factors = self.spectrum.seed, self.spectrum.factors
        indices = cuda_devices.cupy().arange(self.spectrum.num)
        seeds = seeds.tolist() if np.ndim(seeds) else [seeds] * len(self.w)
        for f, (w, seed) in enumerate(zip(self.w, seeds, strict=True)):
            own = factors[f] if np.ndim(factors) == 2 else factors
            spectrum = self.spectrum._replace(seed=seed, indices=indices, factors=own)
            yield self.X[f % len(self.X)], w, spectrum

    def stacked(self, products):
        """Products (F, R, N) of those of each function."""
        out = self._zeros((*self.w.shape[:2], self.X.shape[1]))
        for f, product in enumerate(products):
            out[f] = product
        return out

    def gathered(self, bars):
        """The cotangent of X from those of each function, summed in float64 if they share X."""
        total = self._zeros(self.X.shape, np.float64 if len(self.X) < len(self.w) else None)
        for f, bar in enumerate(bars):
            total[f % len(total)] += bar
        return total.reshape(self.shape).astype(self.X.dtype, copy=False)

    # --- together ---

    def products(self, share_of, most):
        """Products (F, R, N); partial sums take up to ``most`` numbers."""
        cp, (R, N) = cuda_devices.cupy(), (self.w.shape[1], self.X.shape[1])
        out = self._zeros((len(self.w), R, N))
        if out.size == 0:
            return out
        groups, share, shares = self._deal(share_of)
        step = min(R, KERNELS["own"].together)
        for some in self._runs(shares * step * N, most):
            for first in range(0, R, step):
                here = slice(first, min(R, first + step))
                both = some.stop - some.start, here.stop - here.start
                parts = cp.empty((shares, *both, N), self.X.dtype)
                self._launch("own", some, here, None, (groups, share), parts)
                sum_parts(parts, out[some, here])
        return out

    def slopes(self, U, share_of, most):
        """The cotangent of X for those of the products, U (F, R, N)."""
        cp, R, (_, N, D) = cuda_devices.cupy(), self.w.shape[1], self.X.shape
        together = len(self.X) < len(self.w)
        total = self._zeros(self.X.shape, np.float64 if together else None)
        if U.size == 0:
            return total.reshape(self.shape).astype(self.X.dtype, copy=False)
        groups, share, shares = self._deal(share_of)
        step = KERNELS["own_vjp"].together
        sides = [slice(first, min(R, first + step)) for first in range(0, R, step)]
        for some in self._runs(len(sides) * shares * N * D, most):
            parts = cp.empty((len(sides) * shares, some.stop - some.start, N, D), self.X.dtype)
            for i, here in enumerate(sides):
                own = parts[i * shares : (i + 1) * shares]
                self._launch("own_vjp", some, here, U, (groups, share), own)
            if together:
                bar = cp.empty((N, D), self.X.dtype)
                sum_parts(parts.reshape(-1, N, D), bar, 2 * math.pi)
                total[0] += bar
            else:
                sum_parts(parts, total[some], 2 * math.pi)
        return total.reshape(self.shape).astype(self.X.dtype, copy=False)

    def _zeros(self, shape, dtype=None):
        return cuda_devices.cupy().zeros(shape, self.X.dtype if dtype is None else dtype)

    def _deal(self, share_of):
        """``(groups, share, shares)``: blocks along points; frequencies of a block, and blocks."""
        processors, num = cuda_devices.multiprocessors(), self.spectrum.num
        tiles = -(-self.X.shape[1] // POINTS[self.X.dtype.itemsize])
        groups = min(tiles, GROUPS_EACH * processors)
        share = share_of(num, groups * len(self.w), processors)
        return groups, share, -(-num // share)

    def _runs(self, numbers, most):
        """Slices of the functions, whose partial sums take ``numbers`` numbers each."""
        F = len(self.w)
        step = min(F, FUNCTIONS, max(1, most // numbers))
        return [slice(first, min(F, first + step)) for first in range(0, F, step)]

    def _launch(self, name, some, here, U, deal, parts):
        """Launch a kernel for some functions and right-hand sides of each."""
        cp, (groups, share), spectrum = cuda_devices.cupy(), deal, self.spectrum
        (_, N, D), dtype, count = self.X.shape, self.X.dtype, here.stop - here.start
        own = len(self.X) > 1
        given = (
            np.int32(DEGREES[spectrum.family]),
            *self._seeds(some),
            *self._factors(some),
            np.int64(spectrum.num),
            self.X[some] if own else self.X,
            np.int64(N * D if own else 0),
            np.int64(N),
            np.int32(D),
            *parameter(spectrum.lengthscales, dtype),
            *number(spectrum.variance, dtype),
            np.float64(spectrum.num),
            NULL if U is None else cp.ascontiguousarray(U[some, here]),
            cp.ascontiguousarray(self.w[some, here]),
            np.int32(count),
            np.int64(share),
        )
        grid = groups, -(-spectrum.num // share), some.stop - some.start
        launch(f"{name}_{1 if count == 1 else KERNELS[name].together}", dtype, grid, *given, parts)

    def _seeds(self, some):
        """Seeds of some functions, and the step from one to the next."""
        cp, seeds = cuda_devices.cupy(), self.spectrum.seed
        if np.ndim(seeds):
            return cp.ascontiguousarray(seeds[some], dtype=np.uint64), np.int32(1)
        return cp.full((1,), seeds, np.uint64), np.int32(0)

    def _factors(self, some):
        factors = self.spectrum.factors
        if factors is None:
            return NULL, np.int64(0)
        if factors.ndim == 2:
            return factors[some], np.int64(self.spectrum.num)
        return factors, np.int64(0)
