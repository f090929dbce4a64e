"""The CUDA twin of the pairwise family: the requirements on the CPU twin, and its results."""

import shutil

import numpy as np
import pytest
from cuda_host import cupy_on_host
from cuda_host.emulated import assert_same_in_any_order
from oracles import covariances as oracle
from support import pairwise_problems as problems
from support.numerics import symmetric

from fastsvgp import kernels
from tests.kernels.test_pairwise import (  # noqa: F401
    test_contractions,
    test_distances_whose_square_overflows,
    test_inner_products,
    test_inputs_far_apart_in_lengthscales,
    test_leading_batch_axes,
    test_matrices,
    test_matrix_is_as_accurate_as_the_plain_definition,
    test_nan_stays_in_its_row_and_column,
    test_parameters_on_the_device,
    test_single_and_empty_inputs,
    test_strides_and_orders,
    test_tiny_distances_far_from_the_origin,
    test_tiny_lengthscales,
    test_vjp_computes_only_what_is_needed,
)

NAMES = problems.NAMES
every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
every_family = pytest.mark.parametrize("family", problems.FAMILIES)


@pytest.fixture(params=["direct", "wide"])
def form(request, monkeypatch):
    """Each form of the distances, whatever D; the product form in more than one row tile."""
    monkeypatch.setattr(
        "fastsvgp.kernels.cuda.pairwise.DIRECT_BELOW", 10_000 if request.param == "direct" else 0
    )
    monkeypatch.setattr("fastsvgp.kernels.cuda.pairwise.wide.TILE", 0)
    return request.param


@every_dtype
def test_contractions_by_products(twin_of, rng, dtype, monkeypatch):
    monkeypatch.setattr("fastsvgp.kernels.cuda.pairwise.DIRECT_BELOW", 0)
    monkeypatch.setattr("fastsvgp.kernels.cuda.pairwise.wide.TILE", 0)
    problems.check_contractions(
        twin_of("pairwise"), rng, dtype, False, families=("matern12", "matern52")
    )


@every_dtype
def test_several_tiles_a_block(twin_of, rng, dtype, monkeypatch):
    monkeypatch.setattr("fastsvgp.kernels.cuda.pairwise.BLOCKS_EACH", 1)
    shapes = [(130, 140, 3), (67, 200, 9), (200, 67, 2)]
    problems.check_contractions(twin_of("pairwise"), rng, dtype, False, shapes, ("matern32",))


@every_dtype
@every_family
@pytest.mark.parametrize("D, feature", [(3, 2), (8, 0), (19, 18)])
def test_far_rows_beside_near_ones(twin_of, rng, family, D, feature, dtype):
    """Tiles with rows or a feature too far out to be scaled first, among tiles without."""
    cuda, (X, _, *parameters) = twin_of("pairwise"), problems.problem(rng, 140, 1, D, dtype)
    X[60:70, feature] += 1000
    X[5], X[130] = X[100], X[65]
    K = cuda.stationary(family, X, None, *parameters)
    np.testing.assert_array_equal(K, K.T)
    assert K[5, 100] == K[130, 65] == parameters[0] and np.all(np.diag(K) == parameters[0])
    lower = cuda.stationary(family, X[100:], X[:100], *parameters)
    np.testing.assert_array_equal(cuda.stationary(family, X[:100], X[100:], *parameters), lower.T)
    assert (
        np.abs(K - oracle.stationary(family, *problems.exactly(X, X, *parameters))).max()
        < 4 * np.finfo(dtype).eps * 1.7
    )


@every_dtype
@every_family
def test_from_near_to_far(twin_of, family, dtype):
    """Each value is accurate to its last digits, up to the rounding of r^2, down to subnormals."""
    X1, X2 = np.zeros((1, 1), dtype), np.linspace(0, 45, 2000).astype(dtype)[:, None]
    K, info = (
        twin_of("pairwise").stationary(family, X1, X2, dtype(1.3), dtype(1.0)),
        np.finfo(dtype),
    )
    truth = oracle.stationary(family, *problems.exactly(X1, X2, dtype(1.3), dtype(1.0)))
    exponent = 1 - np.log(truth / 1.3)
    assert np.all(np.abs(K - truth) <= 4 * info.eps * exponent * truth + 8 * info.tiny)
    assert K[0, 0] == dtype(1.3)


def test_more_lines_of_tiles_than_a_dimension_of_a_grid(twin_of, rng, monkeypatch):
    X1, X2 = rng.standard_normal((3, 130, 2)), rng.standard_normal((3, 66, 2))
    calls = [
        lambda twin: twin.stationary("rbf", X1, X2, 1.0, 0.5),
        lambda twin: twin.inner(X1[0], X2[0], 0.5),
    ]
    expected = [call(twin_of("pairwise")) for call in calls]
    monkeypatch.setattr("fastsvgp.kernels.cuda.pairwise.HIGH", 2)
    for call, same in zip(calls, expected, strict=True):
        np.testing.assert_array_equal(call(twin_of("pairwise")), same)


def test_no_features(twin_of):
    cuda, empty = twin_of("pairwise"), np.ones((5, 0))
    np.testing.assert_array_equal(
        cuda.stationary("matern32", empty, None, 1.5, 1.0), np.full((5, 5), 1.5)
    )
    bars = cuda.stationary_vjp(np.ones((5, 5)), "matern32", empty, empty, 1.5, 1.0, NAMES, None)
    assert bars[0].shape == bars[1].shape == (5, 0) and bars[2] == 25 and bars[3] == 0


def test_long_float32_sums_keep_their_digits(twin_of):
    """Thousands of equal terms: the sums over tiles are accumulated in float64."""
    X1, X2 = np.zeros((1, 1), np.float32), np.full((1 << 13, 1), 0.3, np.float32)
    K_bar = np.full((1, 1 << 13), 0.1, np.float32)
    x, bar = float(np.float32(0.3)), float(np.float32(0.1))
    truth = bar * (1 << 13) * np.exp(-(x**2) / 2) * np.array([x, x**2, 1])
    X1_bar, _, variance_bar, lengthscales_bar = twin_of("pairwise").stationary_vjp(
        K_bar, "rbf", X1, X2, 1.0, 1.0, NAMES, None
    )
    np.testing.assert_allclose([X1_bar[0, 0], lengthscales_bar, variance_bar], truth, rtol=1e-6)


@pytest.mark.parametrize("below", [0, 100])
def test_nothing_waits_for_the_device(rng, monkeypatch, below):
    """Through the front door, on strict arrays: no copy to or from the host; the CPU's results."""
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    monkeypatch.setattr("fastsvgp.kernels.cuda.pairwise.DIRECT_BELOW", below)
    X1, X2, *parameters = problems.problem(rng, 17, 20, 5, np.float64)
    K_bar, S_bar = rng.standard_normal((17, 20)), symmetric(rng, 17, np.float64)

    def everything(X1, X2, variance, lengthscales, K_bar, S_bar):
        results = []
        for second, bar in ((X2, K_bar), (None, S_bar)):
            K = kernels.stationary("matern52", X1, second, variance, lengthscales)
            results += [
                K,
                *kernels.stationary_vjp(bar, "matern52", X1, second, variance, lengthscales, K=K),
            ]
            results += [
                kernels.inner(X1, second, lengthscales),
                *kernels.inner_vjp(bar, X1, second, lengthscales),
            ]
        return results

    arrays = X1, X2, *parameters, K_bar, S_bar
    with cupy_on_host.cupy_on_host() as cupy:
        there, copies = [cupy.array(a) for a in arrays], cupy_on_host.copies
        before = copies.to_host, copies.to_device
        results = everything(*there)
        assert (copies.to_host, copies.to_device) == before
        with pytest.raises(TypeError, match="different devices"):
            kernels.stationary("rbf", *there[:3], parameters[1])
        results = [None if a is None else a.get() for a in results]
    for one, other in zip(results, everything(*arrays), strict=True):
        assert one is other is None or np.abs(one - other).max() < 1e-12 * max(
            1, np.abs(other).max()
        )


@pytest.mark.parametrize("below", [0, 100])
def test_the_order_of_threads_changes_no_bit(rng, monkeypatch, below):
    """Reductions have a fixed order, whichever thread runs first."""
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    monkeypatch.setattr("fastsvgp.kernels.cuda.pairwise.DIRECT_BELOW", below)
    X1, X2, *parameters = problems.problem(rng, 130, 140, 9, np.float32)
    K_bar = rng.standard_normal((130, 140)).astype(np.float32)
    arguments = K_bar, "matern12", X1, X2, *parameters, NAMES, None
    assert_same_in_any_order(lambda twin: twin("pairwise").stationary_vjp(*arguments))
