"""Streams and devices belong to a thread in CuPy: only the calling thread uses the device."""

import gc
import shutil
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_host import cupy_on_host

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cuda import quadrature
from fastsvgp.kernels.cuda.common import scratch
from fastsvgp.runtime import cuda_reductions
from fastsvgp.train import batches

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the host emulation of CUDA needs g++"
)
N, M, D = 40, 5, 2


def small_model(rng):
    covariance = fs.RBF(np.float64(1.3), np.ones(D))
    return fs.SVGP(
        covariance,
        rng.standard_normal((M, D)),
        fs.Whitened(np.zeros(M), np.eye(M)),
        fs.Gaussian(np.float64(0.3)),
    )


@pytest.mark.parametrize(
    "where", ["XY", "X", "Y", ""], ids=lambda names: f"{names or 'nothing'} there"
)
def test_only_the_caller_touches_the_device(rng, where, monkeypatch):
    """Batches are gathered and copied on the stream and device current in the ``fit`` call."""
    threads = set()

    def noted(function):
        def call(*args, **kwargs):
            threads.add(threading.get_ident())
            return function(*args, **kwargs)

        return call

    data = {"X": rng.standard_normal((N, D)), "Y": rng.standard_normal(N)}
    with cupy_on_host.cupy_on_host() as cupy:
        model = fs.to_device(small_model(rng))
        expected, _ = fs.fit(model, *data.values(), steps=6, batch_size=16, rng=1)
        data |= {name: cupy.asarray(data[name]) for name in where}
        monkeypatch.setattr(cupy, "asarray", noted(cupy.asarray))
        monkeypatch.setattr(
            cupy_on_host.ndarray, "__getitem__", noted(cupy_on_host.ndarray.__getitem__)
        )
        found, _ = fs.fit(model, *data.values(), steps=6, batch_size=16, rng=1)
    assert threads == {threading.get_ident()}
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(fs.to_host(found)), fs.records.leaves(fs.to_host(expected)), strict=True
    ):
        np.testing.assert_array_equal(one, other, err_msg=path)


class FailsOnce:
    """Rows of an array whose second batch cannot be read at the first attempt."""

    dtype, ndim, shape, reads = np.dtype(float), 2, (N, D), 0

    def __len__(self):
        return N

    def __getitem__(self, rows):
        self.reads += 1
        if self.reads == 2:
            raise OSError("disk")
        return np.ones((N, D))[rows]


def test_unreadable_batch_is_read_again():
    with cupy_on_host.cupy_on_host() as cupy:
        ahead = batches.OnDevice(
            batches.Batches(FailsOnce(), np.ones(N), 16, 1), cupy.asarray(np.ones(1))
        )
        ahead.at(0)
        with pytest.raises(OSError, match="disk"):
            ahead.at(1)
        X, Y = ahead.at(1)
        assert X.shape == (16, D) and Y.shape == (16,)


def test_shared_arrays_are_copied_before_other_streams_use_them(rng, monkeypatch):
    """Nodes and points are copied to a device once; the copy ends before other streams use them."""
    waited = []

    def asarray(a, dtype=None, blocking=False):
        waited.append(blocking)
        return plain(a, dtype)

    quadrature._rule.cache_clear()
    quadrature._points.cache_clear()
    with cupy_on_host.cupy_on_host() as cupy:
        there, plain = cupy.asarray(rng.standard_normal((2, 7))), cupy.asarray
        monkeypatch.setattr(cupy, "asarray", asarray)
        kernels.gauss_hermite_nodes(there, abs(there), 5)
        kernels.normal_points(2, 8, like=there)
    assert waited == [True] * 3  # nodes, weights, points


def test_concurrent_streams_share_no_counters(monkeypatch):
    """All threads share a stream's counters; each thread's default stream has its own."""
    with cupy_on_host.cupy_on_host() as cupy:
        places = (0, 7, scratch.PER_THREAD)

        def kept():
            found = []
            for ptr in places:
                monkeypatch.setattr(
                    cupy.cuda, "get_current_stream", lambda ptr=ptr: SimpleNamespace(ptr=ptr)
                )
                found.append(scratch.of_stream())
            return found

        here, there = kept(), []
        thread = threading.Thread(target=lambda: there.extend(kept()))
        thread.start()
        thread.join()
        assert [one is other for one, other in zip(here, there, strict=True)] == [True, True, False]
        assert len({id(one) for one in here}) == 3 and all(
            a is b for a, b in zip(kept(), here, strict=True)
        )


@pytest.fixture
def streams(monkeypatch):
    """A function that makes a stream with a handle current; it may be capturing."""
    with cupy_on_host.cupy_on_host() as cupy:

        class Stream(cupy.cuda.Stream):
            def __init__(self, ptr, capturing=False):
                super().__init__()
                self.ptr, self.capturing = ptr, capturing

            def is_capturing(self):
                return self.capturing

        current = [None]

        def use(*arguments):
            current[0] = Stream(*arguments)
            return current[0]

        monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: current[0])
        monkeypatch.setattr(scratch, "_captured", [])
        monkeypatch.setattr(cupy.cuda, "Stream", Stream)
        yield use


def test_scratch_ends_with_its_stream(streams):
    """A later stream with the same handle has its own counters."""
    first = streams(4096)
    ended = weakref.ref(scratch.of_stream())
    assert scratch.of_stream() is ended() and not scratch._kept
    second = streams(4096)
    assert scratch.of_stream() is not ended()
    del first
    gc.collect()
    assert ended() is None and second is not None


def test_scratch_of_a_capture_is_kept(streams):
    """A graph of the user's can outlive the stream; what ``Recorded`` holds is not kept twice."""
    stream = streams(4096)
    found = weakref.ref(scratch.of_stream())
    stream.capturing = True
    for _ in range(2):
        assert scratch.of_stream() is found()
    assert scratch._captured == [found()]
    del stream
    streams(4112)
    gc.collect()
    assert found() is not None
    scratch.hold(stream := streams(4096))
    stream.capturing = True
    scratch.of_stream()
    assert len(scratch._captured) == 1


def test_memory_that_a_graph_may_hold_stays():
    """Scratch grows by at least a factor of two, and keeps what it has given."""
    with cupy_on_host.cupy_on_host():
        kept, dtype = scratch.of_stream(), np.dtype(float)
        first = kept.parts_of(100, dtype)
        assert kept.parts_of(90, dtype) is first
        second = kept.parts_of(101, dtype)
        assert second.size == 200 and any(a is first for a in kept._replaced)
        assert kept.parts_of(1000, dtype).size == 1000
        counters = kept.counters(5)
        assert kept.counters(4) is counters and not counters.any()
        assert kept.counters(6).size == 6 and any(a is counters for a in kept._replaced)


def test_reductions_of_steps_are_those_of_cupy(rng, monkeypatch):
    """Within any thread's step; afterwards the user's setting is back, also after an error."""
    with cupy_on_host.cupy_on_host() as cupy:
        core, plain = cupy._core, cuda_reductions.plain_reductions
        core.set_routine_accelerators([2])

        def settings():
            return core.get_reduction_accelerators(), core.get_routine_accelerators()

        inside = threading.Event(), threading.Event()

        def other():
            with plain():
                inside[0].set()
                inside[1].wait(10)

        thread = threading.Thread(target=other)
        with pytest.raises(KeyError):
            with plain():
                thread.start()
                inside[0].wait(10)
                raise KeyError
        assert settings() == ([], [])  # the other thread is still inside
        inside[1].set()
        thread.join()
        assert settings() == ([1], [2])
        seen, plain_sum = [], cupy_on_host.ndarray.sum

        def noted(self, *args, **kwargs):
            seen.append(settings())
            return plain_sum(self, *args, **kwargs)

        monkeypatch.setattr(cupy_on_host.ndarray, "sum", noted)
        model, data = fs.to_device(small_model(rng)), rng.standard_normal((N, D + 1))
        fs.fit(model, data[:, :D], data[:, D], steps=3, batch_size=16, rng=1, graph=False)
        assert seen and all(one == ([], []) for one in seen)
        assert settings() == ([1], [2])
        core.set_routine_accelerators([1])
