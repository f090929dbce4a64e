"""CUDA twin of ``stratified``: draws units on the device."""

import numpy as np

from ...runtime import cuda_devices
from .common import loader

BLOCK = 256  # as in stratified.cu


def stratified_units(num, size, seed, step, stream, like):
    cp = cuda_devices.cupy()
    units, widths = cp.empty(size, np.int64), cp.empty(size, np.float64)
    numbers = np.int64(num), np.int64(size), np.uint64(seed), np.uint64(step), np.uint32(stream)
    loader.launch(
        "stratified",
        "draw_units",
        like.dtype,
        (-(-size // BLOCK),),
        (BLOCK,),
        (*numbers, units, widths),
    )
    return units, widths
