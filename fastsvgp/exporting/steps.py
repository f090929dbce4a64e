"""The steps of an exported function: arithmetic on vectors, in index notation.

An expression names vectors and matrices with their indices: ``x_j`` is an entry of x, ``A_ij`` one
of A, and ``q_0`` the only entry of q. It calls functions that C and NumPy have by the same name,
and those of ``special``. So both languages read one text:

    Each     name_i = expression                    Sums     name_i = sum_j expression
    Pick     name_i = source[columns[i]]            Join     name = several vectors, in a row
    Table    name[column] = a line through knots    Root     name_i at which expression = 0
"""

import re
from typing import Any, NamedTuple

import numpy as np

OPERAND = re.compile(r"\b([A-Za-z]\w*?)_(ij|i|j|0)\b")


class Each(NamedTuple):
    """``name_i = text``; a scalar has one entry."""

    name: str
    size: int
    text: str


class Sums(NamedTuple):
    """``name_i = sum_j text``, or the largest of the terms; j <= i if ``lower``."""

    name: str
    size: int
    columns: int
    text: str
    lower: bool = False
    largest: bool = False


class Pick(NamedTuple):
    """``name_i = source[columns[i]]``."""

    name: str
    source: str
    columns: tuple


class Join(NamedTuple):
    """The entries of some vectors, one vector after another."""

    name: str
    sources: tuple


class Table(NamedTuple):
    """``name[column]`` is the piecewise linear function of ``source[column]`` through knots."""

    name: str
    source: str
    column: int
    knots: str
    values: str


class Root(NamedTuple):
    """``name_i`` in [0, ``high``] where ``text``, a function of ``name_i`` that rises, is 0."""

    name: str
    size: int
    high: str
    text: str


HALVINGS = 60  # of the interval of a root, which are more than the digits of a double


class Constants:
    """Arrays of all functions of a file, each under a name of its own.

    ``lower`` has the names of lower triangular matrices, whose zeros no step reads, and ``read``
    those of all arrays that a step reads.
    """

    def __init__(self):
        self.arrays, self.lower, self.read, self._names = {}, set(), set(), {}

    def name(self, stem):
        """Return a name that is not in use."""
        self._names[stem] = self._names.get(stem, 0) + 1
        return f"{stem}{self._names[stem]}"

    def add(self, stem, array, lower=False):
        name = self.name(stem)
        self.arrays[name] = np.ascontiguousarray(array, np.float64)
        if lower:
            self.lower.add(name)
        return name


class Function:
    """One function of a file: its arguments, its steps, and what it returns.

    Parameters
    ----------
    constants : Constants
    arguments : dict of str: int
        Vectors, and their sizes.
    """

    def __init__(self, constants, arguments):
        self.constants, self.arguments = constants, dict(arguments)
        self.sizes: dict[str, int] = dict(arguments)
        self.steps: list[Any] = []
        self.results: tuple[str, ...] = ()

    def constant(self, stem, array, lower=False):
        return self.constants.add(stem, array, lower)

    def _append(self, kind, stem, size, *rest, **more):
        name = self.constants.name(stem)
        self.sizes[name] = size
        self.steps.append(kind(name, *rest, **more))
        return name

    def each(self, stem, size, text):
        return self._append(Each, stem, size, size, text)

    def sums(self, stem, size, columns, text, **more):
        return self._append(Sums, stem, size, size, columns, text, **more)

    def product(self, stem, matrix, x, name="weights", lower=False):
        """``matrix``, a constant of this ``name``, times the vector x."""
        matrix = np.atleast_2d(matrix)
        W = self.constant(name, matrix, lower)
        return self.sums(stem, *matrix.shape, f"{W}_ij * {x}_j", lower=lower)

    def pick(self, source, columns):
        return self._append(Pick, "part", len(columns), source, tuple(columns))

    def join(self, stem, sources):
        if len(sources) == 1:
            return sources[0]
        return self._append(Join, stem, sum(self.sizes[one] for one in sources), tuple(sources))

    def table(self, name, source, column, knots, values):
        """Overwrite one entry of ``name``."""
        knots, values = self.constant("knots", knots), self.constant("values", values)
        self.steps.append(Table(name, source, column, knots, values))

    def returns(self, *results):
        """Set the results, leave out steps that they do not need, and return the function."""
        needed, kept = set(results), []
        for step in reversed(self.steps):
            if step.name in needed:
                kept.append(step)
                needed.update(_names_in(step))
        self.steps, self.results = kept[::-1], results
        self.constants.read |= needed & self.constants.arrays.keys()
        return self

    def root(self, stem, size, high, text):
        """``text`` has ``{}`` in the place of the root."""
        name = self.constants.name(stem)
        self.sizes[name] = size
        self.steps.append(Root(name, size, high, text.format(f"{name}_i")))
        return name


def _names_in(step):
    """Yield what a step reads, among other texts."""
    for field in step[1:]:
        for text in field if isinstance(field, tuple) else (field,):
            if isinstance(text, str):
                yield text
                yield from (name for name, _ in OPERAND.findall(text))


def form_of(what, part, forms):
    """Return what writes a part of a model, by its class; ``TypeError`` for other classes."""
    if type(part) not in forms:
        known = ", ".join(kind.__name__ for kind in forms if kind is not type(None))
        raise TypeError(
            f"export: the {what} {type(part).__name__} cannot be exported; these can: {known}"
        )
    return forms[type(part)]


def number(value):
    """Return a number as both languages read it, to the last bit."""
    value = float(value)
    if np.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return repr(value) if value >= 0 else f"({value!r})"


def replace_operands(text, write):
    """Return ``text`` with each operand as ``write(name, index)`` gives it."""
    return OPERAND.sub(lambda found: write(*found.groups()), text)


def texts_of(function):
    """Yield the expressions of a function."""
    for step in function.steps:
        if isinstance(step, Root):
            yield step.high
        if isinstance(step, Each | Sums | Root):
            yield step.text
