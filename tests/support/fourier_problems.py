"""Problems of random Fourier features of difficult sizes, and the assertions for every twin."""

import functools
from unittest import mock

import numpy as np
from oracles import fourier as oracle
from support.numerics import generator

SEED = 2**63 + 12345  # uses both words of the key
NUM = 2**33 + 5  # uses both words of an index
SHAPES = [  # points, features, frequencies, right-hand sides
    (1, 1, 1, 1),
    (3, 2, 5, 2),
    (17, 3, 65, 4),
    (65, 8, 17, 1),
    (130, 17, 33, 5),
    (300, 33, 70, 1),
]
FAMILIES = ["rbf", "matern12", "matern32", "matern52"]


def problem(rng, N, D, n, count, dtype):
    """Return X, U, W, indices with repeats, a variance and lengthscales."""
    X, U, W = (
        rng.standard_normal(shape).astype(dtype) for shape in ((N, D), (count, N), (count, 2 * n))
    )
    indices = rng.integers(0, NUM, n)
    indices[n // 2 :] = indices[: n - n // 2]
    return X, U, W, indices, 1.7, rng.uniform(0.5, 2, D).astype(dtype)


def as_accurate(result, plain, truth, at_least=0.0):
    """Assert an error within four times that of plain NumPy in the dtype, or of ``at_least``.

    Single numbers of sums that cancel can be accurate by chance.
    """
    result = np.asarray(result)
    assert result.dtype == plain.dtype and result.shape == truth.shape
    if truth.size:
        assert result.ndim == 0 or result.flags.c_contiguous
        floor = max(
            np.finfo(result.dtype).eps * np.abs(truth).max(), np.abs(plain - truth).max(), at_least
        )
        assert np.abs(result - truth).max() <= 4 * floor


def check_frequencies(twin, family, D, dtype):
    indices = np.r_[0, 1, 2**32 - 1, 2**32, NUM - 1, np.arange(70)]
    omega, truth = (
        twin.fourier_frequencies(family, SEED, indices, D, dtype),
        oracle.frequencies(family, SEED, indices, D),
    )
    assert omega.dtype == dtype and omega.shape == truth.shape
    np.testing.assert_allclose(
        omega, truth.astype(float), rtol=16 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps
    )


def relative_error(plain, truth):
    return np.abs(plain - truth).max(initial=0) / np.abs(truth).max(initial=1e-300)


def check_products(twin, family, X, U, W, indices, variance, lengthscales):
    dtype, D = X.dtype.type, X.shape[1]

    def definition(dtype):
        omega = oracle.frequencies(family, SEED, indices, D, dtype)
        x, u, w, scales = (np.asarray(a, dtype) for a in (X, U, W, lengthscales))
        Phi = oracle.features(omega, x, NUM, dtype(variance), scales)
        return w @ Phi.T, u @ Phi, *oracle.gradients(omega, x, u, w, NUM, dtype(variance), scales)

    plain, truth = ([np.asarray(a) for a in definition(t)] for t in (dtype, np.longdouble))
    forwards, backwards, *exact = zip(plain, truth, strict=True)
    model = family, SEED, indices, NUM, variance, lengthscales
    # the typical sum of the rounding of all terms, mostly of their phases: a sum of few terms can
    # be more accurate by chance. A frequency near 0 has the rounding of the numbers near 1 that it
    # is computed from.
    omega = 1 + np.abs(np.repeat(oracle.frequencies(family, SEED, indices, D, float), 2, axis=0))
    rounding = (
        np.finfo(dtype).eps * np.sqrt(variance / NUM) * (1 + np.abs(X / lengthscales) @ omega.T)
    )
    by_waves, by_points = (
        np.sqrt(w.astype(float) ** 2 @ r**2).max() for w, r in ((W, rounding.T), (U, rounding))
    )
    by_slopes = np.sqrt(
        (U.astype(float) ** 2).T @ W**2 * rounding**2 @ omega**2 / lengthscales**2
    ).max()
    as_accurate(twin.fourier_multiply(X, W, *model, False), *forwards, by_waves)
    as_accurate(twin.fourier_multiply(X, U, *model, True), *backwards, by_points)
    X_pair, _, W_pair, variance_pair, lengthscales_pair = exact
    by_variance = max(
        relative_error(*W_pair) * np.abs(W * W_pair[1]).sum(), by_points * np.linalg.norm(W)
    ) / (2 * variance)
    terms = np.abs(X * X_pair[1] / lengthscales)
    by_lengthscales = relative_error(*X_pair) * (
        terms.sum(0).max() if np.ndim(lengthscales) else terms.sum()
    )
    by_lengthscales = max(
        by_lengthscales, by_slopes * np.linalg.norm(X / lengthscales, axis=0).max()
    )
    X_bar, W_bar, variance_bar, lengthscales_bar = bars_of(twin, U, X, W, *model)
    as_accurate(X_bar, *X_pair, by_slopes)
    as_accurate(W_bar, *W_pair, by_points)
    as_accurate(variance_bar, *variance_pair, by_variance)
    as_accurate(lengthscales_bar, *lengthscales_pair, by_lengthscales)


def bars_of(twin, U, X, W, *model, need=("X", "W", "variance", "lengthscales")):
    """Return the cotangents of X, W and the parameters for U of W Phi'; None if not in ``need``."""
    _, _, W_bar, _, X_bar, *others = twin.fourier_sweep(X, *model, W, None, U, None, need, None)
    return X_bar, W_bar, *others


def check_all(twin, rng, family, N, D, n, count, dtype):
    X, U, W, indices, variance, lengthscales = problem(rng, N, D, n, count, dtype)
    check_products(twin, family, X, U, W, indices, variance, lengthscales)


FUNCTIONS = [  # functions, right-hand sides, points, features, frequencies
    (1, 1, 1, 1, 1),
    (3, 2, 5, 2, 5),
    (2, 5, 40, 3, 70),
    (4, 1, 3, 9, 17),
    (3, 17, 9, 8, 300),
    (2, 18, 35, 33, 70),
]
KINDS = [  # whether points, frequencies, and their factors are those of each function
    (True, True, True),
    (True, False, False),
    (False, True, None),
    (False, True, True),
    (False, False, False),
    (True, True, None),
]


def functions(rng, S, R, n, D, num, dtype, own):
    """Return U, X, w, seeds, lengthscales and factors for a row of ``KINDS``."""
    points, frequencies, stretched = own
    X = rng.standard_normal((S, n, D) if points else (n, D))
    U, w = rng.standard_normal((S, R, n)), rng.standard_normal((S, R, 2 * num))
    seeds = rng.integers(0, 2**64, S, dtype=np.uint64) if frequencies else SEED
    factors = None
    if stretched is not None:
        factors = rng.uniform(0.2, 2, (S, num) if stretched else num).astype(dtype)
    lengthscales = rng.uniform(0.5, 2, D)
    return *(a.astype(dtype) for a in (U, X, w)), seeds, lengthscales.astype(dtype), factors


def check_functions(twin, rng, family, shape, dtype, own):
    """Products and slopes of functions by their definition, in any form."""
    S, R, n, D, num = shape
    U, X, w, seeds, lengthscales, factors = functions(rng, *shape, dtype, own)
    each = np.broadcast_to(np.asarray(seeds, np.uint64), S).tolist()
    frequencies = functools.cache(oracle.frequencies)  # functions can share a seed

    def definition(dtype):
        """Products, slopes, and the typical rounding of both, as in ``check_products``."""
        *sides, scales = (np.asarray(a, dtype) for a in (X, U, w, lengthscales))
        sides[0], found = np.broadcast_to(sides[0], (S, n, D)), []
        for s, (x, u, v) in enumerate(zip(*sides, strict=True)):
            omega = frequencies(family, each[s], range(num), D, dtype)
            if factors is not None:
                omega = omega * np.atleast_2d(factors)[s % len(np.atleast_2d(factors)), :, None]
            X_bar, out, *_ = oracle.gradients(omega, x, u, v, num, dtype(1.7), scales)
            fast = 1 + np.abs(np.repeat(omega, 2, axis=0))
            rounding = np.square(eps) * (1.7 / num) * np.square(1 + np.abs(x / scales) @ fast.T)
            of_slopes = np.square(u).T @ np.square(v) * rounding @ np.square(fast) / scales**2
            found.append((out, X_bar, np.square(v) @ rounding.T, of_slopes))
        out, X_bar, by_waves, by_slopes = map(np.stack, zip(*found, strict=True))
        if X.ndim == 2:
            X_bar, by_slopes = X_bar.sum(0), by_slopes.sum(0)
        return out, X_bar, np.sqrt(by_waves.max()), np.sqrt(by_slopes.max())

    eps = np.finfo(dtype).eps
    (plain, plain_bar, *_), (truth, truth_bar, *rounding) = map(definition, (dtype, np.longdouble))
    model = w, family, seeds, num, 1.7, lengthscales, factors
    kept = [np.copy(a) for a in (U, X, w)]
    as_accurate(twin.fourier_multiply_rows(X, *model), plain, truth, rounding[0])
    bar = twin.fourier_multiply_rows_vjp(U, X, *model)
    as_accurate(bar, plain_bar, truth_bar, rounding[1])
    for a, before in zip((U, X, w), kept, strict=True):
        np.testing.assert_array_equal(a, before)


def small_run(twin, dtype):
    """Run every kernel on more than one block, for slow runs.

    Phases are computed in the kernel, and by a product before it.
    """
    rng = generator(1)
    # run once, below
    alone = {
        "_sum_parts": lambda *parts: None,
        "_column_products": lambda *products: np.zeros(1, dtype),
    }
    for D, n, count in ((2, 17, 1), (17, 16, 2)):
        X, U, W, indices, variance, _ = problem(rng, 12, D, n, count, dtype)
        model = "matern32", SEED, indices, NUM, variance, dtype(1.25)
        sides = W[:1], W[0], U[:1, :9], U[0, :9]
        with mock.patch.multiple(twin, **alone):
            twin.fourier_multiply(X, W, *model, False)
            twin.fourier_multiply(X, U, *model, True)
            bars_of(twin, U, X, W, *model)
            for wanted in (("out",), ("W",), ("out", "W")):  # a kernel each, with squares
                twin.fourier_sweep(X[:9], *model, *sides, wanted, None)
        twin.fourier_sweep(X[:9], *model, *sides, ("X", "lengthscales"), None)
    for count, own in ((1, KINDS[0]), (2, KINDS[3])):
        U, X, w, seeds, lengthscales, factors = functions(rng, 2, count, 9, 2, 17, dtype, own)
        model = w, "matern32", seeds, 17, dtype(1.7), lengthscales, factors
        with mock.patch.multiple(twin, **alone):
            twin.fourier_multiply_rows(X, *model)
            twin.fourier_multiply_rows_vjp(U, X, *model)
    X, U, W, indices, *scales = problem(rng, 520, 1, 90, 1, dtype)
    # several tiles of points and stages for a block
    with mock.patch.multiple(twin, GROUPS_EACH=1, _share=lambda *sizes: 80, **alone):
        for w, transpose in ((W, False), (U, True)):
            twin.fourier_multiply(X, w, "rbf", SEED, indices, NUM, *scales, transpose)
        model, sides = ("rbf", SEED, indices, NUM, *scales), (W, W[0], U[:, :300], U[0, :300])
        twin.fourier_sweep(X[:300], *model, *sides, ("out", "v"), None)
