"""What every benchmark shares: the machine's own rates, measured beside each row, and one way to record a row.

A row is a time, that time over its floor (the flops, or bytes, that the algorithm needs at the rate
this machine reaches in the same minutes), the peak extra memory of one call, and the error of its
answer. Build inputs outside the clock; the first call, which compiles, is outside it too.
"""

import gc
import os
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.linalg.blas import dgemm, sgemm

_operands = {}


def gemm_rates(M, B, dtype=np.float64):
    """Flop/s of BLAS gemm on Fortran-ordered (M, M) times (M, B), five times; the yardstick of every floor."""
    key = M, B, np.dtype(dtype)
    if key not in _operands:
        rng = np.random.default_rng(0)
        _operands.clear()  # one row at a time: do not hold the operands of the others
        _operands[key] = [
            np.asfortranarray(rng.standard_normal(s), dtype=dtype) for s in ((M, M), (M, B), (M, B))
        ]
    A, X, out = _operands[key]
    gemm = dgemm if np.dtype(dtype) == np.float64 else sgemm
    # the clock's overhead must not count at M = 100
    repeats = max(1, round(2e7 / (2.0 * M * M * B)))
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            gemm(1.0, A, X, c=out, overwrite_c=1)
        rates.append(2.0 * M * M * B * repeats / (time.perf_counter() - start))
    return rates


def gemm_rate(M, B, dtype=np.float64):
    """The best of five."""
    return max(gemm_rates(M, B, dtype))


def copy_rates(nbytes=2**26):
    """Bytes/s (read plus written) of a plain copy of so many bytes on all cores this process may use, five times."""
    source = np.ones(max(1, nbytes // 8))
    target = np.empty_like(source)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    repeats = max(1, 2**24 // source.nbytes)  # handing over to the threads must not count

    def copy(part):
        for _ in range(repeats):
            np.copyto(*part)

    rates = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(6):
            start = time.perf_counter()
            list(pool.map(copy, parts))
            rates.append(2 * source.nbytes * repeats / (time.perf_counter() - start))
    return rates[1:]  # the first one touches the pages


def peak_extra(call):
    """Bytes that one call holds at its peak beyond what was there before: results and scratch, as NumPy allocates them.

    Memory that the package keeps from call to call is handed back first, so that it counts.
    """
    gc.collect()
    kept = sys.modules.get("fastsvgp.kernels.cpu.common.scratch")
    if kept is not None:
        kept.clear()
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        del result


def relative_error(value, truth):
    """Largest error, scaled by the largest entry of the truth (or by 1, where that is smaller)."""
    value, truth = np.asarray(value, dtype=np.longdouble), np.asarray(truth, dtype=np.longdouble)
    return float(np.abs(value - truth).max(initial=0) / max(1, np.abs(truth).max(initial=0)))


def record(
    benchmark,
    call,
    flops=None,
    bytes=None,
    error=None,
    floor_flops=None,
    gemm=None,
    unit=None,
    seconds=1.5,
    floor_seconds=None,
):
    """Time ``call()`` under pytest-benchmark and store what belongs beside the time in ``benchmark.extra_info``.

    Parameters
    ----------
    benchmark : the fixture of pytest-benchmark
    call : function without arguments
    flops : float
        What the algorithm does; also its floor unless ``floor_flops`` says otherwise.
    bytes : float
        Bytes that must move, for a call bound by memory: its floor is bytes over the copy rate.
        With ``gemm`` too, the floor is the longer of the two times, and the copy moves as many
        bytes: in a cache, where they fit into one.
    error : float
        Error of the answer against a better one, measured by the caller outside the clock.
    floor_flops : float
        What the best known algorithm would do.
    gemm : (M, B, dtype)
        The product whose rate turns flops into seconds. It is measured before, between and after
        the timed calls (between them: before every eighth, or some fifty times in all), as the copy
        is for ``bytes``.
    unit : float
        Bytes of the unit in which the peak extra memory is stated too (``peak_units``).
    seconds : float
        About how long to go on; at least five rounds, at most 1000.
    floor_seconds : function without arguments
        For a call bound by something else: what the floor is, measured at the same moments.

    Notes
    -----
    ``ratio`` is the median time over the median of all floors, ``ratio_best`` the best time over
    the lowest floor: whatever else the machine does then slows both down.
    """
    call()
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    info = benchmark.extra_info
    info.update(
        {k: v for k, v in dict(flops=flops, bytes=bytes, error=error).items() if v is not None}
    )
    info["peak_extra"] = peak_extra(call)
    if unit is not None:
        info["peak_units"] = info["peak_extra"] / unit
    floor_flops = flops if floor_flops is None else floor_flops
    rounds = int(np.clip(seconds / max(once, 1e-7), 5, 1000))
    every = max(8, rounds // 50)
    rates, floors, seen = [], [], 0

    def measure():
        if gemm is not None:
            rates.extend(gemm_rates(*gemm))
        if floor_seconds is not None:
            floors.append(floor_seconds())
        elif gemm is not None and floor_flops:
            moving = [0] * 5 if bytes is None else [bytes / rate for rate in copy_rates(bytes // 2)]
            floors.extend(
                max(floor_flops / rate, time) for rate, time in zip(rates[-5:], moving, strict=True)
            )
        elif bytes:
            floors.extend(bytes / rate for rate in copy_rates())

    def between():
        nonlocal seen
        if seen % every == 0:
            measure()
            # what was measured emptied the caches; the call that counts finds them as a training
            # loop leaves them
            call()
        seen += 1

    benchmark.pedantic(call, setup=between, rounds=rounds, iterations=1, warmup_rounds=1)
    measure()
    if rates:
        info["gemm_rate"] = float(np.median(rates))
    # None under --benchmark-disable
    stats = benchmark.stats.stats if benchmark.stats is not None else None
    if floors and stats is not None:
        floor = float(np.median(floors))
        info.update(floor=floor, ratio=stats.median / floor, ratio_best=stats.min / min(floors))
