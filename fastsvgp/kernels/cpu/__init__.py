"""CPU twins: Numba and SciPy's BLAS/LAPACK. Reached through the front door, ``fastsvgp.kernels``.

Numba's on-disk cache looks at the file of a function, not at the files of the functions it calls: after an upgrade that changes
one file, its callers would run old machine code. So the compiled files beside the sources carry one stamp of all sources, and
are dropped when it changes. (Where ``NUMBA_CACHE_DIR`` points elsewhere, empty that folder after an upgrade.)
"""

import hashlib
import pathlib


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


_drop_stale_machine_code()
