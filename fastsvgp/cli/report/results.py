"""The content of metrics.json, except scores."""

import shlex
from dataclasses import asdict

import numpy as np

from ..info import version
from . import parameters

RECORDED = (
    "covariance", "ard", "orthogonal", "sampled", "latents", "neighbours", "layers", "width",
    "patch_shape", "image_shape", "stride", "features", "dense_columns", "basis_batch",
    "control_points", "learn_hyperparameters", "e_steps", "m_steps", "dtype", "no_extra_noise",
)  # fmt: skip


def facts_of(task, settings, fitted, title, seconds, interrupted, outcome):
    """Return the facts about a fit with any method or a search."""
    return {
        "fastsvgp": version("fastsvgp"),
        "command": shlex.join(["fastsvgp", *settings.words]),
        "data": title,
        "rows": len(task.y),
        "train_rows": int((~task.test).sum()),
        "test_rows": int(task.test.sum()),
        "rows_without_target": 0 if task.untargeted is None else task.untargeted.num_rows,
        "split": task.split,
        "holds": task.holds,
        "inputs": task.input_names,
        "missing": settings.missing,
        "na": task.columns.get("na", []),
        "constant_inputs": constant_inputs(task),
        "encoding": task.encoding and task.encoding.to_json(),
        "target": task.target_name,
        "second_column": task.second and task.second.layout,
        "likelihood": task.likelihood,
        "likelihood_reason": task.reason,
        "classes": task.classes,
        "seed": settings.seed,
        "seconds": round(seconds, 3),
        "interrupted": interrupted,
        "outcome": asdict(outcome),
        "parameters": parameters(fitted.model),
    }


def results_of(task, settings, trained, seconds, fitted, title, outcome):
    """Return the facts about a fit with one method and its training, by their names in the file."""
    interrupted, found = trained.interrupted, trained.certificate
    return facts_of(task, settings, fitted, title, seconds, interrupted, outcome) | {
        "method": settings.method,
        "method_reason": settings.choice.reason,
        "periodic": settings.periodic
        and [[task.input_names[position], period] for position, period in settings.periodic],
        "inducing": (settings.inducing if found is None else len(fitted.model.inducing)) or None,
        **{name: getattr(settings, name) for name in RECORDED},
        "steps": len(trained.values),
        "first_step_seconds": round(trained.first_step, 3),
        "elbo": trained.elbo,
        "certificate": found and asdict(found) | {"per_row": found.per_row},
    }


def constant_inputs(task):
    """Return the names of inputs that are constant over the training rows."""
    return [
        name
        for name, span in zip(task.input_names, np.ptp(task.X[~task.test], axis=0), strict=True)
        if span == 0
    ]
