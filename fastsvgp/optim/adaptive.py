"""AdaGrad for gradients of some rows only: a step costs as much as these rows."""

import math
from dataclasses import dataclass

import numpy as np

from .. import check, kernels
from ..errors import names_options
from ..qsgp.bases.samples import SparseRows, all_below
from ..records import leaves, record, replace_leaves, static
from ..records.typed import Names, Record, RecordT
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from .base import Fixing
from .flat import as_names
from .schedules import Schedule, Size, as_schedule


@record
class AdaGradState:
    """State: ``count`` steps, ``sums`` of squared gradients (like the model), and the schedule."""

    count: int = static()
    sums: Record
    schedule: tuple[Record, ...] = ()


@dataclass(frozen=True)
class AdaGrad(Fixing):
    """Settings of AdaGrad; ``adagrad`` makes them."""

    step_size: Schedule
    epsilon: float
    fixed: tuple[str, ...]

    def step_size_at(self, state: AdaGradState) -> float:
        """Return the step size of the next step."""
        return self.step_size.size(state.count, state.schedule[0])

    def init(self, model: Record) -> AdaGradState:
        """Return the state before the first step: one zero per free parameter.

        ``ValueError`` if a named field does not exist.
        """
        free = set(self.paths(model))
        values = {path: _zeros(value) if path in free else None for path, _, value in leaves(model)}
        schedule = (self.step_size.init(),)
        return AdaGradState(sums=replace_leaves(model, values), schedule=schedule, count=0)

    def step(
        self, model: RecordT, grad: RecordT, state: AdaGradState, value: float | None = None
    ) -> tuple[RecordT, AdaGradState]:
        """Take one step uphill, in place.

        The arrays of ``state`` are overwritten, and from the second step on those of ``model`` too.

        Parameters
        ----------
        model : record
            From the second step on, the result of the step before, or a model whose arrays nothing
            else uses.
        grad : record of the same type
            Uphill, in natural space; leaves are arrays or ``SparseRows``. Fixed fields may be None.
        state : AdaGradState
        value : float, optional
            The objective, for schedules that read it.

        Returns
        -------
        model, state

        Raises
        ------
        ValueError
            The gradient of a free field is None.
        Diverged
            The gradient has NaN or infinity; a ``ValueError``. Nothing was written.
        """
        size, free = self.step_size_at(state), set(self.paths(model))
        bars = {path: bar for path, _, bar in leaves(grad)}
        sums = {path: array for path, _, array in leaves(state.sums)}
        values, totals = {}, {}
        for path, kind, array, rows, bar in _moves(
            [leaf for leaf in leaves(model) if leaf[0] in free], bars, state.count
        ):
            if kind == "unit":
                raise TypeError(
                    f"adagrad has no steps for field {path!r}, between 0 and 1: name it in `fixed`"
                )
            device_like, fresh = _device_like(array), state.count == 0 or np.ndim(array) == 0
            whole = (
                np.array(array, _dtype(array), order="C", like=device_like)
                if fresh
                else np.ascontiguousarray(array, like=device_like)
            )
            total = (
                np.array(sums[path], like=device_like)
                if whole.ndim == 0
                else np.ascontiguousarray(sums[path], like=device_like)
            )
            if bar.size:
                lines, sums_of_lines = (a.reshape(-1, bar.shape[1]) for a in (whole, total))
                positive = kind == "positive"
                period = whole.shape[-2] if kind in ("tril", "columns") else 0
                sizes = {"step_size": size, "epsilon": self.epsilon}
                kernels.adagrad_rows(
                    lines, sums_of_lines, rows, bar, **sizes, positive=positive, period=period
                )
            values[path], totals[path] = (whole, total) if whole.ndim else (whole[()], total[()])
        schedule = (self.step_size.observe(state.schedule[0], value),)
        return replace_leaves(model, values), AdaGradState(
            sums=replace_leaves(state.sums, totals), schedule=schedule, count=state.count + 1
        )


@names_options
def adagrad(step_size: Size = 0.1, epsilon: float = 1e-10, fixed: Names = ()) -> AdaGrad:
    """AdaGrad (Duchi, Hazan and Singer 2011), uphill and in place, for dense and sparse gradients.

    Parameters
    ----------
    step_size : float, schedule, or function ``count -> step size``
        Distance that a coordinate moves in its first step; 0.1 falling to 0.02 suits 10^5 random
        Fourier features.
    epsilon : float
        Number added to the root of the sums.
    fixed : str or sequence of str
        Dotted paths of fields that are not moved.

    Returns
    -------
    AdaGrad
        ``init(model) -> state`` and ``step(model, grad, state, value=None) -> (model, state)``.
        Positive numbers, including the diagonals of factors, move in the coordinates log x.
        Gradients are arrays or ``SparseRows``.

    Notes
    -----
    O(rows) per step; the first step copies the model. The state has one number per parameter, in
    the dtype of the parameter.

    Examples
    --------
    >>> optimiser = fs.optim.adagrad(0.1)
    >>> trained, info = fs.fit(weights, X, Y, steps=3, optimiser=optimiser, rng=0)
    >>> info.steps
    3
    """
    epsilon = check.scalar("epsilon", epsilon)
    if not epsilon > 0:
        raise ValueError(f"adagrad: `epsilon` must be positive, got {epsilon}")
    return AdaGrad(as_schedule(step_size), epsilon, as_names(fixed))


def _dtype(value):
    """Return the dtype of a leaf, float64 for Python numbers."""
    dtype = getattr(value, "dtype", np.dtype(np.float64))
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _device_like(value):
    """Return a leaf that is on a device, or None."""
    return value if deferred_checks.on_device(value) else None


def _zeros(value):
    """Return zeros like a leaf."""
    return np.zeros(np.shape(value), _dtype(value), like=_device_like(value))


@public_call()
def _moves(found, bars, count):
    """Return ``[(path, kind, array, rows, bar (r, k))]`` of the leaves ``found``.

    On a device all checks are read in one synchronisation.
    """
    deferred_checks.defer(*(array for _, _, array in found))
    moves = []
    for path, kind, array in found:
        bar = bars.get(path)
        if bar is None:
            raise ValueError(
                f"field {path!r} is free here, but None came for it: fix it, or request its"
                " gradient in `wrt=`"
            )
        rows, bar = (bar.rows, bar.values) if isinstance(bar, SparseRows) else (None, bar)
        if not _all_finite(bar):
            what = f"the gradient has NaN or infinity in {path!r} at step {count + 1}"
            raise check.diverged_error(what, step=count + 1)
        moves.append((path, kind, array, *_lines(path, array, rows, bar)))
    if checks := deferred_checks.pending():
        checks.read(0.0)
    return moves


def _all_finite(bar):
    if deferred_checks.on_device(bar):
        return deferred_checks.all_within(bar)
    return bool(np.isfinite(np.sum(bar))) or bool(np.isfinite(bar).all())


def _lines(path, array, rows, bar):
    """Return ``(rows, bar (r, k))``, checked: lines of an array (..., k), and their gradient."""
    shape, dtype = np.shape(array), _dtype(array)
    if rows is not None:
        if len(rows) and not all_below(rows, shape[0]):
            named = f"rows {int(rows.min())} to {int(rows.max())}"
            raise IndexError(
                f"the gradient in {path!r} names {named}, but there are {shape[0]}, from 0"
            )
        shape = (len(rows), *shape[1:])
    one_device((path, array), (f"gradient of {path}", bar))
    bar = np.ascontiguousarray(np.broadcast_to(bar, shape), dtype, like=_device_like(bar))
    columns = shape[-1] if len(shape) > 1 else 1
    bar = bar.reshape(math.prod(shape) // max(1, columns), columns)
    return np.arange(len(bar), like=bar) if rows is None else rows, bar
