"""AdaGrad for gradients that can have only some rows: the cost of a step is that of the rows."""

from dataclasses import dataclass

import numpy as np

from .. import check, kernels
from ..errors import names_options
from ..records import leaves, record, replaced, static
from ..records.typed import Names, Record, RecordT
from .base import Fixing
from .flat import as_names
from .row_moves import dtype_of, home_of, moves_of, zeros
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
        values = {path: zeros(value) if path in free else None for path, _, value in leaves(model)}
        schedule = (self.step_size.init(),)
        return AdaGradState(sums=replaced(model, values), schedule=schedule, count=0)

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
        for path, kind, array, rows, bar in moves_of(
            [leaf for leaf in leaves(model) if leaf[0] in free], bars, state.count
        ):
            if kind == "unit":
                raise TypeError(
                    f"adagrad has no steps for field {path!r}, between 0 and 1: name it in `fixed`"
                )
            home, fresh = home_of(array), state.count == 0 or np.ndim(array) == 0
            whole = (
                np.array(array, dtype_of(array), order="C", like=home)
                if fresh
                else np.ascontiguousarray(array, like=home)
            )
            total = (
                np.array(sums[path], like=home)
                if whole.ndim == 0
                else np.ascontiguousarray(sums[path], like=home)
            )
            if bar.size:
                lines, sums_of_lines = (a.reshape(-1, bar.shape[1]) for a in (whole, total))
                positive, period = (
                    kind == "positive",
                    (whole.shape[-2] if kind in ("tril", "columns") else 0),
                )
                sizes = {"step_size": size, "epsilon": self.epsilon}
                kernels.adagrad_rows(
                    lines, sums_of_lines, rows, bar, **sizes, positive=positive, period=period
                )
            values[path], totals[path] = (whole, total) if whole.ndim else (whole[()], total[()])
        schedule = (self.step_size.observe(state.schedule[0], value),)
        return replaced(model, values), AdaGradState(
            sums=replaced(state.sums, totals), schedule=schedule, count=state.count + 1
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
    >>> optimiser = fs.adagrad(0.1)
    >>> trained, info = fs.fit(weights, X, Y, steps=3, optimiser=optimiser, rng=0)
    >>> info.steps
    3
    """
    epsilon = check.scalar("epsilon", epsilon)
    if not epsilon > 0:
        raise ValueError(f"adagrad: `epsilon` must be positive, got {epsilon}")
    return AdaGrad(as_schedule(step_size), epsilon, as_names(fixed))
