"""The front door of the kernels refuses arrays of several devices, and names its arguments."""

import inspect
import types

import numpy as np
import pytest
from cuda_host.cupy_on_host import ndarray

from fastsvgp import kernels
from fastsvgp.records import transforms
from fastsvgp.runtime import cuda_devices, dispatch

KERNELS = {
    name: f
    for name, f in vars(kernels).items()
    if inspect.isfunction(f) and f.__module__.startswith(f"{kernels.__name__}.")
}
OTHERS = {  # parameters that are not arrays, and their values here
    **dict.fromkeys(
        [
            "transpose",
            "transpose_a",
            "transpose_b",
            "add",
            "scale",
            "need_C",
            "positive",
            "lower",
            "sums",
        ],
        False,
    ),
    **dict.fromkeys([f"overwrite_{letter}" for letter in "abcdlw"], False),
    **dict.fromkeys(["jitter", "shift", "kl_bar", "tolerance", "beta1", "beta2", "epsilon"], 0.5),
    **dict.fromkeys(
        [
            "num",
            "size",
            "dim",
            "j",
            "pivot",
            "seed",
            "iterations",
            "count",
            "period",
            "rng",
            "step",
            "steps",
        ],
        1,
    ),
    **{
        "need": (),
        "kept": None,
        "function": "log_ndtr",
        "family": "rbf",
        "dtype": np.float64,
        "shape": (2, 2),
    },
    **{"geometry": (1, 2, 1, 1, 1, 1), "windows": None, "others": None, "stream": 1},
    **{"triangles": (False, True), "transform": transforms.softplus},
}
NUMBERS = {
    ("fourier_frequencies", "D"): 2,
    ("adam", "step_size"): 0.1,
    ("adagrad_rows", "step_size"): 0.1,
}
for name in ("whitened_step", "whitened_sums"):
    NUMBERS |= {
        (name, "covariance"): ("rbf", 1.0, 1.0),
        (name, "noise"): 0.5,
        (name, "factor"): 1.0,
    }
NUMBERS |= {("whitened_sums", "natural"): True}
NUMBERS |= {("whitened_natural_step", "step_size"): 0.5}
NUMBERS |= {("sum_each", "factor"): 2, ("prefers_inverse", "columns"): 2}
TUPLES = {
    ("adam", "out"): 3,
    ("sum_rows", "rows"): 1,
    ("sum_rows", "values"): 1,
    ("sum_each", "groups"): 2,
    ("pack_fields", "fields"): 2,
    ("unpack_fields", "fields"): 2,
}
TUPLES |= {("newton_schulz_walk", "start"): 2}
NESTED = {"groups"}  # tuples of tuples, here of one


def arguments_of(name):
    """Return ``(arrays, others)``: all arguments of a kernel.

    All arrays are (2, 2): only their location is checked.
    """
    arrays, others = {}, {}
    for parameter in inspect.signature(KERNELS[name]).parameters:
        if parameter in OTHERS:
            others[parameter] = OTHERS[parameter]
        elif (name, parameter) in NUMBERS:
            others[parameter] = NUMBERS[name, parameter]
        elif (name, parameter) in TUPLES:
            first = "[0]" * (parameter in NESTED)
            arrays |= {
                f"{parameter}{first}[{i}]": np.eye(2) for i in range(TUPLES[name, parameter])
            }
        else:
            arrays[parameter] = np.eye(2)
    return arrays, others


def call(name, arrays, others):
    tuples = {key: [] for kernel, key in TUPLES if kernel == name}
    for key, array in arrays.items():
        if key.partition("[")[0] in tuples:
            tuples[key.partition("[")[0]].append(array)
    plain = {key: array for key, array in arrays.items() if key.partition("[")[0] not in tuples}
    tuples = {
        key: (tuple(parts),) if key in NESTED else tuple(parts) for key, parts in tuples.items()
    }
    return KERNELS[name](**plain, **tuples, **others)


def test_all_kernels_are_found():
    assert len(KERNELS) > 70
    assert {
        "solve_triangular",
        "cholesky",
        "newton_schulz_step",
        "stationary",
        "chevron_multiply",
        "adam",
    } <= set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_mixed_devices_are_named(name):
    arrays, others = arguments_of(name)
    assert arrays, name
    for odd in arrays if len(arrays) > 1 else ():
        rest = [f"`{key}`" for key in arrays if key != odd]
        for odd_one_there in (True, False):
            mixed = {
                key: ndarray(a) if (key == odd) is odd_one_there else a for key, a in arrays.items()
            }
            there, here = ([f"`{odd}`"], rest) if odd_one_there else (rest, [f"`{odd}`"])
            with pytest.raises(TypeError) as caught:
                call(name, mixed, others)
            said = (
                f"arrays live on different devices: {', '.join(there)} on the GPU,"
                f" {', '.join(here)} on the CPU; move models"
            )
            assert str(caught.value).startswith(said), odd


class Elsewhere(ndarray):
    device = types.SimpleNamespace(id=1)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(dispatch, "_cupy", {ndarray, Elsewhere})
    monkeypatch.setattr(dispatch, "_gpus", 2)
    monkeypatch.setattr(cuda_devices, "current_device", lambda: 0)


@pytest.mark.parametrize("name", KERNELS)
def test_mixed_gpus_are_named(two_gpus, name):
    arrays, others = arguments_of(name)
    for odd in arrays if len(arrays) > 1 else ():
        mixed = {key: (Elsewhere if key == odd else ndarray)(a) for key, a in arrays.items()}
        with pytest.raises(TypeError, match="arrays live on different devices: ") as caught:
            call(name, mixed, others)
        rest = ", ".join(f"`{key}`" for key in arrays if key != odd)
        said = str(caught.value).partition(": ")[2].partition("; move models")[0]
        there, here = f"`{odd}` on GPU 1", f"{rest} on GPU 0"
        assert said in (f"{here}, {there}", f"{there}, {here}"), odd
    if name == "full":  # no kernel and no library
        return
    with pytest.raises(ValueError, match="` is on GPU 1, but the current device is 0") as caught:
        call(name, {key: Elsewhere(a) for key, a in arrays.items()}, others)
    assert str(caught.value).startswith(tuple(f"`{key}`" for key in arrays))
