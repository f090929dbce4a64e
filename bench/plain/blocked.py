"""Blocked triangular algebra, against LAPACK or products of whole matrices."""

import numpy as np
from scipy.linalg import get_lapack_funcs

from fastsvgp.kernels.cpu.common import blas, blocked
from fastsvgp.kernels.cpu.common.blas import N, T

from .common import Lower, in_place, plain


def cholesky(potrf, A):
    potrf(A.T, lower=0, clean=0, overwrite_a=1)  # row-major, so its transpose is column-major


def inverse(trtri, L):
    trtri(L.T, lower=0, overwrite_c=1)


def gram(L):
    blas.trmm(L.copy(), L, True, T, 1.0)


def gram_of_rows(L):
    blas.trmm(L.copy(), L, False, T, 1.0)


def solve(L, B, trans):
    blas.trsm(L, B, True, trans, 1.0)


def solve_right(L, B):
    blas.trsm(L, B, False, T, 1.0)


def tril_product(A, B, C):
    blas.gemm(A, B, C, N, T, 1.0, 0.0)


def gram_of_panels(A, C):
    blas.syrk(A, C, N, 1.0, 0.0)


def inverse_congruence(L, S):
    mirror(S)
    blas.trsm(L, S, True, T, 1.0)
    blas.trsm(L, S, False, N, 1.0)


@plain
def mirror(S):
    for i in range(S.shape[0]):
        for j in range(i):
            S[j, i] = S[i, j]


def cases(dtype):
    rng, near = np.random.default_rng(0), 200 * np.finfo(dtype).eps
    potrf, trtri = get_lapack_funcs(("potrf", "trtri"), dtype=dtype)
    for n in 100, 256, 512, 1000:
        A, B = rng.standard_normal((2, n, n)).astype(dtype)
        S = (A @ A.T / n + np.eye(n)).astype(dtype)
        L, W, size = np.linalg.cholesky(S), np.tril(B), f", {n}"

        def pair(name, tuned, plain, array, near=near, result=Lower):
            return in_place(name + size, tuned, plain, array, near, result)  # noqa: B023

        yield pair("cholesky", blocked.cholesky, lambda A: cholesky(potrf, A), S)
        yield pair("inverse", blocked.inverse, lambda L: inverse(trtri, L), L)
        yield pair("gram", blocked.gram, gram, L)
        yield pair("gram_of_rows", blocked.gram_of_rows, gram_of_rows, L)
        for k in n, n // 8:
            for trans in N, T:
                size = f"{' transposed' * (trans == T)}, {n} x {k}"
                yield pair(
                    "solve",
                    lambda X: blocked.solve(L, X, trans),
                    lambda X: solve(L, X, trans),
                    B[:, :k].copy(),
                    result=np.asarray,
                )
            size = f", {k} x {n}"
            yield pair(
                "solve_right",
                lambda X: blocked.solve_right(L, X),
                lambda X: solve_right(L, X),
                B[:k].copy(),
                result=np.asarray,
            )
        size = f", {n}"
        yield pair("tril_solve", lambda W: blocked.tril_solve(L, W), lambda W: solve(L, W, N), W)
        yield pair(
            "tril_solve_transposed",
            lambda W: blocked.tril_solve_transposed(L, W),
            lambda W: solve(L, W, T),
            W,
        )
        yield pair(
            "tril_product",
            lambda C: blocked.tril_product(A, B, C, 1.0, 0.0),
            lambda C: tril_product(A, B, C),
            W,
        )
        yield pair(
            "inverse_congruence",
            lambda S: blocked.inverse_congruence(L, S),
            lambda S: inverse_congruence(L, S),
            S,
        )
        yield pair("mirror", blocked.mirror, mirror, A, 0, np.asarray)
    for m, k in (20, 100), (20, 1024), (50, 256):
        A, C = rng.standard_normal((m, k)).astype(dtype), np.zeros((m, m), dtype)
        yield in_place(
            f"gram_of_panels, {m} x {k}",
            lambda C: blocked.gram_of_panels(A, C, 1.0, 0.0),
            lambda C: gram_of_panels(A, C),
            C,
            near,
            Lower,
        )
