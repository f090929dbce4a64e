"""Run every kernel in calls that are small enough for sanitizers.

Usage: ``python -m cuda_host.small_runs FAMILY DTYPE SANITIZER``. The families are those of
``tests/support/FAMILY_problems.py``; "device" is the front door, with the kernels behind bounds and
optimisers.
"""

import importlib
import sys

import numpy as np

EITHER = ("float32", "float64")
# in both dtypes if 128-bit loads hold different numbers of elements, or if the matrix products of a
# warp differ
RUNS = {
    "chevron": EITHER,
    "fourier": EITHER,
    "pairwise": EITHER,
    "triangular": EITHER,
    "newton_schulz": ("float32",),
    "patches": ("float32",),
    "device": ("float32",),
}
LIBRARIES = {  # stems, or kernels, that are launched by runs in a dtype other than float32 only
    "chevron": EITHER,
    "fourier": EITHER,
    "pairwise": EITHER,
    "cholesky": EITHER,
    "tiled": EITHER,
    "triangular": EITHER,
    "nonuniform": ("float64",),
    "vecchia": ("float64",),  # it adds rows up in float64 too
    **dict.fromkeys(("sort_runs", "mark_first", "list_distinct", "add_rows"), EITHER),
    "adam": ("float64",),
    "to_positive": ("float64",),
    "from_positive": ("float64",),
    "through_positive": ("float64",),
    "fold_bits": ("float64",),
}


def run(family, dtype, sanitizer=None):
    problems = importlib.import_module(f"support.{family}_problems")
    if family == "device":
        # with this emulation only: the other families take plain arrays
        from cuda_host.cupy_on_host import cupy_on_host
        from support.real_device import on_host

        with cupy_on_host(sanitizer=sanitizer) as module:
            problems.small_run(on_host(module))
    else:
        from cuda_host.emulated import emulated

        with emulated(sanitizer=sanitizer) as twin_of:
            problems.small_run(twin_of(family), np.dtype(dtype).type)


if __name__ == "__main__":
    run(*sys.argv[1:])
