"""The structure of records, found once per structure: read all leaves, and build new records."""

import functools
from operator import attrgetter
from typing import Any

from .decorator import is_parts, is_record, with_fields
from .typed import Record

KNOWN = 1024  # structures in the cache


class TreeDef:
    """The structure of a record: paths and kinds of its leaves.

    Records with the same classes in the same places share one ``TreeDef``; see ``treedef_of``.

    Attributes
    ----------
    paths : tuple of str
        Dotted paths of the leaves, in field order.
    kinds : tuple of str
        Their kinds, as in ``leaf``.
    names : frozenset of str
        Valid names in ``wrt`` or ``fixed``: the paths of leaves, and all prefixes of these paths.
    """

    def __init__(self, shape):
        self._shape = shape
        found = list(_paths_of(shape, ""))
        self.paths = tuple(path for path, _ in found)
        self.kinds = tuple(kind for _, kind in found)
        self.names = frozenset(start for path in self.paths for start in _starts(path))
        self._reads = tuple(_reads(shape, ""))
        self._places = _places(shape, iter(range(len(found))))

    def __reduce__(self):
        return _treedef, (self._shape,)

    def values(self, tree):
        """Return the leaves of a record of this structure, in the order of ``paths``."""
        found = []
        for read, parts in self._reads:
            if parts is None:
                found += read(tree)
            else:
                for part, one in zip(parts, read(tree), strict=True):
                    found += part.values(one)
        return found

    def built(self, values, like):
        """Build a record from leaves in the order of ``paths``, with the settings of ``like``."""
        return _built(self._places, values, like)


def treedef_of(tree: Record) -> TreeDef:
    """Return the structure of a record: one object for all records that share it.

    Examples
    --------
    >>> treedef_of(fs.RBF(2.0, 1.0)).paths
    ('variance', 'lengthscales')
    >>> treedef_of(fs.RBF(2.0, 1.0)) is treedef_of(fs.RBF(0.5, [1.0, 3.0]))
    True
    """
    kind: Any = type(tree)
    if not kind._branches:
        return _treedef(kind)
    found = _of_types.get((kind, *map(type, kind._held(tree))))
    return _looked_up(tree) if found is None else found


@functools.lru_cache(KNOWN)
def _treedef(shape):
    return TreeDef(shape)


# keyed by the classes of a record and of its branches, if these determine the structure
_of_types: dict[tuple[type, ...], TreeDef] = {}


def _looked_up(tree):
    kind = type(tree)
    held, treedef = kind._held(tree), _treedef(_shape_of(tree))
    if not any(isinstance(value, tuple) or is_record(value) and value._branches for value in held):
        if len(_of_types) >= KNOWN:
            _of_types.clear()
        _of_types[kind, *map(type, held)] = treedef
    return treedef


# A shape is a hashable description of a structure. For a record that holds no others it is its
# class. For one that can hold others it is a tuple of its class and the shapes in these fields: the
# shape of a record, ``(tuple, ...)`` for parts, ``None`` for an empty field, ``LEAF`` for numbers.
# Parts are records, or leaves in a field of kind "tuple".
LEAF = "leaf"


def _shape_of(tree):
    kind: Any = type(tree)
    if not kind._branches:
        return kind
    return kind, *[_shape_of_field(tree, name) for name in kind._branches]


def _shape_in(value):
    if value is None:
        return None
    if is_record(value):
        return _shape_of(value)
    return (tuple, *map(_shape_of, value)) if is_parts(value) else LEAF


def _shape_of_field(tree, name):
    value = getattr(tree, name)
    if type(value) is tuple and name in tree._tuple_fields:
        return (tuple, *[LEAF] * len(value))
    return _shape_in(value)


def _fields(shape):
    """Return ``(class, [(name, kind, shape)])`` for the fields that are not settings."""
    kind, *held = shape if isinstance(shape, tuple) else (shape,)
    held = dict(zip(kind._branches, held, strict=True))
    found = []
    for name, of in kind._record_fields:
        inside = held.get(name, LEAF)
        if of == "static" or inside is None and name in kind._optional_fields:
            continue
        found.append((name, "real" if of in ("record", "tuple") else of, inside or LEAF))
    return kind, found


def _paths_of(shape, prefix):
    """Yield ``(path, kind)`` of each leaf."""
    for name, kind, inside in _fields(shape)[1]:
        if inside is LEAF:
            yield prefix + name, kind
        elif _holds_parts(inside):
            for i, part in enumerate(inside[1:]):
                path = f"{prefix}{name}.{i}"
                yield from ([(path, kind)] if part is LEAF else _paths_of(part, path + "."))
        else:
            yield from _paths_of(inside, f"{prefix}{name}.")


def _starts(path):
    steps = path.split(".")
    return [".".join(steps[:end]) for end in range(1, len(steps) + 1)]


def _holds_parts(shape):
    return isinstance(shape, tuple) and shape[0] is tuple


def _reads(shape, prefix):
    """Yield ``(function, parts)`` pairs that read all leaves in order.

    With ``parts`` None the function reads several leaves. Otherwise it reads a tuple of records,
    and ``parts`` has the ``TreeDef`` of each.
    """
    run = []
    for path, inside in _attributes(shape, prefix):
        if inside is LEAF:
            run.append(path)
            continue
        yield from _run(run)
        run = []
        of_leaves = LEAF in inside[1:]  # then all are leaves, and the value is already a tuple
        yield attrgetter(path), None if of_leaves else tuple(map(_treedef, inside[1:]))
    yield from _run(run)


def _attributes(shape, prefix):
    """Yield dotted names of leaves and of parts, with their shapes."""
    for name, _, inside in _fields(shape)[1]:
        if inside is LEAF or _holds_parts(inside):
            yield prefix + name, inside
        else:
            yield from _attributes(inside, f"{prefix}{name}.")


def _run(paths):
    if len(paths) == 1:  # for one name ``attrgetter`` returns no tuple
        get = attrgetter(*paths)
        yield (lambda tree: (get(tree),)), None
    elif paths:
        yield attrgetter(*paths), None


def _places(shape, count):
    """Return ``(name, place)`` for each field of a record.

    A place is the number of a leaf, the places of a record, or a list of these for parts.
    """
    return tuple(
        (
            name,
            next(count)
            if inside is LEAF
            else [next(count) if part is LEAF else _places(part, count) for part in inside[1:]]
            if _holds_parts(inside)
            else _places(inside, count),
        )
        for name, _, inside in _fields(shape)[1]
    )


def _built(places, values, like):
    fields = {}
    for name, place in places:
        if type(place) is int:
            fields[name] = values[place]
        elif type(place) is list:
            parts = zip(place, getattr(like, name), strict=True)
            fields[name] = tuple(
                values[inside] if type(inside) is int else _built(inside, values, part)
                for inside, part in parts
            )
        else:
            fields[name] = _built(place, values, getattr(like, name))
    return with_fields(like, fields)
