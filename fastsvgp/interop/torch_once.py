"""Refuse second derivatives and ``torch.func`` transforms, which fastsvgp does not support."""

import torch


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
