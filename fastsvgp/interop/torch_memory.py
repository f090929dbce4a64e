"""Tensors and arrays of the same memory, and the dtypes that both have."""

import contextlib

import numpy as np
import torch

from ..runtime import cuda_devices

DTYPES = {torch.float64: np.dtype(np.float64), torch.float32: np.dtype(np.float32)}


@contextlib.contextmanager
def arrays_at(device):
    """Context of two functions: from tensors of a device to arrays of the same memory, and back."""
    if device.type == "cpu":
        yield (lambda tensor: tensor.detach().numpy()), torch.from_numpy
        return
    if device.type != "cuda":
        raise TypeError(
            f"interop.torch: tensors are on {device}, but fastsvgp computes only on the CPU and on"
            " CUDA devices; move them"
        )
    cupy = cuda_devices.cupy()
    with (
        cupy.cuda.Device(device.index),
        cupy.cuda.Stream.from_external(torch.cuda.current_stream(device)),
    ):
        yield (lambda tensor: cupy.from_dlpack(tensor.detach())), torch.from_dlpack


def flattened(parameters, device):
    """Return the parameters as one float64 vector, for an ``Unravel``."""
    parts = [parameter.detach().reshape(-1).to(torch.float64) for parameter in parameters]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device=device)


def half_precision(name, tensor, advice):
    """Return the error about a tensor in another precision, with advice."""
    return TypeError(
        f"interop.torch: `{name}` is {tensor.dtype}, but fastsvgp computes in float32 and float64;"
        f" give {advice}"
    )
