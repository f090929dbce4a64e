"""Measure the memory of a call."""

import tracemalloc

from fastsvgp.kernels.cpu.common import scratch


def peak_numbers(call):
    """Return the least of three measurements, because memory of other threads counts too."""
    call()
    peaks = []
    for _ in range(3):
        scratch.clear()  # measure a first step, without recycled memory
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1] / 8)
        finally:
            tracemalloc.stop()
    return min(peaks)
