"""A record as one flat float64 vector, and gradients of records as gradients of that vector."""

import functools
from typing import Generic

import numpy as np

from .. import check, records
from ..errors import names_options, suggest_fields
from ..records import transforms
from ..records.typed import ArrayLike, Names, RecordT, Vector
from ..runtime.deferred_checks import on_device
from .layout import HOST, VectorLayout


@names_options
def ravel(
    model: RecordT, unconstrained: bool = True, fixed: Names = (), transform: str = "softplus"
) -> "tuple[Vector, Unravel[RecordT]]":
    """Return the free parameters of a model as one flat vector, for any optimiser of flat vectors.

    Parameters
    ----------
    model : record
        An SVGP, an SGPR, or any other record.
    unconstrained : bool
        Whether positive leaves, and the diagonals of triangular factors, go through ``transform``,
        so that every real vector is a valid model. With False they are copied unchanged, and the
        caller must keep them positive (``bounds`` of L-BFGS-B).
    fixed : str or sequence of str
        Dotted paths that are left out of the vector and kept as they are in ``model``. A path
        covers all leaves below it.
    transform : {"softplus", "log"}
        Map from positive to real numbers. The default is linear for large values, so a large step
        of a line search cannot multiply a variance by thousands. "log" is scale-free, for data that
        cannot be standardised.

    Returns
    -------
    vector : (n,) float64 array
        Leaves in the order of their fields; for a triangular factor and for a symmetric matrix the
        lower triangle, row by row.
    unravel : Unravel
        ``unravel(vector)`` returns a model. ``unravel.pullback(vector, grad)`` maps the gradient
        of an objective with respect to ``unravel(vector)`` (a record, in natural space) to its
        gradient with respect to ``vector``. ``unravel.slices`` maps each free path to its slice of
        the vector. ``unravel.pack(model)`` returns the vector of another model of the same shapes.

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
    """Return the dotted paths of the leaves of ``model`` that are not ``fixed``.

    ``ValueError`` for a path that does not exist.
    """
    paths, _, values = records.flat(model)
    absent = tuple([i for i, value in enumerate(values) if value is None])
    return _free_paths(paths, absent, as_names(fixed))


@functools.lru_cache(256)
def _free_paths(paths, absent, fixed):
    paths = [path for i, path in enumerate(paths) if i not in absent]
    check_paths("fixed", fixed, paths)
    return tuple(path for path in paths if not records.matches(path, fixed))


def as_names(names, argument="fixed"):
    """Return a tuple of names from one name or several."""
    several = (names,) if isinstance(names, str) or not np.iterable(names) else tuple(names)
    if not all(isinstance(name, str) for name in several):
        raise TypeError(
            f"`{argument}` must hold names of fields, such as 'inducing', got {names!r:.200}"
        )
    return several


def check_paths(argument, names, paths):
    """Raise ``ValueError`` unless every name is one of ``paths`` or a prefix of some of them."""
    for name in names:
        if not any(records.matches(path, (name,)) for path in paths):
            raise ValueError(
                f"`{argument}` names {name!r:.80}, which is no field of this model;"
                f" {suggest_fields(name, paths)}"
            )


class Unravel(Generic[RecordT]):
    """Map from flat vectors to models; ``ravel`` returns it.

    Attributes
    ----------
    slices : dict of str to slice
        Position of each free leaf in the vector.
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
        transforms.look_up(transform)
        self._model = model
        leaves = free_paths(model, fixed)
        self._layout = layout = VectorLayout(model, leaves, unconstrained, transform)
        self.paths, self.slices, self.size = layout.paths, layout.slices, layout.size
        self.device_like = layout.device_like

    def __repr__(self):
        return (
            f"Unravel({self.size} numbers:"
            f" {', '.join(f'{p}[{s.start}:{s.stop}]' for p, s in self.slices.items())})"
        )

    def __call__(self, vector: ArrayLike, like: RecordT | None = None) -> RecordT:
        """Return the model at a vector, in the dtypes of the original. O(n).

        Fixed fields come from the original, or from the model ``like``.
        """
        return self._layout.unpack(self._check(vector), self._model if like is None else like)

    def pack(self, model: RecordT) -> Vector:
        """Return the vector of a model of the same shapes. O(n).

        ``unravel(unravel.pack(model))`` is that model, up to rounding.
        """
        return self._layout.pack(model)

    def pullback(self, vector: ArrayLike, grad: RecordT) -> Vector:
        """Return the gradient (n,) with respect to the vector. O(n).

        ``grad`` is the gradient record with respect to the model at that vector.

        Raises
        ------
        ValueError
            A free field has no gradient in ``grad`` (it is None).
        """
        if type(grad) is not type(self._model):
            raise TypeError(
                f"pullback: `grad` must be a {type(self._model).__name__}, the gradient that"
                f" elbo_and_grad returns, got {type(grad).__name__}"
            )
        return self._layout.pullback(self._check(vector), grad)

    def _check(self, vector) -> np.ndarray:
        vector = np.ascontiguousarray(
            vector, dtype=np.float64, like=vector if on_device(vector) else HOST
        )
        if on_device(vector) is not on_device(self.device_like):
            raise TypeError(
                "the vector and the model of this Unravel must be on one device: both on the GPU,"
                " or both on the CPU"
            )
        if vector.shape != (self.size,):
            raise ValueError(
                f"the vector must have shape ({self.size},) for this model, got {vector.shape}"
            )
        return vector
