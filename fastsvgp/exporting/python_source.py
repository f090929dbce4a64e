"""Print a description as Python that needs NumPy alone, and its arrays as a .npz file.

A vector of the description is an array (N, size) there, with N rows of X at a time.
"""

import io
import re

import numpy as np

from .special import SPECIAL, called
from .steps import (
    HALVINGS,
    OPERAND,
    Each,
    Join,
    Pick,
    Root,
    Sums,
    Table,
    replace_operands,
    texts_of,
)

INDENT = "    "
ROWS = 256  # at a time
PRODUCT = re.compile(r"(\w+)_ij \* (\w+)_j")  # of a matrix and a vector
HEAD = '''"""{about}. Written by fastsvgp.

Needs NumPy, and {stem}.npz beside this file.

Examples
--------
>>> import {stem}
>>> mean, var = {stem}.predict_y(X)  # X (N, {columns})
"""

import math
import os
import statistics

import numpy as np
from numpy import cos, exp, expm1, fabs, fmax, fmin, log, log1p, rint, sin, sqrt, tanh

INFINITY = np.inf
INPUTS = {inputs!r}
CLASSES = {classes!r}
ROWS = {rows}  # at a time
choose = np.where
erfc = np.vectorize(math.erfc, otypes=[float])
normal_quantile = statistics.NormalDist().inv_cdf
with np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{stem}.npz")) as _arrays:
'''
MOMENTS = '''def predict_y(X):
    """Predict the mean and the variance of new targets, noise included, at X (N, {columns}).

    For classes these are probabilities p, and p (1 - p). Both are {shape}.
    """
    return _by_rows(_y, X)
'''
QUANTILES = '''def predict_quantiles(X, levels):
    """Predict quantiles of new targets at K levels between 0 and 1: (K, {shape})."""
    levels = [float(level) for level in levels]
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"`levels` must lie strictly between 0 and 1, got {{levels}}")
    return np.array(_by_rows(lambda m, v: [_quantile(m, v, level)[0] for level in levels], X))
'''
BY_ROWS = '''def _by_rows(function, X):
    """Call a function of the moments of f for some rows at a time."""
    X = np.asarray(X, float)
    if X.ndim != 2 or X.shape[1] != {columns} or not np.isfinite(X).all():
        raise ValueError(f"`X` must be finite and (N, {columns}), got shape {{X.shape}}")
{codes}    runs = [X[start : start + ROWS] for start in range(0, max(1, len(X)), ROWS)]
    with np.errstate(all="ignore"):
        parts = zip(*(function(*_f(x)) for x in runs))
        return tuple(np.concatenate(part){first} for part in parts)
'''


def source(description, stem):
    """Return the text of the file; it reads ``stem``.npz."""
    shape, columns = "N, P" if description.outputs else "N", description.columns
    parts = [
        HEAD.format(
            about=description.about,
            stem=stem,
            columns=columns,
            inputs=list(description.inputs),
            classes=list(description.classes),
            rows=ROWS,
        )
        + "\n".join(f'{INDENT}{name} = _arrays["{name}"]' for name in description.arrays)
        + "\n"
    ]
    parts += [
        _special(name) for name in called(t for f in description.functions for t in texts_of(f))
    ]
    parts.append(_function("_f", description.f))
    parts.append(_function("_y", description.y))
    first = "" if description.outputs else "[:, 0]"
    codes = "".join(_check_codes(*one) for one in description.codes.items())
    parts.append(BY_ROWS.format(columns=columns, codes=codes, first=first))
    parts.append(
        MOMENTS.format(columns=columns, shape=f"({shape})" if description.outputs else "(N,)")
    )
    if description.quantile is not None:
        parts.append(_function("_quantile", description.quantile))
        parts.append(QUANTILES.format(shape=shape))
    return "\n\n".join(parts)


def arrays(description):
    """Return the bytes of the .npz file."""
    file = io.BytesIO()
    np.savez(file, **description.arrays)
    return file.getvalue()


def _check_codes(column, levels):
    x = f"X[:, {column}]"
    above = "" if levels is None else f" | ({x} >= {levels})"
    allowed = "from 0 on" if levels is None else f"from 0 to {levels - 1}"
    return (
        f"    if (({x} < 0) | ({x} != rint({x})){above}).any():\n"
        f'        raise ValueError("column {column} of `X` must hold whole numbers {allowed}")\n'
    )


def _special(name):
    arguments, local, result, _ = SPECIAL[name]
    lines = [f"{INDENT}{key} = {text}" for key, text in local.items()]
    lines.append(f"{INDENT}return {result}\n")
    return "\n".join([f"def {name}({', '.join(arguments)}):", *lines])


def _function(name, function):
    lines = [f"def {name}({', '.join(function.arguments)}):"]
    for step in function.steps:
        lines += [INDENT + line for line in PRINT[type(step)](function, step)]
    lines.append(f"{INDENT}return ({', '.join(function.results)},)\n")
    return "\n".join(lines)


# --- steps ----------------------------------------------------------------------------------------


def _plain(text):
    """Return an expression of arrays that broadcast."""
    return replace_operands(text, lambda name, index: name)


def _each(function, step):
    text = _plain(step.text)
    used = {index for name, index in OPERAND.findall(step.text) if name in function.sizes}
    if not used or (step.size > 1 and "i" not in used):  # the text has no axis of that size
        rows = f"len({next(iter(function.arguments))})"
        text = f"{text} + np.zeros(({rows}, {step.size}))"
    return [f"{step.name} = {text}"]


def _sums(function, step):
    name = step.name
    if product := PRODUCT.fullmatch(step.text):
        return [f"{name} = {product[2]} @ {product[1]}.T"]
    if step.size == 1:
        text = replace_operands(
            step.text, lambda name, index: f"{name}[0]" if index == "ij" else name
        )
        total = f"({text}).{'max' if step.largest else 'sum'}(axis=1, keepdims=True)"
        return [f"{name} = {total}"]

    def write(name, index):
        if index == "ij":
            return f"{name}[:, j]"
        if index == "j":
            return f"{name}[:, j : j + 1]" if name in function.sizes else f"{name}[j]"
        return name

    text = replace_operands(step.text, write)
    start = "-INFINITY" if step.largest else "0.0"
    add = f"fmax({name}, {text})" if step.largest else f"{name} + {text}"
    return [f"{name} = {start}", f"for j in range({step.columns}):", f"    {name} = {add}"]


def _pick(function, step):
    return [f"{step.name} = {step.source}[:, {list(step.columns)}]"]


def _join(function, step):
    return [f"{step.name} = np.concatenate([{', '.join(step.sources)}], axis=1)"]


def _table(function, step):
    d = step.column
    inside = f"np.interp({step.source}[:, {d}], {step.knots}, {step.values})"
    return [f"{step.name}[:, {d}] = {inside}"]


def _root(function, step):
    # the middle of the bracket takes the place of the unknown
    name = step.name
    return [
        f"low, high = 0.0, {_plain(step.high)}",
        f"for _ in range({HALVINGS}):",
        f"    {name} = 0.5 * (low + high)",
        f"    below = {_plain(step.text)} < 0.0",
        f"    low, high = choose(below, {name}, low), choose(below, high, {name})",
    ]


PRINT = {Each: _each, Sums: _sums, Pick: _pick, Join: _join, Table: _table, Root: _root}
