"""Functions of one number that LLVM vectorises, against the functions of libm."""

import math

import numpy as np
from numba import njit

from fastsvgp.kernels.cpu.common import elementwise, normal_cdf

from .common import Case, plain

contract = njit(nogil=True, fastmath={"contract"}, error_model="numpy")
ROOT = math.sqrt(0.5)


@plain
def exp(x, out):
    for i in range(x.size):
        out[i] = math.exp(x[i])


@plain
def power_of_half(x, out):
    for i in range(x.size):
        out[i] = 2.0 ** -x[i]


@plain
def power_of_half_by_exp(x, out):
    factor = x.dtype.type(math.log(2))
    for i in range(x.size):
        out[i] = elementwise.exp(-factor * x[i])


@plain
def cos_sin(x, out):
    for i in range(x.size):
        out[i] = math.cos(2 * math.pi * x[i]) + math.sin(2 * math.pi * x[i])


@plain
def log_ndtr(x, value, slope):
    for i in range(x.size):
        tail = 0.5 * math.erfc(-ROOT * x[i])
        value[i] = math.log(tail)
        slope[i] = math.exp(-0.5 * x[i] * x[i]) / (math.sqrt(2 * math.pi) * tail)


@plain
def log_sigmoid(x, value, slope):
    for i in range(x.size):
        e = math.exp(-abs(x[i]))
        value[i] = min(x[i], 0.0) - math.log1p(e)
        slope[i] = (1.0 if x[i] < 0 else e) / (1.0 + e)


@plain
def log1p_square(x, value, slope):
    for i in range(x.size):
        value[i] = math.log1p(x[i] * x[i])
        slope[i] = 2 * x[i] / (1 + x[i] * x[i])


@plain
def ndtr(x, value, slope):
    for i in range(x.size):
        value[i] = 0.5 * math.erfc(-ROOT * x[i])
        slope[i] = math.exp(-0.5 * x[i] * x[i]) / math.sqrt(2 * math.pi)


@contract
def tuned_exp(x, out):
    for i in range(x.size):
        out[i] = elementwise.exp(x[i])


@contract
def tuned_power_of_half(x, out):
    for i in range(x.size):
        out[i] = elementwise.power_of_half(x[i])


@contract
def tuned_cos_sin(x, out):
    for i in range(x.size):
        c, s = elementwise.cos_sin(x[i])
        out[i] = c + s


def cases(dtype):
    n, near = 4096, 8 * np.finfo(dtype).eps
    x, out = np.linspace(0, 8, n, dtype=dtype), np.empty(n, dtype)

    def filled(function):
        function(x, out)
        return out

    yield Case(f"exp, {n}", lambda: filled(tuned_exp), lambda: filled(exp), near)
    halves = tuned_power_of_half
    yield Case(f"power_of_half, {n}", lambda: filled(halves), lambda: filled(power_of_half), near)
    yield Case(
        f"power_of_half by exp, {n}",
        lambda: filled(halves),
        lambda: filled(power_of_half_by_exp),
        near,
    )
    yield Case(f"cos_sin, {n}", lambda: filled(tuned_cos_sin), lambda: filled(cos_sin), 8 * near)
    t, value, slope = np.linspace(-5, 5, n), np.empty(n), np.empty(n)  # float64 only
    for name in "log_ndtr", "log_sigmoid", "log1p_square", "ndtr":
        tuned, ours = getattr(normal_cdf, name), globals()[name]

        def both(function):
            function(t, value, slope)
            return value, slope

        yield Case(f"{name}, {n}", lambda: both(tuned), lambda: both(ours), 1e-14)
