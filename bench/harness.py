"""Measure a row of a benchmark, and the rates of the machine between its calls.

A row is a time, its ratio to a floor (the flops, or bytes, of the algorithm at the rate of this
machine during the same minutes), the peak extra memory of one call, and the error of its result.
Build inputs outside the clock; the first call, which compiles, is outside it too.
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
    """Measure the flop/s of BLAS gemm on Fortran-ordered (M, M) times (M, B), five times."""
    key = M, B, np.dtype(dtype)
    if key not in _operands:
        rng = np.random.default_rng(0)
        _operands.clear()  # one row at a time: do not keep the operands of the others
        _operands[key] = [
            np.asfortranarray(rng.standard_normal(s), dtype=dtype) for s in ((M, M), (M, B), (M, B))
        ]
    A, X, out = _operands[key]
    gemm = dgemm if np.dtype(dtype) == np.float64 else sgemm
    # the overhead of the clock must be negligible at M = 100
    repeats = max(1, round(2e7 / (2.0 * M * M * B)))
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            gemm(1.0, A, X, c=out, overwrite_c=1)
        rates.append(2.0 * M * M * B * repeats / (time.perf_counter() - start))
    return rates


def gemm_rate(M, B, dtype=np.float64):
    """Return the best of five gemm rates."""
    return max(gemm_rates(M, B, dtype))


def copy_rates(nbytes=2**26):
    """Measure the bytes/s (read plus written) of a copy on all available cores, five times."""
    source = np.ones(max(1, nbytes // 8))
    target = np.empty_like(source)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    repeats = max(1, 2**24 // source.nbytes)  # the overhead of the threads must be negligible

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
    """Return the peak memory of one call, in bytes: results and scratch arrays of NumPy.

    Memory that the package caches between calls is released first, so it counts.
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
    """Return the largest error, scaled by the largest entry of the truth, or by 1 if larger."""
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
    """Time ``call()`` by pytest-benchmark, and store the rest of its row in ``extra_info``.

    Parameters
    ----------
    benchmark : the fixture of pytest-benchmark
    call : function without arguments
    flops : float
        Flops of the algorithm; also those of its floor unless ``floor_flops`` is given.
    bytes : float
        Bytes that must move, for a memory-bound call: its floor is bytes over the copy rate.
        With ``gemm`` too, the floor is the longer of the two times, and the copy moves the same
        number of bytes, within a cache if they fit.
    error : float
        Error of the result against a more accurate one, measured by the caller outside the clock.
    floor_flops : float
        Flops of the best known algorithm.
    gemm : (M, B, dtype)
        The product whose rate converts flops to seconds. It is measured before, between and after
        the timed calls (between them: before every eighth, or about fifty times in all), like the
        copy for ``bytes``.
    unit : float
        Bytes of the unit in which the peak extra memory is also stated (``peak_units``).
    seconds : float
        Approximate duration; at least five rounds, at most 1000.
    floor_seconds : function without arguments
        The floor of a call with another limit, measured at the same times.

    Notes
    -----
    ``ratio`` is the median time over the median of all floors, ``ratio_best`` the best time over
    the lowest floor, so other load on the machine slows down both.
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
            # the measurement emptied the caches; refill them as in a training loop
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
