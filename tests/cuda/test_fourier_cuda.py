"""CUDA twin of the fourier family, emulated or on a device: the checks of the CPU twin."""

import pathlib
import shutil

import numpy as np
import pytest
from cuda_host import host_module
from cuda_host.cupy_on_host import copies, cupy_on_host
from cuda_host.emulated import assert_same_in_any_order
from oracles import fourier as oracle
from support import fourier_problems as problems

from fastsvgp import kernels
from fastsvgp.kernels.cpu import fourier as cpu
from fastsvgp.kernels.cpu.fourier import philox
from fastsvgp.kernels.cuda import fourier as cuda_module
from fastsvgp.runtime import cuda_devices

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
NEED = "X", "W", "variance", "lengthscales"


@pytest.mark.skipif(shutil.which("g++") is None, reason="the host emulation of CUDA needs g++")
def test_words_are_those_of_the_cpu(rng):
    counters, keys = (rng.integers(0, 2**32, (64, k), dtype=np.uint32) for k in (4, 2))
    counters[0], keys[0] = 0, 0
    counters[1], keys[1] = 2**32 - 1, 2**32 - 1
    words = np.zeros((64, 4), np.uint32)
    module = host_module.HostModule(
        pathlib.Path(host_module.__file__).with_name("words.cu"), ["-DREAL=float"]
    )
    module.launch("words", (1,), (64,), (counters, keys, words))
    for counter, key, found in zip(counters, keys, words, strict=True):
        assert tuple(found) == oracle.philox([int(c) for c in counter], [int(k) for k in key])
        ours = counter.astype(np.uint64)[:, None]
        philox.philox(ours, 1, *map(np.uint64, key))
        assert tuple(found) == tuple(ours[:, 0])


@every_dtype
@pytest.mark.parametrize("family", problems.FAMILIES)
def test_frequencies_by_definition(twin_of, family, dtype):
    problems.check_frequencies(twin_of("fourier"), family, 6, dtype)


@every_dtype
@pytest.mark.parametrize("shape", problems.SHAPES)
def test_against_the_feature_matrix(twin_of, rng, shape, dtype):
    problems.check_all(twin_of("fourier"), rng, "rbf", *shape, dtype)


@every_dtype
@pytest.mark.parametrize("family", problems.FAMILIES[1:])
def test_every_family(twin_of, rng, family, dtype):
    problems.check_all(twin_of("fourier"), rng, family, 33, 5, 21, 3, dtype)


@every_dtype
@pytest.mark.parametrize("shape", [(600, 3, 40, 1), (70, 20, 70, 5)])
def test_tiles_and_runs_join(twin_of, rng, shape, dtype, monkeypatch):
    """Blocks with several tiles of points, and several runs of phases from a matrix product."""
    monkeypatch.setattr(cuda_module, "GROUPS_EACH", 1)
    monkeypatch.setattr(cuda_module, "TILE", 32 * 70)
    problems.check_all(twin_of("fourier"), rng, "matern32", *shape, dtype)


@every_dtype
@pytest.mark.parametrize("shape", [(600, 3, 300, 5), (70, 20, 300, 5)])
def test_partial_sums_take_no_more_memory_than_they_may(twin_of, rng, shape, dtype, monkeypatch):
    """Frequencies come in runs, and their sums are added up in between."""
    cuda, most, numbers = twin_of("fourier"), 5000, []
    cp = cuda_devices.cupy()
    plain = cp.empty
    # undone before the emulation is, which patches the loader too
    with monkeypatch.context() as patch:
        patch.setattr(cuda_module, "PARTS", most)
        patch.setattr(cuda_module, "TILE", 32 * 70)
        patch.setattr(cuda_devices, "multiprocessors", lambda: 2)  # whatever device there is
        patch.setattr(
            cp,
            "empty",
            lambda shape, dtype=float: numbers.append(np.prod(shape)) or plain(shape, dtype),
        )
        problems.check_all(cuda, rng, "matern32", *shape, dtype)
    assert 0.5 * most < max(numbers) <= most


@every_dtype
def test_parameters_here_or_there(twin_of, rng, dtype):
    """One lengthscale for all features; parameters as device arrays and as numbers."""
    cuda = twin_of("fourier")
    X, U, W, indices, _, _ = problems.problem(rng, 33, 4, 21, 2, dtype)
    problems.check_products(cuda, "matern52", X, U, W, indices, 1.7, dtype(1.25))
    model = "rbf", 3, indices, problems.NUM
    numbers = problems.bars_of(cuda, U, X, W, *model, 1.75, 1.25)
    there = np.array(1.75, dtype), np.array(1.25, dtype)
    arrays = problems.bars_of(cuda, U, X, W, *model, *there)
    for one, other in zip(numbers, arrays, strict=True):
        np.testing.assert_array_equal(one, other)


@every_dtype
@pytest.mark.parametrize("N, D, n, count", [(65, 3, 33, 5), (300, 10, 70, 1), (65, 20, 33, 2)])
def test_equals_the_cpu_twin(twin_of, rng, N, D, n, count, dtype):
    cuda = twin_of("fourier")
    X, U, W, indices, *scales = problems.problem(rng, N, D, n, count, dtype)
    model = "matern32", problems.SEED, indices, problems.NUM, *scales
    close(
        cuda.fourier_frequencies(*model[:3], D, dtype),
        cpu.fourier_frequencies(*model[:3], D, dtype),
    )
    for w, transpose in ((W, False), (U, True)):
        close(
            cuda.fourier_multiply(X, w, *model, transpose),
            cpu.fourier_multiply(X, w, *model, transpose),
        )
    results = (problems.bars_of(twin, U, X, W, *model) for twin in (cuda, cpu))
    for one, other in zip(*results, strict=True):
        close(one, other)


@every_dtype
@pytest.mark.parametrize("N, D, n, count", [(65, 3, 33, 5), (70, 20, 33, 1)])
@pytest.mark.parametrize("given", ["W v", "W U", "v u", "W v U u"])
def test_sweeps_equal_those_of_the_cpu(twin_of, rng, N, D, n, count, given, dtype):
    cuda, names = twin_of("fourier"), ("out", "squares", "W", "v", "X", "variance", "lengthscales")
    X, U, W, indices, *scales = problems.problem(rng, N, D, n, count, dtype)
    sides = {
        "W": W,
        "v": rng.standard_normal(2 * n).astype(dtype),
        "U": U,
        "u": rng.standard_normal(N).astype(dtype),
    }
    sides = [side if name in given.split() else None for name, side in sides.items()]
    model = "matern32", 5, indices, problems.NUM, *scales
    sources = {"out": "W", "squares": "v", "W": "U", "v": "u", "X": "U" if "W" in given else "u"}
    have = [name for name in names if sources.get(name, sources["X"]) in given.split()]
    for need in (have, have[:1], have[1:]):
        results = [twin.fourier_sweep(X, *model, *sides, need, None) for twin in (cuda, cpu)]
        for name, one, other in zip(names, *results, strict=True):
            assert (one is not None) == (other is not None) == (name in need)
            if one is not None:
                close(one, other)


def close(one, other):
    assert one.dtype == other.dtype and one.shape == other.shape
    np.testing.assert_allclose(
        one, other, rtol=0, atol=128 * np.finfo(one.dtype).eps * np.abs(other).max()
    )


@every_dtype
@pytest.mark.parametrize("D", [3, 20])  # phases made in the kernel, and by a product before it
def test_strides_and_orders(twin_of, rng, D, dtype):
    """The layout of arguments does not change results."""
    cuda = twin_of("fourier")
    X, U, W, indices, variance, lengthscales = problems.problem(rng, 33, D, 9, 3, dtype)
    layouts = [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[::-1].copy()[::-1],
    ]
    results = []
    for layout in (np.copy, *layouts):
        x, u, w, indices_, scales = map(layout, (X, U, W, indices, lengthscales))
        model = "matern52", 1, indices_, problems.NUM, variance, scales
        products = (
            cuda.fourier_multiply(x, w, *model, False),
            cuda.fourier_multiply(x, u, *model, True),
        )
        results.append([*products, *problems.bars_of(cuda, u, x, w, *model)])
    for others in results[1:]:
        for one, other in zip(others, results[0], strict=True):
            np.testing.assert_array_equal(one, other)


def test_no_points_no_frequencies_no_sides(twin_of, rng):
    cuda = twin_of("fourier")
    X, U, W, indices, *scales = problems.problem(rng, 9, 3, 5, 2, np.float64)
    model = "rbf", 8, indices, problems.NUM, *scales
    none = "rbf", 8, indices[:0], problems.NUM, *scales
    assert not cuda.fourier_multiply(X, W[:, :0], *none, False).any()
    assert cuda.fourier_multiply(X, W[:0], *model, False).shape == (0, 9)
    X_bar, W_bar, *others = problems.bars_of(cuda, U, X, W[:, :0], *none)
    assert not X_bar.any() and W_bar.shape == (2, 0) and not any(bar.any() for bar in others)
    X_bar, W_bar, _, lengthscales_bar = problems.bars_of(cuda, U[:, :0], X[:0], W, *model)
    assert X_bar.shape == (0, 3) and not W_bar.any() and not lengthscales_bar.any()


def test_vjp_of_what_is_needed(twin_of, rng):
    cuda = twin_of("fourier")
    X, U, W, indices, *scales = problems.problem(rng, 17, 3, 9, 2, np.float64)
    arguments = U, X, W, "rbf", 1, indices, problems.NUM, *scales
    everything = problems.bars_of(cuda, *arguments)
    for need in ((), ("X",), ("W",), ("variance", "lengthscales")):
        bars = problems.bars_of(cuda, *arguments, need=need)
        for name, full, bar in zip(NEED, everything, bars, strict=True):
            assert (bar is not None) == (name in need)
            if bar is not None:
                close(bar, full)  # another kernel: other orders of summation


@pytest.mark.skipif(shutil.which("g++") is None, reason="the host emulation of CUDA needs g++")
@pytest.mark.parametrize("D", [3, 20])
def test_nothing_waits(rng, D):
    """Through the public functions, on arrays as strict as CuPy's, with no copy between devices."""
    host = (
        *problems.problem(rng, 40, D, 21, 5, np.float64)[:4],
        np.array(1.7),
        rng.uniform(0.5, 2, D),
    )
    with cupy_on_host() as cupy:
        X, U, W, indices, *scales = map(cupy.asarray, host)
        before = copies.to_host, copies.to_device
        model = "rbf", 1, indices, problems.NUM, *scales
        results = [
            kernels.fourier_multiply(X, W, *model),
            kernels.fourier_multiply(X, U, *model, True),
        ]
        sides, names = {"W": W, "U": U}, ("out", "W", "X", "variance", "lengthscales")
        results += kernels.fourier_sweep(X, *model, **sides, need=names)
        squares = {"v": W[0], "u": U[0]}
        results += kernels.fourier_sweep(
            X, *model, **sides, **squares, need=("squares", "v", *names)
        )
        assert all(a is None or isinstance(a, cupy.ndarray) for a in results)
        assert (copies.to_host, copies.to_device) == before


@pytest.mark.parametrize("wrong", [-1, 17])
def test_indices_out_of_range_in_the_checking_mode(twin_of, rng, wrong, monkeypatch):
    monkeypatch.setenv("FASTSVGP_CUDA_CHECK", "1")
    X, U, W, indices, *scales = problems.problem(rng, 9, 3, 5, 2, np.float64)
    cuda, model = twin_of("fourier"), ("rbf", 1, np.r_[indices[:4] % 17, wrong], 17, *scales)
    for name, arguments in (
        ("fourier_multiply", (X, W, *model, False)),
        ("fourier_multiply", (X, U, *model, True)),
        ("fourier_sweep", (X, *model, W, None, U, None, NEED, None)),
    ):
        with pytest.raises(
            IndexError, match=rf"`indices` holds {wrong}, but there are 17 frequencies \(0 to 16\)"
        ):
            getattr(cuda, name)(*arguments)
    edges = "rbf", 1, np.array([0, 16, 3, 16, 0]), 17, *scales
    assert np.isfinite(cuda.fourier_multiply(X, W, *edges, False)).all()
    with pytest.raises(IndexError, match="`indices` holds -1,"):
        cuda.fourier_frequencies("rbf", 1, np.array([3, -1]), 2, np.float64)
    assert np.isfinite(
        cuda.fourier_frequencies("rbf", 1, np.array([2**63 - 1]), 2, np.float64)
    ).all()


def test_the_order_of_threads_changes_no_bit(rng):
    """Reductions have a fixed order for any order of threads."""
    X, U, W, indices, *scales = problems.problem(rng, 300, 5, 40, 2, np.float32)
    model = "rbf", 3, indices, problems.NUM, *scales

    def work(twin_of):
        cuda = twin_of("fourier")
        bars = problems.bars_of(cuda, U, X, W, *model)
        return cuda.fourier_multiply(X, W, *model, False), *bars

    assert_same_in_any_order(work)


def test_work_is_dealt_out_evenly():
    """Each frequency has a share, and 132 multiprocessors are busy with two tiles of points."""
    for n, groups in ((1, 1), (16, 1), (10_000, 2), (10_000, 40), (100, 1000), (10**7, 2)):
        share = cuda_module._share(n, groups, 132)
        assert share % cuda_module.SUB == 0 and share > 0
    share = cuda_module._share(10_000, 2, 132)
    blocks = 2 * -(-10_000 // share)
    assert -(-blocks // 132) * share <= 1.1 * 2 * 10_000 / 132
