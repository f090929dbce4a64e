"""``--periodic``: parts of the covariance that repeat along an input.

The covariance is a sum. Its first part is that of --covariance, on all inputs. Each other part
repeats with its period along one input, and depends on all others by --covariance. The periods are
as given, not trained: as functions of a period, bounds have many maxima.
"""

import numpy as np

import fastsvgp as fs

from ..errors import UsageError, join

CHORD = 1.0  # initial lengthscale of a periodic part, on a circle of radius 1


def resolve(args, task):
    """Return ``periodic``, the position of each such input and its period; None without any."""
    if args.periodic is None:
        return {"periodic": None}
    for option, given in (
        ("--method qsgp", args.method == "qsgp"),
        ("--layers", args.layers is not None),
        ("--patch-shape", args.patch_shape is not None),
    ):
        if given:
            raise UsageError(f"--periodic cannot be combined with {option}; leave one of them out")
    found = [(_position(column, task), period) for column, period in args.periodic]
    if twice := next((pair for pair in found if found.count(pair) > 1), None):
        name = task.input_names[twice[0]]
        raise UsageError(f"--periodic: {name}={twice[1]:g} is given twice; give it once")
    return {"periodic": tuple(found)}


def _position(column, task):
    names, inputs = task.input_names, task.columns["inputs"]
    if column in names:
        return names.index(column)
    by_index = column.isdecimal() and task.encoding is None
    if by_index and int(column) in inputs:
        return inputs.index(int(column))
    raise UsageError(
        f"--periodic: no input {column!r}; the inputs are {join(names)}, and a text column is none"
    )


def covariance(X, kind, settings, scale, rng):
    """Make the initial covariance of standardised inputs X (N, D)."""
    lengthscales = fs.inducing.median_lengthscales(X, rng=rng, ard=settings.ard)
    share, D = X.dtype.type(1 / (1 + len(settings.periodic))), X.shape[1]
    parts = [kind(variance=share, lengthscales=lengthscales)]
    for position, period in settings.periodic:
        chord = kind(variance=share, lengthscales=X.dtype.type(CHORD))
        period = X.dtype.type(period / scale.x_scale[position])
        part = fs.Periodic(chord, period=period).on(position)
        if others := [d for d in range(D) if d != position]:
            own = lengthscales[others] if np.ndim(lengthscales) else lengthscales
            rest = kind(variance=X.dtype.type(1), lengthscales=own).on(*others)
            part = fs.covariances.Product((part, rest))
        parts.append(part)
    return fs.covariances.Sum(tuple(parts))


def fixed_paths(model):
    """Return the paths of fields that stay fixed: periods, and the variances of second factors."""
    names = (path for path, _, _ in fs.records.leaves(model))
    return tuple(
        path
        for path in names
        if path.endswith(".period") or path.endswith(".parts.1.part.variance")
    )


def describe(settings, names):
    """Describe the periodic parts."""
    if not settings.periodic:
        return ""
    return " + periodic in " + ", ".join(
        f"{names[position]} ({period:g})" for position, period in settings.periodic
    )
