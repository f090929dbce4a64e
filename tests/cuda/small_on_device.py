"""Run every kernel once on a GPU, in calls small enough for compute-sanitizer.

Usage: ``python tests/cuda/small_on_device.py [FAMILY ...]``. The families and dtypes are those that
run under the sanitizers of g++: see ``tests/cuda_host/small_runs.py``. On a device they take the
same arrays, with the same strides.
"""

import importlib
import pathlib
import sys

sys.path[:0] = map(str, pathlib.Path(__file__).resolve().parents[1:3])  # tests, and the checkout

import numpy as np  # noqa: E402
from cuda_host.small_runs import RUNS  # noqa: E402
from support.real_device import cupy_or_exit, on_device, on_host  # noqa: E402


def main(families):
    if unknown := set(families) - set(RUNS):
        sys.exit(
            f"small_on_device.py: no family {', '.join(sorted(unknown))}; there are"
            f" {', '.join(RUNS)}"
        )
    cupy = cupy_or_exit()
    for family in families or RUNS:
        problems = importlib.import_module(f"support.{family}_problems")
        for dtype in RUNS[family]:
            if family == "device":
                problems.small_run(on_host(cupy))
            else:
                problems.small_run(on_device(cupy, family), np.dtype(dtype).type)
            cupy.cuda.Device().synchronize()
            print(f"{family}, {dtype}: done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
