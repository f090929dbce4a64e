"""Checks of arrays: their type, shape and entries; inputs, their columns, and targets."""

import math
import numbers
from typing import Any

import numpy as np

from ..errors import BadEntry
from ..records import is_record
from ..runtime import deferred_checks
from ..runtime.dispatch import check_gpu
from .components import advice_for_class
from .scalars import as_float


def as_array(name: str, value: Any) -> np.ndarray:
    """Convert a list or array to an array of real numbers, without a copy if possible.

    Text, objects, complex and masked values are rejected.
    """
    if type(value) is np.ndarray:
        array = value
    elif hasattr(value, "__cuda_array_interface__"):
        check_gpu(name, value)
        array = value
    else:
        refuse_masked(name, value)
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(
                f"`{name}` cannot be converted to an array ({error}); give rows of equal length"
            ) from None
    if array.dtype.kind not in "fiub":
        if isinstance(value, type):
            raise TypeError(
                f"`{name}` must hold real numbers, got {value.__name__}, a"
                f" class{advice_for_class(value)}"
            )
        parts = value if isinstance(value, (tuple, list)) else ()
        of_records = any(is_record(part) for part in parts)
        for number, part in enumerate(parts):
            if isinstance(part, type):
                raise TypeError(
                    f"`{name}.{number}` is {part.__name__}, a class{advice_for_class(part)}"
                )
            if of_records and not is_record(part):
                raise TypeError(
                    f"`{name}.{number}` must be a record, as other parts are, got {part!r:.80}"
                )
        where = (
            f" ({_first_text(value, array)})" if array.dtype == object and array.ndim == 2 else ""
        )
        if is_record(value):
            numbers = ", ".join(value._leaf_names)
            raise TypeError(
                f"`{name}` must hold real numbers, got a {type(value).__name__}; give its {numbers}"
            )
        raise TypeError(
            f"`{name}` must hold real numbers, got dtype {array.dtype}{where}; convert it to"
            " float64 or float32"
        )
    return array


def refuse_masked(name, value):
    """Reject a masked array or a list of them: ``asarray`` would drop the mask."""
    if any(
        isinstance(part, np.ma.MaskedArray)
        for part in (value if isinstance(value, (list, tuple)) else (value,))
    ):
        raise TypeError(f"`{name}` is a masked array; fill or drop the masked entries first")


def _first_text(value, array):
    """Describe the first column that holds something else than real numbers, by its name."""
    for j, name in enumerate(getattr(value, "columns", range(array.shape[1]))):
        other = [cell for cell in array[:, j] if not isinstance(cell, numbers.Real)]
        if other:
            return f"column {name!r} holds {other[0]!r}"
    return "of Python numbers"


def finite(name, array):
    """Reject NaN and infinity."""
    if isinstance(array, int):
        array = as_float(array)
    if not (math.isfinite(array) if isinstance(array, float) else all_finite(array)):
        array = on_host(array)
        bad = tuple(np.argwhere(~np.isfinite(array))[0])
        uncounted = ", or give them weight 0 in `weights`" if name in ("Y", "y") else " first"
        what, todo = f"contains {np.asarray(array)[bad]}", "; remove or impute such entries"
        raise BadEntry(name, what, bad, todo + uncounted)


def all_finite(array):
    return (
        _all(np.isfinite(array))
        if isinstance(array, (np.ndarray, np.generic))
        else deferred_checks.all_within(array)
    )


def _all(conditions):
    # takes half the time of the method ``all`` for small arrays
    return np.count_nonzero(conditions) == conditions.size


def positive(name, array, advice="; give the number itself, not its logarithm"):
    if not (array > 0 if isinstance(array, (float, int)) else _all_positive(array)):
        least = np.min(on_host(array))
        raise ValueError(f"`{name}` must be positive, got {least:g}{advice}")


def _all_positive(array):
    if isinstance(array, (np.ndarray, np.generic)):
        return _all(array > 0)
    return deferred_checks.all_within(
        array, np.finfo(array.dtype).smallest_subnormal if array.dtype.kind == "f" else 1
    )


def on_host(array):
    """Copy an array from a device to the host, for messages; others are returned as they are."""
    return array.get() if hasattr(array, "__cuda_array_interface__") else array


def inputs(name: str, X: Any, values: bool = True) -> np.ndarray:
    """Check inputs (N, D), N > 0; without ``values`` NaN and infinity are not looked for."""
    if (X := as_array(name, X)).ndim != 2:
        hint = (
            f"; for {X.shape[0]} points with one input use {name}[:, None]" if X.ndim == 1 else ""
        )
        raise ValueError(f"`{name}` must have shape (N, D), got {X.shape}{hint}")
    if X.shape[0] == 0:
        hint = " (kl_term_and_grad computes only the KL term)" if name == "X" else ""
        raise ValueError(
            f"`{name}` is an empty batch, shape {X.shape}; give at least one row{hint}"
        )
    if values:
        finite(name, X)
    return X


def columns(X, D, name="X", owner="`inducing`"):
    """Reject inputs whose number of columns differs from D, that of ``owner``."""
    if X.shape[1] != D:
        raise ValueError(
            f"`{name}` has {X.shape[1]} columns where {owner} has {D}; both need the same inputs"
        )


def codes(covariance, X, name="X"):
    """Reject inputs whose codes are not whole numbers 0 ... C - 1.

    ``covariance.code_columns`` names their columns.
    """
    for column, levels in covariance.code_columns(X.shape[1]).items():
        x = X[:, column]
        bad = (x < 0) | (x != np.rint(x))
        if levels is not None:
            bad = bad | (x >= levels)
        if not deferred_checks.none(bad):
            row = int(np.argwhere(on_host(bad))[0, 0])
            allowed = "0, 1, 2, ..." if levels is None else f"0 ... {levels - 1}"
            mend = (
                "start from rows of the data, as kmeans(X, M, covariance=...) does"
                if "inducing" in name
                else "number the categories"
            )
            raise BadEntry(
                name,
                f"contains {float(x[row]):g} in a column of codes",
                (row, column),
                f"; these must be whole numbers {allowed}: {mend}",
            )


def square(name, array):
    """Reject an array that is neither a square matrix nor a batch of square matrices."""
    shape = np.shape(array)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"`{name}` must have shape (..., M, M), got {shape}")


def outputs_of(likelihood, axes, name="posterior"):
    """Return the leading axes of targets for those of the latent functions.

    Parameters
    ----------
    likelihood : Likelihood
        With K = ``latents_per_output``.
    axes : tuple of int
        Leading axes of the fields of ``name``.
    name : str
        The field of the model that holds them, for messages.

    Returns
    -------
    tuple of int
        ``axes`` for K = 1; else () for (K,), and (P,) for (K P,).

    Raises
    ------
    ValueError
        The number of latent functions is no multiple of K.
    TypeError
        A likelihood of classes has K > 1.

    Examples
    --------
    >>> likelihood = fs.likelihoods.HeteroskedasticGaussian()
    >>> outputs_of(likelihood, (2,)), outputs_of(likelihood, (6,))
    ((), (3,))
    """
    K = likelihood.latents_per_output
    if K == 1:
        return axes
    kind = type(likelihood).__name__
    if likelihood.num_latent is not None:
        raise TypeError(
            f"{kind} sets `num_latent`, for integer labels, and `latents_per_output` = {K}, for"
            " numbers; give one of them"
        )
    J = axes[0] if len(axes) == 1 else 1 if axes == () else axes
    if len(axes) != 1 or axes[0] % K:
        raise ValueError(
            f"`{name}` holds {J} latent function{'s' * (J != 1)}, leading axes {axes} of its"
            f" fields, and a {kind} likelihood takes {K} per output: give leading axes ({K},) for"
            f" targets (N,), or ({K} P,) for (N, P)"
        )
    return () if axes[0] == K else (axes[0] // K,)


def num_columns(likelihood: Any) -> int:
    """Return the number of columns of a target: see ``Likelihood.target_columns``."""
    return len(getattr(likelihood, "target_columns", ("y",)))


def axes_of_targets(Y, likelihood):
    """Return the axes of outputs of targets (N,) or (N, P), or with a last axis of columns."""
    return Y.shape[1:] if num_columns(likelihood) == 1 else Y.shape[1:-1]


def one_column(Y, outputs, likelihood):
    """Drop an axis of one output for a posterior without an output axis and for class labels."""
    return (
        Y[:, 0]
        if axes_of_targets(Y, likelihood) == (1,)
        and (outputs == () or likelihood.num_latent is not None)
        else Y
    )


def all_columns(name, Y, likelihood):
    """Reject targets without the columns that the likelihood reads."""
    C = num_columns(likelihood)
    if C > 1 and (Y.ndim not in (2, 3) or Y.shape[-1] != C):
        N, names = len(Y), likelihood.target_columns
        raise ValueError(
            f"`{name}` has shape {Y.shape}, and a {type(likelihood).__name__} likelihood reads the"
            f" columns {', '.join(names)}, in this order: give {name} ({N}, {C}), or ({N}, P, {C})"
            " for P outputs"
        )


def targets(Y, N, outputs, likelihood, dtype, names=("X", "Y")):
    """Check targets against batch, outputs and likelihood; return them as (N,) or (P, N).

    Targets of C > 1 columns, (N, C) or (N, P, C), are returned as (C, N) or (C, P, N).
    """
    inputs_name, name = names
    axes, outputs = outputs, outputs_of(likelihood, outputs)
    Y = one_column(Y, outputs, likelihood)
    if Y.shape[:1] != (N,):
        raise ValueError(
            f"`{name}` must have one row for each of the {N} rows of `{inputs_name}`, got shape"
            f" {Y.shape}"
        )
    all_columns(name, Y, likelihood)
    of_targets, latent = axes_of_targets(Y, likelihood), likelihood.num_latent
    if latent is not None:
        if outputs != (latent,):
            raise ValueError(
                f"the fields of `posterior` have leading axes {outputs}, "
                f"but {type(likelihood).__name__} with {latent} classes needs ({latent},)"
            )
        if of_targets:
            raise ValueError(
                f"`{name}` must hold one integer label per row, shape ({N},), got {Y.shape}"
            )
    elif of_targets != outputs:
        K, C = likelihood.latents_per_output, num_columns(likelihood)
        one, several = ("M", "P, M") if K == 1 else (f"{K}, M", f"{K} P, M")
        row, rows = ("N,", "N, P") if C == 1 else (f"N, {C}", f"N, P, {C}")
        raise ValueError(
            f"`{name}` has shape {Y.shape} and the fields of `posterior` have leading axes {axes}:"
            f" use {name} ({row}) with mean ({one}{',' * (K == 1)}), or {name} ({rows}) with mean"
            f" ({several})"
        )
    finite(name, Y)
    if Y.ndim > 1:
        Y = np.ascontiguousarray(Y.T, like=Y)
    try:
        likelihood.check_targets(Y, name)
    except BadEntry as error:  # the index is in the layout of likelihoods
        error.index = error.index[::-1]
        raise
    return Y if latent is not None else Y.astype(dtype, copy=False)


def row_numbers(name, rows, N):
    """Return the numbers of some of N rows as an array; ``ValueError`` for repeats."""
    rows = as_array(name, rows)
    if (
        rows.ndim != 1
        or rows.dtype.kind not in "iu"
        or rows.size == 0
        or rows.min() < 0
        or rows.max() >= N
    ):
        raise ValueError(
            f"`{name}` must hold row numbers, 0 to {N - 1}, in an array (r,), got {rows!r:.80}"
        )
    values, counts = np.unique(rows, return_counts=True)
    if len(values) < len(rows):
        raise ValueError(f"`{name}` has row {values[counts > 1][0]} more than once; give each once")
    return rows
