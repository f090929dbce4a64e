"""Tensors and arrays of the same memory; refusals of derivatives that fastsvgp does not have."""

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


def flatten(parameters, device):
    """Return the parameters as one float64 vector, for an ``Unravel``."""
    parts = [parameter.detach().reshape(-1).to(torch.float64) for parameter in parameters]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device=device)


def half_precision(name, tensor, advice):
    """Return the error about a tensor in another precision, with advice."""
    return TypeError(
        f"interop.torch: `{name}` is {tensor.dtype}, but fastsvgp computes in float32 and float64;"
        f" give {advice}"
    )


class _Once(torch.autograd.Function):
    """Identity of gradients that refuses to be differentiated in the original inputs."""

    @staticmethod
    def forward(ctx, count, *tensors):
        return tuple(None if bar is None else bar.view_as(bar) for bar in tensors[count:])

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(
            "interop.torch: a second derivative was requested, but fastsvgp has only first"
            " derivatives; leave create_graph=True out, or call .detach() on the gradient before it"
            " is differentiated"
        )


def once(inputs, bars):
    """Return the gradients for autograd; with ``create_graph`` they refuse a second derivative.

    Without this refusal the second derivative would silently be zero.
    """
    if not torch.is_grad_enabled():
        return tuple(bars)
    refuse_transforms()
    return _Once.apply(len(inputs), *inputs, *bars)


class _Probe(torch.autograd.Function):
    """Function without effect, to detect transforms.

    PyTorch refuses a function without ``setup_context`` inside every ``torch.func`` transform.
    """

    @staticmethod
    def forward(ctx):
        return None


def refuse_transforms():
    """Raise ``NotImplementedError``, with alternatives, inside a ``torch.func`` transform."""
    try:
        _Probe.apply()
    except RuntimeError as error:
        raise NotImplementedError(
            "interop.torch: torch.func transforms are not supported; use .backward() or"
            " torch.autograd.grad, a loop instead of vmap, or fastsvgp.elbo_and_grad(...,"
            " inputs=True)"
        ) from error
