"""Which twin a front door calls, and which arrays may receive results."""

import numpy as np
import pytest

from fastsvgp.kernels.cpu import products
from fastsvgp.runtime.dispatch import check_out, family, shares_memory

HERE = np.eye(3)


class OfAnotherClass(np.ndarray):
    """As ``np.memmap``."""


class Foreign:
    """An array of a library whose arrays live on a device, to those who ask."""

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
def test_one_array_of_a_device_is_found_wherever_it_stands(first):
    arrays = {"A": Foreign(), "B": HERE} if first else {"B": HERE, "A": Foreign()}
    with pytest.raises(TypeError, match="different devices: `A` on the GPU, `B` on the CPU"):
        family("products")(**arrays)


def test_an_out_that_is_read_meanwhile_is_refused():
    memory = np.zeros((4, 3, 3))
    check_out(None, A=memory)
    check_out(memory[0], A=memory[1], B=HERE, C=memory[:0])
    with pytest.raises(ValueError, match="`out` shares memory with `B`"):
        check_out(memory[1], A=HERE, B=memory[::2])
    with pytest.raises(
        ValueError, match=r"C-contiguous, got shape \(3, 3\) with strides \(8, 24\)"
    ):
        check_out(memory[0].T)


def test_memory_of_other_classes_of_arrays_is_compared_too():
    memory = np.zeros(8)
    assert shares_memory(memory.view(OfAnotherClass)[:4], memory[3:])
    assert not shares_memory(memory.view(OfAnotherClass)[:4], memory[4:])
