"""What a file holds beside a fitted model: its scaling and its jitter.

Estimators and the command line share it. A file is untrusted: all of it is checked here.
"""

import numpy as np

from .. import check
from ..bounds.mixture import Mixture
from ..latents import model as latents
from ..layers.layer import DeepGP, check_deep
from ..qsgp import model as qsgp
from .names import classes_of
from .scaling import ClassScale, ColumnScale, LogScale, Monotone, Scale

KINDS = {kind.__name__: kind for kind in (Scale, ClassScale, ColumnScale, LogScale)}


def array_to_json(array):
    """Describe an array for JSON."""
    return {"array": array.tolist(), "dtype": array.dtype.str}


def array_from_json(values):
    """Return the array of ``array_to_json``."""
    dtype = np.dtype(values["dtype"])
    if dtype.kind not in "fiubUO":
        raise ValueError(f"an array of dtype {dtype}")
    # the width of text comes from its content, not from the file
    return np.array(values["array"], "U" if dtype.kind == "U" else dtype)


def scale_to_json(scale):
    """Describe a ``Scale``, of any class, for JSON."""
    values = {
        name: array_to_json(value) if isinstance(value, np.ndarray) else value
        for name, value in vars(scale).items()
    }
    maps = scale.x_map and [
        one and {"knots": one.knots.tolist(), "values": one.values.tolist()} for one in scale.x_map
    ]
    return values | {"kind": type(scale).__name__, "x_map": maps}


def scale_from_json(values):
    """Return the ``Scale`` of ``scale_to_json``.

    Raises
    ------
    TypeError, KeyError, ValueError, AttributeError, IndexError
        The description is none of a scale.
    """
    if not isinstance(values, dict):
        raise TypeError("no scaling")
    given = {
        name: array_from_json(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if name != "kind"
    }
    given["x_map"] = given["x_map"] and tuple(one and _map(one) for one in given["x_map"])
    for name in ("x_mean", "x_scale", "y_mean", "y_scale"):
        numbers = given[name]
        right = isinstance(numbers, np.ndarray) and numbers.dtype.kind == "f"
        right |= name[0] == "y" and type(numbers) in (int, float)
        if not (right and np.isfinite(numbers).all()):
            raise ValueError(f"`{name}` of the scaling must hold finite numbers")
        if name.endswith("scale") and not (np.asarray(numbers) > 0).all():
            raise ValueError(f"`{name}` of the scaling must hold numbers above 0")
    ends = given.get("x_ends")
    if ends is not None and not (isinstance(ends, np.ndarray) and np.isfinite(ends).all()):
        raise ValueError("`x_ends` of the scaling must hold finite numbers")
    if "squared" in given:
        given["squared"] = tuple(given["squared"])
    return KINDS[values["kind"]](**given)


def _map(values):
    sides = [np.array(values[name], np.float64) for name in ("knots", "values")]
    rising = all(np.isfinite(side).all() and (np.diff(side) > 0).all() for side in sides)
    if not (rising and sides[0].shape == sides[1].shape and sides[0].ndim == 1 < len(sides[0])):
        raise ValueError("`x_map` of the scaling does not increase")
    return Monotone(*sides)


def sizes_of(model, count):
    """Check a model; return its number of inputs D and the axes () or (P,) of its targets.

    A ``QSGP`` takes any number of inputs that fits its lengthscales: ``count``, if it fits.
    """
    if isinstance(model, Mixture):
        found = [sizes_of(one, count) for one in model.models]
        if found != found[:1] * len(found):
            raise ValueError("the models of the mixture have different inputs or targets")
        return found[0]
    if isinstance(model, qsgp.QSGP):
        qsgp.check_inputs(model, np.zeros((1, count), model.posterior.mean.dtype), "X")
        return count, ()
    if isinstance(model, DeepGP):
        check_deep(model)
        return model.layers[0].check_shapes()[0], ()
    if isinstance(model, latents.MultiGP):
        latents.check_multi_gp(model)
        D, J = latents.check_functions(model)
        axes = (J,) if J > 1 else ()
    else:
        check.svgp(model)
        sizes, D = check.inducing(model, model.posterior.num_sets)
        axes = model.posterior.check_size(*sizes)
    return D, () if model.likelihood.num_latent else check.outputs_of(model.likelihood, axes)


def check_scale(scale, model, columns, outputs):
    """Check that a scale is one of the inputs and targets of a model, whose sizes are given."""
    if not scale.x_mean.shape == scale.x_scale.shape == (columns,):
        raise ValueError(f"the scaling is not one of {columns} inputs")
    if scale.x_ends is not None and scale.x_ends.shape != (2, columns):
        raise ValueError(f"the scaling has the ends of another number than {columns} inputs")
    if scale.x_map is not None and len(scale.x_map) != columns:
        raise ValueError(f"the scaling has maps for another number than {columns} inputs")
    if not all(np.shape(value) in ((), outputs) for value in (scale.y_mean, scale.y_scale)):
        raise ValueError("model, scaling and number of targets are inconsistent")
    if not set(getattr(scale, "squared", ())) <= set(range(1, check.num_columns(model.likelihood))):
        raise ValueError("the scaling has columns that the likelihood does not read")
    if not isinstance(scale, ClassScale):
        return
    if len(scale.classes) != classes_of(model.likelihood):
        raise ValueError(f"{len(scale.classes)} classes do not match the likelihood")
    if not np.array_equal(np.unique(scale.classes), scale.classes):
        raise ValueError("the classes are not sorted, or not distinct")
