"""Rows that need a device: they wait for it, their floor is a rate of that device, and without one they skip with a reason."""

import time

import harness
import pytest


def _why_not():
    try:
        import cupy

        return None if cupy.cuda.runtime.getDeviceCount() else "CuPy finds no device"
    except Exception as error:  # not installed, no driver, a mismatch: the reason is the answer
        return f"no CUDA device ({type(error).__name__})"


REASON = _why_not()
needs_device = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def moved(*arrays):
    """The arrays on the device."""
    import cupy

    return tuple(map(cupy.asarray, arrays))


def _waiting(call):
    import cupy

    def waited():
        result = call()
        cupy.cuda.get_current_stream().synchronize()
        return result

    return waited


def _floor(flops, M, R, dtype):
    """A function that measures how long ``flops`` take at the rate of cuBLAS for (M, M) times (M, R), best of five."""
    import cupy

    A, B = cupy.ones((M, M), dtype), cupy.ones((M, R), dtype)
    product = _waiting(lambda: [cupy.matmul(A, B) for _ in range(20)])
    product()

    def measure():
        times = []
        for _ in range(5):
            start = time.perf_counter()
            product()
            times.append(time.perf_counter() - start)
        return flops / (20 * 2.0 * M * M * R / min(times))

    return measure


def _peak_extra(call):
    """Bytes that CuPy takes from the device for one call."""
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    result = call()
    after = pool.total_bytes()
    del result
    return after - before


def record(benchmark, call, flops, error, gemm, floor_flops=None):
    """As ``harness.record``, for a call on the device: launch and wait count; the floor is flops at the rate of ``gemm``."""
    waited = _waiting(call)
    floor = _floor(flops if floor_flops is None else floor_flops, *gemm)
    harness.record(benchmark, waited, flops=flops, error=error, floor_seconds=floor)
    benchmark.extra_info["peak_extra"] = _peak_extra(waited)


def record_writing(benchmark, call, nbytes, error):
    """As ``record``, for a call whose floor is to write ``nbytes``, by cudaMemset of as many."""
    import cupy

    target = cupy.empty(nbytes, cupy.uint8).data
    fill = _waiting(lambda: [target.memset_async(0, nbytes) for _ in range(20)])
    fill()

    def floor():
        times = []
        for _ in range(5):
            start = time.perf_counter()
            fill()
            times.append(time.perf_counter() - start)
        return min(times) / 20

    waited = _waiting(call)
    harness.record(benchmark, waited, bytes=nbytes, error=error, floor_seconds=floor)
    benchmark.extra_info["peak_extra"] = _peak_extra(waited)
