"""Lower triangles of products with lower factors, against products of whole matrices."""

import numpy as np

from fastsvgp.kernels.cpu.common import blas
from fastsvgp.kernels.cpu.common.blas import N, T
from fastsvgp.kernels.cpu.triangular import lower_products as tuned

from .common import Lower, in_place


def symmetric_times_lower(A, L, C):
    blas.symm(A, L, C, 1.0, 0.0)


def lower_times(L, B):
    blas.trmm(L, B, True, N, 1.0)


def transposed_times(L, B):
    blas.trmm(L, B, True, T, 1.0)


def times_transposed(B, L):
    blas.trmm(L, B, False, T, 1.0)


def add_product(A, B, C, alpha):
    blas.gemm(A, B, C, N, N, alpha, 1.0)


def lower_product(A, B, C, beta):
    blas.gemm(A, B, C, N, T, 1.0, beta)


def cases(dtype):
    rng, near = np.random.default_rng(0), 200 * np.finfo(dtype).eps
    for n in 100, 256, 512, 1000:
        A, B = rng.standard_normal((2, n, n)).astype(dtype)
        L, P = np.tril(A), np.tril(B)
        for name, call, array in (
            ("symmetric_times_lower", lambda f, C: f(A, L, C), B),
            ("lower_times", lambda f, B: f(L, B), B),
            ("transposed_times", lambda f, B: f(L, B), P),
            ("times_transposed", lambda f, B: f(B, L), P),
            ("lower_times_lower", lambda f, Q: f(L, Q), P),
            ("add_product", lambda f, C: f(A, B, C, 0.5), P),
            ("lower_product", lambda f, C: f(L, P, C, 0.0), P),
        ):
            ours, plain = getattr(tuned, name), globals().get(name, lower_times)
            yield in_place(
                f"{name}, {n}",
                lambda X: call(ours, X),
                lambda X: call(plain, X),
                array,
                near,
                Lower,
            )
