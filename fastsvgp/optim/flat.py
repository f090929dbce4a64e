"""A record as one flat float64 vector, and gradients of records as gradients of that vector."""

import math
from typing import Generic

import numpy as np

from .. import check, kernels, records
from ..errors import names_options
from ..records import transforms
from ..records.typed import ArrayLike, Names, RecordT, Vector
from ..runtime.deferred_checks import on_device
from ..weight_space.bases.samples import SparseRows

_HOST = np.empty(0)
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
POSITIVE = "positive", "tril", "columns"  # kinds of leaves with positive entries


@names_options
def ravel(
    model: RecordT, unconstrained: bool = True, fixed: Names = (), transform: str = "softplus"
) -> "tuple[Vector, Unravel[RecordT]]":
    """The free parameters of a model as one flat vector, for any optimiser of flat vectors.

    Parameters
    ----------
    model : record
        An SVGP, an SGPR, or any other record.
    unconstrained : bool
        Whether positive leaves, and the diagonals of triangular factors, go through ``transform``,
        so that every real vector is a valid model. With False they come as they are, and keeping
        them positive is up to you (``bounds`` of L-BFGS-B).
    fixed : str or sequence of str
        Dotted paths that are left out of the vector and kept as they are in ``model``. A path
        stands for all leaves below it.
    transform : {"softplus", "log"}
        How positive numbers become real ones. The default is linear for large values, so that a
        bold step of a line search cannot multiply a variance by thousands; "log" is free of scale,
        for data that cannot be standardised.

    Returns
    -------
    vector : (n,) float64 array
        Leaves in the order of their fields; of a triangular factor and of a symmetric matrix the
        lower triangle, row by row.
    unravel : Unravel
        ``unravel(vector)`` is a model, and ``unravel.pullback(vector, grad)`` turns the gradient of
        an objective with respect to ``unravel(vector)`` (a record, in natural space) into its
        gradient with respect to ``vector``. ``unravel.slices`` maps each free path to its slice of
        the vector, ``unravel.pack(model)`` makes the vector of another model of the same shape.

    Raises
    ------
    ValueError
        A path in ``fixed`` does not exist; a positive leaf or a diagonal entry is not positive;
        ``transform`` is unknown.

    Examples
    --------
    >>> vector, unravel = fs.ravel(model, fixed="inducing")
    >>> def loss(vector):
    ...     value, grad = fs.elbo_and_grad(unravel(vector), X, Y, wrt=unravel.paths)
    ...     return -value, -unravel.pullback(vector, grad)
    >>> from scipy.optimize import minimize
    >>> result = minimize(loss, vector, jac=True, method="L-BFGS-B")
    >>> fs.elbo(unravel(result.x), X, Y) > fs.elbo(model, X, Y)
    True
    """
    unravel = Unravel(model, unconstrained=unconstrained, fixed=fixed, transform=transform)
    return unravel.pack(model), unravel


def free_paths(model, fixed=()):
    """Dotted paths of the leaves of ``model`` that are not ``fixed``; ``ValueError`` for a path that does not exist."""
    paths = [path for path, _, value in records.leaves(model) if value is not None]
    check_paths("fixed", as_names(fixed), paths)
    return tuple(path for path in paths if not records.matches(path, as_names(fixed)))


def as_names(names, argument="fixed"):
    """A tuple of names from one name or several."""
    several = (names,) if isinstance(names, str) or not np.iterable(names) else tuple(names)
    if not all(isinstance(name, str) for name in several):
        raise TypeError(
            f"`{argument}` must hold names of fields, such as 'inducing', got {names!r:.200}"
        )
    return several


def check_paths(argument, names, paths):
    """Raise ``ValueError`` unless every name is one of ``paths``, or leads to some of them."""
    for name in names:
        if not any(records.matches(path, (name,)) for path in paths):
            raise ValueError(
                f"`{argument}` names {name!r}, which is no field of this model. Its fields are:"
                f" {', '.join(paths)}"
            )


class Unravel(Generic[RecordT]):
    """The map from flat vectors to models that ``ravel`` returns.

    Attributes
    ----------
    slices : dict of str to slice
        Where each free leaf lies in the vector.
    paths : tuple of str
        The free leaves; pass it as ``wrt=`` so that no other gradient is computed.
    size : int
        Length of the vector.
    """

    slices: "dict[str, slice[int, int, None]]"
    paths: tuple[str, ...]
    size: int

    def __init__(
        self,
        model: RecordT,
        unconstrained: bool = True,
        fixed: Names = (),
        transform: str = "softplus",
    ):
        if not records.is_record(model):
            raise TypeError(f"ravel: `model` must be a fastsvgp record, got {type(model).__name__}")
        unconstrained = check.flag("unconstrained", unconstrained)
        self._model, self._transform = model, transforms.named(transform)
        self.paths = free_paths(model, fixed)
        free = set(self.paths)
        self._leaves = tuple(
            _Leaf(path, kind, value) for path, kind, value in records.leaves(model) if path in free
        )
        self.slices, self.size = {}, 0
        values = [value for path, _, value in records.leaves(model) if path in free]
        self.home = next((value for value in values if on_device(value)), _HOST)
        positive, limits = [], []
        for leaf in self._leaves:
            self.slices[leaf.path] = leaf.at = slice(self.size, self.size + leaf.size)
            if unconstrained and leaf.kind in POSITIVE:
                positive.append(self.size + leaf.positive(self.home))
                info, count = np.finfo(leaf.dtype), positive[-1].size
                limits.append(
                    [
                        kernels.full(count, limit, self.home, np.float64)
                        for limit in (info.tiny, info.max)
                    ]
                )
            self.size += leaf.size
        self._positive = np.concatenate(positive) if positive else None
        # positive and finite in each leaf's dtype
        self._limits = [np.concatenate(parts) for parts in zip(*limits, strict=True)]

    def __repr__(self):
        return (
            f"Unravel({self.size} numbers:"
            f" {', '.join(f'{p}[{s.start}:{s.stop}]' for p, s in self.slices.items())})"
        )

    def __call__(self, vector: ArrayLike, like: RecordT | None = None) -> RecordT:
        """The model at a vector, in the dtypes of the original; fixed fields come from it, or from the model ``like``. O(n)."""
        vector = self._checked(vector)
        if self._positive is not None:
            vector = vector.copy()
            positive = self._transform.forward(vector[self._positive])
            vector[self._positive] = np.minimum(
                np.maximum(positive, self._limits[0]), self._limits[1]
            )
        values = {leaf.path: leaf.unflatten(vector[leaf.at]) for leaf in self._leaves}
        return replaced(self._model if like is None else like, values)

    def pack(self, model: RecordT) -> Vector:
        """The vector of a model of the same shapes; ``unravel(unravel.pack(model))`` is that model, up to rounding. O(n)."""
        vector = self._flatten(model)
        if self._positive is not None:
            positive = vector[self._positive]
            # a device is not asked: NaN goes on to the next bound
            if not on_device(positive) and not positive.min(initial=np.inf) > 0:
                self._complain(vector)
            vector[self._positive] = self._transform.inverse(positive)
        return vector

    def pullback(self, vector: ArrayLike, grad: RecordT) -> Vector:
        """Gradient (n,) with respect to the vector, given the gradient record with respect to the model at that vector. O(n).

        Raises
        ------
        ValueError
            A free field has no gradient in ``grad`` (it is None).
        """
        vector = self._checked(vector)
        vector_bar = self._flatten(grad)
        for leaf in self._leaves:
            if leaf.kind == "symmetric":  # what is off the diagonal stands for two entries
                part = vector_bar[leaf.at]
                part *= 2
                part[leaf.diagonal(self.home)] *= 0.5
        if self._positive is not None:
            vector_bar[self._positive] *= self._transform.derivative(vector[self._positive])
        return vector_bar

    def _flatten(self, tree):
        values = {path: value for path, _, value in records.leaves(tree)}
        vector = np.empty(self.size, like=self.home)
        for leaf in self._leaves:
            value = values.get(leaf.path)
            if value is None:
                raise ValueError(
                    f"field {leaf.path!r} is free here, but None came for it: name it in `fixed=`, "
                    "or ask for its gradient in `wrt=` of the bound"
                )
            leaf.flatten(value, vector[leaf.at])
        return vector

    def _complain(self, vector):
        for leaf in self._leaves:
            if leaf.kind in POSITIVE:
                values = vector[leaf.at][leaf.positive(self.home)]
                wrong = values[~(values > 0)]
                if wrong.size:
                    what = "it" if leaf.kind == "positive" else "its diagonal"
                    raise ValueError(
                        f"field {leaf.path!r}: {what} must be positive, got {wrong[0]}"
                    )

    def _checked(self, vector) -> np.ndarray:
        vector = np.ascontiguousarray(
            vector, dtype=np.float64, like=vector if on_device(vector) else _HOST
        )
        if on_device(vector) is not on_device(self.home):
            raise TypeError(
                "the vector must live where the model does that it was made for: both on the GPU,"
                " or both on the CPU"
            )
        if vector.shape != (self.size,):
            raise ValueError(
                f"the vector must have shape ({self.size},) for this model, got {vector.shape}"
            )
        return vector


def replaced(tree, values, prefix=""):
    """A copy of a record, or a tuple of records, with the leaves named in ``values`` changed."""
    if isinstance(tree, tuple):
        return tuple(replaced(part, values, f"{prefix}{i}.") for i, part in enumerate(tree))
    changed = {}
    for name, kind in tree._record_fields:
        path, value = prefix + name, getattr(tree, name)
        if path in values:
            changed[name] = values[path]
        elif kind == "record" and (records.is_parts(value) or records.is_record(value)):
            changed[name] = replaced(value, values, path + ".")
        else:
            changed[name] = value
    return type(tree)(**changed)


class _Leaf:
    """Path, kind, shape and dtype of one leaf, and how it lies in its part of the flat vector."""

    at: slice

    def __init__(self, path, kind, value):
        array = check.as_array(path, value)
        check.common_dtype(array, names=(path,))
        self.path, self.kind, self.shape = path, kind, array.shape
        # a NumPy scalar is not one, though np.float64 is a subclass
        self.python = type(value) in (int, float)
        self.dtype = array.dtype if array.dtype in _FLOATS else _FLOATS[0]
        self.size = array.size
        if kind in ("tril", "symmetric"):
            check.square(path, array)
            self.packed = self.shape[:-2] + (self.shape[-1] * (self.shape[-1] + 1) // 2,)
            self.size = math.prod(self.packed)
        if kind == "columns":  # rows of the triangle on top, packed, and then the others
            if len(self.shape) != 2 or self.shape[0] < self.shape[1]:
                raise ValueError(
                    f"`{path}` must have shape (m, k) with k at most m, got {self.shape}"
                )
            k = self.shape[1]
            self.packed = (k * (k + 1) // 2,)
            self.size = self.packed[0] + (self.shape[0] - k) * k

    def positive(self, home):
        """Which entries of the flat part are positive numbers, as an index on the device of ``home``."""
        if self.kind == "positive":
            return np.arange(self.size, like=home)
        return self.diagonal(home)

    def diagonal(self, home):
        """Where the diagonals are in the flat part of packed triangles."""
        row = np.arange(self.shape[-1], like=home)
        diagonal = row * (row + 3) // 2
        if self.kind == "columns":
            return diagonal
        return (np.arange(0, self.size, self.packed[-1], like=home)[:, None] + diagonal).ravel()

    def flatten(self, value, part):
        if isinstance(value, SparseRows):
            raise TypeError(
                f"field {self.path!r} has a gradient for some rows alone, which fastsvgp.adagrad"
                " takes: use that"
            )
        if np.shape(value) != self.shape:
            raise ValueError(
                f"field {self.path!r} must have shape {self.shape} here, got {np.shape(value)}"
            )
        if self.kind in ("tril", "symmetric"):
            kernels.pack_tril(
                value if on_device(value) else np.asarray(value), part.reshape(self.packed)
            )
        elif self.kind == "columns":
            (m, k), (count,) = self.shape, self.packed
            value = value if on_device(value) else np.asarray(value)
            if k:
                kernels.pack_tril(value[:k], part[:count])
            part[count:].reshape(m - k, k)[...] = value[k:]
        else:
            part.reshape(self.shape)[...] = value

    def unflatten(self, part):
        if self.kind in ("tril", "symmetric"):
            square = kernels.unpack_tril(part.reshape(self.packed), self.shape[-1], self.dtype)
            return kernels.symmetrise(square) if self.kind == "symmetric" else square
        if self.kind == "columns":
            (m, k), (count,) = self.shape, self.packed
            rest = part[count:].reshape(m - k, k).astype(self.dtype)
            return (
                np.concatenate([kernels.unpack_tril(part[:count], k, self.dtype), rest])
                if k
                else rest
            )
        if self.python and not on_device(part):
            return float(part[0])
        part = part.reshape(self.shape).astype(self.dtype)
        return part if part.ndim else part[()]
