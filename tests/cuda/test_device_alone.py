"""Streams, memory, mixed arrays, far rows and loaded kernels on a device.

The tests of the emulation are in the other files.
"""

import gc
import pathlib
import sys

import numpy as np
import pytest
from support import newton_schulz_problems
from support.numerics import generator

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cuda import chevron, deferred_checks, products, triangular
from fastsvgp.kernels.cuda.common import graphs, loader, scratch
from tests.cuda.test_far_rows_cuda import APART, BEFORE, FAMILIES, NUMBERS, lower
from tests.cuda.test_mixed_devices import KERNELS, arguments_of, call

MODULES = {
    "chevron": chevron,
    "products": products,
    "deferred_checks": deferred_checks,
    "triangular": triangular,
}


def small_model(rng, M):
    covariance, q = fs.RBF(np.float64(1.3), np.ones(3)), fs.Whitened(np.zeros(M), np.eye(M))
    return fs.SVGP(covariance, rng.standard_normal((M, 3)), q, fs.Gaussian(np.float64(0.3)))


def test_a_training_on_a_stream_of_its_own(real, rng):
    X, Y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    model = fs.to_device(small_model(rng, 9))
    expected, _ = fs.fit(model, X, Y, steps=5, batch_size=16, natural_step_size=0.1, rng=1)
    with real.cuda.Stream(non_blocking=True) as stream:
        found, _ = fs.fit(model, X, Y, steps=5, batch_size=16, natural_step_size=0.1, rng=1)
        stream.synchronize()
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(fs.to_host(found)), fs.records.leaves(fs.to_host(expected)), strict=True
    ):
        np.testing.assert_array_equal(one, other, err_msg=path)


def test_split_sums_on_concurrent_streams(real, rng):
    """Each stream counts its own blocks."""
    A, L = (real.asarray(X) for X in newton_schulz_problems.problem(rng, 300, (), np.float64)[:2])
    expected = kernels.newton_schulz_step(A, L, 1.0).get()
    real.cuda.get_current_stream().synchronize()
    streams, found = [real.cuda.Stream(non_blocking=True) for _ in range(3)], []
    for turn in range(12):
        with streams[turn % 3]:
            found.append(kernels.newton_schulz_step(A, L, 1.0))
    for stream in streams:
        stream.synchronize()
    for one in found:
        np.testing.assert_array_equal(one.get(), expected)


def test_a_step_in_a_graph(real, rng):
    if "fakegpu" in sys.modules:
        pytest.skip("the stand-in driver has no graphs")
    A, L = (real.asarray(X) for X in newton_schulz_problems.problem(rng, 300, (), np.float64)[:2])
    expected = kernels.newton_schulz_step(A, L, 1.0)
    real.cuda.get_current_stream().synchronize()
    with real.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        out = kernels.newton_schulz_step(A, L, 1.0)  # the first call on this stream
        graph = stream.end_capture()
        for _ in range(3):
            out.fill(0)
            graph.launch(stream)
            assert real.array_equal(out, expected)


def test_captured_trainings_share_memory_and_leave_none(real, rng, monkeypatch):
    """Both graphs of a training have one pool, stream and scratch, which end with it."""
    made, plain = [], graphs.Recorded.__init__

    def noted(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        made.append((id(self._pool), self._stream.ptr))

    monkeypatch.setattr(graphs.Recorded, "__init__", noted)
    X, Y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    model, left = fs.to_device(small_model(rng, 130)), []
    for _ in range(2):
        made.clear()
        fs.fit(model, X, Y, steps=3, batch_size=16, rng=1, graph=True)
        assert len(made) == 2 and made[0] == made[1]
        gc.collect()
        left.append(sum(type(one) is scratch.Scratch for one in gc.get_objects()))
    assert left[0] == left[1]


def test_memory_that_runs_out_leaves_no_state_behind(real, rng):
    model = fs.to_device(small_model(rng, 17))
    X, Y = real.asarray(rng.standard_normal((4096, 3))), real.asarray(rng.standard_normal(4096))
    pool = real.cuda.MemoryPool()  # without the parts of blocks that earlier tests have left
    pool.set_limit(size=8 * 17 * 4096 // 2)
    with real.cuda.using_allocator(pool.malloc), pytest.raises(MemoryError):
        fs.elbo_and_grad(model, X, Y)
    assert np.isfinite(fs.elbo_and_grad(model, X, Y)[0])


@pytest.mark.parametrize("name", KERNELS)
def test_mixed_arrays_are_named(real, name):
    arrays, others = arguments_of(name)
    for odd in arrays if len(arrays) > 1 else ():
        mixed = {key: real.asarray(a) if key == odd else a for key, a in arrays.items()}
        with pytest.raises(
            TypeError,
            match=rf"^arrays live on different devices: `{odd}` on the GPU".replace("[", r"\["),
        ):
            call(name, mixed, others)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_far_apart(real, rng, family):
    """In 32 GiB, of which almost nothing is touched."""
    try:
        enough = real.cuda.runtime.memGetInfo()[0] > 4 * NUMBERS + (2 << 30)
        memory = real.empty(NUMBERS if enough else 0, np.float32)
    except real.cuda.memory.OutOfMemoryError:
        enough = False
    if not enough:
        pytest.skip(f"needs {4 * NUMBERS >> 30} GiB of the device's memory")
    made = []

    def far(A):
        start = BEFORE + 64 * len(made)
        made.append(real.lib.stride_tricks.as_strided(memory[start:], A.shape, (4 * APART, 4)))
        made[-1][...] = real.asarray(A)
        return made[-1]

    def near(A):
        wide = real.zeros((len(A), 8), np.float32)
        wide[:, : A.shape[1]] = real.asarray(A)
        return wide[:, : A.shape[1]]

    matrices, results, twin = [lower(rng) for _ in range(3)], [], Moving(MODULES[family], real)
    for moved in (near, far):
        found = FAMILIES[family](twin, *map(moved, matrices), rng=generator(1))
        results.append([a.get() if isinstance(a, real.ndarray) else a for a in found])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


class Moving:
    """A module of kernels that copies the NumPy arrays among its arguments to the device."""

    def __init__(self, module, cupy):
        self._module, self._cupy = module, cupy

    def __getattr__(self, name):
        function = getattr(self._module, name)
        return lambda *args, **kwargs: function(
            *map(self._there, args), **{k: self._there(v) for k, v in kwargs.items()}
        )

    def _there(self, a):
        return self._cupy.asarray(a) if isinstance(a, np.ndarray) else a


def test_kernels_are_kept_and_loaded_again(real, monkeypatch, tmp_path):
    if loader.load_cubin.__module__ != loader.__name__:
        pytest.skip("the stand-in driver loads no cubins")
    monkeypatch.setenv("FASTSVGP_CACHE_DIR", str(tmp_path))
    x, flag = real.asarray([1.0, 2.0]), real.zeros(1, np.int32)
    for _ in range(2):
        for name in ("_modules", "_functions"):
            monkeypatch.setattr(loader, name, {})
        deferred_checks.find_outside([(x, 0.0, 1.5)], flag)
    assert int(flag[0]) == 2 and len(list(pathlib.Path(tmp_path).glob("checks-*.cubin"))) == 1
