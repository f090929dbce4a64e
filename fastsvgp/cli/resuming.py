"""``--resume``: check that a checkpoint belongs to this fit and these data."""

import hashlib
import os

import numpy as np

import fastsvgp as fs

from .. import DataFileError
from ..latents.mixing import matrices
from ..records.inducing_sets import sets_of
from ..train import data_digests
from .data.task import Standardisation
from .errors import UsageError, shown
from .fitted import layers_of
from .settings.periodic import first_part

NEAR = 1e-9  # standard deviations: the order of summation differs between machines


def described(fitted, task):
    """Describe the data of a fit, for its checkpoint."""
    second = task.second and f"--{task.second.option} {task.second.name}"
    return {
        "inputs": task.input_names,
        "target": task.target_name,
        "second column": second,
        "classes": task.classes,
        "split": task.split,
        "held out": hashlib.blake2b(np.packbits(task.test), digest_size=16).hexdigest(),
        "standardisation": fitted.scale.to_json(),
    }


def resumed(checkpoint, fitted, task, settings):
    """Refuse a checkpoint of another fit before ``fit`` reads it.

    Returns
    -------
    scale, digests
        As used for the checkpoint. The scaling equals that of ``fitted`` up to rounding.
    """
    if not os.path.exists(checkpoint):
        raise UsageError(
            f"--resume: there is no checkpoint {checkpoint}; an interrupted run leaves one in its"
            " --out folder"
        )
    state = fs.load(checkpoint)
    if not isinstance(state, fs.optim.TrainingState):
        raise DataFileError(f"--resume: {checkpoint} is not a training checkpoint")
    now = _essence(fitted.model, settings.seed if settings.method != "sgpr" else state.seed)
    try:
        before = _essence(state.model, state.seed)
        differences = [
            f"{name} {before.get(name)} then, {now[name]} now"
            for name in now
            if before.get(name) != now[name]
        ]
        differences += _other_data(state.note, described(fitted, task))
        scale = Standardisation.from_json(state.note["standardisation"])
    except (
        AttributeError,
        LookupError,
        TypeError,
    ) as error:  # a file can hold anything in place of a model or a description
        raise DataFileError(
            f"--resume: {checkpoint} is damaged, or not a checkpoint of `fastsvgp fit` ({error})"
        ) from error
    if differences:
        raise UsageError(another_fit(checkpoint, differences))
    return scale, state.data or {}


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
    if data_digests.differences(then, data_digests.of(**data)):
        raise UsageError(
            f"--resume: {checkpoint} belongs to other data: names, means and scales of the columns"
            " agree, but the training rows differ; leave out --resume and choose another --out"
        )


def _essence(model, seed):
    """Describe the properties of a model that a checkpoint must share."""
    layers = ()
    if isinstance(model, fs.QSGP):
        covariance, dtype = model.basis.covariance, model.posterior.mean.dtype
        sizes = {
            "features, dense columns": np.shape(model.posterior.columns),
            "seed of the features": model.basis.seed,
        }
    else:
        layers = layers_of(model)
        covariance, dtype = layers[0].covariance, sets_of(layers[0].inducing)[0].dtype
        shapes = (
            " + ".join(str(np.shape(one)) for one in sets_of(layer.inducing)) for layer in layers
        )
        sizes = {"inducing inputs": ", then ".join(shapes)}
        if isinstance(model, fs.MultiGP):
            sizes["mixing"] = [np.shape(W) for W in matrices(model.mixing)]
        if isinstance(covariance, fs.covariances.Convolutional):
            sizes["images, patches and stride"], covariance = (
                covariance.geometry,
                covariance.patch_covariance,
            )
    if isinstance(covariance, fs.covariances.Sum):
        sizes["periods"] = [
            float(value)
            for path, _, value in fs.records.leaves(covariance)
            if path.endswith("period")
        ]
    return {
        "method": type(model).__name__,
        "posterior": type(getattr(layers[0] if layers else model, "posterior", None)).__name__,
        "covariance": type(covariance).__name__,
        "likelihood": type(getattr(model, "likelihood", None)).__name__,
        **sizes,
        "dtype": str(dtype),
        "lengthscales": np.shape(first_part(covariance).lengthscales),
        "seed": seed,
    }


def _other_data(then, now):
    """Describe how the data differ from those of the checkpoint."""
    differences = []
    for name in ("inputs", "target", "second column", "classes"):
        if then[name] != now[name]:
            old, new = (
                shown(d[name]) if isinstance(d[name], list) else d[name] for d in (then, now)
            )
            differences.append(f"{name} {old} then, {new} now")
    if then["held out"] != now["held out"]:
        same = then["split"] == now["split"]
        differences.append(
            "other rows held out" if same else f"held out: {then['split']} then, {now['split']} now"
        )
    if not differences:
        old, new = (Standardisation.from_json(d["standardisation"]) for d in (then, now))
        if not _near(old, new):
            differences.append("other means or scales of the training rows")
    return differences


def _near(a, b):
    pairs = (
        (a.x_mean, b.x_mean, a.x_scale),
        (a.x_scale, b.x_scale, a.x_scale),
        (a.y_mean, b.y_mean, a.y_scale),
        (a.y_scale, b.y_scale, a.y_scale),
    )
    return all(np.all(np.abs(np.subtract(u, v)) <= NEAR * np.asarray(size)) for u, v, size in pairs)
