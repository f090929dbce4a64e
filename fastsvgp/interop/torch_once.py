"""Derivatives that autograd may take once: a second derivative, and transformations of functions, are refused in words."""

import torch


class _Once(torch.autograd.Function):
    """Gradients as they are, which refuse to be differentiated in what they were computed from."""

    @staticmethod
    def forward(ctx, count, *tensors):
        return tuple(None if bar is None else bar.view_as(bar) for bar in tensors[count:])

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(
            "interop.torch: a second derivative was asked for, and fastsvgp has first derivatives"
            " alone, which are no functions that autograd knows; leave create_graph=True out, or"
            " use .detach() on the gradient that is differentiated again"
        )


def once(inputs, bars):
    """The gradients for autograd; with ``create_graph`` such as refuse a second derivative, in place of one that is zero."""
    if not torch.is_grad_enabled():
        return tuple(bars)
    refuse_transforms()
    return _Once.apply(len(inputs), *inputs, *bars)


class _Probe(torch.autograd.Function):
    """Does nothing.

    PyTorch refuses a function without ``setup_context`` within each transformation of
    ``torch.func``.
    """

    @staticmethod
    def forward(ctx):
        return None


def refuse_transforms():
    """Say which ways there are in place of transformations of ``torch.func``."""
    try:
        _Probe.apply()
    except RuntimeError as error:
        raise NotImplementedError(
            "interop.torch: torch.func transforms are not supported; use .backward() or"
            " torch.autograd.grad, a loop in place of vmap, or fastsvgp.elbo_and_grad(...,"
            " inputs=True)"
        ) from error
