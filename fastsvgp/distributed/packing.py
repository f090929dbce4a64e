"""Packing of several leaves into one flat float64 buffer, triangles packed."""

import math

import numpy as np

from .. import kernels
from ..runtime.deferred_checks import on_device


class Packing:
    """Layout of leaves in a buffer: ``items`` are pairs of a kind and a shape.

    ``size`` is the length of the buffer in float64.
    """

    def __init__(self, items):
        self._items, self.size = [], 0
        for kind, shape in items:
            packed = kind in ("tril", "symmetric")
            count = (
                math.prod(shape[:-2]) * (shape[-1] * (shape[-1] + 1) // 2)
                if packed
                else math.prod(shape)
            )
            self._items.append((kind, tuple(shape), slice(self.size, self.size + count)))
            self.size += count

    @property
    def single(self):
        """Whether all items are single numbers."""
        return all(shape == () for _, shape, _ in self._items)

    def end_on_host(self, values):
        """Return the length of the buffer up to the last value that is on the host."""
        return max(
            (
                at.stop
                for (_, _, at), value in zip(self._items, values, strict=True)
                if not on_device(value)
            ),
            default=0,
        )

    def pack(self, values, out):
        """Write ``values`` to ``out`` (size,).

        Values on a device are packed there, and copied to a host buffer in one copy.
        """
        device_like = next((value for value in values if on_device(value)), None)
        there = (
            out if device_like is None or on_device(out) else np.empty(self.size, like=device_like)
        )
        for (kind, shape, at), value in zip(self._items, values, strict=True):
            if np.shape(value) != shape:
                raise ValueError(
                    f"a leaf of shape {np.shape(value)} came where one of shape {shape} is expected"
                )
            if kind in ("tril", "symmetric"):
                packed = there[at].reshape(*shape[:-2], -1)
                kernels.pack_tril(value if on_device(value) else np.asarray(value), packed)
            else:
                there[at].reshape(shape)[...] = (
                    np.asarray(value, like=there) if type(value) is np.ndarray else value
                )
        if there is not out:
            out[:] = there.get()

    def unpack(self, buffer, like, near=None):
        """Return new leaves from ``buffer``, with the types, dtypes and devices of ``like``.

        near : a host copy of the first ``end_on_host`` numbers of a buffer on a device
        """
        device_like = next((value for value in like if on_device(value)), None)
        there = (
            buffer
            if device_like is None or on_device(buffer)
            else np.asarray(buffer, like=device_like)
        )
        near = buffer if near is None else near
        return [_as(value, kind, (there if on_device(value) else near)[at], shape)
                for (kind, shape, at), value in zip(self._items, like, strict=True)]  # fmt: skip


def _as(value, kind, part, shape):
    if kind in ("tril", "symmetric"):
        square = kernels.unpack_tril(part.reshape(*shape[:-2], -1), shape[-1], value.dtype)
        return kernels.symmetrise(square) if kind == "symmetric" else square
    if not hasattr(value, "dtype"):
        return float(part[0])
    part = part.reshape(shape).astype(value.dtype)
    return part if type(value) is np.ndarray or on_device(value) else part[()]


NUMBER = Packing([("real", ())])
