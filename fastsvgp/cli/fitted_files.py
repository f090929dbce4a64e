"""Read and check the description beside a model in a file of ``fastsvgp fit``.

The description is untrusted: all of it is checked here.
"""

import os
from dataclasses import fields

import numpy as np

from .. import MultiGP, check
from ..latents import model as latents
from ..recipes import classes_of
from ..recipes.fitted import check_scale, scale_from_json, sizes_of
from ..records import leaves
from .data.columns import Encoding
from .data.forms import Form
from .data.targets import as_list
from .errors import join
from .settings.names import COLUMNS, LIKELIHOODS, kind_of

FORMAT = 9  # of the description


def file_of(path):
    """Return the file of a model: in a folder, model.npz."""
    return os.path.join(path, "model.npz") if os.path.isdir(path) else path


def check_fields(kind, model, description):
    """Return the fields of a ``Fitted`` (the class ``kind``) other than its model.

    Raises
    ------
    TypeError, KeyError, ValueError, AttributeError, IndexError, ArithmeticError
        The first error in the description.
    """
    names = {field.name for field in fields(kind)} - {"model"} | {"format"}
    _require(
        description.keys() == names,
        f"the description has {join(description)}, not {join(sorted(names))}",
    )
    shared = _absent(model)
    lacking = [path for path, _, value in leaves(model) if value is None and path not in shared]
    _require(not lacking, f"no {join(lacking)}")
    D, outputs = sizes_of(model, len(description["input_names"]))
    encoding, scale = description["encoding"], scale_from_json(description["scale"])
    encoding = None if encoding is None else Encoding.from_json(encoding)
    _check_target(model, description)
    _check_inputs(model, description, D, outputs, encoding)
    check_scale(scale, model, D, outputs)
    check.jitter_amount(description["jitter"], np.dtype(np.float64))
    kept = {name: description[name] for name in names - {"format"}}
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


def _check_inputs(model, description, D, outputs, encoding):
    """Check names and columns for D inputs and the targets of the model."""
    inputs, target = description["input_names"], description["target_name"]
    _require(_texts(inputs, D), f"input_names {inputs!r:.60} for {D} inputs")
    named = _texts(target, *outputs) if outputs else isinstance(target, str)
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


def _absent(model):
    """Return the paths of inducing inputs that layers take from their model."""
    if not isinstance(model, MultiGP):
        return ()
    return [f"latents.{number}.inducing" for number in latents.sharing(model)]


def _require(holds, what):
    if not holds:
        raise ValueError(what)


def _texts(value, count):
    return (
        isinstance(value, list)
        and len(value) == count
        and all(isinstance(text, str) for text in value)
    )


def _check_columns(columns, D):
    """Check the layout of the training file for D inputs."""
    named, width, inputs, target = (
        columns[name] for name in ("named", "width", "inputs", "target")
    )
    whole = (
        type(width) is int
        and isinstance(inputs, list)
        and all(type(i) is int for i in [*inputs, *as_list(target)])
    )
    _require(type(named) is bool and whole, f"columns {columns!r:.60}")
    used = [*inputs, *as_list(target)]
    _require(len(inputs) == D and len(set(used)) == len(used), f"columns {columns!r:.60}")
    _require(all(0 <= i < width for i in used), f"columns {columns!r:.60}")
    codes = columns.get("na", [])
    _require(isinstance(codes, list) and _texts(codes, len(codes)), f"na {codes!r:.60}")
    written = columns.get("target_forms")
    if written is not None:
        _require(len(written) == len(as_list(target)), f"target_forms {written!r:.60}")
        possible = all(form is None or Form(**form).is_possible for form in written)
        _require(possible, f"target_forms {written!r:.60}")
    if (second := columns.get("second")) is not None:
        there = type(second["position"]) is int and 0 <= second["position"] < width
        named = isinstance(second["name"], str) and second["option"] in COLUMNS
        _require(there and named and second["position"] not in used, f"second {second!r:.60}")
