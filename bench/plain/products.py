"""Fused passes over (M, N) arrays, against plain loops."""

import numpy as np

from fastsvgp.kernels.cpu import products

from .common import Case, in_place, plain


def column_moments(A, x):
    return x @ A, np.einsum("ij,ij->j", A, A)


def weighted_gram(A, w):
    return (A * w) @ A.T


def lower_copy(A):
    return np.tril(A)


def scale_columns(A, w):
    return A * w


def add_outer(T, x, a):
    T += x[:, None] * a


def add_scaled(T, A, c):
    T += c * A


def scale_add_outer(T, w, x, a, A):
    T *= w
    T += x[:, None] * a
    return A @ a


def add_outer_minus_scaled(T, x, a, A, w):
    T += x[:, None] * a - A * w
    return A @ a


def tril_sum_of_squares(L):
    return np.square(np.tril(L)).sum()


@plain
def tril_update(C, L, shift, out):
    for i in range(len(C)):
        for j in range(i + 1):
            out[i, j] = C[j, i] + shift * L[i, j]
        for j in range(i + 1, len(C)):
            out[i, j] = 0
        out[i, i] -= shift / L[i, i]


def cases(dtype):
    rng, near = np.random.default_rng(0), 100 * np.finfo(dtype).eps
    for M, N in (100, 256), (512, 1024), (1000, 1000):
        A, T = rng.standard_normal((2, M, N)).astype(dtype)
        x, a, w = (rng.standard_normal(n).astype(dtype) for n in (M, N, N))
        size = f"{M} x {N}"
        yield Case(
            f"column_moments, {size}",
            lambda: products.column_moments(A, x),
            lambda: column_moments(A, x),
            near,
        )
        yield Case(
            f"weighted_gram, {size}",
            lambda: np.tril(products.weighted_gram(A, w)),
            lambda: np.tril(weighted_gram(A, w)),
            near,
        )
        for name, more in (
            ("scale_columns", (A, w)),
            ("tril_sum_of_squares", (A[:M, :M].copy(),)),
            ("lower_copy", (A[:M, :M].copy(),)),
        ):
            tuned, ours = getattr(products, name), globals()[name]
            yield Case(f"{name}, {size}", lambda: tuned(*more), lambda: ours(*more), near)
        for name, more in (
            ("add_outer", (x, a)),
            ("add_scaled", (A, 0.5)),
            ("scale_add_outer", (w, x, a, A)),
            ("add_outer_minus_scaled", (x, a, A, w)),
        ):
            tuned, ours = getattr(products, name), globals()[name]
            yield in_place(
                f"{name}, {size}", lambda T: tuned(T, *more), lambda T: ours(T, *more), T, near
            )
    for M in 100, 512, 1000:
        C, L = rng.standard_normal((2, M, M)).astype(dtype)
        out = np.empty((M, M), dtype)

        def plainly():
            tril_update(C, L, C.dtype.type(0.5), out)  # noqa: B023
            return out  # noqa: B023

        yield Case(
            f"tril_update, {M}",
            lambda: products.tril_update(C, L, 0.5, np.empty((M, M), dtype), True),
            plainly,
            near,
        )
