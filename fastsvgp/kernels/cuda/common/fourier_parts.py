"""Kernels of the CUDA twin of ``fourier``: their records, launches and sums."""

import math
from typing import Any, NamedTuple

import numpy as np

from ....runtime import cuda_devices
from . import loader
from .loader import NULL, parameter

# as in fourier.cu: threads of a block, columns that a block sums up
BLOCK, FINISHED = 256, 32
POINTS = {4: 256, 8: 128}  # of a block, by the bytes of an element
GROUPS_EACH = 8  # the most blocks along points for each multiprocessor
# of freedom of the Student-t spectrum; 0: normal
DEGREES = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}

launch = loader.launcher("fourier", BLOCK)


class Kernel(NamedTuple):
    """What a kernel makes of the right-hand sides that it takes at once, or of one."""

    together: int
    forward: bool = False  # W Phi'
    backward: bool = False  # U Phi
    slopes: bool = False  # X_bar
    squares: bool = False  # with one side, the same of the squares


KERNELS = {
    "multiply": Kernel(4, forward=True),
    "transposed": Kernel(4, backward=True),
    "multiply_vjp": Kernel(4, backward=True, slopes=True),
    "squares_forward": Kernel(1, forward=True, squares=True),
    "squares_backward": Kernel(1, backward=True, squares=True),
    "squares_slopes": Kernel(1, backward=True, slopes=True, squares=True),
    "squares_both": Kernel(1, forward=True, backward=True, squares=True),
    "own": Kernel(4, forward=True),  # of functions with frequencies or points of their own
    "own_vjp": Kernel(4, slopes=True),
}


class Spectrum(NamedTuple):
    """Frequencies of a model, and its covariance."""

    family: str
    seed: int
    indices: Any
    num: int
    variance: Any
    lengthscales: Any
    factors: Any = None  # of the frequencies of ``indices``


class Sides(NamedTuple):
    """Right-hand sides: cotangents U (R, N) and weights W (R, 2 n), and those of squares."""

    U: Any
    W: Any
    u: Any = None  # (N,)
    v: Any = None  # (2 n,)


class Found(NamedTuple):
    """Results of a pass; those that its kernel does not make are of size 0.

    With squares, and R = 1, ``total`` has one more line, s^2 sum_p d cos^2, and ``back`` is (1, 3
    n): U Phi / s, and the sums sum_i u[i] cos^2.
    """

    total: Any  # W Phi' (R, N)
    back: Any  # U Phi (R, 2 n)
    X_bar: Any  # sum_p g omega_p / l (N, D)


class Plan(NamedTuple):
    """Sizes of a pass."""

    tiled: bool  # whether matrix products make the phases
    groups: int  # blocks along points
    share: int  # frequencies of a block
    runs: list  # slices of the frequencies
    shares: list  # per run, its blocks along frequencies
    sides: list  # slices of the right-hand sides


def lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return cuda_devices.cupy().ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def sum_parts(parts, out, factor=1.0, variance=None, num=0):
    place, value = variance or (NULL, parts.dtype.type(0))
    target = out if out.flags.c_contiguous else cuda_devices.cupy().empty(out.shape, out.dtype)
    sizes = np.int32(len(parts)), np.int64(out.size), np.float64(factor)
    given = parts, *sizes, place, value, np.float64(num), target
    launch("sum_parts", out.dtype, -(-out.size // FINISHED), *given)
    if target is not out:
        out[...] = target


def column_products(a, b, columns, factor, divisor):
    out = cuda_devices.cupy().empty(columns, a.dtype)
    rows = np.int64(a.size // columns), np.int32(columns)
    given = a, b, *rows, np.float64(factor), *parameter(divisor, a.dtype), out
    launch("column_products", a.dtype, columns, *given)
    return out
