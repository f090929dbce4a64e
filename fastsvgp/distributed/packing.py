"""Numbers of several leaves as one flat float64 buffer, triangles packed."""

import math

import numpy as np

from .. import kernels
from ..runtime.deferred_checks import on_device


class Packing:
    """How leaves lie in a buffer: ``items`` are pairs of a kind and a shape.

    ``size`` is the number of float64.
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
        """Whether it is of single numbers alone."""
        return all(shape == () for _, shape, _ in self._items)

    def end_on_host(self, values):
        """How many of the numbers lie before the end of the last one that is on the host."""
        return max(
            (
                at.stop
                for (_, _, at), value in zip(self._items, values, strict=True)
                if not on_device(value)
            ),
            default=0,
        )

    def pack(self, values, out):
        """Write ``values`` to ``out`` (size,). Those on a device are packed there; to the host is one copy for all of them."""
        home = next((value for value in values if on_device(value)), None)
        there = out if home is None or on_device(out) else np.empty(self.size, like=home)
        for (kind, shape, at), value in zip(self._items, values, strict=True):
            if np.shape(value) != shape:
                raise ValueError(
                    f"a leaf of shape {np.shape(value)} came where one of shape {shape} is due"
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
        """New leaves from ``buffer``, each of the type, the dtype and the place of its fellow in ``like``.

        near : a copy on the host of the first numbers of a buffer on a device, ``end_on_host`` of them
        """
        home = next((value for value in like if on_device(value)), None)
        there = buffer if home is None or on_device(buffer) else np.asarray(buffer, like=home)
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
