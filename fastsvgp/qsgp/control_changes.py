"""The values of a control after changes of the posterior: Phi_P times the rows that changed."""

from typing import Any, TypeVar

import numpy as np

from ..records import replace
from ..records.typed import Record
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from .bases.base import BasisWeights
from .bases.samples import SparseRows
from .control_variates import Control, check_kind
from .model import QSGP, check_parts, lightly_checked
from .posterior import ChevronWeights

ControlT = TypeVar("ControlT", bound=Control)


@public_call(QSGP, checks=False, blas_threads=False)
def update_control_variate(model: Record, control: ControlT, change: Record) -> ControlT:
    """Return the control after a change of the posterior.

    Parameters
    ----------
    model : QSGP
        With the basis of the control; its hyperparameters may have changed.
    control : KrigedControl or PairedControl
        With a running coefficient, ``info.control`` of the step.
    change : ChevronWeights
        ``SparseRows`` that were added to ``mean`` and ``columns``, None for no change. ``diagonal``
        is not read.

    Returns
    -------
    KrigedControl or PairedControl

    Raises
    ------
    ValueError, TypeError

    Notes
    -----
    2 (1 + k) p s flops for s functions, and their features. On a device, which finds no pairs among
    the rows, those of both functions of each row's unit; there values that are not finite are
    reported by the next bound, without a synchronisation here. Source: Evans and Nair 2018,
    Proposition 3.

    Examples
    --------
    >>> control = fs.qsgp.kriging_control_variate(weights, X[::4])
    >>> rows = fs.qsgp.SparseRows(np.array([3]), np.array([0.5]))
    >>> change = fs.qsgp.ChevronWeights(rows, None, None)
    >>> fs.qsgp.update_control_variate(weights, control, change).values.shape
    (2, 10)
    """
    check_kind(control)
    check_parts(model)
    given: Any = model
    with deferred_checks.deferred(given.posterior.mean):
        model, dtype = lightly_checked(model)
        model.posterior.check_size(model.basis.num_functions())
        checked = control.check_against(model, dtype)
    basis, k = checked.basis, model.posterior.columns.shape[1]
    parts = _check_change(change, k)
    if not parts:
        return control
    one_device(
        ("control.values", checked.values),
        *((f"change.{name}.rows", part.rows) for name, part in parts.items()),
    )
    if deferred_checks.on_device(checked.values):
        moved = _compute_change(parts, basis, checked.points, k)
        return replace(checked, values=checked.values + moved)
    units = _units([part.rows for part in parts.values()], basis.width)
    functions = basis.functions(units)
    if functions[0] < 0 or functions[-1] >= basis.num_functions():
        raise ValueError(
            f"`change` names functions beyond the {basis.num_functions()} of the basis"
        )
    W = np.zeros((1 + k, len(functions)), dtype)
    if "mean" in parts:
        W[0, np.searchsorted(functions, parts["mean"].rows)] = parts["mean"].values
    if "columns" in parts:
        rows = parts["columns"].rows
        W[1:, np.searchsorted(functions, rows)] = np.where(
            rows[:, None] >= np.arange(k), parts["columns"].values, 0
        ).T
    moved, _ = basis.products(checked.points, BasisWeights(W, units=units))
    return replace(checked, values=checked.values + moved)


def _check_change(change, k):
    """Return the parts of a change that are not empty, by name."""
    if not isinstance(change, ChevronWeights):
        raise TypeError(
            "`change` must be a fastsvgp.qsgp.ChevronWeights of SparseRows, got"
            f" {type(change).__name__}"
        )
    parts = {
        name: getattr(change, name)
        for name in ("mean", "columns")
        if getattr(change, name) is not None
    }
    for name, part in parts.items():
        if not isinstance(part, SparseRows):
            raise TypeError(
                f"`change.{name}` must be a fastsvgp.qsgp.SparseRows or None, got"
                f" {type(part).__name__}"
            )
        shape = (len(part.rows),) if name == "mean" else (len(part.rows), k)
        if np.shape(part.values) != shape:
            raise ValueError(
                f"`change.{name}` must have values {shape}, one for each of its rows, got"
                f" {np.shape(part.values)}"
            )
        if not deferred_checks.on_device(part.rows) and not (np.diff(part.rows) > 0).all():
            raise ValueError(
                f"`change.{name}` must have rows that increase, each once, as those of a"
                " gradient do"
            )
    return {name: part for name, part in parts.items() if len(part.rows)}


def _compute_change(parts, basis, points, k):
    """Return the change of the values at points (1 + k, p), on a device.

    One unit per row; a repeated row does not count.
    """
    moved = np.zeros((1 + k, len(points)), points.dtype, like=points)
    for name, part in parts.items():
        rows = part.rows
        changes = part.values[None] if name == "mean" else part.values.T
        if name == "columns":
            changes = np.where(
                rows >= np.arange(k, like=rows)[:, None], changes, changes.dtype.type(0)
            )
        counts = rows[:, None] % basis.width == np.arange(basis.width, like=rows)
        counts[1:] *= (rows[1:] != rows[:-1])[:, None]
        W = (changes[:, :, None] * counts).reshape(len(changes), -1)
        at = slice(0, 1) if name == "mean" else slice(1, None)
        moved[at] = basis.products(points, BasisWeights(W, units=rows // basis.width))[0]
    return moved


def _units(lists, width):
    """Return the distinct units of increasing numbers of functions."""
    found = []
    for rows in lists:
        units = rows // width
        found.append(units[np.append(True, units[1:] != units[:-1])])
    same = all(np.array_equal(units, found[0]) for units in found)
    return found[0] if same else np.unique(np.concatenate(found))
