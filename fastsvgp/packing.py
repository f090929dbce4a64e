"""Numbers of several leaves as one flat float64 buffer, triangles packed."""

import math

import numpy as np

from . import kernels
from .kernels.verdicts import on_device


class Packing:
    """How leaves lie in a buffer: ``items`` are pairs of a kind and a shape. ``size`` is the number of float64."""

    def __init__(self, items):
        self._items, self.size = [], 0
        for kind, shape in items:
            packed = kind in ("tril", "symmetric")
            count = math.prod(shape[:-2]) * (shape[-1] * (shape[-1] + 1) // 2) if packed else math.prod(shape)
            self._items.append((kind, tuple(shape), slice(self.size, self.size + count)))
            self.size += count

    def pack(self, values, out):
        """Write ``values`` to ``out`` (size,), on the host. Those on a device are packed there: one copy for all of them."""
        home = next((value for value in values if on_device(value)), None)
        there = out if home is None else np.empty(self.size, like=home)
        for (kind, shape, at), value in zip(self._items, values, strict=True):
            if np.shape(value) != shape:
                raise ValueError(f"a leaf of shape {np.shape(value)} came where one of shape {shape} is due")
            if kind in ("tril", "symmetric"):
                packed = there[at].reshape(*shape[:-2], -1)
                kernels.pack_tril(value if on_device(value) else np.asarray(value), packed)
            else:
                there[at].reshape(shape)[...] = value
        if home is not None:
            out[:] = there.get()

    def unpack(self, buffer, like):
        """New leaves from ``buffer``, each of the type, the dtype and the place of its fellow in ``like``."""
        home = next((value for value in like if on_device(value)), None)
        there = buffer if home is None else np.asarray(buffer, like=home)
        return [_as(value, kind, there[at] if on_device(value) else buffer[at], shape)
                for (kind, shape, at), value in zip(self._items, like, strict=True)]  # fmt: skip


def _as(value, kind, part, shape):
    if kind in ("tril", "symmetric"):
        square = kernels.unpack_tril(part.reshape(*shape[:-2], -1), shape[-1], value.dtype)
        return kernels.symmetrise(square) if kind == "symmetric" else square
    if not hasattr(value, "dtype"):
        return float(part[0])
    part = part.reshape(shape).astype(value.dtype)
    return part if type(value) is np.ndarray or on_device(value) else part[()]
