"""Immutable records of arrays: models, their parts, and their gradients.

A record is a frozen dataclass. Its fields are *leaves* (arrays or Python numbers, of a stated
kind), other records, tuples of records, or *static* settings. A list or a tuple of numbers becomes
an array. Values are not validated here: a gradient is a record of the same type, can be negative,
and holds ``None`` for fields that were not requested.
"""

import dataclasses
import weakref
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from ..errors import ELSEWHERE
from ..models import OFFERED
from .constructors import array_of, helpful
from .registry import OURS
from .typed import Array

T = TypeVar("T")

# the records that files can hold, by module and name
REGISTRY: dict[tuple[str, str], type] = {}
_TYPES: set[type] = set()
# By the identity of a record: a weak reference to it, and its leaves (``tree.flat``). They are kept
# beside the record, not in it: copies, files and ``vars`` see its fields alone.
KEPT: dict[int, tuple[weakref.ref, tuple]] = {}
_SEVERAL = frozenset((list, tuple))
NO_LEAVES = "static", "data"  # kinds of fields without leaves


def leaf(kind: str = "real", default: Any = dataclasses.MISSING) -> Any:
    """Declare a field of a record that holds numbers.

    Pass a default by keyword, so that type checkers see it: ``leaf("positive", default=1.0)``.

    Parameters
    ----------
    kind : {"real", "positive", "unit", "tril", "columns", "symmetric", "matrix", "tuple"}
        "unit" lies between 0 and 1; optimisers move its log odds. "tril" is a lower factor with a
        positive diagonal. "columns" are its first columns, (m, k). Only the lower triangle of a
        "symmetric" matrix is read. A "matrix" is searched for NaN only if a result has one. A
        "tuple" holds real arrays, each a separate leaf: "weights.0", "weights.1".
    default : optional
        Default of the dataclass field.

    Returns
    -------
    dataclasses.Field

    Examples
    --------
    >>> @fs.records.record
    ... class Ramp:
    ...     rise: object = fs.records.leaf()
    ...     run: object = fs.records.leaf("positive", default=1.0)
    >>> [(path, kind) for path, kind, _ in fs.records.leaves(Ramp(2.0))]
    [('rise', 'real'), ('run', 'positive')]
    """
    return dataclasses.field(default=default, metadata={"kind": kind})


def static(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field that is a setting: it is saved, but never differentiated.

    Gradients keep its value: a number, text, None, or a tuple of these.

    Settings with a default are keyword-only: ``fs.StudentT(0.3, df=4.0)``.

    Parameters
    ----------
    default : optional
        Default value; without it the setting is required.

    Returns
    -------
    dataclasses.Field

    Examples
    --------
    >>> @fs.records.record
    ... class Tempered:
    ...     scale: object = fs.records.leaf("positive")
    ...     power: int = fs.records.static(default=2)
    >>> [path for path, _, _ in fs.records.leaves(Tempered(0.5))]
    ['scale']
    >>> Tempered(0.5, 3)
    Traceback (most recent call last):
    TypeError: Tempered: settings are keyword-only: write Tempered(..., power=3)
    """
    return dataclasses.field(default=default, metadata={"kind": "static"}, kw_only=True)


def data(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field that holds data: arrays, or a record of such fields.

    Data are saved, and stay as they are: they are never differentiated, cast or moved to a device.

    Parameters
    ----------
    default : optional
        Default of the dataclass field.

    Returns
    -------
    dataclasses.Field

    Examples
    --------
    >>> @fs.records.record
    ... class Seen:
    ...     rows: object = data()
    >>> [path for path, _, _ in fs.records.leaves(Seen(np.arange(3)))]
    []
    """
    return dataclasses.field(default=default, metadata={"kind": "data"})


@dataclass_transform(frozen_default=True, field_specifiers=(leaf, static, data))
def record(cls: type[T]) -> type[T]:
    """Turn a class into a frozen record and register it for ``load``.

    The class has annotated fields: leaves (``leaf``), settings (``static``), records, tuples of
    records. A field without one of these, such as ``scale: float = 1.0``, takes a record or real
    numbers, which training can make negative: write ``scale: float = leaf("positive", 1.0)``. A
    list or a tuple of numbers passed for a field becomes an array, except for settings.

    Files refer to it by its module and name, so it can bear the name of a record of fastsvgp or of
    another module. A class of the same module and name replaces it, as in a reload or a notebook
    cell.

    Returns
    -------
    type
        The class, a frozen dataclass.

    Examples
    --------
    >>> @fs.records.record
    ... class Affine:
    ...     slope: object = fs.records.leaf()
    ...     unit: str = fs.records.static(default="m")
    >>> Affine(slope=2.0)
    Affine(slope=2.0, unit='m')
    """
    cls = private_record(cls)
    REGISTRY[cls.__module__, cls.__name__] = cls
    return cls


def is_ours(kind):
    """Whether a record class is one of fastsvgp, which files name without its module."""
    name = kind.__name__
    return name in OURS and kind.__module__ == f"fastsvgp.{OURS[name]}"


def _takes_fields(cls):
    """Whether the constructor made by ``dataclass`` takes exactly the fields."""
    code = cls.__init__.__code__
    taken = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return set(taken) == {f.name for f in dataclasses.fields(cls)}


def replace_fields(tree, changes):
    """``dataclasses.replace`` for a record, with the new values in a dict.

    The constructor of a frozen dataclass sets each field with a slow call. It is therefore skipped
    unless the class defines its own.
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


@dataclass_transform(frozen_default=True, field_specifiers=(leaf, static, data))
def private_record(cls: type[T]) -> type[T]:
    """Turn a class into a record that is never saved: its name is not registered for ``load``."""
    kind: Any = cls
    kind.__post_init__ = _then_arrays(getattr(kind, "__post_init__", None))
    own_init = "__init__" in vars(kind) or kind.__new__ is not object.__new__
    kind = dataclasses.dataclass(frozen=True, eq=False, repr=False)(kind)
    kind._copied_by_fields = not own_init and _takes_fields(kind)
    kind.__init__ = helpful(kind)
    kind.__repr__ = _repr
    if not hasattr(kind, "__getattr__"):
        kind.__getattr__ = _no_such_field
    fields = dataclasses.fields(kind)
    kind._record_fields = tuple((f.name, f.metadata.get("kind", "record")) for f in fields)
    kind._field_names = frozenset(name for name, _ in kind._record_fields)
    kind._leaf_fields = tuple(pair for pair in kind._record_fields if pair[1] not in NO_LEAVES)
    kind._leaf_names = tuple(name for name, _ in kind._leaf_fields)
    kind._leaf_kinds = tuple(of for _, of in kind._leaf_fields)
    kind._optional_fields = frozenset(f.name for f in fields if f.default is None)
    branches = [name for name, of in kind._leaf_fields if of in ("record", "tuple")]
    kind._only_leaves = not branches
    kind._spared = kind._optional_fields.intersection(branches)  # no leaf if None
    _TYPES.add(kind)
    return kind


def _then_arrays(own):
    """Return a ``__post_init__`` that runs that of the class, ``own``, then converts lists."""
    if own is None or own is _arrays_of_lists:
        return _arrays_of_lists

    def both(self):
        own(self)
        _arrays_of_lists(self)
        KEPT.pop(id(self), None)  # of an unfinished record

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


class NoSuchField(AttributeError):
    """An attribute that a record lacks; its text is made when it is read, as most are caught."""

    def __str__(self):
        kind, name = type(self.obj), self.name
        here = ELSEWHERE.get(name, name)
        if here in kind._field_names:
            hint = f"did you mean `{here}`?"
        elif name in OFFERED:
            hint = f"functions take models: fastsvgp.{name}(model, ...)"
        else:
            hint = f"its fields are {', '.join(field for field, _ in kind._record_fields)}"
        return f"{kind.__name__} has no attribute `{name}`; {hint}"


def _no_such_field(self, name):
    if name[0] == "_" or hasattr(type(self), name):  # a property raised it
        return object.__getattribute__(self, name)
    raise NoSuchField(name=name, obj=self)


def is_record(x):
    return type(x) in _TYPES


def is_parts(value):
    """Whether ``value`` is a tuple of records; any other tuple holds numbers, as a list does."""
    return isinstance(value, tuple) and _TYPES.issuperset(map(type, value))


def _repr(self):
    return format_record(self, (name for name, _ in self._record_fields))


def format_record(thing, names):
    """Return the text of an object: its class, and its fields with arrays as dtypes and shapes."""

    def show(value):
        if isinstance(value, tuple):
            return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
        if is_record(value) or getattr(value, "ndim", 0) == 0:
            return str(value) if isinstance(value, np.generic) else repr(value)
        return f"<{value.dtype} {value.shape}>" if hasattr(value, "shape") else repr(value)

    text = ", ".join(f"{name}={show(getattr(thing, name))}" for name in names)
    return f"{type(thing).__name__}({text})"


@record
class Blocks:
    """Covariance blocks of inducing inputs Z (M) and a batch X (N).

    The interface between covariances and posteriors.

    Parameters
    ----------
    Kuu : (M, M)
    Kuf : (M, N)
    kff : (N,)
        The diagonal of K(X, X).
    Kff : (N, N), optional
        For full predictive covariances only.

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
    """Gaussian marginals of the latent function at a batch.

    The interface between posteriors and likelihoods.

    Parameters
    ----------
    mean, var : (..., N)
        Leading axes are outputs.

    Examples
    --------
    >>> f = fs.records.Marginals(mean=np.zeros(3), var=np.ones(3))
    >>> gaussian.predict_mean_and_var(f)[1]
    array([1.1, 1.1, 1.1])
    """

    mean: Array = leaf()
    var: Array = leaf()
