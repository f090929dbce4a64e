"""Records as flat lists of leaves: read them, and make copies with other leaves."""

import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np

from ..errors import no_option, suggest_fields
from .decorator import _TYPES, KEPT, NO_LEAVES, is_parts, is_record, replace_fields
from .typed import Record, RecordT

KNOWN = 1024  # structures in a cache
NONE = type(None)


def flat(tree: Record) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Any, ...]]:
    """Return the dotted paths, the kinds and the values of all leaves, as in ``leaves``.

    They are found once per record that holds others, since records are immutable. Records with the
    same paths and kinds have the same structure.

    Examples
    --------
    >>> flat(fs.RBF(2.0, 1.0))
    (('variance', 'lengthscales'), ('positive', 'positive'), (2.0, 1.0))
    """
    known = KEPT.get(id(tree))
    if known is not None and known[0]() is tree:
        return known[1]
    kind: Any = type(tree)
    held = tuple(map(getattr, repeat(tree), kind._leaf_names))
    if kind._only_leaves:
        return kind._leaf_names, kind._leaf_kinds, held
    classes = kind, *map(type, held)
    structure = _STRUCTURES.get(classes)
    if structure:
        paths, kinds, read = structure
        found = paths, kinds, read(tree)[2:]
    else:
        found = _flatten(kind, held)
        if structure is None:
            _learn(classes, held, *found)
    # the entry goes with its record
    KEPT[id(tree)] = weakref.ref(tree, functools.partial(KEPT.pop, id(tree))), found
    return found


# Paths, kinds and a function that reads the values, by the class of a record and the classes of
# what it holds; empty if these do not determine the leaves.
_STRUCTURES: dict[tuple[type, ...], tuple] = {}


def _learn(classes, held, paths, kinds, _):
    if len(_STRUCTURES) >= KNOWN:
        _STRUCTURES.clear()
    more = any(
        not value._only_leaves if type(value) in _TYPES else isinstance(value, tuple)
        for value in held
    )
    # two names more, since for one name ``attrgetter`` returns no tuple
    read = attrgetter("__class__", "__class__", *paths)
    _STRUCTURES[classes] = () if more else (paths, kinds, read)


def _number(name, parts):
    return [(f"{name}.{i}", part) for i, part in enumerate(parts)]


def _flatten(kind, held):
    paths: list[str] = []
    kinds: list[str] = []
    found: list[Any] = []
    for (name, of), value in zip(kind._leaf_fields, held, strict=True):
        if value is None and name in kind._spared:
            continue
        several = isinstance(value, tuple) and _is_several(of, value)
        for path, part in _number(name, value) if several else ((name, value),):
            if of == "record" and type(part) in _TYPES:
                below, kinds_below, values = flat(part)
                paths += _join(path, below)
                kinds += kinds_below
                found += values
            else:
                paths.append(path)
                kinds.append("real" if of in ("record", "tuple") else of)
                found.append(part)
    return tuple(paths), tuple(kinds), tuple(found)


def _is_several(kind, value):
    """Whether the tuple in a field holds leaves or records; another one is a leaf itself."""
    return kind == "tuple" or kind == "record" and is_parts(value)


@functools.lru_cache(KNOWN)  # then equal structures share their texts, and comparing them is fast
def _join(path, below):
    return tuple(f"{path}.{one}" for one in below)


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
    >>> [path for path, kind, value in fs.records.leaves(model)][:4]
    ['covariance.variance', 'covariance.lengthscales', 'inducing', 'posterior.mean']
    """
    paths, kinds, values = flat(tree)
    return zip([prefix + path for path in paths] if prefix else paths, kinds, values, strict=True)


def missing(tree, prefix=""):
    """Yield the dotted paths of ``None`` leaves, except in fields whose default is ``None``."""
    for name, kind in tree._leaf_fields:
        value = getattr(tree, name)
        several = isinstance(value, tuple) and _is_several(kind, value)
        for path, part in _number(prefix + name, value) if several else [(prefix + name, value)]:
            if type(part) in _TYPES:
                yield from missing(part, path + ".")
            elif part is None and (several or name not in tree._optional_fields):
                yield path


def build(tree, values):
    """Return a copy of a record with these leaves, in the order of ``flat``."""
    return _build(tree, iter(values))


def _build(tree, values):
    if tree._only_leaves:
        return replace_fields(tree, dict(zip(tree._leaf_names, values, strict=False)))
    fields = {}
    for name, kind in tree._leaf_fields:
        value = getattr(tree, name)
        if value is None and name in tree._spared:
            continue
        if kind == "record" and type(value) in _TYPES:
            fields[name] = _build(value, values)
        elif isinstance(value, tuple) and _is_several(kind, value):
            fields[name] = tuple(
                [_build(part, values) if kind == "record" else next(values) for part in value]
            )
        else:
            fields[name] = next(values)
    return replace_fields(tree, fields)


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
    >>> fs.records.tree_map(lambda a, b: a + 0.5 * b, gaussian, fs.Gaussian(variance=0.2))
    Gaussian(variance=0.2)
    """
    # skip __init__ and __post_init__: they check what a user gives, not results of ``f``
    new = object.__new__(type(tree))
    fields = new.__dict__
    fields.update(tree.__dict__)
    given: Any = tree
    for name, kind in given._leaf_fields:
        value = fields[name]
        if value is None:
            continue
        rest = [getattr(other, name) for other in others] if others else ()
        if NONE in map(type, rest):
            fields[name] = None
        elif isinstance(value, tuple) and _is_several(kind, value):
            fields[name] = tuple([_map_entry(f, *each) for each in zip(value, *rest, strict=True)])
        else:
            fields[name] = tree_map(f, value, *rest) if type(value) in _TYPES else f(value, *rest)
    return new


def _map_entry(f, *values):
    """Apply ``f`` to an entry of a tuple."""
    if NONE in map(type, values):
        return None
    return tree_map(f, *values) if type(values[0]) in _TYPES else f(*values)


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
        return replace_fields(tree, changes)
    try:
        return dataclasses.replace(tree, **changes)
    except TypeError:
        fields = [name for name, _ in given._record_fields] if is_record(tree) else list(changes)
        unknown = [name for name in changes if name not in fields]
        if not unknown:
            raise
        raise no_option("replace", unknown[0], fields, type(tree).__name__) from None


def replace_leaves(tree: RecordT, values: Mapping[str, Any]) -> RecordT:
    """Return a copy of a record with new values for some leaves, by dotted path.

    Examples
    --------
    >>> replace_leaves(fs.RBF(2.0, 1.0), {"lengthscales": 3.0})
    RBF(variance=2.0, lengthscales=3.0)
    """
    return build(tree, [values.get(path, value) for path, _, value in leaves(tree)])


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
    >>> fs.records.replace_at(model, "covariance.variance", 2.5).covariance.variance
    2.5
    """
    if not is_record(tree):
        raise TypeError(f"replace_at: `tree` must be a fastsvgp record, got {type(tree).__name__}")
    if not isinstance(path, str):
        raise TypeError(
            f"replace_at: `path` must be a dotted path such as 'covariance.variance', got {path!r}"
        )
    try:
        return _change(tree, path, value)
    except LookupError:
        raise ValueError(
            f"replace_at: `path` {path!r:.80} is not a field of this {type(tree).__name__};"
            f" {suggest_fields(path, flat(tree)[0])}"
        ) from None


def _change(tree, path, value):
    head, _, rest = path.partition(".")
    if isinstance(tree, tuple):
        parts = dict(zip(map(str, range(len(tree))), tree, strict=True))
        if head not in parts:
            raise LookupError
        parts[head] = _change(parts[head], rest, value) if rest else value
        return tuple(parts.values())
    if not is_record(tree) or head not in dict(tree._record_fields):
        raise LookupError
    return replace(tree, **{head: _change(getattr(tree, head), rest, value) if rest else value})


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
    fields, paths = _outside(flat(tree)[0], type(tree), tuple(names))
    others = [name for name in fields if getattr(tree, name) is not None]
    if others:
        tree = replace_fields(tree, dict.fromkeys(others))
    return replace_leaves(tree, dict.fromkeys(paths)) if paths else tree


@functools.lru_cache(KNOWN)
def _outside(paths, kind, names):
    """Return the fields outside ``names``, and the paths of leaves outside them in other fields."""
    roots = {name.partition(".")[0] for name in names}
    fields = [name for name, of in kind._record_fields if of not in NO_LEAVES and name not in roots]
    below = [path for path in paths if path.partition(".")[0] in roots]
    return fields, [path for path in below if not matches(path, names)]
