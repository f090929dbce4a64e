"""Immutable records of arrays: models, their parts, and the gradients of both.

A record is a frozen dataclass whose fields are *leaves* (arrays or Python numbers, of a stated
kind), other records, tuples of records, or *static* settings. A list or a tuple of numbers becomes
an array. Nothing is validated here: a gradient is a record of the same type, may be negative, and
holds ``None`` for fields that were not asked for.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from ..errors import no_option
from .constructors import array_of, keyword_only
from .registry import OURS
from .typed import Array, Record, RecordT

T = TypeVar("T")

REGISTRY: dict[str, type] = {}
_TYPES: set[type] = set()


def leaf(kind: str = "real", default: Any = dataclasses.MISSING) -> Any:
    """A field of a record that holds numbers.

    Type checkers see a default that is given by its name alone: ``leaf("positive", default=1.0)``.

    Parameters
    ----------
    kind : {"real", "positive", "tril", "columns", "symmetric"}
        "tril" is a lower factor with a positive diagonal, "columns" the first of its columns, (m,
        k); of a "symmetric" matrix the lower triangle is read.
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


@dataclass_transform(frozen_default=True, field_specifiers=(leaf, static))
def private_record(cls: type[T]) -> type[T]:
    """Turn a class into a record that no file holds: its name stays unknown to ``load``, and free."""
    kind: Any = cls
    kind.__post_init__ = _then_arrays(getattr(kind, "__post_init__", None))
    kind = dataclasses.dataclass(frozen=True, eq=False, repr=False)(kind)
    kind.__init__ = keyword_only(kind)
    kind.__repr__ = _repr
    fields = dataclasses.fields(kind)
    kind._record_fields = tuple((f.name, f.metadata.get("kind", "record")) for f in fields)
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
    for name, value in fields.items():
        if (
            type(value) in (list, tuple)
            and not is_parts(value)
            and dict(self._record_fields).get(name, "static") != "static"
        ):
            fields[name] = array_of(value)


def is_record(x):
    return type(x) in _TYPES


def is_parts(value):
    """Whether this is a tuple of records; any other tuple holds numbers, as a list does."""
    return isinstance(value, tuple) and all(type(part) in _TYPES for part in value)


def leaves(tree: Record, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield ``(dotted path, kind, value)`` for every leaf, in field order; ``None`` leaves are yielded too.

    Numbers in a field that may hold a record are a leaf as well, a "real" one, and so is a ``None``
    there that is no default.

    Parameters
    ----------
    tree : record
    prefix : str
        What every path begins with.

    Yields
    ------
    path : str
    kind : str
        As in ``leaf``.
    value
        An array, a number, or None.

    Examples
    --------
    >>> [path for path, kind, value in fs.leaves(model)][:4]
    ['covariance.variance', 'covariance.lengthscales', 'inducing', 'posterior.mean']
    """
    given: Any = tree
    for name, kind in given._record_fields:
        value = getattr(tree, name)
        if kind == "static":
            continue
        if kind != "record":
            yield prefix + name, kind, value
        elif is_record(value):
            yield from leaves(value, f"{prefix}{name}.")
        elif is_parts(value):
            for i, part in enumerate(value):
                yield from leaves(part, f"{prefix}{name}.{i}.")
        elif value is not None or name not in given._optional_fields:
            yield prefix + name, "real", value


def missing(tree, prefix=""):
    """Yield the dotted paths of leaves that are ``None`` in fields whose default is another, or that have none."""
    for name, kind in tree._record_fields:
        value = getattr(tree, name)
        if is_record(value):
            yield from missing(value, f"{prefix}{name}.")
        elif kind == "record" and is_parts(value):
            for i, part in enumerate(value):
                yield from missing(part, f"{prefix}{name}.{i}.")
        elif value is None and kind != "static" and name not in tree._optional_fields:
            yield prefix + name


def tree_map(f: Callable[..., Any], tree: RecordT, *others: Record) -> RecordT:
    """Apply ``f`` to the leaves of records of one shape; a leaf that is ``None`` in any of them stays ``None``.

    Parameters
    ----------
    f : function
        Of as many arguments as there are records.
    tree, *others : record
        Of one shape. Settings come from the first.

    Returns
    -------
    record

    Examples
    --------
    >>> fs.tree_map(lambda a, b: a + 0.5 * b, gaussian, fs.Gaussian(variance=0.2))
    Gaussian(variance=0.2)
    """
    fields = dict(tree.__dict__)
    given: Any = tree
    for name, kind in given._record_fields:
        if kind != "static":
            fields[name] = _mapped(
                f, fields[name], [getattr(o, name) for o in others] if others else others
            )
    # past __init__: a frozen dataclass sets its fields one slow call each
    new = object.__new__(type(tree))
    new.__dict__.update(fields)
    return new


def _mapped(f, value, rest):
    if value is None or (rest and any(r is None for r in rest)):
        return None
    if type(value) in _TYPES:
        return tree_map(f, value, *rest)
    if is_parts(value):
        return tuple(tree_map(f, part, *(r[i] for r in rest)) for i, part in enumerate(value))
    return f(value, *rest)


def total(gradients):
    """The sum of records of one shape; None where all are."""
    gradients = [gradient for gradient in gradients if gradient is not None]
    return tree_map(_sum, *gradients) if gradients else None


def _sum(first, *others):
    return sum(others, first)


def plus(new, old):
    """The sum of two gradients of one shape: records, arrays, or tuples of them; ``None`` is nothing."""
    if old is None or new is None:
        return new if old is None else old
    if isinstance(new, tuple):
        return tuple(map(plus, new, old))
    return tree_map(np.add, new, old) if is_record(new) else new + old


def replace(tree: RecordT, **changes: Any) -> RecordT:
    """A copy of a record with some fields changed.

    Parameters
    ----------
    tree : record
    **changes
        New values by the names of fields.

    Returns
    -------
    record

    Examples
    --------
    >>> fs.replace(model, likelihood=fs.StudentT(scale=0.3)).likelihood
    StudentT(scale=0.3, df=4.0, num_nodes=20)
    """
    try:
        return dataclasses.replace(tree, **changes)
    except TypeError:
        own = getattr(tree, "_record_fields", ())
        fields = [name for name, _ in own] if is_record(tree) else list(changes)
        unknown = [name for name in changes if name not in fields]
        if not unknown:
            raise
        raise no_option("replace", unknown[0], fields, type(tree).__name__) from None


def replace_at(tree: RecordT, path: str, value: Any) -> RecordT:
    """A copy of a record with the leaf at a dotted path changed.

    Parameters
    ----------
    tree : record
    path : str
        Such as "covariance.parts.0.variance".
    value : array, float or record

    Returns
    -------
    record

    Raises
    ------
    TypeError
        This is no record, or no path.
    ValueError
        The record has no such field.

    Examples
    --------
    >>> fs.replace_at(model, "covariance.variance", 2.5).covariance.variance
    2.5
    """
    if not is_record(tree):
        raise TypeError(f"replace_at: `tree` must be a fastsvgp record, got {type(tree).__name__}")
    if not isinstance(path, str):
        raise TypeError(
            f"replace_at: `path` must be a dotted path such as 'covariance.variance', got {path!r}"
        )
    try:
        return _changed(tree, path, value)
    except LookupError:
        has = ", ".join(known for known, _, _ in leaves(tree))
        raise ValueError(
            f"replace_at: `path` {path!r} is no field of this {type(tree).__name__}; it has {has}"
        ) from None


def _changed(tree, path, value):
    head, _, rest = path.partition(".")
    if is_parts(tree):
        parts = dict(zip(map(str, range(len(tree))), tree, strict=True))
        parts[head] = _changed(parts[head], rest, value) if rest else parts[head] and value
        return tuple(parts.values())
    if not is_record(tree) or head not in dict(tree._record_fields):
        raise LookupError
    return replace(tree, **{head: _changed(getattr(tree, head), rest, value) if rest else value})


def matches(path, names):
    """Whether a dotted path is one of some names, or lies below one of them: what to ask of ``need`` and ``wrt``.

    Parameters
    ----------
    path : str
        Of a leaf, such as "covariance.variance".
    names : tuple of str

    Returns
    -------
    bool

    Examples
    --------
    >>> matches("covariance.variance", ("covariance",)), matches("covariance.variance", ("inducing", "covariance.lengthscales"))
    (True, False)
    """
    return any(path == name or path.startswith(name + ".") for name in names)


def restricted(tree, names):
    """A record with ``None`` in place of every field, and of every leaf below a field, outside some names.

    Parameters
    ----------
    tree : record
    names : tuple of str
        Dotted, as in ``wrt``.

    Returns
    -------
    record

    Examples
    --------
    >>> restricted(fs.RBF(2.0, 1.0), ("variance",))
    RBF(variance=2.0, lengthscales=None)
    """
    roots = {name.partition(".")[0] for name in names}
    fields = [name for name, kind in tree._record_fields if kind != "static" and name not in roots]
    others = [name for name in fields if getattr(tree, name) is not None]
    if others:
        tree = replace(tree, **dict.fromkeys(others))
    if any("." in name for name in names):
        for path, _, _ in list(leaves(tree)):
            if path not in names and not matches(path, names):
                tree = replace_at(tree, path, None)
    return tree


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
