"""``--resume``: check that a checkpoint belongs to this fit and these data."""

import hashlib
import os

import numpy as np

import fastsvgp as fs

from .. import DataFileError
from ..recipes.fitted import scale_from_json, scale_to_json
from ..records.persistence import as_json
from ..train import data_digests
from .errors import UsageError, join

# settings of the initial model; ``fit`` compares those of the training
MODEL = (
    "method", "covariance", "periodic", "ard", "inducing", "orthogonal", "latents", "layers",
    "width", "patch_shape", "image_shape", "stride", "features", "dense_columns", "dtype", "seed",
    "within",
)  # fmt: skip


def describe_fit(fitted, task, settings):
    """Describe a fit and its data, for its checkpoint."""
    return as_json("a fit", {
        "inputs": task.input_names,
        "target": task.target_name,
        "second column": task.second and f"--{task.second.option} {task.second.name}",
        "classes": task.classes,
        "likelihood": task.likelihood,
        **{name: getattr(settings, name) for name in MODEL},
        "split": task.split,
        "held out": hashlib.blake2b(np.packbits(task.test), digest_size=16).hexdigest(),
        "scale": scale_to_json(fitted.scale),
    })  # fmt: skip


def check_checkpoint(checkpoint, fitted, task, settings):
    """Refuse a checkpoint of another fit before ``fit`` reads it.

    Returns
    -------
    scale, digests
        As used for the checkpoint. On another machine the scaling of ``fitted`` can differ by
        rounding.
    """
    if not os.path.exists(checkpoint):
        raise UsageError(
            f"--resume: there is no checkpoint {checkpoint}; an interrupted run leaves one in its"
            " --out folder"
        )
    state = fs.load(checkpoint)
    if not isinstance(state, fs.optim.TrainingState):
        raise DataFileError(f"--resume: {checkpoint} is not a training checkpoint")
    now = describe_fit(fitted, task, settings)
    try:
        differences = _differences(state.note, now)
        scale = scale_from_json(state.note["scale"])
        if not differences and type(state.model) is not type(fitted.model):
            raise TypeError("it holds another model")
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:  # a file can hold anything in place of a model or a description
        raise DataFileError(
            f"--resume: {checkpoint} is damaged, or not a checkpoint of `fastsvgp fit` ({error})"
        ) from error
    if differences:
        raise UsageError(another_fit(checkpoint, differences))
    return scale, state.data or {}


def _differences(then, now):
    """Describe how a fit differs from that of the checkpoint."""
    found = [
        f"{name} {_text(then[name])} then, {_text(now[name])} now"
        for name in now
        if name not in ("split", "held out", "scale") and then[name] != now[name]
    ]
    if then["held out"] == now["held out"]:
        return found
    if then["split"] == now["split"]:
        return [*found, "other rows held out"]
    return [*found, f"held out: {then['split']} then, {now['split']} now"]


def _text(value):
    return join(value) if isinstance(value, list) else value


def another_fit(checkpoint, differences):
    """Message about a checkpoint of other data or arguments; ``differences`` describe how."""
    return (
        f"--resume: {checkpoint} belongs to another fit ({', '.join(differences)}); give the same"
        " data and arguments again, or leave out --resume and choose another --out"
    )


def check_numbers(checkpoint, then, **data):
    """Refuse a checkpoint that was made with other numbers in the same columns and rows.

    ``then``: its digests; ``data``: the arrays that ``fit`` digests, by name.
    """
    if data_digests.differences(then, data_digests.compute(**data)):
        raise UsageError(
            f"--resume: {checkpoint} belongs to other data: the columns agree, but the training"
            " rows differ; leave out --resume and choose another --out"
        )
