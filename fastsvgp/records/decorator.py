"""Immutable records of arrays: models, their parts, and the gradients of both.

A record is a frozen dataclass whose fields are *leaves* (arrays or Python numbers, of a stated
kind), other records, tuples of records, or *static* settings. A list or a tuple of numbers becomes
an array. Nothing is validated here: a gradient is a record of the same type, may be negative, and
holds ``None`` for fields that were not asked for.
"""

import dataclasses
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from .constructors import array_of, keyword_only
from .registry import OURS
from .typed import Array

T = TypeVar("T")

REGISTRY: dict[str, type] = {}
_TYPES: set[type] = set()
_SEVERAL = frozenset((list, tuple))


def leaf(kind: str = "real", default: Any = dataclasses.MISSING) -> Any:
    """A field of a record that holds numbers.

    Type checkers see a default that is given by its name alone: ``leaf("positive", default=1.0)``.

    Parameters
    ----------
    kind : {"real", "positive", "tril", "columns", "symmetric", "tuple"}
        "tril" is a lower factor with a positive diagonal, "columns" the first of its columns, (m,
        k); of a "symmetric" matrix the lower triangle is read. A "tuple" holds real arrays, each a
        leaf of its own: "weights.0", "weights.1".
    default : optional
        As of a field of a dataclass.

    Returns
    -------
    dataclasses.Field

    Examples
    --------
    >>> @fs.record
    ... class Ramp:
    ...     rise: object = fs.leaf()
    ...     run: object = fs.leaf("positive", default=1.0)
    >>> [(path, kind) for path, kind, _ in fs.leaves(Ramp(2.0))]
    [('rise', 'real'), ('run', 'positive')]
    """
    return dataclasses.field(default=default, metadata={"kind": kind})


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field that is a setting, not a number to differentiate: it is saved, and kept as it is in gradients.

    Settings are keyword-only: ``fs.StudentT(0.3, df=4.0)``.

    Parameters
    ----------
    default : optional
        Without one the setting must be given.

    Returns
    -------
    dataclasses.Field

    Examples
    --------
    >>> @fs.record
    ... class Tempered:
    ...     scale: object = fs.leaf("positive")
    ...     power: int = fs.static(default=2)
    >>> [path for path, _, _ in fs.leaves(Tempered(0.5))]
    ['scale']
    >>> Tempered(0.5, 3)
    Traceback (most recent call last):
    TypeError: Tempered: settings are keyword-only: write Tempered(..., power=3)
    """
    return dataclasses.field(default=default, metadata={"kind": "static"}, kw_only=True)


@dataclass_transform(frozen_default=True, field_specifiers=(leaf, static))
def record(cls: type[T]) -> type[T]:
    """Turn a class into a frozen record and make its name known to ``load``.

    The class has annotated fields: leaves (``leaf``), settings (``static``), records, tuples of
    records. A list or a tuple of numbers that comes for a field becomes an array, settings aside.

    Returns
    -------
    type
        The class, a frozen dataclass.

    Raises
    ------
    TypeError
        A record of that name belongs to another module already, ours that nobody imported yet
        included: a file knows records by their names. The same module may define it again, as a
        reload or the cell of a notebook does.

    Examples
    --------
    >>> @fs.record
    ... class Affine:
    ...     slope: object = fs.leaf()
    ...     unit: str = fs.static(default="m")
    >>> Affine(slope=2.0)
    Affine(slope=2.0, unit='m')
    """
    name, module = cls.__name__, cls.__module__
    known = (
        f"fastsvgp.{OURS[name]}"
        if name in OURS
        else REGISTRY[name].__module__
        if name in REGISTRY
        else module
    )
    if known != module:
        raise TypeError(
            f"record: the module {known!r} has a record {name!r}, and {module!r} defines another of"
            " that name, by which files know it; give one of them a new name, or, where both"
            " modules are one file, import it under one name only"
        )
    cls = private_record(cls)
    REGISTRY[name] = cls
    return cls


def _takes_fields(cls):
    """Whether the constructor that ``dataclass`` made takes every field, and nothing else."""
    code = cls.__init__.__code__
    taken = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return set(taken) == {f.name for f in dataclasses.fields(cls)}


def with_fields(tree, changes):
    """``dataclasses.replace`` for a record, with the new values in a dict.

    The constructor of a frozen dataclass sets each field by one slow call, so it is passed by where
    the class has none of its own.
    """
    kind = type(tree)
    if kind not in _TYPES or not kind._copied_by_fields:
        return dataclasses.replace(tree, **changes)
    new = object.__new__(kind)
    fields = new.__dict__
    for name, _ in kind._record_fields:
        fields[name] = changes[name] if name in changes else getattr(tree, name)
    new.__post_init__()
    return new


@dataclass_transform(frozen_default=True, field_specifiers=(leaf, static))
def private_record(cls: type[T]) -> type[T]:
    """Turn a class into a record that no file holds: its name stays unknown to ``load``, and free."""
    kind: Any = cls
    kind.__post_init__ = _then_arrays(getattr(kind, "__post_init__", None))
    own_init = "__init__" in vars(kind) or kind.__new__ is not object.__new__
    kind = dataclasses.dataclass(frozen=True, eq=False, repr=False)(kind)
    kind._copied_by_fields = not own_init and _takes_fields(kind)
    kind.__init__ = keyword_only(kind)
    kind.__repr__ = _repr
    fields = dataclasses.fields(kind)
    kind._record_fields = tuple((f.name, f.metadata.get("kind", "record")) for f in fields)
    kind._field_names = frozenset(name for name, _ in kind._record_fields)
    # what may hold records
    kind._branches = tuple(name for name, of in kind._record_fields if of in ("record", "tuple"))
    kind._tuple_fields = frozenset(name for name, of in kind._record_fields if of == "tuple")
    # of two names or more it is a tuple
    kind._held = attrgetter(*kind._branches, "__class__")
    kind._optional_fields = frozenset(f.name for f in fields if f.default is None)
    _TYPES.add(kind)
    return kind


def _then_arrays(own):
    """A ``__post_init__`` that does what a class has of its ``own``, and then makes arrays of lists."""
    if own is None or own is _arrays_of_lists:
        return _arrays_of_lists

    def both(self):
        own(self)
        _arrays_of_lists(self)

    return both


def _arrays_of_lists(self):
    fields = self.__dict__
    if _SEVERAL.isdisjoint(map(type, fields.values())):
        return
    kinds = dict(self._record_fields)
    for name, value in fields.items():
        if type(value) in _SEVERAL and not is_parts(value):
            kind = kinds.get(name, "static")
            if kind == "tuple":
                fields[name] = tuple(array_of(v) if type(v) in _SEVERAL else v for v in value)
            elif kind != "static":
                fields[name] = array_of(value)


def is_record(x):
    return type(x) in _TYPES


def is_parts(value):
    """Whether this is a tuple of records; any other tuple holds numbers, as a list does."""
    return isinstance(value, tuple) and all(type(part) in _TYPES for part in value)


def _repr(self):
    def show(value):
        if isinstance(value, tuple):
            return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
        if is_record(value) or getattr(value, "ndim", 0) == 0:
            return str(value) if isinstance(value, np.generic) else repr(value)
        return f"<{value.dtype} {value.shape}>" if hasattr(value, "shape") else repr(value)

    return f"{type(self).__name__}({', '.join(f'{n}={show(getattr(self, n))}' for n, _ in self._record_fields)})"


@record
class Blocks:
    """Covariance blocks of inducing inputs Z (M) and a batch X (N): the seam between covariances and posteriors.

    Parameters
    ----------
    Kuu : (M, M)
    Kuf : (M, N)
    kff : (N,)
        The diagonal of K(X, X).
    Kff : (N, N), optional
        Only for full predictive covariances.

    Examples
    --------
    >>> blocks = covariance.blocks(Z, X)
    >>> blocks.Kuu.shape, blocks.Kuf.shape, blocks.kff.shape
    ((6, 6), (6, 40), (40,))
    """

    Kuu: Array = leaf()
    Kuf: Array = leaf()
    kff: Array = leaf()
    Kff: Array | None = leaf(default=None)


@record
class Marginals:
    """Gaussian marginals of the latent function at a batch: the second seam.

    Parameters
    ----------
    mean, var : (..., N)
        Leading axes are outputs.

    Examples
    --------
    >>> f = fs.Marginals(mean=np.zeros(3), var=np.ones(3))
    >>> gaussian.predict_mean_and_var(f)[1]
    array([1.1, 1.1, 1.1])
    """

    mean: Array = leaf()
    var: Array = leaf()
