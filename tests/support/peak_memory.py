"""How much memory a call takes."""

import tracemalloc

from fastsvgp.kernels.cpu.common import scratch


def peak_numbers(call):
    """The least of three: what other threads of the tests take meanwhile counts too."""
    call()
    peaks = []
    for _ in range(3):
        scratch.clear()  # what a first step takes, nothing recycled
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1] / 8)
        finally:
            tracemalloc.stop()
    return min(peaks)
