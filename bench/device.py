"""Measure rows on a GPU: calls synchronise, and floors are rates of that GPU.

Without a GPU the rows are skipped with a reason.
"""

import pathlib
import time

import harness
import pytest


def _why_not():
    try:
        import cupy

        return None if cupy.cuda.runtime.getDeviceCount() else "CuPy finds no device"
    except Exception as error:  # not installed, no driver, a mismatch: keep the reason
        return f"no CUDA device ({type(error).__name__})"


REASON = _why_not()


def needs_device(function):
    """Mark a benchmark as a row of the tables of devices."""
    return pytest.mark.on_device(
        pytest.mark.skipif(REASON is not None, reason=str(REASON))(function)
    )


RELEASE = pathlib.Path("/sys/module/nvidia/version")  # of the driver, on Linux


def facts():
    """Describe the current device, its driver and its libraries."""
    import cupy

    runtime = cupy.cuda.runtime
    found = runtime.getDeviceProperties(runtime.getDevice())
    driver = (
        RELEASE.read_text(encoding="utf-8").strip() if RELEASE.exists() else "of unknown release"
    )
    return (
        f"{found['name'].decode()}, {found['totalGlobalMem'] / 2**30:.0f} GiB,"
        f" {found['multiProcessorCount']} multiprocessors, compute capability"
        f" {found['major']}.{found['minor']}; driver {driver} (CUDA"
        f" {_dotted(runtime.driverGetVersion())}), CUDA runtime"
        f" {_dotted(runtime.runtimeGetVersion())}, CuPy {cupy.__version__}, NVRTC {_compiler(cupy)}"
    )


def _compiler(cupy):
    try:
        return ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    except Exception as error:  # of the search for the library: cached kernels run without it
        return f"missing ({type(error).__name__})"


def _dotted(version):
    return f"{version // 1000}.{version % 1000 // 10}"


def moved(*arrays):
    """Copy the arrays to the device."""
    import cupy

    return tuple(map(cupy.asarray, arrays))


def _waiting(call):
    import cupy

    def waited():
        result = call()
        cupy.cuda.get_current_stream().synchronize()
        return result

    return waited


def repeated(launch):
    """Return a function that measures the time per launch of 20 launches, best of five."""
    launches = _waiting(lambda: [launch() for _ in range(20)])
    launches()

    def measure():
        times = []
        for _ in range(5):
            start = time.perf_counter()
            launches()
            times.append(time.perf_counter() - start)
        return min(times) / 20

    return measure


def gemm_seconds(flops, M, R, dtype):
    """Return a timer of ``flops`` at the rate of cuBLAS for (M, M) times (M, R)."""
    import cupy

    A, B = cupy.ones((M, M), dtype), cupy.ones((M, R), dtype)
    product = repeated(lambda: cupy.matmul(A, B))
    return lambda: flops / (2.0 * M * M * R) * product()


def _peak_extra(call):
    """Return the bytes that CuPy takes from the device during one call."""
    import cupy

    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    result = call()
    after = pool.total_bytes()
    del result
    return after - before


def record_beside(benchmark, call, floor, **facts):
    """Record a call on the device like ``harness.record``, including launch and synchronisation.

    ``floor`` measures its floor.
    """
    waited = _waiting(call)
    harness.record(benchmark, waited, floor_seconds=floor, **facts)
    benchmark.extra_info["peak_extra"] = _peak_extra(waited)


def record(benchmark, call, flops, error, gemm, floor_flops=None):
    """Record a call whose floor is its flops at the rate of ``gemm``."""
    floor = gemm_seconds(flops if floor_flops is None else floor_flops, *gemm)
    record_beside(benchmark, call, floor, flops=flops, error=error)


def record_writing(benchmark, call, nbytes, error):
    """Record a call whose floor is to write ``nbytes``, measured by cudaMemset."""
    import cupy

    target = cupy.empty(nbytes, cupy.uint8).data
    record_beside(
        benchmark, call, repeated(lambda: target.memset_async(0, nbytes)), bytes=nbytes, error=error
    )


def record_moving(benchmark, call, nbytes, error):
    """Record a call whose floor is to move ``nbytes``: a copy that reads half, writes half."""
    import cupy

    half = nbytes // 2
    source, target = cupy.zeros(half, cupy.uint8).data, cupy.empty(half, cupy.uint8).data
    floor = repeated(lambda: target.copy_from_device_async(source, half))
    record_beside(benchmark, call, floor, bytes=nbytes, error=error)
