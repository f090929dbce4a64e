"""The implementation that a front door calls, and the arrays that can receive results."""

import numpy as np
import pytest

from fastsvgp.kernels.cpu import products
from fastsvgp.runtime.dispatch import family, shares_memory

HERE = np.eye(3)


class OfAnotherClass(np.ndarray):
    """A subclass of ndarray, like ``np.memmap``."""


class Foreign:
    """An array that claims to be on a device."""

    ndim, dtype = 2, np.dtype(float)
    __cuda_array_interface__ = {"data": (0, False)}  # noqa: RUF012


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"A": HERE},
        {"A": HERE, "w": None, "c": 2.0, "n": 3},
        {"A": HERE, "c": np.float32(1), "n": np.int64(3), "flag": np.bool_(True)},
        {"A": HERE.view(OfAnotherClass), "w": HERE},
        {"A": np.float64(1)},
    ],
)
def test_arrays_of_the_host_lead_to_the_cpu_twin(arguments):
    assert family("products")(**arguments) is products


@pytest.mark.parametrize("first", [True, False])
def test_device_array_is_found_in_any_position(first):
    arrays = {"A": Foreign(), "B": HERE} if first else {"B": HERE, "A": Foreign()}
    with pytest.raises(TypeError, match="different devices: `A` on the GPU, `B` on the CPU"):
        family("products")(**arrays)


def test_shared_memory_is_found_in_subclasses():
    memory = np.zeros(8)
    assert shares_memory(memory.view(OfAnotherClass)[:4], memory[3:])
    assert not shares_memory(memory.view(OfAnotherClass)[:4], memory[4:])
