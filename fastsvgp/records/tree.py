"""Records as trees: iterate over leaves, and make copies with other leaves."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import no_option, suggested_fields
from .decorator import _TYPES, is_parts, is_record, with_fields
from .treedef import KNOWN, treedef_of
from .typed import Record, RecordT


def leaves(tree: Record, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield ``(dotted path, kind, value)`` for every leaf in field order, ``None`` included.

    A field that can hold a record can also hold numbers: these are a leaf of kind "real". ``None``
    in place of a record is a leaf too, unless it is the default.

    Parameters
    ----------
    tree : record
    prefix : str
        Prepended to every path.

    Returns
    -------
    iterator of (str, str, object)
        Path, kind as in ``leaf``, and value: an array, a number, or None.

    Examples
    --------
    >>> [path for path, kind, value in fs.leaves(model)][:4]
    ['covariance.variance', 'covariance.lengthscales', 'inducing', 'posterior.mean']
    """
    treedef = treedef_of(tree)
    paths = [prefix + path for path in treedef.paths] if prefix else treedef.paths
    return zip(paths, treedef.kinds, treedef.values(tree), strict=True)


def missing(tree, prefix=""):
    """Yield the dotted paths of ``None`` leaves, except in fields whose default is ``None``."""
    for name, kind in tree._record_fields:
        value = getattr(tree, name)
        if is_record(value):
            yield from missing(value, f"{prefix}{name}.")
        elif kind == "record" and is_parts(value):
            for i, part in enumerate(value):
                yield from missing(part, f"{prefix}{name}.{i}.")
        elif kind == "tuple" and isinstance(value, tuple):
            yield from (f"{prefix}{name}.{i}" for i, part in enumerate(value) if part is None)
        elif value is None and kind != "static" and name not in tree._optional_fields:
            yield prefix + name


def tree_map(f: Callable[..., Any], tree: RecordT, *others: Record) -> RecordT:
    """Apply ``f`` to the leaves of records of equal structure.

    A leaf that is ``None`` in any of the records is ``None`` in the result.

    Parameters
    ----------
    f : function
        Takes one argument per record.
    tree, *others : record
        Records of equal structure. The result has the settings of the first.

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
        value = fields[name]
        if kind == "static" or value is None:
            continue
        if not others and not isinstance(value, tuple):
            fields[name] = tree_map(f, value) if type(value) in _TYPES else f(value)
            continue
        rest = [getattr(other, name) for other in others]
        if kind == "tuple" and isinstance(value, tuple):
            fields[name] = _mapped_each(f, value, rest)
        else:
            fields[name] = _mapped(f, value, rest)
    # skip __init__: a frozen dataclass sets each field with a slow call
    new = object.__new__(type(tree))
    new.__dict__.update(fields)
    return new


def _mapped_each(f, values, rest):
    """Apply ``f`` to each leaf of a tuple."""
    if any(one is None for one in rest):
        return None
    of_each = zip(values, *rest, strict=True)
    return tuple(None if any(v is None for v in each) else f(*each) for each in of_each)


def _mapped(f, value, rest):
    for one in rest:
        if one is None:
            return None
    if type(value) in _TYPES:
        return tree_map(f, value, *rest)
    if isinstance(value, tuple) and is_parts(value):
        return tuple(tree_map(f, part, *(r[i] for r in rest)) for i, part in enumerate(value))
    return f(value, *rest)


def total(gradients):
    """Sum records of equal structure; ``None`` if all of them are ``None``."""
    gradients = [gradient for gradient in gradients if gradient is not None]
    return tree_map(_sum, *gradients) if gradients else None


def _sum(first, *others):
    return sum(others, first)


def plus(new, old):
    """Add two gradients of equal structure: records, arrays, or tuples; ``None`` counts as zero."""
    if old is None or new is None:
        return new if old is None else old
    if isinstance(new, tuple):
        return tuple(map(plus, new, old))
    return tree_map(np.add, new, old) if is_record(new) else new + old


def replace(tree: RecordT, **changes: Any) -> RecordT:
    """Return a copy of a record with some fields changed.

    Parameters
    ----------
    tree : record
    **changes
        New values by field name.

    Returns
    -------
    record

    Examples
    --------
    >>> fs.replace(model, likelihood=fs.StudentT(scale=0.3)).likelihood
    StudentT(scale=0.3, df=4.0, num_nodes=None)
    """
    given: Any = tree
    if is_record(tree) and changes.keys() <= given._field_names:
        return with_fields(tree, changes)
    try:
        return dataclasses.replace(tree, **changes)
    except TypeError:
        fields = [name for name, _ in given._record_fields] if is_record(tree) else list(changes)
        unknown = [name for name in changes if name not in fields]
        if not unknown:
            raise
        raise no_option("replace", unknown[0], fields, type(tree).__name__) from None


def replaced(tree: RecordT, values: Mapping[str, Any]) -> RecordT:
    """Return a copy of a record with new values for some leaves, by dotted path.

    Examples
    --------
    >>> replaced(fs.RBF(2.0, 1.0), {"lengthscales": 3.0})
    RBF(variance=2.0, lengthscales=3.0)
    """
    treedef = treedef_of(tree)
    found = zip(treedef.paths, treedef.values(tree), strict=True)
    return treedef.built([values.get(path, value) for path, value in found], tree)


def replace_at(tree: RecordT, path: str, value: Any) -> RecordT:
    """Return a copy of a record with the leaf at a dotted path changed.

    Parameters
    ----------
    tree : record
    path : str
        Dotted path, for example "covariance.parts.0.variance".
    value : array, float or record

    Returns
    -------
    record

    Raises
    ------
    TypeError
        ``tree`` is not a record, or ``path`` is not text.
    ValueError
        The record has no field at ``path``.

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
        raise ValueError(
            f"replace_at: `path` {path!r:.80} is not a field of this {type(tree).__name__};"
            f" {suggested_fields(path, treedef_of(tree).paths)}"
        ) from None


def _changed(tree, path, value):
    head, _, rest = path.partition(".")
    if isinstance(tree, tuple):
        parts = dict(zip(map(str, range(len(tree))), tree, strict=True))
        if head not in parts:
            raise LookupError
        parts[head] = _changed(parts[head], rest, value) if rest else value
        return tuple(parts.values())
    if not is_record(tree) or head not in dict(tree._record_fields):
        raise LookupError
    return replace(tree, **{head: _changed(getattr(tree, head), rest, value) if rest else value})


def matches(path, names):
    """Whether a dotted path equals one of ``names`` or lies below it, as in ``need`` and ``wrt``.

    Parameters
    ----------
    path : str
        Path of a leaf, for example "covariance.variance".
    names : tuple of str

    Returns
    -------
    bool

    Examples
    --------
    >>> matches("covariance.variance", ("covariance",))
    True
    >>> matches("covariance.variance", ("inducing", "covariance.lengthscales"))
    False
    """
    return any(path == name or path.startswith(name + ".") for name in names)


def restricted(tree, names):
    """Return a copy of a record in which every field and leaf outside ``names`` is ``None``.

    Parameters
    ----------
    tree : record
    names : tuple of str
        Dotted paths, as in ``wrt``.

    Returns
    -------
    record

    Examples
    --------
    >>> restricted(fs.RBF(2.0, 1.0), ("variance",))
    RBF(variance=2.0, lengthscales=None)
    """
    fields, paths = _outside(treedef_of(tree), type(tree), tuple(names))
    others = [name for name in fields if getattr(tree, name) is not None]
    if others:
        tree = with_fields(tree, dict.fromkeys(others))
    for path in paths:
        tree = replace_at(tree, path, None)
    return tree


@functools.lru_cache(KNOWN)
def _outside(treedef, kind, names):
    """Return the fields outside ``names``, and the paths of leaves outside them in other fields."""
    roots = {name.partition(".")[0] for name in names}
    fields = [name for name, of in kind._record_fields if of != "static" and name not in roots]
    below = [path for path in treedef.paths if path.partition(".")[0] in roots]
    return fields, [path for path in below if not matches(path, names)]
