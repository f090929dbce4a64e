"""Sums over patches of images, and their reverse rules, against loops over all pairs of patches."""

from functools import partial

import numpy as np
import pytest
from oracles import covariances, patches
from support.numerics import assert_adjoint, exactly

from fastsvgp import kernels
from fastsvgp.kernels.cpu.pairwise.tiles import centre
from fastsvgp.kernels.cpu.patches.gather import normalise

FAMILIES = ("rbf", "matern12", "matern32", "matern52")
# H, W, C, h, w, stride
GEOMETRIES = [(5, 4, 1, 2, 3, 1), (7, 6, 2, 3, 2, 2), (4, 3, 2, 4, 3, 1), (6, 9, 1, 1, 1, 4)]
every_geometry = pytest.mark.parametrize(
    "geometry", GEOMETRIES, ids=lambda g: "x".join(map(str, g))
)
every_family = pytest.mark.parametrize("family", FAMILIES)
every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
NAMES = ("Z", "X", "A", "variance", "lengthscales")


def sizes(geometry):
    """Return the numbers of an image and of a patch, and how many windows there are."""
    H, W, C, h, w, _ = geometry
    return H * W * C, h * w * C, len(patches.places(geometry))


def parameters(rng, d, shared, dtype=np.float64):
    return (
        dtype(1.7),
        np.asarray(np.sqrt(d) * (1.3 if shared else rng.uniform(0.7, 2.0, d)), dtype)[()],
    )


def with_constants(rng, N, geometry, dtype=np.float64):
    """Return images with constant regions in two colours."""
    H, W, C, *_ = geometry
    X = rng.standard_normal((N, H, W, C))
    X[:, : H // 2 + 1] = -0.4
    X[0] = 0.7
    X[1, :, W // 2 :] = 0.7
    return X.reshape(N, -1).astype(dtype)


def k(family, variance, lengthscales):
    return lambda x, y: covariances.stationary(family, x, y, variance, lengthscales)


def sums_by_definition(family, geometry, Z, X, A, variance, lengthscales):
    return patches.sums(k(family, variance, lengthscales), Z, X, A, geometry)


def pair_sums_by_definition(family, geometry, X, B, variance, lengthscales):
    return patches.pair_sums(k(family, variance, lengthscales), X, B, geometry)


def close(found, truth, scale, eps, factor=60):
    assert np.abs(found - truth).max() <= factor * eps * scale


@every_geometry
def test_extraction_and_its_transpose(rng, geometry):
    columns, d, P = sizes(geometry)
    X = rng.standard_normal((3, columns))
    whole = patches.gather(X, geometry)
    np.testing.assert_array_equal(kernels.window_places(geometry, X), patches.places(geometry))
    for windows in (None, (0, P), (P // 3, P // 3 + 1), (P // 2, P)):
        part = slice(*(windows or (0, P)))
        found = kernels.gather_patches(X, geometry, windows)
        np.testing.assert_array_equal(found, whole[:, part])
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(
            kernels.window_places(geometry, X, windows), patches.places(geometry)[part]
        )
        bar = rng.standard_normal(found.shape)
        X_bar = kernels.gather_patches_vjp(bar, geometry, windows)
        direction = rng.standard_normal(X.shape)
        forward = (bar * patches.gather(direction, geometry)[:, part]).sum()
        np.testing.assert_allclose(
            (X_bar * direction).sum(), forward, rtol=0, atol=1e-12 * np.abs(bar).sum()
        )


@every_dtype
@every_geometry
@every_family
def test_sums(rng, family, geometry, dtype):
    """Merged constant patches, a range of windows, and weights per row or shared."""
    columns, d, P = sizes(geometry)
    eps = np.finfo(dtype).eps
    X, (variance, lengthscales) = (
        with_constants(rng, 4, geometry, dtype),
        parameters(rng, d, False, dtype),
    )
    Z = rng.standard_normal((21, d)).astype(dtype)
    Z[3] = patches.gather(X, geometry)[2, 0]
    for A in (rng.standard_normal((21, P)).astype(dtype), rng.standard_normal(P).astype(dtype)):
        found = kernels.patch_sums(family, Z, X, A, variance, lengthscales, geometry)
        assert found.dtype == dtype and found.shape == (21, 4)
        truth = sums_by_definition(family, geometry, *exactly(Z, X, A, variance, lengthscales))
        close(found, truth, variance * np.abs(A).sum(-1).max(), eps)
        part = np.zeros_like(A)
        part[..., P // 3 :] = A[..., P // 3 :]
        found = kernels.patch_sums(
            family, Z, X, A[..., P // 3 :], variance, lengthscales, geometry, (P // 3, P)
        )
        truth = sums_by_definition(family, geometry, *exactly(Z, X, part, variance, lengthscales))
        close(found, truth, variance * np.abs(A).sum(-1).max(), eps)
    assert kernels.patch_sums(family, Z, X[:0], A, variance, lengthscales, geometry).shape == (
        21,
        0,
    )


@every_dtype
@every_geometry
@every_family
def test_pair_sums(rng, family, geometry, dtype):
    columns, d, P = sizes(geometry)
    eps, X = np.finfo(dtype).eps, with_constants(rng, 4, geometry, dtype)
    variance, lengthscales = parameters(rng, d, True, dtype)
    B = rng.standard_normal((P, P)).astype(dtype)
    b, definition = B[0].copy(), partial(pair_sums_by_definition, family, geometry)
    for weights in (B + B.T, b):
        found = kernels.patch_pair_sums(family, X, weights, variance, lengthscales, geometry)
        assert found.dtype == dtype and found.shape == (4,)
        truth = definition(*exactly(X, weights, variance, lengthscales))
        close(
            found, truth, variance * np.abs(np.outer(b, b) if weights is b else weights).sum(), eps
        )
    if P == 1:
        return
    cut = P // 2
    first, second, block = (0, cut), (cut, P), np.zeros_like(B)
    block[:cut, cut:] = B[:cut, cut:]
    found = kernels.patch_pair_sums(
        family, X, B[:cut, cut:], variance, lengthscales, geometry, first, second
    )
    close(
        found,
        definition(*exactly(X, block, variance, lengthscales)),
        variance * np.abs(block).sum() + 1,
        eps,
    )


@every_geometry
@every_family
@pytest.mark.parametrize("shared", [True, False])
def test_sums_reversed(rng, family, geometry, shared):
    columns, d, P = sizes(geometry)
    X, Z = rng.standard_normal((3, columns)), rng.standard_normal((7, d))
    # by chance two numbers nearly coincide, and differences of Matern 1/2 then straddle its kink
    if d == 1:
        X, Z = np.round(X, 1), np.round(Z, 1) + 0.05
    for A in (rng.standard_normal((7, P)), rng.standard_normal(P)):
        arguments, K_bar = (Z, X, A, *parameters(rng, d, shared)), rng.standard_normal((7, 3))
        bars = kernels.patch_sums_vjp(K_bar, family, *arguments, geometry)
        assert [np.shape(bar) for bar in bars] == [np.shape(a) for a in arguments]
        assert_adjoint(
            partial(sums_by_definition, family, geometry),
            exactly(*arguments),
            bars,
            K_bar,
            rng,
            h=1e-4,
        )
        for i, name in enumerate(NAMES):
            alone = kernels.patch_sums_vjp(K_bar, family, *arguments, geometry, need=(name,))
            assert [bar is None for bar in alone] == [j != i for j in range(5)]
            np.testing.assert_allclose(
                alone[i], bars[i], rtol=1e-11, atol=1e-12 * np.abs(bars[i]).max()
            )
    empty = kernels.patch_sums_vjp(K_bar[:, :0], family, Z, X[:0], A, *arguments[3:], geometry)
    assert [np.shape(bar) for bar in empty] == [
        Z.shape,
        (0, columns),
        A.shape,
        (),
        np.shape(arguments[4]),
    ]
    assert not any(np.any(bar) for bar in empty)


@every_geometry
@every_family
@pytest.mark.parametrize("shared", [True, False])
def test_pair_sums_reversed(rng, family, geometry, shared):
    columns, d, P = sizes(geometry)
    X, B, k_bar = (
        rng.standard_normal((3, columns)),
        rng.standard_normal((P, P)),
        rng.standard_normal(3),
    )
    cut, definition, names = (
        P // 2,
        partial(pair_sums_by_definition, family, geometry),
        ("X", "B", "variance", "lengthscales"),
    )
    for weights in (B + B.T, B[0].copy()):
        arguments = (X, weights, *parameters(rng, d, shared))
        bars = kernels.patch_pair_sums_vjp(k_bar, family, *arguments, geometry)
        assert [np.shape(bar) for bar in bars] == [np.shape(a) for a in arguments]
        assert_adjoint(definition, exactly(*arguments), bars, k_bar, rng, h=1e-4)
        for i, name in enumerate(names):
            alone = kernels.patch_pair_sums_vjp(k_bar, family, *arguments, geometry, need=(name,))
            assert [bar is None for bar in alone] == [j != i for j in range(4)]
            np.testing.assert_allclose(
                alone[i], bars[i], rtol=1e-11, atol=1e-12 * np.abs(bars[i]).max()
            )
    if cut:
        ranges = (0, cut), (cut, P)
        arguments = (X, B[:cut, cut:], *arguments[2:])

        def block(X, weights, *others):
            whole = np.zeros((P, P), weights.dtype)
            whole[:cut, cut:] = weights
            return definition(X, whole, *others)

        bars = kernels.patch_pair_sums_vjp(k_bar, family, *arguments, geometry, *ranges)
        assert_adjoint(block, exactly(*arguments), bars, k_bar, rng, h=1e-4)


@every_family
def test_merged_patches_give_the_same_sums(rng, family):
    """If the cotangent of X is needed, patches are not merged."""
    geometry = (9, 8, 2, 2, 3, 1)
    columns, d, P = sizes(geometry)
    X, Z = with_constants(rng, 4, geometry), rng.standard_normal((7, d))
    K_bar, k_bar, others = (
        rng.standard_normal((7, 4)),
        rng.standard_normal(4),
        parameters(rng, d, False),
    )
    C = rng.standard_normal((P, P))
    for A in (rng.standard_normal((7, P)), rng.standard_normal(P)):
        whole = kernels.patch_sums_vjp(K_bar, family, Z, X, A, *others, geometry)
        need = tuple(name for name in NAMES if name != "X")
        merged = kernels.patch_sums_vjp(K_bar, family, Z, X, A, *others, geometry, need=need)
        for one, two in zip(merged, whole, strict=True):
            if one is not None:
                np.testing.assert_allclose(
                    one, two, rtol=0, atol=1e-13 * max(1, np.abs(two).max()) * P
                )
    for B in (C + C.T, C[0].copy()):
        whole = kernels.patch_pair_sums_vjp(k_bar, family, X, B, *others, geometry)[1:]
        merged = kernels.patch_pair_sums_vjp(
            k_bar, family, X, B, *others, geometry, need=("B", "variance", "lengthscales")
        )[1:]
        for one, two in zip(merged, whole, strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-13 * max(1, np.abs(two).max()) * P)


@every_dtype
@every_family
def test_near_pairs_far_from_the_mean(rng, family, dtype):
    """Patches in two groups, thirty lengthscales apart, some nearly equal.

    Norms and products alone would lose k.
    """
    geometry = (1, 400, 1, 1, 4, 4)
    X = 0.3 * rng.standard_normal((1, 400)) + np.repeat(rng.choice([-15.0, 15.0], 100), 4)
    Z = X.reshape(100, 4)[:40] + 1e-3 * rng.standard_normal((40, 4))
    X, Z, one, A = X.astype(dtype), Z.astype(dtype), dtype(1), np.eye(40, 100, dtype=dtype)
    found = kernels.patch_sums(family, Z, X, A, one, one, geometry)
    close(
        found,
        sums_by_definition(family, geometry, *exactly(Z, X, A, one, one)),
        1,
        np.finfo(dtype).eps,
    )
    b, bar = rng.standard_normal(100).astype(dtype), np.ones((40, 1), dtype)
    k_bar, K = bar[:1, 0], patches.gather(X, geometry)[0]
    close(
        kernels.patch_pair_sums(family, X, b, one, one, geometry),
        pair_sums_by_definition(family, geometry, *exactly(X, b, one, one)),
        np.abs(np.outer(b, b)).sum(), np.finfo(dtype).eps,
    )  # fmt: skip
    # the same pairs by differences; 1 / r of matern12 amplifies the rounding of coordinates of 15,
    # at distances of 1e-3
    eps = np.finfo(dtype).eps * (1000 if family == "matern12" else 1)
    found = kernels.patch_sums_vjp(bar, family, Z, X, A, one, np.ones(4, dtype), geometry)
    truth = kernels.stationary_vjp(A * bar, family, Z, K, one, np.ones(4, dtype))
    for new, old in (
        (found[0], truth[0]),
        (found[1].reshape(100, 4), truth[1]),
        (found[4], truth[3]),
    ):
        np.testing.assert_allclose(new, old, rtol=0, atol=100 * eps * max(1, np.abs(old).max()))
    found = kernels.patch_pair_sums_vjp(k_bar, family, X, b, one, np.ones(4, dtype), geometry)
    truth = kernels.stationary_vjp(np.outer(b, b), family, K, None, one, np.ones(4, dtype))
    for new, old in ((found[0].reshape(100, 4), truth[0]), (found[3], truth[3])):
        np.testing.assert_allclose(new, old, rtol=0, atol=1000 * eps * max(1, np.abs(old).max()))


@pytest.mark.parametrize("d", [4, 9, 25])
def test_norms_do_not_depend_on_memory_layout(rng, d):
    """A sum beside a store in one loop depends on the distance between arrays in memory.

    Resumed training would then not be bitwise equal.
    """
    X, c, scale = rng.standard_normal((5, d)), rng.standard_normal(d), rng.uniform(0.5, 2, d)
    memory = np.empty(3 * d + 12 * d + 64)
    far, near = np.empty(5), np.empty(5)
    centre(0, 5, X, c, scale, np.empty_like(X), far)
    for gap in range(64):
        given, out = memory[:d], memory[d + gap :][: 5 * d].reshape(5, d)
        given[:] = scale
        centre(0, 5, X, c, given, out, near)
        np.testing.assert_array_equal(near, far)
        out[:] = X
        normalise(out, c, given, near)
        np.testing.assert_array_equal(near, far)


def test_nan_stays_in_its_image(rng):
    geometry = (6, 5, 1, 2, 2, 1)
    columns, d, P = sizes(geometry)
    X, Z, A = with_constants(rng, 4, geometry), rng.standard_normal((7, d)), rng.standard_normal(P)
    plain = (
        kernels.patch_sums("rbf", Z, X, A, 1.0, 1.0, geometry),
        kernels.patch_pair_sums("rbf", X, A, 1.0, 1.0, geometry),
    )
    X[1, 7] = np.nan
    found = (
        kernels.patch_sums("rbf", Z, X, A, 1.0, 1.0, geometry),
        kernels.patch_pair_sums("rbf", X, A, 1.0, 1.0, geometry),
    )
    for new, old in zip(found, plain, strict=True):
        assert np.isnan(new[..., 1]).all()
        np.testing.assert_array_equal(np.delete(new, 1, -1), np.delete(old, 1, -1))
