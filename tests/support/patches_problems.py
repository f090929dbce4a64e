"""Sums over patches of difficult shapes, and the assertions for every twin of the family."""

import functools
from unittest import mock

import numpy as np
from oracles import covariances, patches
from support.numerics import exactly, generator

from fastsvgp.kernels import patches as front_door

FAMILIES = ("rbf", "matern12", "matern32", "matern52")
SUMS, PAIRS = ("Z", "X", "A", "variance", "lengthscales"), ("X", "B", "variance", "lengthscales")
# geometry, windows, others, M, N
SHAPES = [
    ((4, 3, 1, 1, 1, 1), None, None, 1, 1),
    ((4, 5, 1, 4, 5, 3), None, None, 3, 4),  # one patch, the image
    ((7, 6, 2, 3, 2, 1), (3, 14), (5, 25), 5, 3),
    ((9, 8, 3, 5, 5, 2), (1, 5), (0, 2), 67, 2),  # 75 numbers
    ((7, 12, 1, 2, 1, 1), None, (3, 70), 35, 2),  # several tiles
    ((10, 14, 2, 1, 2, 3), (2, 20), None, 4, 2),  # pixels that no window reaches
]


def num_windows(geometry, windows):
    H, W, _, h, w, stride = geometry
    start, stop = windows or (0, ((H - h) // stride + 1) * ((W - w) // stride + 1))
    return stop - start


def problem(rng, geometry, windows, M, N, dtype, shared=False):
    """Return Z, X, variance, lengthscales.

    Images have constant parts in two colours; the first contains an inducing patch.
    """
    H, W, C, h, w, _ = geometry
    Z, X, d = rng.standard_normal((M, h * w * C)), rng.standard_normal((N, H * W * C)), h * w * C
    if d <= 2:  # numbers that nearly coincide: 1 / r of matern12 amplifies their rounding
        X, Z = np.round(X, 1), np.round(Z, 1) + 0.05
    X[:2, : len(X[0]) // 2] = 0.3
    X[1:3, 3 * len(X[0]) // 5 :] = -0.4
    Z[0] = X[0][places(geometry, windows)[0]]
    lengthscales = np.sqrt(d) * (1.3 if shared else rng.uniform(0.7, 2.0, d))
    return Z.astype(dtype), X.astype(dtype), dtype(1.7), np.asarray(lengthscales, dtype)[()]


def case(rng, dtype, geometry=(7, 6, 2, 3, 2, 1), windows=(3, 14), M=5, N=3, shared=False):
    """Return the arguments of all four operations after the family.

    They are sums and their cotangents, and those of pairs of windows.
    """
    Z, X, *parameters = problem(rng, geometry, windows, M, N, dtype, shared)
    P = num_windows(geometry, windows)
    A, B, K_bar, k_bar = (
        rng.standard_normal(shape).astype(dtype) for shape in ((M, P), P, (M, N), N)
    )
    return (
        (Z, X, A, *parameters, geometry, windows),
        K_bar,
        (X, B, *parameters, geometry, windows, None),
        k_bar,
    )


def everything(twin, family, sums, K_bar, pairs, k_bar):
    results = [twin.patch_sums(family, *sums), *twin.patch_sums_vjp(K_bar, family, *sums, SUMS)]
    return [
        *results,
        twin.patch_pair_sums(family, *pairs),
        *twin.patch_pair_sums_vjp(k_bar, family, *pairs, PAIRS),
    ]


# --- definitions, in whatever dtype comes in ------------------------------------------------------


def places(geometry, windows):
    """Return (P, d): the indices of the numbers of each patch in an image."""
    H, W, C, *_ = geometry
    return patches.gather(np.arange(H * W * C)[None], geometry)[0][slice(*windows or (None,))]


def sums(family, geometry, windows, Z, X, A, variance, lengthscales, K_bar):
    """Return the sums, and all cotangents."""
    at, out, X_bar, A_bar, totals = (
        places(geometry, windows),
        np.zeros_like(K_bar),
        np.zeros_like(X),
        np.zeros_like(A),
        0,
    )
    for n in range(len(X)):
        K = covariances.stationary(family, Z, X[n][at], variance, lengthscales)
        out[:, n], bar = (A * K).sum(1), K_bar[:, n, None]
        Z_bar, patches_bar, *rest = covariances.stationary_vjp(
            A * bar, family, Z, X[n][at], variance, lengthscales
        )
        np.add.at(X_bar[n], at, patches_bar)
        A_bar += bar * K if A.ndim == 2 else (bar * K).sum(0)
        totals = totals + np.array([Z_bar, *rest], object)
    return out, totals[0], X_bar, A_bar, *totals[1:]


def pair_sums(family, geometry, windows, others, X, B, variance, lengthscales, k_bar):
    first, second = (
        places(geometry, windows),
        places(geometry, windows if others is None else others),
    )
    weights, totals = B if B.ndim == 2 else B[:, None] * B, 0
    out, X_bar, B_bar = np.zeros_like(k_bar), np.zeros_like(X), np.zeros_like(B)
    for n in range(len(X)):
        pair = X[n][first], X[n][second]
        K = covariances.stationary(family, *pair, variance, lengthscales)
        out[n] = (weights * K).sum()
        *bars, s_bar, l_bar = covariances.stationary_vjp(
            k_bar[n] * weights, family, *pair, variance, lengthscales
        )
        for at, bar in zip((first, second), bars, strict=True):
            np.add.at(X_bar[n], at, bar)
        B_bar += k_bar[n] * (K if B.ndim == 2 else 2 * (K * B).sum(1))
        totals = totals + np.array([s_bar, l_bar], object)
    return out, X_bar, B_bar, *totals


# --- checks ---------------------------------------------------------------------------------------


def check_gather(twin, rng, dtype):
    for geometry, windows, _, _, N in SHAPES:
        at, X = (
            places(geometry, windows),
            rng.standard_normal((N, np.prod(geometry[:3]))).astype(dtype),
        )
        found = twin.gather_patches(X, geometry, windows)
        assert found.dtype == dtype and found.flags.c_contiguous
        np.testing.assert_array_equal(found, X[:, at])
        # whose sums are exact
        bars, X_bar = rng.integers(-9, 9, found.shape).astype(dtype), np.zeros_like(X)
        for n in range(N):
            np.add.at(X_bar[n], at, bars[n])
        result = twin.gather_patches_vjp(bars, geometry, windows)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, X_bar)
        where = twin.window_places(geometry, X, windows)
        assert where.dtype == dtype
        np.testing.assert_array_equal(
            where, np.array(patches.places(geometry))[slice(*windows or (None,))]
        )


def compare(definition, arrays, *runs):
    """Return errors of values and cotangents, and those of plain NumPy, for each run of a twin.

    Errors are relative to the largest result, or to its size if weights and cotangents had one
    sign, because sums of many terms can cancel.
    """
    *first, weights, variance, lengthscales, bar = arrays
    plain, truth = definition(*arrays), definition(*exactly(*arrays))
    sizes = definition(*first, np.abs(weights), variance, lengthscales, np.abs(bar))
    errors = []
    for results in runs:
        errors.append([])
        for result, same, exact, size in zip(results, plain, truth, sizes, strict=True):
            assert result.shape == np.shape(exact) and result.dtype == arrays[0].dtype
            scale = max(np.abs(exact).max(initial=0), np.abs(size).max(initial=0), 1)
            errors[-1].append(
                [float(np.abs(a - exact).max(initial=0) / scale) for a in (result, same)]
            )
    return errors


def judge(errors, twin, dtype):
    """Check all problems together: the plain error of a single sum can be tiny by chance.

    The CPU takes distances from norms and products, and 1 / r of matern12 amplifies their rounding.
    """
    fast, plain = np.max([pair for run in errors for pair in run], 0)
    slack = 30 if twin is front_door else 4
    assert fast <= slack * max(plain, np.finfo(dtype).eps), errors


def check_sums(twin, rng, dtype, start=0):
    """Check with and without the cotangent of X: without, twins can merge constant patches.

    ``start`` is the first family; the four values check all shapes with all families.
    """
    errors = []
    for number, (geometry, windows, _, M, N) in enumerate(SHAPES):
        Z, X, *parameters = problem(rng, geometry, windows, M, N, dtype, number % 2)
        K_bar, P = rng.standard_normal((M, N)).astype(dtype), num_windows(geometry, windows)
        for turn, shape in enumerate([(M, P), (P,)]):
            family = FAMILIES[(start + number + turn) % 4]
            A = rng.standard_normal(shape).astype(dtype)
            arguments = family, Z, X, A, *parameters, geometry, windows
            out, bars = twin.patch_sums(*arguments), twin.patch_sums_vjp(K_bar, *arguments, SUMS)
            merged = list(
                twin.patch_sums_vjp(K_bar, *arguments, [name for name in SUMS if name != "X"])
            )
            assert merged[1] is None
            merged[1] = bars[1]
            errors += compare(
                functools.partial(sums, family, geometry, windows),
                (Z, X, A, *parameters, K_bar),
                (out, *bars),
                (out, *merged),
            )
    judge(errors, twin, dtype)


def check_pair_sums(twin, rng, dtype, start=0):
    """Check with and without the cotangent of X, for which twins can use different code."""
    errors = []
    for number, (geometry, windows, others, _, N) in enumerate(SHAPES):
        _, X, *parameters = problem(rng, geometry, windows, 1, N, dtype, number % 2)
        k_bar, P = rng.standard_normal(N).astype(dtype), num_windows(geometry, windows)
        B = rng.standard_normal((P, P))
        cases = [(B + B.T, None), (rng.standard_normal(P), None)]
        if others:
            cases.append((rng.standard_normal((P, num_windows(geometry, others))), others))
        for turn, (B, second) in enumerate(cases):
            family, B = FAMILIES[(start + number + turn) % 4], B.astype(dtype)
            arguments = family, X, B, *parameters, geometry, windows, second
            out, bars = (
                twin.patch_pair_sums(*arguments),
                twin.patch_pair_sums_vjp(k_bar, *arguments, PAIRS),
            )
            none, *fewer = twin.patch_pair_sums_vjp(k_bar, *arguments, PAIRS[1:])
            assert none is None
            definition = functools.partial(pair_sums, family, geometry, windows, second)
            errors += compare(
                definition, (X, B, *parameters, k_bar), (out, *bars), (out, bars[0], *fewer)
            )
            if B.ndim == 2 and second is None:
                np.testing.assert_array_equal(fewer[0], fewer[0].T)
    judge(errors, twin, dtype)


def small_run(twin, dtype):
    """Run every kernel on more than one block, for slow runs: one block per image, or for two."""
    rng, geometry = generator(1), (2, 9, 1, 1, 2, 1)  # 16 windows of 2 numbers
    Z, X, *parameters = problem(rng, geometry, None, 33, 2, dtype)
    A, K_bar, k_bar = (rng.standard_normal(shape).astype(dtype) for shape in ((33, 16), (33, 2), 2))
    arguments = "matern32", Z, X, A, *parameters, geometry, None
    assert np.isfinite(twin.patch_sums(*arguments)).all()
    with mock.patch.object(twin, "BLOCKS_EACH", 1):
        bars = twin.patch_sums_vjp(K_bar, *arguments, ("Z", "A", "variance", "lengthscales"))
    geometry = 1, 18, 1, 1, 17, 1  # numbers of two turns in shared memory
    X_bar, *_ = twin.patch_pair_sums_vjp(
        k_bar, "rbf", X, A[0, :2], 1.7, 2.0, geometry, None, None, ("X",)
    )
    assert all(np.isfinite(bar).all() for bar in (X_bar, *bars) if bar is not None)
    assert twin.gather_patches(X, geometry).shape == (2, 2, 17)
