"""Messages for ``MemoryError``: the size of the failed allocation, and the argument behind it.

The argument is a guess. The allocation has the size of an argument, or of a matrix whose sides are
the numbers of rows of two arguments. The candidate closest in size is chosen; of a matrix, the
argument with the longer side is named.
"""

import inspect
import itertools
import math
import re

import numpy as np

ADVICE = {
    "X": "smaller batches",
    "Y": "smaller batches",
    "Xs": "fewer rows at a time",
    "Ys": "fewer rows at a time",
    "chunk_size": "a smaller `chunk_size`",
    "inducing": "fewer inducing inputs",
    "num_features": "fewer features",
    "num_paths": "fewer paths",
    "num_samples": "fewer samples",
}
# integer arguments that are numbers of rows
COUNTS = ("chunk_size", "num_features", "num_paths", "num_samples", "outputs", "probes", "width")


def explained(error, arguments):
    """Return a ``MemoryError`` that names an argument, in place of that of NumPy or CuPy.

    Parameters
    ----------
    error : MemoryError
        As raised, or already explained in terms of other arguments.
    arguments : dict
        Candidates by name: arrays, and the numbers in ``COUNTS``. Other values are ignored.
    """
    while isinstance(error.__cause__, MemoryError):
        error = error.__cause__
    found = re.search(r"allocating ([\d,]+) bytes", str(error))
    requested = int(found[1].replace(",", "")) if found else None
    text = (
        f"out of memory{f': {requested:,} bytes were requested' if found else ''}"
        f" ({str(error).rstrip('.')})"
    )
    rows = {name: _rows(value) for name, value in arguments.items() if _has_rows(name, value)}
    if not rows:
        return MemoryError(text)
    driver = _driver({name: arguments[name] for name in rows}, rows, requested)
    finest = getattr(arguments[driver], "dtype", None) != "float32"
    advice = " or ".join(filter(None, (ADVICE.get(driver.partition(".")[0]), finest and "float32")))
    listed = ", ".join(
        f"`{name}` {getattr(arguments[name], 'shape', count)}" for name, count in rows.items()
    )
    return MemoryError(
        f"{text}; of {listed}, `{driver}` determines it{advice and f': use {advice}'}"
    )


def name_culprit(error, function, args, options):
    """Call ``explained`` with the arguments of a call of ``function``."""
    positional = inspect.signature(function).parameters
    return explained(error, _named(dict(zip(positional, args, strict=False)) | options))


def _named(arguments):
    """Candidates among the arguments of a public function, by name.

    A model is replaced by its inducing inputs; ``chunk_size`` has no effect with ``full_cov``.
    """
    models = [value.inducing for value in arguments.values() if hasattr(value, "inducing")]
    named = {}
    if models:
        sets = vars(models[0]) if hasattr(models[0], "_record_fields") else None
        named = (
            {"inducing": models[0]}
            if sets is None
            else {f"inducing.{name}": one for name, one in sets.items()}
        )
    for layers in (
        value.layers
        for value in arguments.values()
        if isinstance(getattr(value, "layers", None), tuple)
    ):
        named |= {
            f"layers[{i}].inducing": layer.inducing
            for i, layer in enumerate(layers)
            if hasattr(layer, "inducing")
        }
    return named | {
        name: value
        for name, value in arguments.items()
        if name != "chunk_size" or not arguments.get("full_cov")
    }


def _has_rows(name, value):
    array = isinstance(getattr(value, "dtype", None), np.dtype) and getattr(value, "ndim", 0) > 0
    return array or (name in COUNTS and isinstance(value, int))


def _rows(value):
    return value if isinstance(value, int) else value.shape[max(0, value.ndim - 2)]


def _driver(arguments, rows, requested):
    """Name the argument behind ``requested`` bytes; if None, behind the largest matrix."""
    arrays = {name: value for name, value in arguments.items() if not isinstance(value, int)}
    item = max((a.dtype.itemsize for a in arrays.values() if a.dtype.kind == "f"), default=8)
    guesses = [(math.prod(a.shape) * a.dtype.itemsize, name) for name, a in arrays.items()]
    guesses += [
        (rows[a] * rows[b] * item, max(a, b, key=rows.get))
        for a, b in itertools.combinations_with_replacement(rows, 2)
    ]
    if requested is None:
        return max(guesses)[1]
    return min(guesses, key=lambda guess: abs(math.log(max(guess[0], 1) / max(requested, 1))))[1]
