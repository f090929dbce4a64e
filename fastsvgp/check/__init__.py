"""Argument checks of the public functions: types, shapes, dtypes, values.

Inner functions trust their arguments. Each message names the argument, the value received, and the
remedy.
"""

from ..records.dtypes import DEFAULT_JITTER, common_dtype
from ..runtime.dispatch import backend_of, one_device
from .arrays import (
    all_columns,
    all_finite,
    as_array,
    axes_of_targets,
    codes,
    columns,
    finite,
    inputs,
    num_columns,
    one_column,
    outputs_of,
    positive,
    square,
    targets,
    unmasked,
)
from .components import PARTIAL, in_place_of_class, parts
from .divergence import diverged
from .models import (
    ABSENT,
    defer,
    deferred,
    drawn,
    inducing,
    inducing_for,
    names,
    natural,
    parameters,
    random_names,
    report_clamped,
    result,
    svgp,
)
from .scalars import data_scale, flag, generator, jitter_amount, mapping, scalar, whole

__all__ = [
    "ABSENT",
    "DEFAULT_JITTER",
    "PARTIAL",
    "all_columns",
    "all_finite",
    "as_array",
    "axes_of_targets",
    "backend_of",
    "codes",
    "columns",
    "common_dtype",
    "data_scale",
    "defer",
    "deferred",
    "diverged",
    "drawn",
    "finite",
    "in_place_of_class",
    "flag",
    "generator",
    "inducing",
    "inducing_for",
    "inputs",
    "jitter_amount",
    "mapping",
    "names",
    "natural",
    "num_columns",
    "one_column",
    "one_device",
    "outputs_of",
    "parameters",
    "parts",
    "positive",
    "random_names",
    "report_clamped",
    "result",
    "scalar",
    "square",
    "svgp",
    "targets",
    "unmasked",
    "whole",
]
