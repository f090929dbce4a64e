"""Calls of kernels at sizes of several waves of blocks, each with another form by plain products.

The first size of a case is small: there the same code runs over an emulation or a stand-in. The
references are those of ``bench/first_times.py`` where it has one, in float64, by cuBLAS on a GPU.
"""

import importlib.util
import pathlib
from typing import Any, NamedTuple

import numpy as np

from fastsvgp import kernels

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
SQUARES = ((200,), (1000,), (2000,), (4097,))
WIDE = ((70, 300), (1000, 100_000))
POINTS = ((40, 90, 3), (1000, 100_000, 8), (1000, 100_000, 100))
CHEVRONS = ((300, 20), (1_000_000, 100))
FEATURES = ((60, 70, 3), (100_000, 500, 8))
BATCHES = ((3, 40, 70), (1000, 64, 256), (528, 128, 256))
WORST = {"float64": 1e-10, "float32": 1e-3}  # relative to the largest entry, or 1


def _references():
    spec = importlib.util.spec_from_file_location("first_references", BENCH / "first_references.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = _references()


class Case(NamedTuple):
    """A call of a kernel.

    Parameters
    ----------
    sizes : tuple of tuples
        The first is small.
    arrays : function of ``draw``, the array module and a size
        Return the arguments; ``draw(*shape)`` has entries in (-1, 1).
    call : function of the arguments
    pairs : function of the array module, the results and the arguments
        Return results beside what they are to equal, both on the device or both on the host.
    cut : bool
        Whether ``tiled`` splits its sums at the second size.
    """

    sizes: Any
    arrays: Any
    call: Any
    pairs: Any
    cut: bool = False


# --- arguments ------------------------------------------------------------------------------------


def lower(draw, xp, n, batch=()):
    return xp.tril(draw(*batch, n, n)) * (0.5 / np.sqrt(n)) + xp.eye(n)


def factor(draw, xp, n):
    return (lower(draw, xp, n),)


def factor_and_matrix(draw, xp, n):
    return lower(draw, xp, n), draw(n, n)


def positive(draw, xp, n):
    A = draw(n, n)
    return (xp.matmul(A, A.T) / n + xp.eye(n),)


def positive_and_factor(draw, xp, n):
    return *positive(draw, xp, n), lower(draw, xp, n)


def step_back(draw, xp, n):
    A, L = positive_and_factor(draw, xp, n)
    return xp.tril(draw(n, n)), A, L, xp.tril(draw(n, n))


def points(draw, xp, M, N, D):
    scale = np.sqrt(3 / D)  # so that distances are near 1 for any D
    return draw(M, D) * scale, draw(N, D) * scale


def chevron_factor(draw, xp, m, k):
    return abs(draw(m, k)) / k, abs(draw(m - k)) + 0.5, draw(1, m)


def features(draw, xp, N, count, D):
    indices = xp.asarray(np.arange(count))
    omega = kernels.fourier_frequencies("rbf", 3, indices, D, draw(1).dtype)
    return draw(N, D), draw(2 * count), draw(N), indices, omega


# --- calls, and other forms -----------------------------------------------------------------------


def doubles(xp, *arrays):
    return reference.doubles(xp, *arrays)


def halved(xp, D):
    """Return the lower triangle with half its diagonal."""
    return xp.tril(D) - xp.diag(xp.diagonal(D)) / 2


def product_of(xp, found, A):
    (L, A) = doubles(xp, found[0], A)
    yield L @ L.T, A


def inverse_of(xp, found, L):
    X, L = doubles(xp, found[0], L)
    yield L @ X, xp.eye(len(L))


def solution(xp, found, L, B):
    X, L, B = doubles(xp, found[0], L, B)
    yield L @ X, B


def deviation(xp, A, L):
    return xp.tril(L.T @ A @ L) - xp.eye(len(L))


def gram(xp, found, A, L):
    D = deviation(xp, *doubles(xp, A, L))
    yield found[0], D
    norm = xp.sqrt(2 * (D**2).sum() - (xp.diagonal(D) ** 2).sum())
    yield found[1][0] / norm, xp.ones(())


def stepped(xp, found, A, L):
    A, L = doubles(xp, A, L)
    yield found[0], L - 0.5 * L @ halved(xp, deviation(xp, A, L))


def stepped_back(xp, found, bar, A, L, D):
    bar, A, L, D = doubles(xp, bar, A, L, D)
    S = halved(xp, L.T @ bar)
    S = S + S.T
    yield found[0], -0.25 * L @ S @ L.T
    yield found[1], xp.tril(bar - 0.5 * bar @ halved(xp, D).T) - 0.5 * xp.tril(A @ L @ S)


def congruence(xp, found, A, L):
    A, L = doubles(xp, A, L)
    yield found[0], xp.tril(L @ A @ L.T)


def moments(xp, found, A, x):
    A, x = doubles(xp, A, x)
    yield found[0], x @ A
    yield found[1], (A * A).sum(0)


def weighted(xp, found, A, w):
    A, w = doubles(xp, A, w)
    yield found[0], xp.tril((A * w) @ A.T)


def squares(xp, found, L):
    yield found[0] / (doubles(xp, L)[0] ** 2).sum(), xp.ones(())


def arguments(X1, X2):
    return "rbf", X1, X2, 1.3, 0.9 + 0.1 * abs(X1[0])


def covariance(X1, X2):
    return kernels.stationary(*arguments(X1, X2))


def covariance_back(X1, X2, bar):
    found = kernels.stationary_vjp(bar, *arguments(X1, X2))
    return found[0], found[2], found[3]


def back_and_scaled(xp, found, X1, X2, bar):
    """Sums over all pairs, relative to the root of their number."""
    scales = np.sqrt(len(X2)), np.sqrt(bar.size), np.sqrt(bar.size)
    truth = reference.stationary_vjp(xp, bar, *arguments(X1, X2))
    for one, other, scale in zip(found, truth, scales, strict=True):
        yield one / scale, other / scale


def chevron_product(xp, found, dense, diagonal, z):
    yield found[0], reference.chevron(xp, dense, diagonal, z)


def log_diagonal(xp, found, dense, diagonal, x):
    first = xp.diagonal(doubles(xp, dense[: dense.shape[1]])[0])
    truth = xp.log(first).sum() + xp.log(doubles(xp, diagonal)[0]).sum()
    yield found[0] / truth, xp.ones(())


def fourier(X, u, indices, transpose=False):
    given = "rbf", 3, indices, len(indices), 1.3, X[0] * 0 + 1
    return kernels.fourier_multiply(X, u, *given, transpose=transpose)


def fourier_back(X, w, u, indices, omega):
    given = "rbf", 3, indices, len(indices), 1.3, X[0] * 0 + 1
    need = "X", "W", "variance", "lengthscales"
    found = kernels.fourier_sweep(X, *given, W=w[None], U=u[None], need=need)
    return found[4], found[2][0], *found[5:]


def waves(xp, X, omega):
    return reference.features(xp, omega, X, len(omega), 1.3, 1.0)


def waved(xp, found, X, w, u, indices, omega):
    yield found[0], waves(xp, X, omega) @ doubles(xp, w)[0]


def waved_transposed(xp, found, X, w, u, indices, omega):
    truth = doubles(xp, u)[0] @ waves(xp, X, omega)
    yield found[0] / np.sqrt(len(X)), truth / np.sqrt(len(X))


def waved_back(xp, found, X, w, u, indices, omega):
    w, u = doubles(xp, w, u)
    truth = reference.features_vjp(xp, waves(xp, X, omega), omega, X, u, w, 1.3, 1.0)
    for i, (one, other) in enumerate(zip(found, truth, strict=True)):
        scale = np.sqrt(len(X)) if i else 1.0
        yield one / scale, other / scale


def gaussian(xp, found, Y, mean, var):
    Y, mean, var = doubles(xp, Y, mean, var)
    truth = -0.5 * (Y.size * np.log(2 * np.pi * 0.4) + (((Y - mean) ** 2 + var) / 0.4).sum())
    yield found[0] / truth, xp.ones(())
    yield found[1], (Y - mean) / 0.4
    yield found[2], xp.ones(Y.shape) * (-0.5 / 0.4)


CASES = {
    "cholesky": Case(SQUARES, positive, kernels.cholesky, product_of),
    "inverse_triangular": Case(SQUARES, factor, kernels.inverse_triangular, inverse_of),
    "solve_triangular": Case(SQUARES, factor_and_matrix, kernels.solve_triangular, solution),
    "batched solve_triangular": Case(
        BATCHES,
        lambda draw, xp, P, M, R: (lower(draw, xp, M, (P,)), draw(P, M, R)),
        kernels.solve_triangular,
        solution,
    ),
    "multiply_triangular": Case(
        SQUARES,
        factor_and_matrix,
        kernels.multiply_triangular,
        lambda xp, found, L, B: [(found[0], xp.matmul(*doubles(xp, L, B)))],
        cut=True,
    ),
    "tril_product": Case(
        SQUARES,
        lambda draw, xp, n: (draw(n, n), draw(n, n)),
        kernels.tril_product,
        lambda xp, found, A, B: [(found[0], xp.tril(xp.matmul(*doubles(xp, A, B.T))))],
        cut=True,
    ),
    "tril_congruence": Case(
        SQUARES,
        positive_and_factor,
        lambda A, L: kernels.tril(kernels.tril_congruence(L, A)),  # undefined above the diagonal
        congruence,
        cut=True,
    ),
    "newton_schulz_gram": Case(
        SQUARES, positive_and_factor, kernels.newton_schulz_gram, gram, cut=True
    ),
    "newton_schulz_step": Case(
        SQUARES,
        positive_and_factor,
        lambda A, L: kernels.newton_schulz_step(A, L, 0.5),
        stepped,
        cut=True,
    ),
    "newton_schulz_step_vjp": Case(
        SQUARES,
        step_back,
        lambda *a: kernels.newton_schulz_step_vjp(*a, 0.5),
        stepped_back,
        cut=True,
    ),
    "tril_sum_of_squares": Case(SQUARES, factor, kernels.tril_sum_of_squares, squares),
    "column_moments": Case(
        WIDE, lambda draw, xp, M, N: (draw(M, N), draw(M)), kernels.column_moments, moments
    ),
    "weighted_gram": Case(
        WIDE,
        lambda draw, xp, M, N: (draw(M, N), draw(N)),
        lambda A, w: kernels.tril(kernels.weighted_gram(A, w)),  # undefined above the diagonal
        weighted,
    ),
    "stationary": Case(
        POINTS,
        points,
        covariance,
        lambda xp, found, *a: [(found[0], reference.stationary(xp, *arguments(*a)))],
    ),
    "stationary_vjp": Case(
        POINTS,
        lambda draw, xp, M, N, D: (*points(draw, xp, M, N, D), draw(M, N)),
        covariance_back,
        back_and_scaled,
    ),
    "chevron_multiply": Case(CHEVRONS, chevron_factor, kernels.chevron_multiply, chevron_product),
    "chevron_log_det": Case(
        CHEVRONS, chevron_factor, lambda d, e, x: kernels.chevron_log_det(d, e), log_diagonal
    ),
    "fourier_multiply": Case(FEATURES, features, lambda X, w, u, i, omega: fourier(X, w, i), waved),
    "fourier_multiply, transposed": Case(
        FEATURES,
        features,
        lambda X, w, u, i, omega: fourier(X, u, i, transpose=True),
        waved_transposed,
    ),
    "fourier_sweep": Case(FEATURES, features, fourier_back, waved_back),
    "gaussian_term": Case(
        ((300,), (100_000,), (1_000_000,)),
        lambda draw, xp, N: (draw(N), draw(N), abs(draw(N))),
        lambda *a: kernels.gaussian_term(*a, 0.4)[:3],
        gaussian,
    ),
}
