"""Run the kernels of ``planted.cu``; exit with 0 if the results are right.

Usage: ``python -m cuda_host.planted DEFECT SANITIZER``.
"""

import pathlib
import sys

import numpy as np
from cuda_host.host_module import HostModule

WRONG_RESULT = 3


def is_right(defect, sanitizer=None):
    module = HostModule(pathlib.Path(__file__).with_name("planted.cu"), ["-DREAL=float"], sanitizer)
    rng = np.random.default_rng(defect)
    if defect == 12:
        values, out = rng.standard_normal(256, dtype=np.float32), np.zeros(256, np.float32)
        module.launch("reversed", (1,), (64,), (values, out, np.int32(defect)))
        return np.array_equal(out, values[::-1])
    values, out = rng.standard_normal((3, 64), dtype=np.float32), np.zeros((3, 64), np.float32)
    if defect in (13, 14):
        return is_sum_of_blocks(module, values, defect)
    module.launch("block_sum", (3,), (64,), (values, out, np.int32(defect)))
    return np.allclose(out, values.sum(1, keepdims=True), atol=1e-4) and (
        defect > 0 or is_sum_of_blocks(module, values, 0)
    )


def is_sum_of_blocks(module, values, defect):
    out, counter = np.zeros(64, np.float32), np.zeros(1, np.uint32)
    module.launch(
        "sum_of_blocks",
        (3,),
        (64,),
        (values, np.zeros_like(values), counter, out, np.int32(defect)),
    )
    return counter == 0 and np.array_equal(out, values[0] + values[1] + values[2])


if __name__ == "__main__":
    sys.exit(0 if is_right(int(sys.argv[1]), sys.argv[2]) else WRONG_RESULT)
