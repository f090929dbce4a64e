"""CPU twins: Numba and SciPy's BLAS/LAPACK. Reached through the front door, ``fastsvgp.kernels``.

Numba's on-disk cache looks at the file of a function, not at the files of the functions it calls: after an upgrade that changes
one file, its callers would run old machine code. So the compiled files beside the sources carry one stamp of all sources, and
are dropped when it changes. (Where ``NUMBA_CACHE_DIR`` points elsewhere, empty that folder after an upgrade.)

OpenBLAS's threads spin for 0.1 s after a call, and Linux lets them: our own threads, which do the passes between products, then
get their turn milliseconds late. Measured on two cores, right after a product: 3.2 ms for a covariance matrix of 1000 x 1000, and
1.9 ms where the threads of BLAS go to sleep after 2^20 cycles (0.3 ms, longer than the gaps between the calls of a small step).
OpenBLAS reads that number while it is loaded, so SciPy's is loaded here; a setting of the user's, or a SciPy that is loaded
already, stays as it is.
"""

import hashlib
import os
import pathlib

TIMEOUT = "OPENBLAS_THREAD_TIMEOUT"


def _load_blas():
    ours = TIMEOUT not in os.environ
    if ours:
        os.environ[TIMEOUT] = "20"
    try:
        import scipy.linalg  # noqa: F401
    finally:
        if ours:
            del os.environ[TIMEOUT]  # not for child processes


def _drop_stale_machine_code():
    folder = pathlib.Path(__file__).parent
    cache = folder / "__pycache__"
    stamp_file = cache / "fastsvgp.stamp"
    stamp = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(folder.glob("*.py")))).hexdigest()
    try:
        if stamp_file.exists() and stamp_file.read_text() == stamp:
            return
        for compiled in [*cache.glob("*.nbi"), *cache.glob("*.nbc")]:
            compiled.unlink(missing_ok=True)
        cache.mkdir(exist_ok=True)
        stamp_file.write_text(stamp)
    except OSError:  # a read-only installation: then nothing was compiled into it either
        pass


_load_blas()
_drop_stale_machine_code()
