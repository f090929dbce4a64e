"""The mean of a QSGP under ``nesterov``: rows that move between their gradients."""

import numpy as np

from ...optim.by_field import mover_of
from ...optim.nesterov import Nesterov
from ...records import leaf, record, replace
from ...records.typed import Array
from ...weight_space.bases.base import Weights
from ...weight_space.bases.samples import SparseRows
from ...weight_space.control_changes import moved_values
from ...weight_space.posterior import ChevronWeights

MEAN = "posterior.mean"


@record
class Coasting:
    """What a checkpoint holds beside the settled model, so that steps go on bit for bit.

    Parameters
    ----------
    position : (m,)
        The mean ahead, each row as of the step that ``NesterovState.seen`` says.
    at_points : (p,), optional
        Velocity of the mean at the points of the control.
    """

    position: Array = leaf()
    at_points: Array | None = leaf(default=None)


def coasting_by(optimiser, model, optimised):
    """Return ``(Nesterov, its state)`` that moves the mean, or ``(None, None)``."""
    if MEAN in optimiser.paths(model):
        part, state = mover_of(MEAN, optimiser, model, optimised)
        if isinstance(part, Nesterov):
            return part, state
    return None, None


def velocity_at_points(control, state):
    """Return the velocity of the mean at the points of a control, from that of all rows."""
    velocity = state.velocity.posterior.mean
    return control.basis.products(control.points, Weights(velocity[None]))[0][0]


def advanced(model, control, change, by=None, at_points=None):
    """Return ``(control, at_points)`` after a step.

    Parameters
    ----------
    change : ChevronWeights
        ``SparseRows`` that were added; of the mean its gradient times the step size, if ``by``.
    by : Nesterov, optional
        What has moved the mean.
    at_points : (p,), optional
        Velocity of the mean at the points.
    """
    checked, moved = moved_values(model, control, change)
    if by is None:
        values = checked.values if moved is None else checked.values + moved
        return replace(checked, values=values), at_points
    moved = np.zeros_like(checked.values) if moved is None else moved
    values = checked.values + moved
    values[0], at_points = by.moved(checked.values[0], at_points, moved[0])
    return replace(checked, values=values), at_points


def with_gradient(change, bar, step_size):
    """Return the change with that of the mean replaced by its gradient times the step size."""
    rows = SparseRows(bar.rows, (step_size * bar.values).astype(bar.values.dtype))
    return ChevronWeights(rows, change.columns, None)
