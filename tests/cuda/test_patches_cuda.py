"""The CUDA twin of sums over patches: the bodies of the CPU, splits, and records above it."""

import shutil

import numpy as np
import pytest
from cuda_host import cupy_on_host
from cuda_host.emulated import assert_same_in_any_order
from support import patches_problems as problems
from support.device_models import check_bound, moved

import fastsvgp as fs
from fastsvgp import kernels
from tests.cuda.test_float32_cuda import check as check_float32
from tests.kernels.test_patches import (  # noqa: F401
    test_gather,
    test_near_pairs_far_from_the_mean,
    test_no_images,
    test_non_finite_values_stay_in_their_image,
    test_numbers_on_the_device,
    test_pair_sums,
    test_strides,
    test_sums,
    test_vjp_computes_only_what_is_needed,
)

f8 = np.float64
PATCH_COVARIANCES = (
    fs.Matern52(f8(1.1), np.linspace(1, 3, 6)),
    fs.RBF(f8(0.7), f8(2.0)) + fs.Linear(f8(0.2)),
)
every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
needs_gxx = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the host emulation of CUDA needs g++"
)


@every_dtype
def test_other_splits_of_the_sums(twin_of, rng, dtype, monkeypatch):
    """Many tiles, images or shares per block; one image at a time; weights in small blocks."""
    monkeypatch.setattr("fastsvgp.kernels.cuda.patches.BLOCKS_EACH", 1)
    monkeypatch.setattr("fastsvgp.kernels.cuda.patches.SCRATCH", 30**2)
    monkeypatch.setattr(problems, "SHAPES", problems.SHAPES[2:5:2])
    problems.check_sums(twin_of("patches"), rng, dtype)
    problems.check_pair_sums(twin_of("patches"), rng, dtype)


def test_no_inducing_patches(twin_of, rng):
    twin, ((Z, X, A, *rest), K_bar, pairs, k_bar) = twin_of("patches"), problems.case(rng, f8)
    sums = Z[:0], X, A[:0], *rest
    found = problems.everything(twin, "rbf", sums, K_bar[:0], pairs, k_bar)[:6]
    assert [a.shape for a in found] == [(0, 3), *map(np.shape, sums[:5])]
    assert not any(a.any() for a in found)
    assert twin.gather_patches(X[:0], rest[2]).shape == (0, 25, 12)
    assert twin.gather_patches_vjp(np.ones((0, 25, 12)), rest[2]).shape == (0, 84)


@pytest.mark.parametrize("family", problems.FAMILIES)
def test_near_patches_far_from_the_origin(twin_of, rng, family):
    twin, (sums, K_bar, pairs, k_bar) = twin_of("patches"), problems.case(rng, f8)
    Z, X = 1e6 + sums[0], 1e6 + 1e-6 * sums[1]
    Z[1] = X[1][problems.places(*sums[5:])[2]] + 1e-9
    near = (Z, X, *sums[2:]), K_bar, (X, *pairs[1:]), k_bar
    results = problems.everything(twin, family, *near)
    for part, define, arrays in (
        (results[:6], problems.sums, (*near[0][:5], K_bar)),
        (results[6:], lambda *a: problems.pair_sums(*a[:3], None, *a[3:]), (*near[2][:4], k_bar)),
    ):
        for found, exact in zip(
            part, define(family, *sums[5:], *problems.exactly(*arrays)), strict=True
        ):
            assert np.abs(found - exact).max() < 1e-12 * max(1, np.abs(exact).max())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("family", ["rbf", "matern32"])
def test_squares_may_overflow(twin_of, rng, family):
    """A number of 1e200 is infinitely far from all other patches."""
    arguments = problems.case(rng, f8)
    arguments[0][1][1, 40] = 1e200  # also in the pairs: it is the same array
    found = problems.everything(twin_of("patches"), family, *arguments)
    assert all(np.isfinite(a).all() for a in found)


def test_long_float32_sums_keep_their_digits(twin_of):
    """Many equal images: sums over them are accumulated in float64."""
    N, geometry = 1 << 10, (1, 1, 1, 1, 1, 1)
    Z, A, X, K_bar = (
        np.full(shape, value, np.float32) for shape, value in ((1, 0), (1, 1), (N, 0.3), (N, 0.1))
    )
    Z, A, X, K_bar, x, bar = (
        Z[:, None],
        A[:, None],
        X[:, None],
        K_bar[None],
        float(X[0]),
        float(K_bar[0]),
    )
    truth = bar * N * np.exp(-(x**2) / 2) * np.array([x, 1, 1, x**2])
    need = [name for name in problems.SUMS if name != "X"]
    Z_bar, _, A_bar, *rest = twin_of("patches").patch_sums_vjp(
        K_bar, "rbf", Z, X, A, 1.0, 1.0, geometry, None, need
    )
    np.testing.assert_allclose([Z_bar[0, 0], A_bar[0, 0], *rest], truth, rtol=1e-6)


@needs_gxx
def test_the_order_of_threads_changes_no_bit(rng):
    arguments = problems.case(rng, np.float32, (7, 12, 1, 2, 1, 1), None, 35, 2)
    assert_same_in_any_order(
        lambda twin: problems.everything(twin("patches"), "matern12", *arguments)
    )


@needs_gxx
def test_nothing_waits_for_the_device(rng):
    """Through the front door, on strict arrays: no copy to or from the host; the CPU's results."""
    (Z, X, A, *rest), K_bar, (_, b, *_), k_bar = problems.case(rng, f8)
    geometry, B = rest[2], rng.standard_normal((11, 4))

    def everything(Z, X, A, variance, lengthscales, K_bar, k_bar, b, B):
        results, parameters, windows = [], (variance, lengthscales, geometry), (3, 14)
        for weights in (A, b):
            results.append(kernels.patch_sums("rbf", Z, X, weights, *parameters, windows))
            results += kernels.patch_sums_vjp(K_bar, "rbf", Z, X, weights, *parameters, windows)
        for weights, others in ((b, None), (B, (0, 4))):
            results.append(kernels.patch_pair_sums("rbf", X, weights, *parameters, windows, others))
            results += kernels.patch_pair_sums_vjp(
                k_bar, "rbf", X, weights, *parameters, windows, others
            )
        patches = kernels.gather_patches(X, geometry, windows)
        results += [patches, kernels.gather_patches_vjp(patches, geometry, windows)]
        return [*results, kernels.window_places(geometry, X, windows)]

    arrays = Z, X, A, *rest[:2], K_bar, k_bar, b, B
    with cupy_on_host.cupy_on_host() as cupy:
        there, copies = [cupy.array(a) for a in arrays], cupy_on_host.copies
        before = copies.to_host, copies.to_device
        results = everything(*there)
        assert (copies.to_host, copies.to_device) == before
        results = [a.get() for a in results]
    for one, other in zip(results, everything(*arrays), strict=True):
        assert one.shape == other.shape and np.abs(one - other).max() < 1e-12 * max(
            1, np.abs(other).max()
        )


# --- records of images ----------------------------------------------------------------------------


def model(rng, X, patch_covariance, location_covariance=None):
    covariance = fs.covariances.Convolutional(
        patch_covariance,
        0.3 * rng.standard_normal(16),
        location_covariance,
        image_shape=(5, 6),
        patch_shape=(2, 3),
    )
    posterior = fs.Whitened(
        0.3 * rng.standard_normal(7), np.eye(7) + 0.1 * np.tril(rng.standard_normal((7, 7)))
    )
    return fs.SVGP(
        covariance, fs.inducing.patches(X, 7, covariance, rng=1), posterior, fs.Gaussian(f8(0.3))
    )


@pytest.mark.parametrize(
    "locations", [None, fs.Matern32(f8(1.0), f8(3.0))], ids=["anywhere", "located"]
)
@pytest.mark.parametrize("patch_covariance", PATCH_COVARIANCES, ids=["fused", "sum"])
def test_bounds(gpu, rng, patch_covariance, locations):
    X, Y = rng.standard_normal((9, 30)), rng.standard_normal(9)
    images = model(rng, X, patch_covariance, locations)
    check_bound(
        gpu, fs.elbo_and_grad, (images, X, Y), moved(gpu, images, X, Y), num_data=100, inputs=True
    )
    check_float32(gpu, fs.elbo_and_grad, images, X, Y, num_data=100)
