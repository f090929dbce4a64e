"""CPU twins: Numba and SciPy's BLAS/LAPACK. Call them through the front door, ``fastsvgp.kernels``.

OpenBLAS's threads spin for 0.1 s after a call, and Linux lets them: our own threads, which run the
passes between products, then start milliseconds late. Measured on two cores, right after a product:
3.2 ms for a covariance matrix of 1000 x 1000, and 1.9 ms if the threads of BLAS go to sleep after
2^20 cycles (0.3 ms, longer than the gaps between the calls of a small step). OpenBLAS reads that
number while it is loaded, so SciPy's OpenBLAS is loaded here. A user's setting is kept, and a SciPy
that is already loaded is not changed.

The C library returns freed memory to the system, and clears each page when it is allocated again: a
gradient of 0.4 ms at M = 100 and B = 256 takes 0.8 ms then (168 page faults, in a process that has
done nothing else). glibc learns from the sizes that are freed, so here one array of the largest
size that it learns from is made, never touched, and freed: from then on up to 64 MiB stay.
"""

import os

import numpy as np

TIMEOUT = "OPENBLAS_THREAD_TIMEOUT"
LEARNT = (1 << 25) - (1 << 13)  # bytes: 32 MiB with the header and whole pages


def _load_blas():
    ours = TIMEOUT not in os.environ
    if ours:
        os.environ[TIMEOUT] = "20"
    try:
        import scipy.linalg  # noqa: F401
    finally:
        if ours:
            del os.environ[TIMEOUT]  # not for child processes


_load_blas()
np.empty(LEARNT, np.uint8)
