"""Print a description as one C99 file that needs the mathematical functions of libm alone."""

import numpy as np

from .special import SPECIAL, called
from .steps import (
    HALVINGS,
    Each,
    Join,
    Pick,
    Root,
    Sums,
    Table,
    replace_operands,
    texts_of,
)

WIDTH = 100
INDENT = "    "
CHOOSE = """static double choose(int condition, double a, double b)
{
    return condition ? a : b;
}
"""
INTERPOLATE = """static double interpolate(const double *knots, const double *values, size_t n,
    double x)
{
    size_t low = 0, high = n - 1;
    if (x <= knots[low])
        return values[low];
    if (x >= knots[high])
        return values[high];
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (x < knots[middle])
            high = middle;
        else
            low = middle;
    }
    return values[low]
        + (values[high] - values[low]) / (knots[high] - knots[low]) * (x - knots[low]);
}
"""


def source(description, stem):
    """Return the text of the file; its functions begin with ``stem``."""
    lower, functions = description.constants.lower, description.functions
    parts = [_head(description, stem), "#include <math.h>\n#include <stddef.h>\n"]
    parts += [_constant(name, one, name in lower) for name, one in description.arrays.items()]
    parts += _helpers(functions)
    parts.append(_function("f", description.f, ("mean", "var"), _checks(description)))
    parts.append(_function("y", description.y, ("mean", "var")))
    parts.append(_moments(description, stem))
    if description.quantile is not None:
        parts.append(_function("quantile", description.quantile, ("quantile",)))
        parts.append(_quantiles(description, stem))
    return "\n".join(parts)


# --- parts of the file ----------------------------------------------------------------------------


def _head(description, stem):
    lines = [f"{description.about}. Written by fastsvgp.", "", f"x: {description.columns} numbers."]
    lines += [f"    x[{d}] {_plain(name)}" for d, name in enumerate(description.inputs)]
    count = description.count
    targets = "a new target" if count == 1 else f"{count} new targets"
    lines += [
        "",
        f"int {stem}_predict_y(const double *x, double *mean, double *var)",
        f"    The mean and the variance of {targets}, noise included.",
    ]
    if description.classes:
        lines[-1] = "    The probability p of the second class, and p (1 - p)."
        if count > 1:
            lines[-1] = f"    The probabilities p of {count} classes, and p (1 - p)."
        lines += [f"    class {c}: {_plain(name)}" for c, name in enumerate(description.classes)]
    if description.quantile is not None:
        lines += [
            f"int {stem}_predict_quantiles(const double *x, const double *levels, size_t count,",
            "                             double *quantiles)",
            f"    Quantiles of {targets} at levels between 0 and 1: count x {count} numbers.",
        ]
    lines += ["", "Returned are", "    0", "    1 if an input is not finite"]
    if description.codes:
        lines.append("    2 if a code is not a whole number from 0 on, or too large")
    if description.quantile is not None:
        lines.append("    3 if a level is not between 0 and 1")
    lines += [
        "and nothing is written but with 0. Do not compile it with -ffast-math, which removes",
        "these checks.",
    ]
    return "/*\n" + "\n".join(f" * {line}".rstrip() for line in lines) + "\n */"


def _plain(name):
    """Return a name without characters that have a meaning in a comment."""
    return "".join("_" if one in "*/?\\" or not one.isprintable() else one for one in name)


def _constant(name, array, packed):
    if packed:
        array = array[np.tril_indices(len(array))]
    head, lines, line = f"static const double {name}[{array.size}] = {{", [], INDENT
    for value in array.ravel().tolist():
        word = f"{value!r},"
        if len(line) + len(word) + 1 > WIDTH:
            lines.append(line.rstrip())
            line = INDENT
        line += f"{word} "
    return "\n".join([head, *lines, line.rstrip().rstrip(","), "};\n"])


def _helpers(functions):
    """Return the definitions of what the expressions call."""
    texts = [text for function in functions for text in texts_of(function)]
    special = called(texts)
    texts += [
        text for name in special for text in (*SPECIAL[name].local.values(), SPECIAL[name].result)
    ]
    found = []
    if any("choose(" in text for text in texts):
        found.append(CHOOSE)
    if any(isinstance(step, Table) for function in functions for step in function.steps):
        found.append(INTERPOLATE)
    for name in special:
        arguments, local, result, _ = SPECIAL[name]
        lines = [f"{INDENT}double {key} = {text};" for key, text in local.items()]
        given = ", ".join(f"double {one}" for one in arguments)
        lines.append(f"{INDENT}return {result};")
        found.append("\n".join([f"static double {name}({given})", "{", *lines, "}\n"]))
    return found


def _checks(description):
    lines = [
        f"for (size_t i = 0; i < {description.columns}; i++)",
        "    if (!isfinite(x[i]))",
        "        return 1;",
    ]
    for column, levels in description.codes.items():
        x = f"x[{column}]"
        above = "" if levels is None else f" || {x} >= {levels}"
        lines += [f"if ({x} < 0 || {x} != rint({x}){above})", "    return 2;"]
    return lines


def _function(name, function, results, checks=()):
    """Return a static function: arguments, then results. It returns an int if it has ``checks``."""
    given = [f"const double *{one}" for one in function.arguments]
    given += [f"double *{one}_out" for one in results]
    lines = [f"static {'int' if checks else 'void'} {name}({', '.join(given)})", "{"]
    body = list(checks)
    for step in function.steps:
        body += PRINT[type(step)](function, step)
    for out, found in zip(results, function.results, strict=True):
        body += [f"for (size_t i = 0; i < {function.sizes[found]}; i++)"]
        body += [f"    {out}_out[i] = {found}[i];"]
    body += ["return 0;"] * bool(checks)
    return "\n".join([*lines, *(INDENT + line for line in body), "}\n"])


def _moments(description, stem):
    latent = description.latent
    return f"""int {stem}_predict_y(const double *x, double *mean, double *var)
{{
    double m[{latent}], v[{latent}];
    int code = f(x, m, v);
    if (code == 0)
        y(m, v, mean, var);
    return code;
}}
"""


def _quantiles(description, stem):
    count, latent = description.count, description.latent
    return f"""int {stem}_predict_quantiles(const double *x, const double *levels, size_t count,
    double *quantiles)
{{
    double m[{latent}], v[{latent}];
    int code = f(x, m, v);
    for (size_t k = 0; k < count; k++)
        if (code == 0 && !(levels[k] > 0.0 && levels[k] < 1.0))
            code = 3;
    for (size_t k = 0; k < count && code == 0; k++)
        quantile(m, v, levels + k, quantiles + k * {count});
    return code;
}}
"""


# --- steps ----------------------------------------------------------------------------------------


def _text(text, i="i", matrix=""):
    """Return an expression in C; ``i`` and ``matrix`` are the places of entries."""
    places = {"i": i, "j": "j", "0": "0"}

    def write(name, index):
        return f"{name}[{matrix if index == 'ij' else places[index]}]"

    return replace_operands(text, write)


def _each(function, step):
    if step.size == 1:
        return [f"double {step.name}[1] = {{{_text(step.text, '0')}}};"]
    return [
        f"double {step.name}[{step.size}];",
        f"for (size_t i = 0; i < {step.size}; i++)",
        f"    {step.name}[i] = {_text(step.text)};",
    ]


def _sums(function, step):
    name, columns = step.name, step.columns
    i = "0" if step.size == 1 else "i"
    matrix = "j" if step.size == 1 else f"i * {columns} + j"
    if step.lower:
        matrix = "i * (i + 1) / 2 + j" if step.size > 1 else "j"
    text, stop = _text(step.text, i, matrix), "i + 1" if step.lower else columns
    add = f"total = fmax(total, {text});" if step.largest else f"total += {text};"
    return [
        f"double {name}[{step.size}];",
        f"for (size_t i = 0; i < {step.size}; i++) {{",
        f"    double total = {'-INFINITY' if step.largest else '0.0'};",
        f"    for (size_t j = 0; j < {stop}; j++)",
        f"        {add}",
        f"    {name}[i] = total;",
        "}",
    ]


def _pick(function, step):
    columns = ", ".join(map(str, step.columns))
    return [
        f"static const size_t {step.name}_columns[{len(step.columns)}] = {{{columns}}};",
        f"double {step.name}[{len(step.columns)}];",
        f"for (size_t i = 0; i < {len(step.columns)}; i++)",
        f"    {step.name}[i] = {step.source}[{step.name}_columns[i]];",
    ]


def _join(function, step):
    lines, start = [f"double {step.name}[{function.sizes[step.name]}];"], 0
    for source in step.sources:
        size = function.sizes[source]
        lines += [
            f"for (size_t i = 0; i < {size}; i++)",
            f"    {step.name}[{start} + i] = {source}[i];",
        ]
        start += size
    return lines


def _table(function, step):
    size = function.constants.arrays[step.knots].size
    d = step.column
    inside = f"interpolate({step.knots}, {step.values}, {size}, {step.source}[{d}])"
    return [f"{step.name}[{d}] = {inside};"]


def _root(function, step):
    # the middle of the bracket takes the place of the unknown
    high, text = _text(step.high), _text(step.text)
    name = step.name
    return [
        f"double {name}[{step.size}];",
        f"for (size_t i = 0; i < {step.size}; i++) {{",
        f"    double low = 0.0, high = {high};",
        f"    for (int turn = 0; turn < {HALVINGS}; turn++) {{",
        f"        {name}[i] = 0.5 * (low + high);",
        f"        if ({text} < 0.0)",
        f"            low = {name}[i];",
        "        else",
        f"            high = {name}[i];",
        "    }",
        "}",
    ]


PRINT = {Each: _each, Sums: _sums, Pick: _pick, Join: _join, Table: _table, Root: _root}
