"""Sums over patches of images, and their reverse rules, against loops over all pairs of patches.

``tests/cuda`` imports the bodies that take ``twin_of``, and runs them on a device.
"""

import numpy as np
import pytest
from support import patches_problems as problems
from support.numerics import assert_adjoint, exactly

from fastsvgp.kernels.cpu.pairwise.tiles import centre

SUMS, PAIRS = problems.SUMS, problems.PAIRS
case, everything = problems.case, problems.everything
f8 = np.float64
every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
every_family = pytest.mark.parametrize("family", problems.FAMILIES)


@every_dtype
def test_gather(twin_of, rng, dtype):
    problems.check_gather(twin_of("patches"), rng, dtype)


@every_dtype
@pytest.mark.parametrize("turn", range(4))
def test_sums(twin_of, rng, turn, dtype):
    problems.check_sums(twin_of("patches"), rng, dtype, turn)


@every_dtype
@pytest.mark.parametrize("turn", range(4))
def test_pair_sums(twin_of, rng, turn, dtype):
    problems.check_pair_sums(twin_of("patches"), rng, dtype, turn)


@pytest.mark.parametrize("shared", [False, True])
@every_family
def test_vjp_computes_only_what_is_needed(twin_of, rng, family, shared):
    """With weights of each row, and with shared weights."""
    twin, (sums, K_bar, pairs, k_bar) = twin_of("patches"), case(rng, f8, shared=shared)
    own = sums[0], sums[1], sums[2][0].copy(), *sums[3:]
    each = pairs[0], np.outer(pairs[1], pairs[1]), *pairs[2:]
    for names, pull, arguments in (
        (SUMS, twin.patch_sums_vjp, (K_bar, family, *sums)),
        (SUMS, twin.patch_sums_vjp, (K_bar, family, *own)),
        (PAIRS, twin.patch_pair_sums_vjp, (k_bar, family, *pairs)),
        (PAIRS, twin.patch_pair_sums_vjp, (k_bar, family, *each)),
    ):
        whole, weights = pull(*arguments, names), "A" if names is SUMS else "B"
        needs = *((name,) for name in names), ("X", "lengthscales"), (weights, "variance")
        for need in ((), *needs):
            for name, bar, expected in zip(names, pull(*arguments, need), whole, strict=True):
                assert (bar is None) == (name not in need)
                if bar is not None:
                    np.testing.assert_allclose(bar, expected, rtol=1e-11, atol=1e-12)


def test_strides(twin_of, rng):
    """Columns of inducing patches with places; rows of all other arrays in any order."""
    twin, (sums, K_bar, pairs, k_bar) = twin_of("patches"), case(rng, f8)
    expected = everything(twin, "matern32", sums, K_bar, pairs, k_bar)
    (Z, X, A, *rest), (_, B, *_) = sums, pairs
    askew = (
        np.hstack([Z, np.full((len(Z), 2), np.nan)])[:, :-2],
        np.repeat(X, 2, axis=0)[::2],
        np.asfortranarray(A),
    )
    spread = np.repeat(B, 2)[::2], np.asfortranarray(K_bar), np.repeat(k_bar, 2)[::2]
    found = everything(
        twin, "matern32", (*askew, *rest), spread[1], (askew[1], spread[0], *pairs[2:]), spread[2]
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    weights = np.outer(B, B)
    for symmetric in (weights, np.asfortranarray(weights)):
        np.testing.assert_allclose(
            twin.patch_pair_sums("matern32", X, symmetric, *pairs[2:]), expected[6], rtol=1e-13
        )
    patches = np.asfortranarray(rng.standard_normal((3, 11, 12)))
    np.testing.assert_array_equal(
        twin.gather_patches_vjp(patches, *rest[2:]),
        twin.gather_patches_vjp(np.ascontiguousarray(patches), *rest[2:]),
    )


def test_no_images(twin_of, rng):
    (Z, X, A, *rest), K_bar, (_, B, *others), k_bar = case(rng, f8)
    sums, pairs = (Z, X[:0], A, *rest), (X[:0], B, *others)
    patches = twin_of("patches").gather_patches(X[:0], *rest[2:])
    assert patches.shape[0] == 0 and patches.shape[2] == Z.shape[1]
    found = everything(twin_of("patches"), "rbf", sums, K_bar[:, :0], pairs, k_bar[:0])
    shapes = [(5, 0), *map(np.shape, sums[:5]), (0,), *map(np.shape, pairs[:4])]
    assert [a.shape for a in found] == shapes and not any(a.any() for a in found)


def test_numbers_on_the_device(twin_of, rng):
    """0-d arrays stay on the device and give the same results as numbers."""
    twin, (sums, K_bar, pairs, k_bar) = twin_of("patches"), case(rng, np.float32, shared=True)
    for number in (float, np.asarray):
        given = tuple(map(number, sums[3:5]))
        found = everything(
            twin,
            "rbf",
            (*sums[:3], *given, *sums[5:]),
            K_bar,
            (*pairs[:2], *given, *pairs[4:]),
            k_bar,
        )
        for a, b in zip(found, everything(twin, "rbf", sums, K_bar, pairs, k_bar), strict=True):
            assert a.dtype == np.float32
            np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("family", ["rbf", "matern32"])
def test_non_finite_values_stay_in_their_image(twin_of, rng, family):
    twin, (sums, K_bar, pairs, k_bar) = twin_of("patches"), case(rng, f8)
    sums[1][1, 40] = np.nan  # also in the pairs: it is the same array
    out, _, X_bar, *_, k, other_bar, _, _, _ = everything(twin, family, sums, K_bar, pairs, k_bar)
    assert (
        np.isnan(out[:, 1]).all()
        and np.isnan(k[1])
        and np.isnan(X_bar[1]).any()
        and np.isnan(other_bar[1]).any()
    )
    for a in (out.T, X_bar, k, other_bar):
        assert np.isfinite(a[::2]).all()


@every_dtype
@every_family
def test_near_pairs_far_from_the_mean(twin_of, rng, family, dtype):
    """Patches in two groups, thirty lengthscales apart, some nearly equal.

    Norms and products alone would lose k.
    """
    geometry, one = (1, 400, 1, 1, 4, 4), np.ones(4, dtype)
    X = 0.3 * rng.standard_normal((1, 400)) + np.repeat(rng.choice([-15.0, 15.0], 100), 4)
    Z = X.reshape(100, 4)[:40] + 1e-3 * rng.standard_normal((40, 4))
    X, Z, A = X.astype(dtype), Z.astype(dtype), np.eye(40, 100, dtype=dtype)
    b, K_bar = rng.standard_normal(100).astype(dtype), np.ones((40, 1), dtype)
    sums, pairs = (Z, X, A, dtype(1), one), (X, b, dtype(1), one)
    found = everything(
        twin_of("patches"), family, (*sums, geometry, None), K_bar,
        (*pairs, geometry, None, None), K_bar[0],
    )  # fmt: skip
    truth = (
        *problems.sums(family, geometry, None, *exactly(*sums, K_bar)),
        *problems.pair_sums(family, geometry, None, None, *exactly(*pairs, K_bar[0])),
    )
    sizes = {0: 60, 6: 60 * np.abs(np.outer(b, b)).sum()}
    # 1 / r of matern12 amplifies the rounding of coordinates of 15, at distances of 1e-3
    other = 1000 * 100 if family == "matern12" else 1000
    for at, (one, exact) in enumerate(zip(found, truth, strict=True)):
        allowed = sizes.get(at, other * max(1, np.abs(exact).max()))
        assert np.abs(one - exact).max() <= allowed * np.finfo(dtype).eps, at


# --- only on the CPU ------------------------------------------------------------------------------


@every_family
def test_the_definitions_are_adjoint(rng, family):
    (*sums, geometry, windows), K_bar, (_, b, *_), k_bar = case(rng, f8, N=2)
    pairs, wide = (sums[1], b, *sums[3:]), (sums[1], rng.standard_normal((11, 4)), *sums[3:])
    for definition, arguments, bar, places in (
        (problems.sums, sums, K_bar, (windows,)),
        (problems.sums, (*sums[:2], sums[2][0], *sums[3:]), K_bar, (windows,)),
        (problems.pair_sums, pairs, k_bar, (windows, None)),
        (problems.pair_sums, wide, k_bar, (windows, (0, 4))),
    ):
        exact = exactly(*arguments)
        value = lambda *a, f=definition, w=places, bar=bar: f(family, geometry, *w, *a, bar)  # noqa: E731
        assert_adjoint(lambda *a, f=value: f(*a)[0], exact, value(*exact)[1:], bar, rng, h=1e-4)


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
        centre(0, 5, out, c, given, out, near)  # in place, as patches are
        np.testing.assert_array_equal(near, far)
