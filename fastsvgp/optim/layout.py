"""Layout of the free leaves of a model in one flat float64 vector, one per model structure."""

import math
from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..qsgp.bases.samples import SparseRows
from ..records import build, flat, leaves, replace_leaves, transforms
from ..runtime.deferred_checks import on_device

HOST = np.empty(0)
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class Structure(NamedTuple):
    """Key of a ``VectorLayout`` besides its settings: models of equal structure share one."""

    paths: tuple[str, ...]
    kinds: tuple[str, ...]
    leaves: tuple[Any, ...]


def structure_of(model):
    """Return the ``Structure`` of a model: per leaf the shape, dtype and device, or the type."""
    paths, kinds, values = flat(model)
    return Structure(paths, kinds, tuple(map(_describe, values)))


def _describe(value):
    kind = type(value)
    if kind is np.ndarray:
        return value.shape, value.dtype
    if value is None or kind in (float, int) or isinstance(value, np.generic):
        return kind
    if on_device(value):
        return kind, value.shape, value.dtype, getattr(value, "device", None)
    return object()  # equal to nothing: the entries of a list, for example, decide


class VectorLayout:
    """Position of each free leaf of a model in the vector of ``ravel``, and the maps both ways.

    A layout holds no numbers of the model that it was made from.

    Attributes
    ----------
    paths, slices, size
        As in ``Unravel``.
    home : array
        Empty array on the device of the vector.
    """

    def __init__(self, model, paths, unconstrained=True, transform="softplus"):
        self.paths, self._transform = paths, transforms.look_up(transform)
        self._all, free = flat(model)[0], set(paths)
        found = [(i, *leaf) for i, leaf in enumerate(leaves(model)) if leaf[0] in free]
        self._leaves = tuple(_leaf(path, kind, value) for _, path, kind, value in found)
        self._numbers = tuple(i for i, *_ in found)  # of the free leaves among all leaves
        there = next((value for *_, value in found if on_device(value)), None)
        self.device_like = HOST if there is None else np.empty(0, like=there)
        self.slices, self.size = {}, 0
        for leaf in self._leaves:
            self.slices[leaf.path] = leaf.at = slice(self.size, self.size + leaf.size)
            self.size += leaf.size
        self._triangles = [one for leaf in self._leaves for one in leaf.triangles]
        self._symmetric = tuple(leaf for leaf in self._leaves if leaf.kind == "symmetric")
        self._odds = tuple(leaf for leaf in self._leaves if unconstrained and leaf.kind == "unit")
        self._find_positive(unconstrained)

    def _find_positive(self, unconstrained):
        """Find the entries that the transform maps, and their limits in their dtypes."""
        leaves = [leaf for leaf in self._leaves if unconstrained and leaf.has_positive]
        found = [leaf.at.start + leaf.positive(self.device_like) for leaf in leaves]
        self._positive = np.concatenate(found) if found else None
        limits = []
        for leaf, entries in zip(leaves, found, strict=True):
            info = np.finfo(leaf.dtype)
            limits.append(
                [
                    kernels.full(entries.size, limit, self.device_like, np.float64)
                    for limit in (info.tiny, info.max)
                ]
            )
        self._limits = [np.concatenate(parts) for parts in zip(*limits, strict=True)]

    def pack(self, model):
        """Return the vector of a model."""
        vector = self._flatten(model)
        if self._positive is not None:
            # no check on a device, which would synchronise: NaN reaches the next bound
            if self.device_like is not HOST:
                kernels.from_positive(vector, self._positive, self._transform)
            else:
                positive = vector[self._positive]
                if np.count_nonzero(positive > 0) != positive.size:
                    self._complain(vector)
                vector[self._positive] = self._transform.inverse(positive)
        for leaf in self._odds:
            share = vector[leaf.at]
            if self.device_like is HOST and not ((share > 0) & (share < 1)).all():
                raise ValueError(f"field {leaf.path!r} must lie between 0 and 1, got {share}")
            vector[leaf.at] = transforms.logit.inverse(share)
        return vector

    def unpack(self, vector, like, out=None):
        """Return the model at a vector; fixed leaves and settings come from the model ``like``.

        ``out`` : a model on the device to write to; all its free leaves are arrays
        """
        if self._positive is not None or self._odds:
            vector = vector.copy()
        if self._positive is not None:
            if self.device_like is not HOST:
                kernels.to_positive(vector, self._positive, self._transform, *self._limits)
            else:
                positive = self._transform.forward(vector[self._positive])
                vector[self._positive] = np.minimum(
                    np.maximum(positive, self._limits[0]), self._limits[1]
                )
        for leaf in self._odds:
            # as far from 1 as from 0, in the dtype of the field
            least = np.finfo(leaf.dtype).eps
            share = transforms.logit.forward(vector[leaf.at])
            vector[leaf.at] = np.minimum(np.maximum(share, least), 1 - least)
        if self.device_like is HOST:
            found = [leaf.unflatten(vector[leaf.at]) for leaf in self._leaves]
        else:
            found = self._unpack_on_device(vector, out)
        if out is not None:
            return out
        names, _, values = flat(like)
        if names != self._all:  # other records in fixed fields
            return replace_leaves(
                like, dict(zip((leaf.path for leaf in self._leaves), found, strict=True))
            )
        values = list(values)
        for i, value in zip(self._numbers, found, strict=True):
            values[i] = value
        return build(like, values)

    def pullback(self, vector, grad):
        """Return the gradient for the vector, from that for the model at ``vector``."""
        vector_bar = self._flatten(grad)
        for leaf in self._symmetric:  # an entry off the diagonal stands for two
            part = vector_bar[leaf.at]
            part *= 2
            part[leaf.diagonal(self.device_like)] *= 0.5
        if self._positive is not None:
            if self.device_like is not HOST:
                kernels.to_positive_vjp(vector_bar, vector, self._positive, self._transform)
            else:
                vector_bar[self._positive] *= self._transform.derivative(vector[self._positive])
        for leaf in self._odds:
            vector_bar[leaf.at] *= transforms.logit.derivative(vector[leaf.at])
        return vector_bar

    def _flatten(self, tree):
        values, vector = self._values(tree), np.empty(self.size, like=self.device_like)
        for leaf, value in zip(self._leaves, values, strict=True):
            # fast path for the two most frequent types; `check` handles the others
            kind = type(value)
            shape = value.shape if kind is np.ndarray or kind is np.float64 else None
            if shape != leaf.shape:
                leaf.check(value)
            if self.device_like is HOST:
                leaf.flatten(value, vector[leaf.at])
        if self.device_like is not HOST:
            kernels.pack_fields(self._fields(values), self._triangles, vector)
        return vector

    def _values(self, tree):
        """Return the values of the free leaves, which a gradient may lack."""
        paths, _, values = flat(tree)
        if paths == self._all:
            return [values[i] for i in self._numbers]
        named = dict(zip(paths, values, strict=True))
        return [named.get(path) for path in self.paths]

    def _unpack_on_device(self, vector, out):
        """Return the free leaves at a vector on a device: new ones, or those of ``out``."""
        if out is None:
            found = [np.empty(one.shape, one.dtype, like=self.device_like) for one in self._leaves]
        else:
            found = self._values(out)
        kernels.unpack_fields(vector, self._fields(found), self._triangles)
        return [leaf.finish(value) for leaf, value in zip(self._leaves, found, strict=True)]

    def _fields(self, values):
        return [
            field
            for leaf, value in zip(self._leaves, values, strict=True)
            for field in leaf.fields(value)
        ]

    def _complain(self, vector):
        for leaf in self._leaves:
            if leaf.has_positive:
                values = vector[leaf.at][leaf.positive(self.device_like)]
                wrong = values[~(values > 0)]
                if wrong.size:
                    what = "it" if leaf.kind == "positive" else "its diagonal"
                    raise ValueError(
                        f"field {leaf.path!r}: {what} must be positive, got {wrong[0]}"
                    )


def _leaf(path, kind, value):
    array = check.as_array(path, value)
    check.common_dtype(array, names=(path,))
    # a NumPy scalar is not one, though np.float64 is a subclass
    python = type(value) in (int, float)
    return {"tril": _Triangle, "symmetric": _Triangle, "columns": _Columns}.get(kind, _Leaf)(
        path, kind, array, python
    )


class _Leaf:
    """Path, kind, shape and dtype of one leaf; packed unchanged.

    triangles : for each of its ``fields`` whether only lower triangles are packed
    """

    at: "slice[int, int, None]"
    triangles: tuple[bool, ...] = (False,)

    def __init__(self, path, kind, array, python):
        self.path, self.kind, self.shape, self.python = path, kind, array.shape, python
        self.dtype = array.dtype if array.dtype in _FLOATS else _FLOATS[0]
        self.size, self.has_positive = array.size, kind == "positive"

    def positive(self, device_like):
        """Return an index of the positive entries of the flat part, on the device."""
        return np.arange(self.size, like=device_like)

    def check(self, value):
        """Reject a value that does not fit this leaf."""
        if value is None:
            raise ValueError(
                f"field {self.path!r} is free here, but None came for it: name it in `fixed=`, "
                "or request its gradient in `wrt=` of the bound"
            )
        if isinstance(value, SparseRows):
            raise TypeError(
                f"field {self.path!r} has a gradient for some rows only: use"
                " fastsvgp.optim.adagrad,"
                " which accepts it"
            )
        if np.shape(value) != self.shape:
            raise ValueError(
                f"field {self.path!r} must have shape {self.shape} here, got {np.shape(value)}"
            )

    def fields(self, value):
        """Return the arrays that are packed one after another, views of ``value``."""
        return (value,)

    def finish(self, value):
        """Return the value of the leaf, when its fields are filled."""
        return value

    def flatten(self, value, part):
        """Write the numbers of ``value`` on the host to ``part`` of the vector."""
        if len(self.shape) > 1:
            part = part.reshape(self.shape)
        part[...] = value

    def unflatten(self, part):
        """Do the reverse; return a new value."""
        if self.python:
            return float(part[0])
        part = part.astype(self.dtype).reshape(self.shape)
        return part if self.shape else part[()]


class _Triangle(_Leaf):
    """One or several lower triangles, packed row by row."""

    triangles = (True,)

    def __init__(self, path, kind, array, python):
        super().__init__(path, kind, array, python)
        check.square(path, array)
        rows = self.shape[-1]
        self.packed = *self.shape[:-2], rows * (rows + 1) // 2
        self.size, self.has_positive = math.prod(self.packed), kind == "tril"

    def diagonal(self, device_like):
        """Return the positions of the diagonals in the flat part."""
        starts = np.arange(0, self.size, self.packed[-1], like=device_like)[:, None]
        return (starts + _diagonal(self.shape[-1], device_like)).ravel()

    positive = diagonal

    def fields(self, value):
        return (_as_array(value),)

    def finish(self, value):
        return kernels.symmetrise(value) if self.kind == "symmetric" else value

    def flatten(self, value, part):
        kernels.pack_tril(_as_array(value), part.reshape(self.packed))

    def unflatten(self, part):
        square = kernels.unpack_tril(part.reshape(self.packed), self.shape[-1], self.dtype)
        return self.finish(square)


class _Columns(_Leaf):
    """First columns of a lower factor (m, k): the packed top triangle, then the rest."""

    triangles = (True, False)

    def __init__(self, path, kind, array, python):
        super().__init__(path, kind, array, python)
        if len(self.shape) != 2 or self.shape[0] < self.shape[1]:
            raise ValueError(f"`{path}` must have shape (m, k) with k at most m, got {self.shape}")
        m, k = self.shape
        self.packed, self.has_positive = k * (k + 1) // 2, True
        self.size = self.packed + (m - k) * k

    def positive(self, device_like):
        return _diagonal(self.shape[1], device_like)

    def fields(self, value):
        value, k = _as_array(value), self.shape[1]
        return value[:k], value[k:]

    def flatten(self, value, part):
        (m, k), (top, rest) = self.shape, self.fields(value)
        if k:
            kernels.pack_tril(top, part[: self.packed])
        part[self.packed :].reshape(m - k, k)[...] = rest

    def unflatten(self, part):
        m, k = self.shape
        rest = part[self.packed :].reshape(m - k, k).astype(self.dtype)
        if not k:
            return rest
        return np.concatenate([kernels.unpack_tril(part[: self.packed], k, self.dtype), rest])


def _as_array(value):
    return value if type(value) is np.ndarray or on_device(value) else np.asarray(value)


def _diagonal(rows, device_like):
    """Return the positions of the diagonal in a packed triangle."""
    row = np.arange(rows, like=device_like)
    return row * (row + 3) // 2
