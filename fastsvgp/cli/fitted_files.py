"""Read and check the description beside a model in a file of ``fastsvgp fit``.

The description is untrusted: all of it is checked here.
"""

import math
from dataclasses import fields

import numpy as np

import fastsvgp as fs

from .. import check
from ..latents import model as latents
from ..layers.layer import checked
from ..qsgp import model as qsgp
from ..recipes import classes_of
from ..records import leaves
from .data.columns import Encoding
from .data.forms import Form
from .data.targets import listed
from .data.task import Standardisation
from .errors import shown
from .settings.names import COLUMNS, LIKELIHOODS, kind_of

FORMAT = 8  # of the description


def checked_fields(kind, model, description):
    """Return the fields of a ``Fitted`` (the class ``kind``) other than its model.

    Raises
    ------
    TypeError, KeyError, ValueError, AttributeError, IndexError, ArithmeticError
        The first error in the description.
    """
    names = {field.name for field in fields(kind)} - {"model", "scale"}
    names |= {"format", "standardisation"}
    _require(
        description.keys() == names,
        f"the description has {shown(description)}, not {shown(sorted(names))}",
    )
    shared = _absent(model)
    lacking = [path for path, _, value in leaves(model) if value is None and path not in shared]
    _require(not lacking, f"no {shown(lacking)}")
    D = _num_inputs(model, len(description["input_names"]))
    encoding = description["encoding"]
    encoding = None if encoding is None else Encoding.from_json(encoding)
    _check_target(model, description)
    _check_inputs(model, description, D, encoding)
    scale = _checked_scale(description, D)
    kept = {name: description[name] for name in names - {"format", "standardisation"}}
    return kept | {"encoding": encoding, "scale": scale}


def _check_target(model, description):
    """Check that likelihood and classes match the model."""
    likelihood, classes = description["likelihood"], description["classes"]
    known = (
        isinstance(likelihood, str)
        and LIKELIHOODS.get(likelihood) == type(model.likelihood).__name__
    )
    _require(known, f"likelihood {likelihood!r} of a {type(model.likelihood).__name__} model")
    of_classes = kind_of(likelihood) in ("binary", "multiclass", "ordered")
    count = classes_of(model.likelihood) if of_classes else None
    _require(
        classes is None if count is None else _texts(classes, count), f"classes {classes!r:.60}"
    )


def _check_inputs(model, description, D, encoding):
    """Check names and columns for D inputs and the targets of the model."""
    inputs, target = description["input_names"], description["target_name"]
    _require(_texts(inputs, D), f"input_names {inputs!r:.60} for {D} inputs")
    outputs = _num_targets(model)
    named = isinstance(target, str) if outputs is None else _texts(target, outputs)
    _require(named, f"target_name {target!r:.60}")
    _require(isinstance(description["columns"], dict), "no columns")
    reads = check.num_columns(model.likelihood) - 1
    _require(reads == ("second" in description["columns"]), "no second column of the target")
    place = description["columns"]["target"]
    alike = isinstance(place, list) == isinstance(target, list)
    _require(place is None or alike, f"columns {place!r:.60} of targets")
    _require(not isinstance(place, list) or len(place) == len(target), f"targets {place!r:.60}")
    _check_columns(description["columns"], D if encoding is None else len(encoding.columns))
    _require(encoding is None or encoding.input_names == inputs, f"an encoding for {D} inputs")


def _checked_scale(description, D):
    """Return the scaling of D inputs, and check it and the jitter."""
    jitter, scale = _real("jitter", description["jitter"]), description["standardisation"]
    _require(jitter >= 0, f"jitter {jitter}")
    _require(isinstance(scale, dict), "no standardisation")
    for name in ("x_mean", "x_scale"):
        _require(
            isinstance(scale[name], list) and len(scale[name]) == D,
            f"{name} of the standardisation for {D} inputs",
        )
        _require(
            all(_real(name, value) > 0 or name == "x_mean" for value in scale[name]),
            f"{name} of the standardisation",
        )
    _check_map(scale["x_map"], D)
    _check_per_target(description["target_name"], scale)
    return Standardisation.from_json(scale)


def _check_per_target(names, scale):
    """Check the scaling of the targets: numbers, or lists of one per target of several."""
    for field in ("y_mean", "y_scale"):
        values = scale[field]
        if isinstance(values, list):
            right = isinstance(names, list) and len(values) == len(names)
            _require(right, f"{field} of the standardisation")
        for value in values if isinstance(values, list) else [values]:
            _require(
                _real(field, value) > 0 or field == "y_mean", f"{field} of the standardisation"
            )


def _check_map(maps, D):
    """Check that each column with a map has increasing knots and values."""
    if maps is None:
        return
    _require(isinstance(maps, list) and len(maps) == D, f"x_map for {D} inputs")
    for column in maps:
        if column is not None:
            sides = [
                [_real("x_map", number) for number in column[name]] for name in ("knots", "values")
            ]
            rising = all((np.diff(side) > 0).all() for side in sides)
            _require(len(sides[0]) == len(sides[1]) > 1 and rising, "x_map does not increase")


def _num_inputs(model, count):
    """Number of inputs of a model.

    A QSGP accepts any number that fits its lengthscales: ``count``, if it fits.
    """
    if isinstance(model, fs.QSGP):
        qsgp.checked_inputs(model, np.zeros((1, count), model.posterior.mean.dtype), "X")
        return count
    if isinstance(model, fs.DeepGP):
        checked(model)
        return model.layers[0].check_shapes()[0]
    if isinstance(model, fs.MultiGP):
        latents.checked(model)
        return latents.check_functions(model)[0]
    check.svgp(model)
    return model.covariance.num_columns(model.inducing)


def _absent(model):
    """Return the paths of inducing inputs that layers take from their model."""
    if not isinstance(model, fs.MultiGP):
        return ()
    return [f"latents.{number}.inducing" for number in latents.sharing(model)]


def _num_targets(model):
    """Return the number of targets if there are several, else None."""
    likelihood = model.likelihood
    if likelihood.num_latent is not None or isinstance(model, fs.QSGP | fs.DeepGP):
        return None
    if isinstance(model, fs.MultiGP):
        J = latents.check_functions(model)[1]
        axes = check.outputs_of(likelihood, (J,) if J > 1 else ())
    else:
        sizes, _ = check.inducing(model, model.posterior.num_sets)
        axes = check.outputs_of(likelihood, model.posterior.check_size(*sizes))
    return axes[0] if axes else None


def _require(holds, what):
    if not holds:
        raise ValueError(what)


def _texts(value, count):
    return (
        isinstance(value, list)
        and len(value) == count
        and all(isinstance(text, str) for text in value)
    )


def _real(name, value):
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.60}, not a finite number")
    return value


def _check_columns(columns, D):
    """Check the layout of the training file for D inputs."""
    named, width, inputs, target = (
        columns[name] for name in ("named", "width", "inputs", "target")
    )
    whole = (
        type(width) is int
        and isinstance(inputs, list)
        and all(type(i) is int for i in [*inputs, *listed(target)])
    )
    _require(type(named) is bool and whole, f"columns {columns!r:.60}")
    used = [*inputs, *listed(target)]
    _require(len(inputs) == D and len(set(used)) == len(used), f"columns {columns!r:.60}")
    _require(all(0 <= i < width for i in used), f"columns {columns!r:.60}")
    codes = columns.get("na", [])
    _require(isinstance(codes, list) and _texts(codes, len(codes)), f"na {codes!r:.60}")
    written = columns.get("target_forms")
    if written is not None:
        _require(len(written) == len(listed(target)), f"target_forms {written!r:.60}")
        possible = all(form is None or Form(**form).is_possible for form in written)
        _require(possible, f"target_forms {written!r:.60}")
    if (second := columns.get("second")) is not None:
        there = type(second["position"]) is int and 0 <= second["position"] < width
        named = isinstance(second["name"], str) and second["option"] in COLUMNS
        _require(there and named and second["position"] not in used, f"second {second!r:.60}")
