"""The CUDA twin of the pairwise family: the requirements on the CPU twin, and its results."""

import shutil

import numpy as np
import pytest
from cuda_host import cupy_on_host
from cuda_host.emulated import emulated
from oracles import covariances as oracle
from support import pairwise_problems as problems
from support.numerics import symmetric

from fastsvgp import kernels
from fastsvgp.kernels.cpu import pairwise as cpu

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
@every_family
def test_matrices(twin_of, form, rng, family, dtype):
    for number, shape in enumerate(problems.SHAPES):
        problems.check_matrix(twin_of("pairwise"), rng, family, *shape, dtype, shared=number % 2)


@every_dtype
@every_family
@pytest.mark.parametrize("D", [40, 200])
def test_where_products_cancel(twin_of, form, rng, family, D, dtype):
    problems.check_accuracy(twin_of("pairwise"), rng, family, D, dtype)


@every_dtype
@pytest.mark.parametrize("known", [False, True])
def test_contractions(twin_of, rng, known, dtype):
    problems.check_contractions(
        twin_of("pairwise"), rng, dtype, known, families=["rbf"] if known else problems.FAMILIES
    )


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
@pytest.mark.parametrize("N1, N2, D", [*problems.SHAPES, (17, 65, 70)])  # the last one uses cuBLAS
def test_inner_products(twin_of, rng, N1, N2, D, dtype):
    problems.check_inner(twin_of("pairwise"), rng, N1, N2, D, dtype, shared=D % 2)


@every_dtype
@every_family
@pytest.mark.parametrize("D", [3, 45])
def test_equals_the_cpu_twin(twin_of, rng, family, D, dtype):
    cuda = twin_of("pairwise")
    X1, X2, *parameters = problems.problem(rng, 65, 70, D, dtype)
    K_bar = rng.standard_normal((65, 70)).astype(dtype)
    results = []
    for twin in (cuda, cpu):
        K, S = (twin.stationary(family, X1, second, *parameters) for second in (X2, None))
        bars = twin.stationary_vjp(K_bar, family, X1, X2, *parameters, NAMES, K)
        inner_bars = twin.inner_vjp(K_bar, X1, X2, 0.3, ("X1", "X2", "weights"))
        results.append((K, S, *bars, twin.inner(X1, X2, parameters[1]), *inner_bars))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=0, atol=64 * np.finfo(dtype).eps * max(1, np.abs(other).max())
        )


@every_family
@pytest.mark.parametrize("shift, distance", [(0.0, 1e-9), (1e6, 1e-6), (-1e6, 1e-9)])
@pytest.mark.parametrize("D", [1, 8, 40])
def test_tiny_distances_far_from_the_origin(twin_of, form, rng, family, D, shift, distance):
    cuda = twin_of("pairwise")
    X1, X2 = shift + rng.standard_normal((17, D)), shift + rng.standard_normal((65, D))
    X2[:17] = X1 + distance * rng.standard_normal((17, D))
    X2[3] = X1[3]
    parameters = 1.3, np.sqrt(D) * rng.uniform(0.5, 2.0, D)
    K, K_bar = cuda.stationary(family, X1, X2, *parameters), rng.standard_normal((17, 65))
    long = problems.exactly(X1, X2, *parameters)
    assert np.abs(K - oracle.stationary(family, *long)).max() < 2e-15 * 1.3
    exact = oracle.stationary_vjp(K_bar.astype(np.longdouble), family, *long)
    for known in (None, K):
        bars = cuda.stationary_vjp(K_bar, family, X1, X2, *parameters, NAMES, known)
        for bar, true in zip(bars, exact, strict=True):
            assert np.abs(bar - true).max() < 1e-13 * max(1, np.abs(true).max())


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


@pytest.mark.parametrize("one", [False, True])
def test_vjp_computes_only_what_is_needed(twin_of, form, rng, one):
    cuda = twin_of("pairwise")
    X1, X2, *parameters = problems.problem(rng, 17, 17, 3, np.float64)
    arguments = (
        symmetric(rng, 17, np.float64),
        "matern52",
        X1,
        None if one else X2,
        *parameters,
    )
    everything = cuda.stationary_vjp(*arguments, NAMES, None)
    for need in ((), *((name,) for name in NAMES), ("X1", "variance"), ("X2", "lengthscales")):
        some = cuda.stationary_vjp(*arguments, need, None)
        for name, bar, expected in zip(NAMES, some, everything, strict=True):
            assert (bar is None) == (name not in need or expected is None)
            if bar is not None:
                np.testing.assert_allclose(bar, expected, rtol=1e-13)


@pytest.mark.parametrize("N1, N2", [(0, 3), (3, 0), (0, 0)])
def test_no_rows(twin_of, rng, N1, N2):
    cuda = twin_of("pairwise")
    X1, X2 = rng.standard_normal((N1, 2)), rng.standard_normal((N2, 2))
    assert (
        cuda.stationary("rbf", X1, X2, 1.0, 0.5).shape == cuda.inner(X1, X2, 0.5).shape == (N1, N2)
    )
    bars = cuda.stationary_vjp(np.ones((N1, N2)), "rbf", X1, X2, 1.0, np.full(2, 0.5), NAMES, None)
    assert [bar.shape for bar in bars] == [(N1, 2), (N2, 2), (), (2,)] and not any(
        bar.any() for bar in bars
    )


def test_no_features(twin_of):
    cuda, empty = twin_of("pairwise"), np.ones((5, 0))
    np.testing.assert_array_equal(
        cuda.stationary("matern32", empty, None, 1.5, 1.0), np.full((5, 5), 1.5)
    )
    bars = cuda.stationary_vjp(np.ones((5, 5)), "matern32", empty, empty, 1.5, 1.0, NAMES, None)
    assert bars[0].shape == bars[1].shape == (5, 0) and bars[2] == 25 and bars[3] == 0


def test_strides_and_orders(twin_of, form, rng):
    cuda = twin_of("pairwise")
    X1, X2, *parameters = problems.problem(rng, 17, 64, 3, np.float64)
    K_bar = rng.standard_normal((17, 64))
    for family in ("matern32", "rbf"):
        K = cuda.stationary(family, X1, X2, *parameters)
        expected = cuda.stationary_vjp(K_bar, family, X1, X2, *parameters, NAMES, None)
        wide, tall, memory = (
            np.full((17, 6), np.nan),
            np.asfortranarray(X2),
            np.full(17 * 64 + 1, np.nan),
        )
        wide[:, ::2] = X1
        np.testing.assert_array_equal(cuda.stationary(family, wide[:, ::2], tall, *parameters), K)
        spread, askew, turned = (
            np.full((34, 128), np.nan),
            memory[1:].reshape(17, 64),
            np.asfortranarray(K_bar),
        )
        spread[::2, ::2] = askew[:] = K_bar
        apart = np.repeat(K, 2, axis=1)[:, ::2]
        for bar, known in (
            (turned, np.asfortranarray(K)),
            (turned, K),
            (spread[::2, ::2], K),
            (askew, K),
            (K_bar, apart),
        ):
            bars = cuda.stationary_vjp(bar, family, wide[:, ::2], tall, *parameters, NAMES, known)
            for a, b in zip(bars, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        S, S_bar = (
            cuda.stationary(family, X1, None, *parameters),
            symmetric(rng, 17, np.float64),
        )
        expected = cuda.stationary_vjp(S_bar, family, X1, None, *parameters, NAMES, None)
        for bar, known in ((S_bar, np.asfortranarray(S)), (np.asfortranarray(S_bar), S)):
            for a, b in zip(
                cuda.stationary_vjp(bar, family, X1, None, *parameters, NAMES, known),
                expected,
                strict=True,
            ):
                assert a is b is None or np.abs(a - b).max() < 1e-12


@every_dtype
def test_leading_batch_axes(twin_of, form, rng, dtype):
    cuda = twin_of("pairwise")
    X1, X2 = (
        rng.standard_normal((2, 3, 5, 2)).astype(dtype),
        rng.standard_normal((2, 3, 66, 2)).astype(dtype),
    )
    parameters = dtype(1.3), np.array([0.7, 1.2], dtype)
    K = cuda.stationary("rbf", X1, X2, *parameters)
    K_bar, S_bar = (
        rng.standard_normal(K.shape).astype(dtype),
        rng.standard_normal((2, 3, 5, 5)).astype(dtype),
    )
    S_bar += S_bar.swapaxes(-1, -2)
    for bar, second in ((K_bar, X2), (S_bar, None)):
        matrix, expected = (
            cuda.stationary("rbf", X1, second, *parameters),
            cpu.stationary("rbf", X1, second, *parameters),
        )
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=4 * np.finfo(dtype).eps)
        for known in (None, matrix):
            bars = cuda.stationary_vjp(bar, "rbf", X1, second, *parameters, NAMES, known)
            for a, b in zip(
                bars,
                cpu.stationary_vjp(bar, "rbf", X1, second, *parameters, NAMES, None),
                strict=True,
            ):
                if b is None:
                    assert a is None
                else:
                    np.testing.assert_allclose(
                        a, b, rtol=0, atol=64 * np.finfo(dtype).eps * max(1, np.abs(b).max())
                    )


def test_parameters_on_the_device(twin_of, form, rng):
    """0-d arrays stay on the device and give the same results as numbers."""
    cuda = twin_of("pairwise")
    X1, X2, *numbers = problems.problem(rng, 9, 5, 3, np.float32, shared=True)
    arrays, K_bar = [np.array(a) for a in numbers], rng.standard_normal((9, 5)).astype(np.float32)
    for one, other in ((numbers, arrays), (numbers, [float(a) for a in numbers])):
        results = []
        for variance, lengthscales in (one, other):
            K = cuda.stationary("matern52", X1, X2, variance, lengthscales)
            bars = cuda.stationary_vjp(K_bar, "matern52", X1, X2, variance, lengthscales, NAMES, K)
            results.append(
                (
                    K,
                    *bars,
                    cuda.inner(X1, X2, variance),
                    *cuda.inner_vjp(K_bar, X1, X2, variance, ("X1", "weights")),
                )
            )
        for a, b in zip(*results, strict=True):
            assert a is b is None or a.dtype == b.dtype == np.float32
            np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_family
def test_nan_stays_in_its_row_and_column(twin_of, form, rng, family):
    cuda = twin_of("pairwise")
    X1, X2, *parameters = problems.problem(rng, 17, 65, 3, np.float64)
    X1[4, -1] = np.nan
    K = cuda.stationary(family, X1, X2, *parameters)
    assert np.isnan(K[4]).all() and np.isfinite(np.delete(K, 4, axis=0)).all()
    assert np.isnan(cuda.stationary(family, X1, None, *parameters)).sum() == 33
    X1_bar, X2_bar, *rest = cuda.stationary_vjp(
        np.ones((17, 65)), family, X1, X2, *parameters, NAMES, None
    )
    assert np.isnan(X1_bar[4]).all() and np.isfinite(np.delete(X1_bar, 4, axis=0)).all()
    assert all(np.isnan(bar).all() for bar in (X2_bar, *rest))


# raised by NumPy's products, which replace cuBLAS here
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_dtype
@every_family
def test_distances_whose_square_overflows(twin_of, form, rng, family, dtype):
    cuda = twin_of("pairwise")
    scale = np.sqrt(np.finfo(dtype).max)
    near = rng.standard_normal((8, 5)).astype(dtype)
    far = (scale * np.arange(2, 5)[:, None] * np.ones(5)).astype(dtype)
    X1, X2 = np.concatenate([near, far]), np.concatenate([near, far + scale, far])
    arguments = family, X1, X2, dtype(1.7), dtype(0.9)
    K = cuda.stationary(*arguments)
    np.testing.assert_array_equal(K[:8, 8:], 0)
    np.testing.assert_array_equal(np.diag(K[8:, 11:]), dtype(1.7))
    for known in (None, K):
        assert all(
            np.isfinite(bar).all()
            for bar in cuda.stationary_vjp(np.ones_like(K), *arguments, NAMES, known)
        )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_dtype
@every_family
def test_tiny_lengthscales(twin_of, form, rng, family, dtype):
    """Only equal points are correlated, and only the variance has a non-zero cotangent."""
    cuda = twin_of("pairwise")
    X1, X2, variance, _ = problems.problem(rng, 3, 5, 2, dtype)
    K_bar = rng.standard_normal((3, 5)).astype(dtype)
    for lengthscales in (np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal):
        for shape in ((), (2,)):
            arguments = family, X1, X2, variance, np.full(shape, lengthscales, dtype)[()]
            K = cuda.stationary(*arguments)
            np.testing.assert_array_equal(
                K, variance * np.array([[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])
            )
            X1_bar, X2_bar, variance_bar, lengthscales_bar = cuda.stationary_vjp(
                K_bar, *arguments, NAMES, None
            )
            assert not X1_bar.any() and not X2_bar.any() and not np.any(lengthscales_bar)
            np.testing.assert_allclose(variance_bar, K_bar[0, 0] + K_bar[2, 4], rtol=1e-5)


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
    results = []
    for order in ("forward", "reverse", "random"):
        with emulated(order) as twin_of:
            results.append(
                twin_of("pairwise").stationary_vjp(
                    K_bar, "matern12", X1, X2, *parameters, NAMES, None
                )
            )
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
